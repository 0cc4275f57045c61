//! `bayplan nodes` against an API server of ours, as a user starts and stops it.

use std::time::{Duration, Instant};

use bayplan_client::Client;
use bayplan_model::api::{Api, Request, Resource, Verb};
use serde_json::{Value, json};

use crate::process::{Server, bayplan, read};

/// How long anything may take; generous because shared machines stall.
const PATIENCE: Duration = Duration::from_secs(60);

/// An API server without nodes, and a client that may do everything.
struct Plane {
    _server: Server,
    folder: tempfile::TempDir,
    client: Client,
}

impl Plane {
    async fn start() -> Plane {
        let folder = tempfile::tempdir().unwrap();
        let mut command = bayplan(&["apiserver", "--in-memory", "--port", "0", "--write-kubeconfig"]);
        command.arg(folder.path().join("admin.kubeconfig"));
        let server = Server::start(command);
        let client = Client::from_kubeconfig(Some(&folder.path().join("admin.kubeconfig")), None).await.unwrap();
        let plane = Plane { _server: server, folder, client };
        // What a controller would make, and every pod needs.
        let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default" } });
        plane.create(&Resource::new("", "v1", "serviceaccounts"), "default", account).await;
        plane
    }

    fn command(&self, more: &[&str]) -> std::process::Command {
        let mut command = bayplan(&["nodes", "--kubeconfig"]);
        command.arg(self.folder.path().join("admin.kubeconfig")).args(more);
        command
    }

    fn nodes(&self, more: &[&str]) -> Server {
        Server::start(self.command(more))
    }

    /// Fails with one line that contains this.
    #[track_caller]
    fn check_refused(&self, more: &[&str], needle: &str) {
        let (code, stdout, stderr) = read(self.command(more).output().unwrap());
        assert_eq!((code, &*stdout, stderr.lines().count()), (1, "", 1), "{more:?}: {stderr}");
        assert!(stderr.starts_with("bayplan: ") && stderr.contains(needle), "{more:?}: {stderr}");
    }

    async fn items(&self, path: &str) -> Vec<Value> {
        let mut list: Value =
            serde_json::from_slice(&self.client.get(path, "application/json").await.unwrap()).unwrap();
        list["items"].as_array_mut().map(std::mem::take).unwrap_or_default()
    }

    async fn node_names(&self) -> Vec<String> {
        names(&self.items("/api/v1/nodes").await)
    }

    async fn create(&self, resource: &Resource, namespace: &str, object: Value) {
        let create = Verb::Create(object.to_string().into());
        self.client.call(Request::collection(resource, namespace, create)).await.unwrap();
    }

