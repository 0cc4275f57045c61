//! `bayplan up` from its first line to its end.

use std::path::Path;
use std::time::{Duration, Instant};

use bayplan_client::Client;
use bayplan_model::api::{Api, Request, Resource, Verb};
use serde_json::{Value, json};

use crate::process::{Server, bayplan};

/// How long a cluster may take to do what it must; generous because shared machines stall.
const PATIENCE: Duration = Duration::from_secs(60);

fn up(folder: &Path, more: &[&str]) -> Server {
    let mut command = bayplan(&["up", "--port", "0", "--data-dir"]);
    command.arg(folder).args(more);
    Server::start(command)
}

/// The screen with what differs from run to run by name.
fn screen(server: &Server) -> String {
    let kubeconfig = server.shown("kubeconfig");
    let data = Path::new(kubeconfig).parent().unwrap().to_str().unwrap();
    let (first, rest) = server.screen.split_once('\n').unwrap();
    let first = first.split_once(" after ").map_or(first.to_owned(), |(words, _)| format!("{words} after TIME."));
    let screen = format!("{first}\n{rest}").replace(server.port(), "PORT").replace(data, "DATA");
    // An API server alone has no page.
    match server.screen.contains("\n  page ") {
        true => screen.replace(server.shown("page"), "PAGE"),
        false => screen,
    }
}

#[test]
fn the_first_screen_says_what_runs_where_and_what_to_try() {
    let folder = tempfile::tempdir().unwrap();
    let server = up(&folder.path().join("data"), &["--nodes", "3"]);
    let expected = "Bayplan is up after TIME.

  kubeconfig  DATA/kubeconfig
  API server  https://127.0.0.1:PORT
  data        DATA
  page        PAGE
  nodes       node-0001 … node-0003 (simulated): 8 cpu, 32Gi memory, 110 pods each
  zones       zone-1, zone-2, zone-3 (in region-1)
  labels      topology.kubernetes.io/zone, topology.kubernetes.io/region, kubernetes.io/hostname,
              kubernetes.io/os=linux, kubernetes.io/arch=amd64, bayplan.dev/simulated=true

Try:
  export KUBECONFIG=DATA/kubeconfig
  kubectl create deployment web --image=nginx --replicas=3
  kubectl get pods -o wide -w

Ctrl-C stops it; the next `bayplan up` continues with the same objects.
";
    assert_eq!(screen(&server), expected);
    assert_eq!(server.stop("-INT"), (true, String::new()));
}

#[test]
fn a_cluster_in_memory_says_that_it_forgets() {
    let server = Server::start(bayplan(&["up", "--port", "0", "--in-memory", "--nodes", "1", "--node-cpu", "500m"]));
    let folder = Path::new(server.shown("kubeconfig")).parent().unwrap().to_owned();
    assert!(folder.exists());
    let expected = "Bayplan is up after TIME.

  kubeconfig  DATA/kubeconfig
  API server  https://127.0.0.1:PORT
  data        in memory only
  page        PAGE
  nodes       node-0001 (simulated): 500m cpu, 32Gi memory, 110 pods
  zones       zone-1 (in region-1)
  labels      topology.kubernetes.io/zone, topology.kubernetes.io/region, kubernetes.io/hostname,
              kubernetes.io/os=linux, kubernetes.io/arch=amd64, bayplan.dev/simulated=true

Try:
  export KUBECONFIG=DATA/kubeconfig
  kubectl create deployment web --image=nginx --replicas=3
  kubectl get pods -o wide -w

Ctrl-C stops it and forgets everything.
";
    assert_eq!(screen(&server), expected);
    assert_eq!(server.stop("-TERM"), (true, String::new()));
    assert!(!folder.exists());
}

#[test]
fn an_api_server_alone_has_a_screen_of_its_own() {
    let server = Server::start(bayplan(&["apiserver", "--port", "0", "--in-memory"]));
    let expected = "Bayplan's API server is up.

  kubeconfig  DATA/kubeconfig
  API server  https://127.0.0.1:PORT
  data        in memory only

Ctrl-C stops it.
";
    assert_eq!(screen(&server), expected);
    assert_eq!(server.stop("-INT"), (true, String::new()));
}

#[test]
fn the_end_of_the_terminal_ends_in_order_unless_nohup_says_otherwise() {
    // The tests themselves may run under nohup; `env` sets what the child ignores.
    let with_hangup = |disposition: &str| {
        let mut command = std::process::Command::new("env");
        command.args([disposition, env!("CARGO_BIN_EXE_bayplan"), "up", "--port", "0", "--in-memory", "--nodes", "0"]);
        command.env_remove("RUST_LOG");
        Server::start(command)
    };
    let server = with_hangup("--default-signal=HUP");
    assert!(server.screen.contains("\n  nodes       none: pods stay pending\n"), "{}", server.screen);
    assert_eq!(server.stop("-HUP"), (true, String::new()));

    let mut server = with_hangup("--ignore-signal=HUP");
    server.signal("-HUP");
    std::thread::sleep(Duration::from_millis(300));
    assert!(server.is_running());
    assert!(server.stop("-INT").0);
}

