//! A scheduler or controller manager in a process of its own, beside the cluster's.

#![allow(dead_code, reason = "each of the tests that share it uses a part")]

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bayplan_client::Client;
use bayplan_testkit::{binary, free_ports};
use serde_json::json;

use super::Cluster;

/// Another process of this `bayplan`, which serves probes on a port of its own.
pub(crate) struct Component {
    process: Child,
    pub(crate) port: u16,
    probe: PathBuf,
}

impl Drop for Component {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Component {
    /// Starts one with these arguments, and waits until it answers its probe.
    pub(crate) async fn start(cluster: &Cluster, name: &str, arguments: &[&str]) -> Component {
        let [port] = free_ports();
        let process = Command::new(binary(env!("CARGO_BIN_EXE_bayplan")))
            .args([name, "--bind-address=127.0.0.1", &format!("--secure-port={port}"), "--kubeconfig"])
            .arg(cluster.kubeconfig())
            .args(arguments)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let probe = cluster.kubeconfig().with_file_name(format!("{name}.probe"));
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {
                "server": format!("https://127.0.0.1:{port}"), "insecure-skip-tls-verify": true,
            }}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        std::fs::write(&probe, kubeconfig.to_string()).unwrap();
        let component = Component { process, port, probe };
        for _ in 0..200 {
            if component.probe().await.is_ok() {
                return component;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{name} does not come up");
    }

    /// On a connection of its own, as a kubelet does it.
    pub(crate) async fn probe(&self) -> Result<(), String> {
        let client = Client::from_kubeconfig(Some(&self.probe), None).await.map_err(|error| error.to_string())?;
        client.get("/healthz", "*/*").await.map(drop).map_err(|status| status.message)
    }
}
