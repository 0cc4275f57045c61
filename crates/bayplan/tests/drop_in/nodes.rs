//! Simulated nodes on upstream's API server, among upstream's scheduler and controllers.

use std::process::Command;

use serde_json::{Value, json};

use crate::assets::Process;
use crate::control_plane::{ControlPlane, eventually};

const LEASES: &str = "kube-node-lease";

fn nodes(plane: &ControlPlane, name: &str, more: &[&str]) -> Process {
    let kubeconfig = plane.kubeconfig("admin");
    let arguments = [&["nodes", "--kubeconfig", kubeconfig.to_str().unwrap()], more].concat();
    plane.bayplan(name, &arguments)
}

async fn node_names(plane: &ControlPlane) -> Vec<String> {
    let nodes = plane.list("Node", "").await;
    nodes.iter().map(|node| node["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

fn succeeds(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Upstream's controllers, which judge nodes by their leases and make the pods of Deployments.
fn controller_manager(plane: &ControlPlane) -> Option<Process> {
    let kubeconfig = format!("--kubeconfig={}", plane.kubeconfig("admin").display());
    plane.upstream("kube-controller-manager", &[&kubeconfig, "--secure-port=0", "--leader-elect=false"])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upstreams_scheduler_and_controllers_use_simulated_nodes_as_any_others() {
    let Some(plane) = ControlPlane::start().await else { return };
    let config = plane.scheduler_config("nodes", json!({}));
    let scheduler = plane.upstream("kube-scheduler", &["--secure-port=0", "--config", &config]);
    let (Some(_manager), Some(_scheduler)) = (controller_manager(&plane), scheduler) else { return };
    let fleet = nodes(&plane, "fleet", &["--count", "20", "--pod-start-delay", "100ms"]);
    eventually("all nodes are registered", async || fleet.log().contains("Ctrl-C removes them").then_some(())).await;
    eventually("all nodes are ready", async || {
        let nodes = plane.list("Node", "").await;
        (nodes.len() == 20 && nodes.iter().all(is_ready)).then_some(())
    })
    .await;
    succeeds(plane.shell("kubectl create deployment web --image=nginx --replicas=60"));
    let status = succeeds(plane.shell("kubectl rollout status deployment/web --timeout=50s"));
    assert!(status.contains("successfully rolled out"), "{status}");
    let wide = succeeds(plane.shell("kubectl get pods -o wide --no-headers"));
    assert_eq!(
        wide.lines().filter(|line| line.contains(" Running ") && line.contains(" sim-00")).count(),
        60,
        "{wide}"
    );
    let lease = plane.find("Lease", LEASES, "sim-0001").await.unwrap();
    eventually("the lease is renewed", async || {
        let now = plane.find("Lease", LEASES, "sim-0001").await.unwrap();
        (now["spec"]["renewTime"] != lease["spec"]["renewTime"]).then_some(())
    })
    .await;

    // The end takes the nodes away; the Deployment's pods wait for others.
    assert!(fleet.stop().success());
    assert_eq!(node_names(&plane).await, [""; 0]);
    assert!(plane.list("Lease", LEASES).await.is_empty());
    eventually("no pod is on a node that is gone", async || {
        let pods = plane.list("Pod", "default").await;
        pods.iter().all(|pod| pod["spec"]["nodeName"].is_null()).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_kubectl_makes_are_run_and_a_killed_run_is_continued() {
    let Some(plane) = ControlPlane::start().await else { return };
    let manifest = "apiVersion: v1\nkind: Node\nmetadata: {name: NAME, labels: {type: fake}}\n";
    for name in ["fake-1", "fake-2"] {
        std::fs::write(plane.folder().join(format!("{name}.yaml")), manifest.replace("NAME", name)).unwrap();
        succeeds(plane.shell(&format!("kubectl apply -f {name}.yaml")));
    }
    let mut fleet = nodes(&plane, "first", &["--count", "3", "--manage", "type=fake"]);
    let all_ready = async || {
        let nodes = plane.list("Node", "").await;
        (nodes.len() == 5 && nodes.iter().all(is_ready)).then_some(())
    };
    eventually("all nodes are ready", all_ready).await;
    fleet.signal("KILL");
    eventually("it is killed", async || fleet.ended()).await;
    assert_eq!(node_names(&plane).await.len(), 5, "nobody could take them away");

    let fleet = nodes(&plane, "second", &["--count", "3", "--manage", "type=fake"]);
    eventually("all nodes are registered", async || fleet.log().contains("Ctrl-C removes them").then_some(())).await;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"nodeName": "fake-2", "containers": [{"name": "main", "image": "nginx"}]},
    });
    plane.create(pod).await;
    eventually("the pod runs", async || {
        let pod = plane.find("Pod", "default", "web").await.unwrap();
        (pod["status"]["phase"] == "Running").then_some(())
    })
    .await;
    assert!(fleet.stop().success());
    assert_eq!(node_names(&plane).await, ["fake-1", "fake-2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_rights_is_told_which_are_missing() {
    let Some(plane) = ControlPlane::start().await else { return };
    let kubeconfig = plane.kubeconfig("scheduler");
    let mut fleet = plane.bayplan("nobody", &["nodes", "--count", "1", "--kubeconfig", kubeconfig.to_str().unwrap()]);
    let ended = eventually("it ends", async || fleet.ended()).await;
    assert_eq!(ended.code(), Some(1));
    let log = fleet.log();
    assert_eq!(log.lines().count(), 1, "{log}");
    assert!(log.contains("the kubeconfig's user may not patch nodes/status") && log.contains("create nodes"), "{log}");
}
