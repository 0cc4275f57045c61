//! Kubeconfigs in the forms in which clouds hand them out.

#![allow(dead_code, reason = "each of the tests that share it uses a part")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

/// Every kubeconfig has a file of its own.
static NUMBER: AtomicUsize = AtomicUsize::new(0);

pub(crate) struct Kubeconfig {
    cluster: Value,
    user: Value,
}

impl Kubeconfig {
    pub(crate) fn new(server: &str) -> Kubeconfig {
        Kubeconfig { cluster: json!({"server": server}), user: json!({}) }
    }

    pub(crate) fn authority(mut self, pem: &[u8]) -> Kubeconfig {
        self.cluster["certificate-authority-data"] = BASE64_STANDARD.encode(pem).into();
        self
    }

    pub(crate) fn token(mut self, token: &str) -> Kubeconfig {
        self.user["token"] = token.into();
        self
    }

    pub(crate) fn proxy(mut self, url: &str) -> Kubeconfig {
        self.cluster["proxy-url"] = url.into();
        self
    }

    pub(crate) fn server_name(mut self, name: &str) -> Kubeconfig {
        self.cluster["tls-server-name"] = name.into();
        self
    }

    /// A plugin that prints a token, as those of clouds do.
    pub(crate) fn exec(self, folder: &Path, token: &str) -> Kubeconfig {
        let version = "client.authentication.k8s.io/v1";
        let credential = json!({"apiVersion": version, "kind": "ExecCredential", "status": {"token": token}});
        let script = folder.join("cloud-login");
        std::fs::write(&script, format!("#!/bin/sh\n[ \"$1\" = get-token ] && echo '{credential}'\n")).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        self.exec_command(script.to_str().unwrap())
    }

    pub(crate) fn exec_command(mut self, command: &str) -> Kubeconfig {
        self.user["exec"] = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": command,
            "args": ["get-token"], "interactiveMode": "Never"});
        self
    }

    /// Writes the file and answers its path.
    pub(crate) fn write(self, folder: &Path) -> PathBuf {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": self.cluster}],
            "users": [{"name": "u", "user": self.user}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        let path = folder.join(format!("kubeconfig-{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
        std::fs::write(&path, config.to_string()).unwrap();
        path
    }
}