async fn items(client: &Client, path: &str) -> Vec<Value> {
    let list: Value = serde_json::from_slice(&client.get(path, "application/json").await.unwrap()).unwrap();
    list["items"].as_array().unwrap().clone()
}

#[tokio::test]
async fn it_is_up_when_every_node_is_there_and_shows_how_far_it_is() {
    let server = Server::start(bayplan(&["up", "--port", "0", "--in-memory", "--nodes", "1500"]));
    let client = Client::from_kubeconfig(Some(Path::new(server.shown("kubeconfig"))), None).await.unwrap();
    assert_eq!(items(&client, "/api/v1/nodes").await.len(), 1500);

    let took = server.screen.lines().next().unwrap().trim_start_matches("Bayplan is up after ").to_owned();
    let url = format!("https://127.0.0.1:{}", server.port());
    let (success, stderr) = server.stop_and_show("-INT");
    assert!(success);
    let is_progress = |line: &str| {
        line.ends_with(&format!(" of 1,500 nodes are registered; the API server answers at {url}"))
            && line.starts_with(|first: char| first.is_ascii_digit())
    };
    assert!(stderr.lines().all(is_progress), "{stderr}");
    // A start within a second is silent; one that takes two is not.
    match took.strip_suffix(" s.").map(|seconds| seconds.parse::<f64>().unwrap()) {
        None => assert_eq!(stderr, "", "{took}"),
        Some(seconds) => assert!(seconds < 2.0 || !stderr.is_empty(), "{took}"),
    }
}

/// The node's name and the phase of a pod.
async fn placed(client: &Client, name: &str) -> (String, String) {
    let pods = items(client, "/api/v1/namespaces/default/pods").await;
    let pod = pods.iter().find(|pod| pod["metadata"]["name"] == name).unwrap();
    let text = |field: &str| pod.pointer(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    (text("/spec/nodeName"), text("/status/phase"))
}

#[tokio::test]
async fn the_nodes_of_an_earlier_run_are_run_too_and_the_screen_says_so() {
    let folder = tempfile::tempdir().unwrap();
    assert!(up(folder.path(), &["--nodes", "4"]).stop("-INT").0);
    let server = up(folder.path(), &["--nodes", "1"]);
    let shown = "
  nodes       node-0001 … node-0004 (simulated): 8 cpu, 32Gi memory, 110 pods each
              4 in all, 3 of them from an earlier run with more nodes; to remove one:
              kubectl delete node NAME
  zones       zone-1, zone-2, zone-3 (in region-1)
";
    assert!(server.screen.contains(shown), "{}", server.screen);
    let client = Client::from_kubeconfig(Some(Path::new(server.shown("kubeconfig"))), None).await.unwrap();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "last" },
        "spec": {
            "containers": [{ "name": "main", "image": "busybox" }],
            "nodeSelector": { "kubernetes.io/hostname": "node-0004" },
        },
    });
    let create = Verb::Create(pod.to_string().into());
    client.call(Request::collection(&Resource::new("", "v1", "pods"), "default", create)).await.unwrap();
    let start = Instant::now();
    while placed(&client, "last").await != ("node-0004".into(), "Running".into()) {
        assert!(start.elapsed() < PATIENCE, "{:?}", placed(&client, "last").await);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // One that is deleted does not come back.
    let node = Resource::new("", "v1", "nodes");
    client.call(Request::object(&node, "", "node-0003", Verb::Delete(Default::default()))).await.unwrap();
    assert!(server.stop("-INT").0);
    let server = up(folder.path(), &["--nodes", "1"]);
    assert!(server.screen.contains("\n              3 in all, 2 of them from an earlier run"), "{}", server.screen);
}

#[tokio::test]
async fn an_annotation_that_cannot_be_read_is_a_warning_and_an_event() {
    let folder = tempfile::tempdir().unwrap();
    let server = up(folder.path(), &["--nodes", "1"]);
    let client = Client::from_kubeconfig(Some(Path::new(server.shown("kubeconfig"))), None).await.unwrap();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "brief", "annotations": { "bayplan.dev/run-for": "soon" } },
        "spec": { "containers": [{ "name": "main", "image": "busybox" }] },
    });
    let create = Verb::Create(pod.to_string().into());
    client.call(Request::collection(&Resource::new("", "v1", "pods"), "default", create)).await.unwrap();
    let note =
        "bayplan.dev/run-for: \"soon\" is not a duration such as 5s, 500ms or 2m: the pod runs until it is deleted";
    let start = Instant::now();
    loop {
        let events = items(&client, "/api/v1/namespaces/default/events").await;
        if let Some(event) = events.iter().find(|event| event["reason"] == "InvalidAnnotation") {
            assert_eq!((&event["message"], &event["type"]), (&note.into(), &"Warning".into()));
            assert_eq!(
                (&event["involvedObject"]["name"], &event["source"]["component"]),
                (&"brief".into(), &"kubelet".into())
            );
            break;
        }
        assert!(start.elapsed() < PATIENCE, "{events:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (_, stderr) = server.stop("-INT");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.contains(&format!(" WARN bayplan_runner::nodes: {note} kind=\"Pod\"")), "{stderr}");
}