    /// Waits for what is seen of a pod.
    async fn pod_until(&self, name: &str, seen: impl Fn(&Value) -> bool) -> Value {
        let start = Instant::now();
        loop {
            let pods = self.items("/api/v1/namespaces/default/pods").await;
            if let Some(pod) = pods.iter().find(|pod| pod["metadata"]["name"] == name).filter(|pod| seen(pod)) {
                return pod.clone();
            }
            assert!(start.elapsed() < PATIENCE, "{name}: {pods:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

fn names(objects: &[Value]) -> Vec<String> {
    objects.iter().map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

fn pods() -> Resource {
    Resource::new("", "v1", "pods")
}

fn nodes() -> Resource {
    Resource::new("", "v1", "nodes")
}

fn pod(name: &str, node: &str, annotations: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "annotations": annotations },
        "spec": { "nodeName": node, "restartPolicy": "Never", "containers": [{ "name": "main", "image": "busybox" }] },
    })
}

/// Stops it; whatever it says beside its progress is a mistake.
fn stop(server: Server) {
    let (success, stderr) = server.stop_and_show("-INT");
    let said: Vec<&str> = stderr.lines().filter(|line| !line.contains(" nodes are ")).collect();
    assert!(success && said.is_empty(), "{stderr}");
}

#[tokio::test]
async fn nodes_run_pods_and_are_gone_with_them_at_the_end() {
    let plane = Plane::start().await;
    let server = plane.nodes(&["--count", "3", "--zones", "2", "--cpu", "64", "--taint", "fake:NoSchedule"]);
    let (first, rest) = server.screen.split_once('\n').unwrap();
    assert!(first.starts_with("3 simulated nodes are registered at 127.0.0.1:"), "{first}");
    assert!(first.ends_with(": sim-0001 … sim-0003"), "{first}");
    let expected =
        "They are in zone-1, zone-2.\n\nCtrl-C removes them, and the pods on them; --keep leaves them there.\n";
    assert_eq!(rest, expected);
    let there = plane.items("/api/v1/nodes").await;
    assert_eq!(names(&there), ["sim-0001", "sim-0002", "sim-0003"]);
    assert_eq!(there[2]["status"]["allocatable"]["cpu"], "64");
    assert_eq!(there[2]["metadata"]["labels"]["topology.kubernetes.io/zone"], "zone-1");
    assert_eq!(there[2]["spec"]["taints"][0]["key"], "fake");
    assert_eq!(there[2]["spec"]["podCIDR"], Value::Null);

    let job = json!({ "bayplan.dev/start-delay": "10ms", "bayplan.dev/run-for": "10ms", "bayplan.dev/exit-code": "3" });
    plane.create(&pods(), "default", pod("job", "sim-0002", job)).await;
    plane.create(&pods(), "default", pod("web", "sim-0003", json!({}))).await;
    let failed = plane.pod_until("job", |pod| pod["status"]["phase"] == "Failed").await;
    assert_eq!(failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 3);
    plane.pod_until("web", |pod| pod["status"]["phase"] == "Running").await;
    let leases = plane.items("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases").await;
    assert_eq!(names(&leases), ["sim-0001", "sim-0002", "sim-0003"]);

    stop(server);
    for path in [
        "/api/v1/nodes",
        "/api/v1/namespaces/default/pods",
        "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
    ] {
        assert_eq!(names(&plane.items(path).await), [""; 0], "{path}");
    }
}

#[tokio::test]
async fn nodes_that_were_kept_are_run_again_and_then_removed() {
    let plane = Plane::start().await;
    let server = plane.nodes(&["--count", "3", "--keep", "--register-rate", "100", "--qps", "200"]);
    assert!(server.screen.ends_with("Ctrl-C stops it; the nodes stay, and the next run goes on with them.\n"));
    plane.create(&pods(), "default", pod("web", "sim-0003", json!({}))).await;
    plane.pod_until("web", |pod| pod["status"]["phase"] == "Running").await;
    stop(server);
    assert_eq!(plane.node_names().await.len(), 3);

    // Fewer are asked for, and all are run: somebody has to, or pods that are on them wait for ever.
    let server = plane.nodes(&["--count", "1"]);
    assert!(server.screen.starts_with("3 simulated nodes are registered at "), "{}", server.screen);
    plane.create(&pods(), "default", pod("more", "sim-0003", json!({}))).await;
    plane.pod_until("more", |pod| pod["status"]["phase"] == "Running").await;
    let web = plane.pod_until("web", |pod| pod["status"]["phase"] == "Running").await;
    assert_eq!(web["status"]["containerStatuses"][0]["restartCount"], 0);
    stop(server);
    assert_eq!(plane.node_names().await, [""; 0]);
}

#[tokio::test]
async fn nodes_of_others_are_run_by_their_labels_and_stay() {
    let plane = Plane::start().await;
    let node = |name: &str, kind: &str| {
        let metadata = json!({ "name": name, "labels": { "type": kind } });
        json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata })
    };
    plane.create(&nodes(), "", node("before", "fake")).await;
    plane.create(&nodes(), "", node("other", "real")).await;
    plane.create(&pods(), "default", pod("early", "after", json!({}))).await;
    let server = plane.nodes(&["--manage", "type=fake"]);
    let expected = "Nodes of others with type=fake are run too, and stay.\n\nCtrl-C stops it.\n";
    assert_eq!(server.screen, expected);
    plane.create(&nodes(), "", node("after", "fake")).await;
    plane.pod_until("early", |pod| pod["status"]["phase"] == "Running").await;
    plane.create(&pods(), "default", pod("late", "before", json!({}))).await;
    plane.pod_until("late", |pod| pod["status"]["phase"] == "Running").await;
    let there = plane.items("/api/v1/nodes").await;
    let ready = |node: &Value| node["status"]["conditions"][3]["status"].clone();
    assert_eq!([ready(&there[0]), ready(&there[1])], ["True", "True"]);
    assert_eq!(there[2]["status"]["conditions"], Value::Null, "it is left alone");
    stop(server);
    assert_eq!(plane.node_names().await, ["after", "before", "other"]);
}

