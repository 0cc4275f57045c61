//! The existing cluster of the guide: an API server, controllers, two nodes, and a kube-scheduler that is a static pod.
//!
//! All of them are Bayplan's own parts, so that the guide runs where nothing of upstream is installed. The drop-in
//! tests do the same beside upstream's binaries.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::kubelet::{Kubelets, Part};
use crate::pattern::EVENTUALLY;

/// What a kubelet would have registered.
const NODES: &str = r#"
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: worker-1, labels: {kubernetes.io/hostname: worker-1}}, status: &status {
    capacity: {cpu: "4", memory: 16Gi, pods: "110"}, allocatable: {cpu: "4", memory: 16Gi, pods: "110"},
    conditions: [{type: Ready, status: "True", reason: KubeletReady}]}}
- {apiVersion: v1, kind: Node, metadata: {name: worker-2, labels: {kubernetes.io/hostname: worker-2}}, status: *status}
"#;

/// The static pod as kubeadm writes it.
const MANIFEST: &str = include_str!("../deploy/kubeadm/kube-scheduler.yaml");

pub(crate) struct Cluster {
    _kubelets: Kubelets,
    _parts: [Part; 2],
}

impl Cluster {
    /// Starts it with the administrator's kubeconfig in `~/.kube/config`, and kubeadm's files in `~/etc/kubernetes`.
    pub(crate) fn start(home: &Path, port: u16, scheduler_port: u16) -> Cluster {
        let kubeconfig = home.join(".kube/config");
        let (kubernetes, manifests) = (home.join("etc/kubernetes"), home.join("etc/kubernetes/manifests"));
        for folder in [kubeconfig.parent().unwrap(), &manifests] {
            std::fs::create_dir_all(folder).unwrap();
        }
        let admin = kubeconfig.to_str().unwrap();
        let server =
            Part::start(&["apiserver", "--in-memory", "--port", &port.to_string(), "--write-kubeconfig", admin]);
        eventually(|| kubectl(home, &["get", "--raw", "/readyz"], ""));
        let controllers = Part::start(&[
            "controller-manager",
            "--kubeconfig",
            admin,
            "--secure-port=0",
            // Nobody renews the leases of these nodes.
            "--node-monitor-grace-period=24h",
            "--node-startup-grace-period=24h",
        ]);
        eventually(|| kubectl(home, &["get", "serviceaccount", "default"], ""));
        assert!(kubectl(home, &["create", "-f", "-"], NODES));
        let text = std::fs::read_to_string(&kubeconfig).unwrap();
        let conf = kubernetes.join("scheduler.conf");
        std::fs::write(&conf, text.replace("\n  user:\n", "\n  user:\n    as: system:kube-scheduler\n")).unwrap();
        std::fs::write(manifests.join("kube-scheduler.yaml"), MANIFEST).unwrap();
        let kubelets = Kubelets::start(&kubernetes, &kubeconfig, scheduler_port);
        Cluster { _kubelets: kubelets, _parts: [server, controllers] }
    }
}

fn kubectl(home: &Path, arguments: &[&str], input: &str) -> bool {
    use std::io::Write;
    let mut command = Command::new("kubectl");
    command.args(arguments).env("HOME", home).env_remove("KUBECONFIG");
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    process.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    process.wait().unwrap().success()
}

fn eventually(mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < EVENTUALLY, "the cluster does not come up");
        std::thread::sleep(Duration::from_millis(100));
    }
}
