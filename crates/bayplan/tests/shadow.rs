//! `bayplan shadow` as its users see it: its report as text and JSON, its exit code and its metrics. The scheduler that
//! is judged is this test, so that it can be wrong.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bayplan_client::Client;
use bayplan_model::api::{Api, Request, Resource, Verb};
use bayplan_testkit::free_ports;
use serde_json::{Value, json};
use tempfile::TempDir;

/// How long a process may take to do what it must; generous because shared machines stall.
const PATIENCE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(50);

const NODES: Resource = Resource::new("", "v1", "nodes");
const PODS: Resource = Resource::new("", "v1", "pods");
const SERVICE_ACCOUNTS: Resource = Resource::new("", "v1", "serviceaccounts");

fn bayplan(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bayplan"));
    command.args(arguments).env_remove("RUST_LOG").env_remove("KUBECONFIG").env("NO_COLOR", "1");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// An API server without a scheduler, and two nodes: `large` is the better one for every pod here.
struct Cluster {
    process: Child,
    client: Client,
    folder: TempDir,
}

impl Cluster {
    async fn start() -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        let mut process = bayplan(&["apiserver", "--port", "0", "--data-dir", path]).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
        lines.by_ref().find(|line| line.contains("Ctrl-C")).expect("the API server came up");
        std::thread::spawn(move || lines.for_each(drop));
        let client = Client::from_kubeconfig(Some(&folder.path().join("kubeconfig")), None).await.unwrap();
        let cluster = Cluster { process, client, folder };
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        cluster.create(&SERVICE_ACCOUNTS, "default", &account).await;
        for (name, cpu) in [("large", "8"), ("small", "2")] {
            let room = json!({"cpu": cpu, "memory": "32Gi", "pods": "110"});
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
                "status": {"capacity": room, "allocatable": room}});
            cluster.create(&NODES, "", &node).await;
        }
        cluster
    }

    fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    async fn create(&self, resource: &Resource, namespace: &str, object: &Value) {
        let verb = Verb::Create(object.to_string().into());
        self.client.call(Request::collection(resource, namespace, verb)).await.unwrap();
    }

    /// Creates a pod and binds it, as a scheduler would.
    async fn place(&self, name: &str, node: &str) {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}});
        self.create(&PODS, "default", &pod).await;
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
        let verb = Verb::Create(binding.to_string().into());
        let request = Request::object(&PODS, "default", name, verb).subresource("binding");
        self.client.call(request).await.unwrap();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A shadow in the background.
struct Shadow {
    process: Child,
    port: u16,
}

impl Shadow {
    fn start(cluster: &Cluster, more: &[&str]) -> Shadow {
        let [port] = free_ports();
        let (address, kubeconfig) = (format!("127.0.0.1:{port}"), cluster.kubeconfig());
        let arguments = ["shadow", "--kubeconfig", kubeconfig.to_str().unwrap(), "--metrics-bind-address", &address];
        let mut process = bayplan(&[&arguments[..], more].concat()).spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines().map(Result::unwrap);
        lines.by_ref().find(|line| line.contains("; Ctrl-C prints the report")).expect("the shadow watches");
        std::thread::spawn(move || lines.for_each(drop));
        Shadow { process, port }
    }

    fn metrics(&self) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: shadow\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Waits until so many bindings are judged so.
    async fn wait_for(&self, verdict: &str, count: u32) {
        let line = format!("bayplan_shadow_bindings_total{{verdict=\"{verdict}\"}} {count}\n");
        let begun = Instant::now();
        while !self.metrics().replace('\r', "").contains(&line) {
            assert!(begun.elapsed() < PATIENCE, "{line} is not in {}", self.metrics());
            tokio::time::sleep(POLL).await;
        }
    }

    /// Stops it: its exit code and its report.
    fn stop(mut self) -> (i32, String) {
        assert!(Command::new("kill").args(["-INT", &self.process.id().to_string()]).status().unwrap().success());
        let mut report = String::new();
        self.process.stdout.take().unwrap().read_to_string(&mut report).unwrap();
        (self.process.wait().unwrap().code().unwrap(), report)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_binding_is_told_saved_and_counted_and_fails_the_run() {
    let cluster = Cluster::start().await;
    let cases = cluster.folder.path().join("cases");
    let (folder, least) = (cases.to_str().unwrap(), ["--fail-under", "99.9"]);
    let shadow = Shadow::start(&cluster, &[&["--cases", folder], &least[..]].concat());
    cluster.place("right", "large").await;
    shadow.wait_for("same", 1).await;
    cluster.place("wrong", "small").await;
    shadow.wait_for("unexplained", 1).await;
    let (code, report) = shadow.stop();
    let (first, rest) = report.split_once('\n').unwrap();
    assert!(first.starts_with("2 bindings in ") && first.ends_with("s: 50.00 % explained"), "{first}");
    let case = cases.join("default_wrong.json");
    let expected = format!(
        "  same         1  the only best node
  tied         0  one of several best nodes
  sampled      0  the better nodes may not have been scored
  raced        0  the best node of a state shortly before or after
  unexplained  1  not the best node of any state that was seen
regret (our best score minus theirs): p50 0, p99 22, max 22
unexplained: default/wrong went to small, we would choose large (436 against 458); bayplan why --from {} pod/wrong -n \
         default
",
        case.display()
    );
    assert_eq!((code, rest), (1, expected.as_str()));
    // The case can be asked as the report says.
    let why = bayplan(&["why", "--from", case.to_str().unwrap(), "pod/wrong", "-n", "default"]).output().unwrap();
    let answer = String::from_utf8(why.stdout).unwrap();
    assert!(why.status.success() && answer.contains("large"), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn json_has_a_count_for_every_verdict_and_right_bindings_succeed() {
    let cluster = Cluster::start().await;
    let shadow = Shadow::start(&cluster, &["-o", "json", "--fail-under", "100"]);
    cluster.place("right", "large").await;
    shadow.wait_for("same", 1).await;
    let (code, report) = shadow.stop();
    let mut report: Value = serde_json::from_str(&report).unwrap();
    let (from, to) = (report["from"].take(), report["to"].take());
    assert!(from.as_str().unwrap() < to.as_str().unwrap());
    let expected = json!({
        "apiVersion": "bayplan.dev/v1", "kind": "ShadowReport", "from": null, "to": null,
        "seen": 1, "same": 1, "tied": 0, "sampled": 0, "raced": 0, "unexplained": 0,
        "regret": {"p50": 0, "p99": 0, "max": 0}, "cases": [],
    });
    assert_eq!((code, report), (0, expected));
}

#[test]
fn a_share_that_is_none_is_refused() {
    for (share, needle) in [("101", "must be between 0 and 100"), ("all", "not a percentage such as 99.9")] {
        let output = bayplan(&["shadow", "--fail-under", share]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && said.contains(needle), "{said}");
    }
}
