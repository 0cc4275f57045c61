//! One Deployment until all its pods run: the whole control plane, with simulated nodes.

use std::time::{Duration, Instant};

use bayplan_model::api::{Api, ListOptions, Request, Resource, Verb, decode, encode};
use bayplan_runner::controllers::{ControllersConfig, run_controllers};
use bayplan_runner::nodes::run_nodes;
use bayplan_sim::{FleetConfig, NodeTemplate};
use futures::FutureExt;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::embedded::Embedded;
use super::observer::{Observer, Seen};
use super::{Cluster, DEPLOYMENT, Error, Options, Progress, STOP_PATIENCE, start_scheduler, wait};
use crate::measurement::{Latencies, peak_rss_bytes, process_cpu_seconds};
use crate::report::Run;

const DEPLOYMENTS: Resource = Resource::new("apps", "v1", "deployments");
const NODES: Resource = Resource::new("", "v1", "nodes");
const SERVICE_ACCOUNTS: Resource = Resource::new("", "v1", "serviceaccounts");

/// Runs it once; the latency of a pod is the time from the creation of the Deployment.
pub async fn run(options: &Options, embedded: &Embedded, progress: &mut Progress<'_>) -> Result<Run, Error> {
    let cluster = embedded.cluster();
    let (stop_scheduler, scheduler) = start_scheduler(&cluster, options);
    let (stop, stopping) = watch::channel(false);
    let manager = embedded.client("system:kube-controller-manager", &[]);
    let mut parts = JoinSet::new();
    parts.spawn(
        run_controllers(manager, ControllersConfig::default(), stopping.clone()).map(|()| "controllers".to_owned()),
    );
    let kubelets = embedded.client("system:kubelets", &["system:masters"]);
    let fleet = fleet(options.nodes);
    parts.spawn(async move { format!("simulated nodes, {:?}", run_nodes(&kubelets, fleet, stopped(stopping)).await) });
    parts.spawn(scheduler);
    let outcome = tokio::select! {
        outcome = measure(options, &cluster, progress) => outcome,
        Some(ended) = parts.join_next() => Err(Error::Stopped(ended.unwrap_or_else(|error| error.to_string()))),
    };
    stop_scheduler.send_replace(true);
    stop.send_replace(true);
    // Whoever stops the server next should find nobody who complains about it.
    let _ = tokio::time::timeout(STOP_PATIENCE, async { while parts.join_next().await.is_some() {} }).await;
    outcome
}

async fn stopped(mut stopping: watch::Receiver<bool>) {
    // A sender that is gone will never say more: that is the end too.
    let _ = stopping.wait_for(|stop| *stop).await;
}

/// Nodes that start a pod as soon as they hear of it: what is measured is the control plane.
fn fleet(nodes: usize) -> FleetConfig {
    FleetConfig { nodes, template: NodeTemplate::default(), pod_start_delay: Duration::ZERO, ..FleetConfig::default() }
}

async fn measure(options: &Options, cluster: &Cluster, progress: &mut Progress<'_>) -> Result<Run, Error> {
    let observer = Observer::start(&cluster.admin, Seen::Running).await;
    wait_for_cluster(options, cluster, progress).await?;
    let cpu = process_cpu_seconds();
    let begin = Instant::now();
    let request = Request::collection(&DEPLOYMENTS, "default", Verb::Create(encode(&deployment(options.pods))));
    let refused = |status| Error::Refused { what: "the Deployment".into(), status: Box::new(status) };
    cluster.admin.call(request).await.map_err(refused)?;
    wait(DEPLOYMENT, &observer, 0, options.pods, progress).await?;
    let cpu_seconds = process_cpu_seconds() - cpu;
    let mut latencies = Latencies::with_capacity(options.pods);
    let (mut last, times) = (begin, observer.times());
    for at in times {
        last = last.max(at);
        latencies.add(at.saturating_duration_since(begin));
    }
    Ok(Run {
        workload: DEPLOYMENT.into(),
        mode: "e2e".into(),
        nodes: options.nodes,
        pods: options.pods,
        pods_per_second: options.pods as f64 / last.saturating_duration_since(begin).as_secs_f64(),
        latency_us: latencies.summary(),
        cpu_seconds,
        peak_rss_bytes: peak_rss_bytes(),
    })
}

/// Waits until the nodes are ready and pods may be made.
async fn wait_for_cluster(options: &Options, cluster: &Cluster, progress: &mut Progress<'_>) -> Result<(), Error> {
    let ready = |node: &Value| {
        let conditions = node["status"]["conditions"].as_array();
        conditions.is_some_and(|all| all.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"))
    };
    let begin = Instant::now();
    loop {
        let list = Request::collection(&NODES, "", Verb::List(ListOptions::default()));
        let nodes: Value = cluster.admin.call(list).await.and_then(|answer| decode(&answer)).unwrap_or_default();
        let count = nodes["items"].as_array().map_or(0, |all| all.iter().filter(|node| ready(node)).count());
        let account = Request::object(&SERVICE_ACCOUNTS, "default", "default", Verb::Get);
        if count >= options.nodes && cluster.admin.call(account).await.is_ok() {
            return Ok(());
        }
        progress("nodes", count, options.nodes);
        if begin.elapsed() > super::PATIENCE {
            return Err(Error::Stuck { workload: "nodes".into(), seen: count, wanted: options.nodes });
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

fn deployment(replicas: usize) -> Value {
    let labels = json!({"app": "bench"});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "bench", "labels": labels},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{
                "name": "pause", "image": "registry.k8s.io/pause:3.10",
                "resources": {"requests": {"cpu": "100m", "memory": "100Mi"}},
            }]}},
        },
    })
}