#[tokio::test]
async fn a_template_says_what_nodes_are_and_a_bad_one_is_refused_in_one_line() {
    let plane = Plane::start().await;
    let write = |name: &str, text: &str| {
        let path = plane.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let gpu = write(
        "gpu.yaml",
        "apiVersion: v1\nkind: Node\nmetadata: {name: 'gpu-{index}', labels: {pool: gpu}}\n\
         status: {capacity: {cpu: '96', nvidia.com/gpu: '8'}}\n",
    );
    let server = plane.nodes(&["--count", "2", "--template", &gpu]);
    let there = plane.items("/api/v1/nodes").await;
    assert_eq!(names(&there), ["gpu-0001", "gpu-0002"]);
    assert_eq!(there[0]["status"]["allocatable"]["nvidia.com/gpu"], "8");
    assert_eq!(there[0]["metadata"]["labels"]["pool"], "gpu");
    stop(server);

    let pod = write("pod.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n");
    let two = write("two.yaml", "apiVersion: v1\nkind: Node\n---\napiVersion: v1\nkind: Node\n");
    let torn = write("torn.yaml", "apiVersion: v1\nkind: [Node\n");
    let invalid = write("invalid.yaml", "apiVersion: v1\nkind: Node\nmetadata: {labels: {'a b': c}}\n");
    for (template, needle) in [
        (&*pod, "pod.yaml is no template of nodes: it holds a Pod of v1, not a Node of v1"),
        (&two, "two.yaml holds 2 objects: a template is one Node"),
        (&torn, "torn.yaml"),
        ("/nonexistent/node.yaml", "/nonexistent/node.yaml"),
        (&invalid, "the API server refuses a node: Node \"sim-0001\" is invalid: metadata.labels"),
    ] {
        plane.check_refused(&["--count", "1", "--template", template], needle);
    }
    assert_eq!(plane.node_names().await, [""; 0]);
}

#[tokio::test]
async fn a_name_that_is_taken_and_rights_that_are_missing_are_said_before_anything_is_done() {
    let plane = Plane::start().await;
    for name in ["sim-0002", "sim-0003"] {
        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } });
        plane.create(&nodes(), "", node).await;
    }
    plane.check_refused(
        &["--count", "3"],
        "there is a node sim-0002 and 1 more that bayplan nodes did not make: choose other names with --name-prefix",
    );
    assert_eq!(plane.node_names().await, ["sim-0002", "sim-0003"]);

    let nobody = plane.folder.path().join("nobody.kubeconfig");
    std::fs::write(&nobody, kubeconfig_of_nobody(&plane).await.to_string()).unwrap();
    let mut command = bayplan(&["nodes", "--count", "1", "--name-prefix", "mine-", "--kubeconfig"]);
    let (code, _, stderr) = read(command.arg(&nobody).output().unwrap());
    assert_eq!((code, stderr.lines().count()), (1, 1), "{stderr}");
    assert!(stderr.contains("the kubeconfig's user may not list nodes, watch nodes, patch nodes/status"), "{stderr}");
    assert!(stderr.contains("create nodes"), "{stderr}");
}

/// A kubeconfig of a service account without rights.
async fn kubeconfig_of_nobody(plane: &Plane) -> Value {
    let accounts = Resource::new("", "v1", "serviceaccounts");
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "nobody" } });
    plane.create(&accounts, "default", account).await;
    let request = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} });
    let create = Verb::Create(request.to_string().into());
    let request = Request::object(&accounts, "default", "nobody", create).subresource("token");
    let answer: Value = serde_json::from_slice(&plane.client.call(request).await.unwrap()).unwrap();
    let server = format!("https://{}", plane.client.host());
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{ "name": "c", "cluster": { "server": server, "insecure-skip-tls-verify": true } }],
        "users": [{ "name": "u", "user": { "token": answer["status"]["token"] } }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
    })
}
