//! A kube-apiserver that goes away and comes back: pods are bound again within seconds.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::control_plane::{ControlPlane, eventually};

/// From the answer that the server is ready to a new pod's binding.
const BOUND_WITHIN: Duration = Duration::from_secs(15);

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "half a minute for each outage; CONTRIBUTING.md has the command"]
async fn a_pod_is_bound_within_15_seconds_after_an_outage() {
    let Some(mut plane) = ControlPlane::start().await else { return };
    let room = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
    let status = json!({"capacity": room, "allocatable": room});
    plane.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}, "status": status})).await;
    let config = plane.scheduler_config("outages", json!({}));
    let scheduler = plane.bayplan("ours", &["scheduler", "--secure-port=0", "--config", &config]);
    let away = Duration::from_secs(number("BAYPLAN_OUTAGE_SECONDS", 30));
    let mut took = Vec::new();
    for outage in 0..number("BAYPLAN_OUTAGES", 3) {
        plane.outage(away).await;
        let back = Instant::now();
        let name = format!("after-{outage}");
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        });
        plane.create(pod).await;
        eventually(&format!("{name} is bound"), async || {
            let pod = plane.find("Pod", "default", &name).await?;
            pod["spec"]["nodeName"].as_str().map(drop)
        })
        .await;
        took.push(back.elapsed());
        println!("outage {outage}: bound {:?} after the server was back", back.elapsed());
    }
    let longest = took.iter().max().copied().unwrap_or_default();
    assert!(longest < BOUND_WITHIN, "{took:?}\n{}", scheduler.log());
}
