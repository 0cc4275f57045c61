//! The kubelets of the guide's cluster: they run the static pod of the control plane, and Bayplan's own pods.
//!
//! Containers are processes of this machine. A pod of Bayplan is run with the arguments, the configuration and the
//! service account that its manifest gives it, so that a page which installs Bayplan is only right if these are.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};

use crate::installed::pod::PodProcess;
use crate::installed::{Target, objects};

/// The time between two looks at manifests and pods.
const SYNC_EVERY: Duration = Duration::from_millis(200);
const NAMESPACE: &str = "kube-system";

/// A process that ends with the test.
pub(crate) struct Part(Child);

impl Part {
    pub(crate) fn start(arguments: &[&str]) -> Part {
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

/// Both kubelets; they end with it.
pub(crate) struct Kubelets {
    threads: Vec<JoinHandle<()>>,
    ending: Arc<AtomicBool>,
}

impl Kubelets {
    /// Starts the kubelet of the control plane, whose files are below `kubernetes` and whose scheduler serves at
    /// `port`, and that of the workers.
    pub(crate) fn start(kubernetes: &Path, admin: &Path, port: u16) -> Kubelets {
        let ending = Arc::new(AtomicBool::new(false));
        let (kubernetes, admin) = (kubernetes.to_owned(), admin.to_owned());
        let (first, second) = (Arc::clone(&ending), Arc::clone(&ending));
        let threads = vec![
            std::thread::spawn(move || run_static_pod(&kubernetes, port, &first)),
            std::thread::spawn(move || {
                tokio::runtime::Runtime::new().unwrap().block_on(run_pods(&admin, &second));
            }),
        ];
        Kubelets { threads, ending }
    }
}

impl Drop for Kubelets {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Runs kube-scheduler as its manifest says, and anew when the manifest changes.
fn run_static_pod(kubernetes: &Path, port: u16, ending: &AtomicBool) {
    let manifest = kubernetes.join("manifests/kube-scheduler.yaml");
    let mut running: Option<(String, Part)> = None;
    while !ending.load(Ordering::Relaxed) {
        let wanted = std::fs::read_to_string(&manifest).ok().filter(|text| !command(text).is_empty());
        if running.as_ref().map(|(text, _)| text) != wanted.as_ref() {
            if let Some((_, part)) = running.take() {
                part.stop();
            }
            running = wanted.map(|text| (text.clone(), start(&command(&text), kubernetes, port)));
        }
        std::thread::sleep(SYNC_EVERY);
    }
}

/// The command of the first container; none while the file is not written to its end.
fn command(manifest: &str) -> Vec<String> {
    let Ok(pod) = serde_saphyr::from_str::<Value>(manifest) else { return Vec::new() };
    let words = pod["spec"]["containers"][0]["command"].as_array().cloned().unwrap_or_default();
    words.iter().filter_map(|word| Some(word.as_str()?.to_owned())).collect()
}

/// Bayplan stands in for kube-scheduler, so that the guide runs where nothing of upstream is installed.
fn start(command: &[String], kubernetes: &Path, port: u16) -> Part {
    let (program, flags) = command.split_first().expect("the command is not empty");
    let is_stand_in = program == "kube-scheduler";
    let mut arguments: Vec<String> = if is_stand_in { vec!["scheduler".into()] } else { Vec::new() };
    arguments.extend(flags.iter().map(|flag| flag.replace("/etc/kubernetes", kubernetes.to_str().unwrap())));
    // A page that looks at the port looks at Bayplan.
    arguments.push(format!("--secure-port={}", if is_stand_in { 0 } else { port }));
    Part::start(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

struct Running {
    process: PodProcess,
    is_ready: bool,
    _folder: tempfile::TempDir,
}

/// Runs the pods of Bayplan that are bound to a node.
async fn run_pods(admin: &Path, ending: &AtomicBool) {
    let target = Target::new(admin).await;
    let cluster = cluster_of(admin);
    let mut running: BTreeMap<String, Running> = BTreeMap::new();
    while !ending.load(Ordering::Relaxed) {
        let pods = target.list("Pod", NAMESPACE).await;
        let mut wanted = Vec::new();
        for pod in pods.iter().filter(|pod| pod["metadata"]["labels"]["app.kubernetes.io/name"] == "bayplan") {
            let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
            if pod["metadata"]["deletionTimestamp"].is_string() {
                if let Some(pod) = running.remove(&name) {
                    pod.process.stop();
                }
                target.remove_pod(NAMESPACE, &name).await;
            } else if pod["spec"]["nodeName"].is_string() {
                if !running.contains_key(&name) {
                    running.insert(name.clone(), start_pod(&target, pod, &cluster).await);
                }
                wanted.push(name);
            }
        }
        running.retain(|name, _| wanted.contains(name));
        for (name, pod) in &mut running {
            if !pod.is_ready && pod.process.is_ready().await {
                pod.is_ready = true;
                target.patch_status("Pod", NAMESPACE, name, &ready()).await;
            }
        }
        tokio::time::sleep(SYNC_EVERY).await;
    }
}

/// The API server as the administrator's kubeconfig describes it.
fn cluster_of(kubeconfig: &Path) -> Value {
    let config = objects(&std::fs::read_to_string(kubeconfig).unwrap()).remove(0);
    config["clusters"][0]["cluster"].clone()
}

async fn start_pod(target: &Target, pod: &Value, cluster: &Value) -> Running {
    let folder = tempfile::tempdir().unwrap();
    let template = json!({"spec": pod["spec"]});
    let metadata = json!({"namespace": NAMESPACE});
    let mut objects = vec![json!({"kind": "Deployment", "metadata": metadata, "spec": {"template": template}})];
    for volume in pod["spec"]["volumes"].as_array().into_iter().flatten() {
        if let Some(name) = volume["configMap"]["name"].as_str() {
            let mut map = target.find("ConfigMap", NAMESPACE, name).await.expect("its ConfigMap is there");
            map["kind"] = "ConfigMap".into();
            objects.push(map);
        }
    }
    // A token is mounted too, which is no ConfigMap.
    objects[0]["spec"]["template"]["spec"]["volumes"].as_array_mut().unwrap().retain(|v| v["projected"].is_null());
    let process = PodProcess::start(target, &objects, cluster, folder.path()).await;
    Running { process, is_ready: false, _folder: folder }
}

fn ready() -> Value {
    let now = jiff::Timestamp::now().to_string();
    json!({"status": {"phase": "Running", "conditions": [
        {"type": "Ready", "status": "True", "lastTransitionTime": now},
        {"type": "ContainersReady", "status": "True", "lastTransitionTime": now},
    ]}})
}
