//! `bayplan scheduler` placing the pods of Deployments that a controller manager makes.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::assets::Process;
use crate::control_plane::{ControlPlane, eventually};

const NAMESPACE: &str = "default";
const ZONE: &str = "topology.kubernetes.io/zone";
const HOSTNAME: &str = "kubernetes.io/hostname";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deployments_are_placed_by_taints_affinity_and_spread() {
    let Some(plane) = ControlPlane::start().await else { return };
    let _manager = controller_manager(&plane);
    let config = plane.scheduler_config("bayplan", json!({}));
    let _scheduler = plane.bayplan("bayplan", &["scheduler", "--secure-port=0", "--config", &config]);
    let gpu = json!([{"key": "gpu", "effect": "NoSchedule"}]);
    for index in 0..9 {
        let taints = if index >= 6 { gpu.clone() } else { json!([]) };
        plane.create(node(index, taints)).await;
    }

    // Hard spread over three zones.
    let spread =
        json!([{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": of("even")}]);
    plane.create(deployment("even", 6, json!({"topologySpreadConstraints": spread}))).await;
    assert_eq!(counts(&placed(&plane, "even", 6).await, zone), counted([("0", 2), ("1", 2), ("2", 2)]));

    // Only the tainted nodes are left by the selector, and only for those who tolerate them.
    let gpu = json!({"nodeSelector": {"gpu": "yes"}, "tolerations": [{"key": "gpu", "operator": "Exists"}]});
    plane.create(deployment("gpu", 3, gpu)).await;
    assert!(placed(&plane, "gpu", 3).await.iter().all(|node| node.as_str() >= "node-6"));

    // One on each node that has no taint, and the seventh nowhere.
    let term = |app: &str, key: &str| json!([{"labelSelector": of(app), "topologyKey": key}]);
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let apart = json!({"podAntiAffinity": {required: term("apart", HOSTNAME)}});
    plane.create(deployment("apart", 7, json!({"affinity": apart}))).await;
    let nodes = placed(&plane, "apart", 6).await;
    assert_eq!(counts(&nodes, str::to_owned).len(), 6, "{nodes:?}");
    let message = eventually("the seventh is told why", async || {
        let pods = pods(&plane, "apart").await;
        let waiting = pods.iter().find(|pod| pod["spec"]["nodeName"].is_null())?;
        waiting["status"]["conditions"][0]["message"].as_str().map(str::to_owned)
    })
    .await;
    let why =
        "0/9 nodes are available: 3 node(s) had untolerated taint(s), 6 node(s) didn't match pod anti-affinity rules.";
    assert!(message.starts_with(why), "{message}");

    // Where the store is, and nowhere else.
    plane.create(deployment("store", 1, json!({"nodeSelector": {ZONE: "1"}}))).await;
    placed(&plane, "store", 1).await;
    let near = json!({"podAffinity": {required: term("store", ZONE)}});
    plane.create(deployment("near", 3, json!({"affinity": near}))).await;
    assert_eq!(counts(&placed(&plane, "near", 3).await, zone), counted([("1", 3)]));

    // The system's default spread: a plain Deployment does not pile up on one node.
    plane.create(deployment("plain", 6, json!({}))).await;
    assert_eq!(counts(&placed(&plane, "plain", 6).await, str::to_owned).len(), 6);
}

/// Upstream's, or ours when it is not there.
fn controller_manager(plane: &ControlPlane) -> Process {
    let kubeconfig = format!("--kubeconfig={}", plane.kubeconfig("admin").display());
    let controllers = "--controllers=deployment-controller,replicaset-controller";
    let arguments = [&kubeconfig, "--leader-elect=false", "--secure-port=0", controllers];
    let ours = || plane.bayplan("manager", &[&["controller-manager"], &arguments[..]].concat());
    plane.upstream("kube-controller-manager", &arguments).unwrap_or_else(ours)
}

fn node(index: usize, taints: Value) -> Value {
    let room = json!({"cpu": "8", "memory": "16Gi", "pods": "20"});
    let name = format!("node-{index}");
    let gpu = if index >= 6 { "yes" } else { "no" };
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {HOSTNAME: name, ZONE: (index % 3).to_string(), "gpu": gpu}},
        "spec": {"taints": taints},
        "status": {"capacity": room, "allocatable": room},
    })
}

fn of(app: &str) -> Value {
    json!({"matchLabels": {"app": app}})
}

fn deployment(name: &str, replicas: u32, spec: Value) -> Value {
    let mut pod = json!({"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}]});
    pod.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "replicas": replicas, "selector": of(name),
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod},
        },
    })
}

async fn pods(plane: &ControlPlane, app: &str) -> Vec<Value> {
    let mut pods = plane.list("Pod", NAMESPACE).await;
    pods.retain(|pod| pod["metadata"]["labels"]["app"] == app);
    pods
}

/// The nodes of a Deployment's pods, once so many have one.
async fn placed(plane: &ControlPlane, app: &str, count: usize) -> Vec<String> {
    eventually(&format!("{count} pods of {app} are bound"), async || {
        let pods = pods(plane, app).await;
        let nodes: Vec<String> = pods.iter().filter_map(|pod| Some(pod["spec"]["nodeName"].as_str()?.into())).collect();
        (nodes.len() == count).then_some(nodes)
    })
    .await
}

fn zone(node: &str) -> String {
    let index: usize = node.trim_start_matches("node-").parse().unwrap();
    (index % 3).to_string()
}

fn counts(nodes: &[String], group: impl Fn(&str) -> String) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for node in nodes {
        *counts.entry(group(node)).or_default() += 1;
    }
    counts
}

fn counted<const N: usize>(counts: [(&str, usize); N]) -> BTreeMap<String, usize> {
    counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
}
