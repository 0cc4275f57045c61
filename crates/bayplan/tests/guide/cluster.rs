//! The existing cluster of the guide: an API server, controllers, two nodes, and a kube-scheduler that is a static pod.
//!
//! All of them are Bayplan's own parts, so that the guide runs where nothing of upstream is installed. The drop-in
//! tests do the same beside upstream's binaries.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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

/// A process that ends with the test.
struct Part(Child);

impl Part {
    fn start(arguments: &[&str]) -> Part {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bayplan"));
        Part(command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Ends it as a kubelet does, so that it gives its lease back.
    fn stop(mut self) {
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) struct Cluster {
    kubelet: Option<JoinHandle<()>>,
    ending: Arc<AtomicBool>,
    _parts: [Part; 2],
}

impl Cluster {
    /// Starts it with the administrator's kubeconfig in `~/.kube/config`, and kubeadm's files in `~/etc/kubernetes`.
    pub(crate) fn start(home: &Path, port: u16) -> Cluster {
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
        std::fs::write(manifests.join("kube-scheduler.yaml"), "kind: Pod\n").unwrap();
        let ending = Arc::new(AtomicBool::new(false));
        let kubelet = std::thread::spawn({
            let ending = ending.clone();
            move || run_static_pod(&manifests.join("kube-scheduler.yaml"), &conf, &ending)
        });
        Cluster { kubelet: Some(kubelet), ending, _parts: [server, controllers] }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Relaxed);
        if let Some(kubelet) = self.kubelet.take() {
            let _ = kubelet.join();
        }
    }
}

/// Runs kube-scheduler while its manifest is there, as a kubelet does.
fn run_static_pod(manifest: &Path, conf: &Path, ending: &AtomicBool) {
    let mut running: Option<Part> = None;
    while !ending.load(Ordering::Relaxed) {
        match (manifest.exists(), running.take()) {
            (true, None) => {
                running = Some(Part::start(&["scheduler", "--kubeconfig", conf.to_str().unwrap(), "--secure-port=0"]));
            }
            (false, Some(part)) => part.stop(),
            (_, part) => running = part,
        }
        std::thread::sleep(Duration::from_millis(100));
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
