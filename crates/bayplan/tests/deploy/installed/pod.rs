//! The pod of a Deployment as a process of this machine: its arguments, its files and its service account's token.

use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::Instant;

use bayplan_client::{Client, Config};
use bayplan_testkit::{binary, free_ports};
use serde_json::{Value, json};

use super::{GLANCE, PATIENCE, Target, of_kind};

/// A pod that runs.
pub(crate) struct PodProcess {
    child: Child,
    /// Where it serves health and metrics, instead of the port that the pod names.
    pub(crate) port: u16,
}

impl PodProcess {
    /// Starts the pod of the Deployment among these objects, which the server has. It asks the API server that
    /// `cluster` describes as a kubeconfig does, and keeps its files in `folder`.
    pub(crate) async fn start(target: &Target, objects: &[Value], cluster: &Value, folder: &Path) -> PodProcess {
        let deployment = of_kind(objects, "Deployment");
        let spec = &deployment["spec"]["template"]["spec"];
        let namespace = deployment["metadata"]["namespace"].as_str().unwrap();
        let token = target.token(namespace, spec["serviceAccountName"].as_str().unwrap()).await;
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        // In place of the pod's own files below /var/run/secrets, which a process finds without being told.
        let credentials = folder.join("kubeconfig");
        std::fs::write(&credentials, kubeconfig.to_string()).unwrap();
        write_volumes(objects, spec, folder);
        let [port] = free_ports();
        let container = &spec["containers"][0];
        let mut command = Command::new(binary(env!("CARGO_BIN_EXE_bayplan")));
        for argument in container["args"].as_array().unwrap() {
            command.arg(here(argument.as_str().unwrap(), container, folder, port));
        }
        if container["args"][0] == "scheduler" {
            command.arg("--bind-address=127.0.0.1");
        }
        let log = std::fs::File::create(folder.join("log")).unwrap();
        command.env("KUBECONFIG", &credentials).env("HOSTNAME", "pod").env_remove("RUST_LOG");
        let child = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        PodProcess { child, port }
    }

    /// Whether it answers its probe of readiness.
    pub(crate) async fn is_ready(&self) -> bool {
        let mut config = Config::new(format!("https://127.0.0.1:{}", self.port).parse().unwrap());
        config.tls.insecure = true;
        Client::from_config(&config).unwrap().get("/readyz", "*/*").await.is_ok()
    }

    /// Ends it as a kubelet does.
    pub(crate) fn stop(mut self) -> ExitStatus {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the pod does not end");
            std::thread::sleep(GLANCE);
        }
    }
}

impl Drop for PodProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes the files of the pod's ConfigMaps, and makes its empty folders.
fn write_volumes(objects: &[Value], spec: &Value, folder: &Path) {
    for volume in spec["volumes"].as_array().unwrap() {
        let path = folder.join(volume["name"].as_str().unwrap());
        std::fs::create_dir_all(&path).unwrap();
        let Some(name) = volume["configMap"]["name"].as_str() else { continue };
        let is_it = |object: &&Value| object["kind"] == "ConfigMap" && object["metadata"]["name"] == name;
        let map = objects.iter().find(is_it).expect("the manifest has the ConfigMap that the pod mounts");
        for (file, text) in map["data"].as_object().unwrap() {
            std::fs::write(path.join(file), text.as_str().unwrap()).unwrap();
        }
    }
}

/// An argument with this machine's paths and port.
fn here(argument: &str, container: &Value, folder: &Path, port: u16) -> String {
    let mut argument = argument.to_owned();
    for mount in container["volumeMounts"].as_array().unwrap() {
        let path = folder.join(mount["name"].as_str().unwrap());
        argument = argument.replace(mount["mountPath"].as_str().unwrap(), path.to_str().unwrap());
    }
    let served = container["ports"][0]["containerPort"].to_string();
    match argument.strip_suffix(&served) {
        Some(begin) => format!("{begin}{port}").replace("0.0.0.0", "127.0.0.1"),
        None => argument,
    }
}
