//! How often pods that fit nowhere are tried when many nodes change, and how many events that makes, beside
//! kube-scheduler.

use std::time::Duration;

use bayplan_testkit::free_ports;
use serde_json::json;

use crate::assets::Process;
use crate::control_plane::{ControlPlane, eventually};

const NODES: usize = 9;
const PODS: usize = 5;
/// Longer than the backoff after a first attempt, and than anything takes that one change starts.
const QUIET: Duration = Duration::from_secs(3);

/// What a scheduler did for all pods after the nodes changed.
#[derive(Debug)]
struct Effort {
    attempts: u64,
    event_rows: usize,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tainting_many_nodes_makes_no_more_attempts_and_events_than_kube_scheduler_makes() {
    let Some(plane) = ControlPlane::start().await else { return };
    for index in 0..NODES {
        let room = json!({"cpu": "4", "memory": "8Gi", "pods": "10"});
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("node-{index}")},
            "status": {"capacity": room, "allocatable": room},
        });
        plane.create(node).await;
    }
    let theirs = spent(&plane, "theirs", |arguments| plane.upstream("kube-scheduler", arguments)).await;
    let Some(theirs) = theirs else { return };
    let ours = |arguments: &[&str]| Some(plane.bayplan("bayplan", &[&["scheduler"], arguments].concat()));
    let ours = spent(&plane, "ours", ours).await.unwrap();
    // Every pod is tried after the last change, whose taint its message tells.
    assert!(ours.attempts >= PODS as u64, "{ours:?}");
    assert!(ours.attempts <= theirs.attempts, "{ours:?}, kube-scheduler {theirs:?}");
    assert!(ours.event_rows <= theirs.event_rows, "{ours:?}, kube-scheduler {theirs:?}");
}

/// Taints all nodes while pods of a namespace wait; none when there is no such scheduler.
async fn spent(
    plane: &ControlPlane,
    namespace: &str,
    start: impl FnOnce(&[&str]) -> Option<Process>,
) -> Option<Effort> {
    plane.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})).await;
    let [port] = free_ports();
    let scheduler = start(&[
        "--config",
        &plane.scheduler_config(namespace, json!({})),
        "--bind-address=127.0.0.1",
        &format!("--secure-port={port}"),
        &format!("--cert-dir={}", plane.folder().join(namespace).display()),
        "--authorization-always-allow-paths=/metrics",
    ])?;
    let names: Vec<String> = (0..PODS).map(|index| format!("huge-{index}")).collect();
    for name in &names {
        let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "100"}}});
        plane
            .create(json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
                "spec": {"containers": [container]},
            }))
            .await;
    }
    for name in &names {
        message(plane, namespace, name, "Insufficient cpu").await;
    }
    tokio::time::sleep(QUIET).await;
    let client = plane.unverified_client(port).await;
    let attempts = async || {
        let page = String::from_utf8(client.get("/metrics", "*/*").await.unwrap().to_vec()).unwrap();
        let samples = page.lines().filter(|line| line.starts_with("scheduler_schedule_attempts_total{"));
        samples.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum::<f64>() as u64
    };
    let (attempts_before, rows_before) = (attempts().await, plane.list("Event", namespace).await.len());
    let taint = format!("kubectl taint nodes --all probe={namespace}:NoSchedule");
    assert!(plane.shell(&taint).output().unwrap().status.success());
    for name in &names {
        message(plane, namespace, name, &format!("{NODES} node(s) had untolerated taint")).await;
    }
    tokio::time::sleep(QUIET).await;
    let effort = Effort {
        attempts: attempts().await - attempts_before,
        event_rows: plane.list("Event", namespace).await.len() - rows_before,
    };
    scheduler.stop();
    for name in &names {
        plane.remove_pod(namespace, name).await;
    }
    assert!(plane.shell("kubectl taint nodes --all probe-").output().unwrap().status.success());
    Some(effort)
}

/// Waits until a pod's condition says this.
async fn message(plane: &ControlPlane, namespace: &str, name: &str, text: &str) {
    eventually(&format!("{namespace}/{name}: {text}"), async || {
        let pod = plane.find("Pod", namespace, name).await?;
        pod["status"]["conditions"][0]["message"].as_str().filter(|message| message.contains(text)).map(drop)
    })
    .await;
}
