//! The configuration of a process in a pod: client-go's `rest.InClusterConfig`.

use std::path::{Path, PathBuf};

use super::{Config, Credentials, Error, parse_server, tls};

/// Where the kubelet puts a pod's service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// What a pod's environment says.
pub(super) struct Pod {
    host: Option<String>,
    port: Option<String>,
    service_account: PathBuf,
}

impl Pod {
    pub(super) fn of_process() -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Pod {
            host: variable("KUBERNETES_SERVICE_HOST"),
            port: variable("KUBERNETES_SERVICE_PORT"),
            service_account: Path::new(SERVICE_ACCOUNT).to_owned(),
        }
    }

    /// The configuration; `None` outside a pod.
    pub(super) fn config(&self) -> Result<Option<Config>, Error> {
        let (Some(host), Some(port)) = (&self.host, &self.port) else { return Ok(None) };
        let token = self.service_account.join("token");
        // A pod may have no service account: then this is no configuration, and nobody else's business.
        if !token.exists() {
            return Ok(None);
        }
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let mut config = Config::new(parse_server(&format!("https://{host}:{port}"))?);
        let path = self.service_account.join("ca.crt");
        let what = "the service account's certificate authority";
        let pem = std::fs::read(&path).map_err(|source| Error::File { what, path, source })?;
        config.tls.authorities = Some(tls::certificates(what, &pem)?);
        config.credentials = Credentials::TokenFile { path: token, fallback: None };
        Ok(Some(config))
    }
}

#[cfg(test)]
impl Pod {
    /// Not in a pod.
    pub(super) fn nowhere() -> Self {
        Pod { host: None, port: None, service_account: PathBuf::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_finds_its_server_and_its_token() {
        let folder = tempfile::tempdir().unwrap();
        let authority = rcgen::generate_simple_self_signed(["kubernetes".to_owned()]).unwrap().cert.pem();
        std::fs::write(folder.path().join("ca.crt"), authority).unwrap();
        let pod = |host: &str| Pod {
            host: Some(host.into()),
            port: Some("443".into()),
            service_account: folder.path().to_owned(),
        };
        assert!(Pod::nowhere().config().unwrap().is_none());
        assert!(pod("10.96.0.1").config().unwrap().is_none());
        std::fs::write(folder.path().join("token"), "secret").unwrap();
        for (host, server) in [("10.96.0.1", "https://10.96.0.1:443/"), ("fd00::1", "https://[fd00::1]:443/")] {
            let config = pod(host).config().unwrap().unwrap();
            assert_eq!(config.server, server);
            assert_eq!(config.tls.authorities.unwrap().len(), 1);
            assert!(
                matches!(config.credentials, Credentials::TokenFile { path, .. } if path == folder.path().join("token"))
            );
        }
    }
}
