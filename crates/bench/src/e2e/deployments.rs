//! Measures Deployments until all their pods run: the whole control plane, with simulated nodes.

use std::time::{Duration, Instant};

use bayplan_client::Scope;
use bayplan_model::api::{Api, ListOptions, PatchKind, Request, Resource, Verb, decode, encode};
use bayplan_model::meta::{HasMeta, ObjectMeta};
use bayplan_runner::controllers::{ControllersConfig, run_controllers};
use bayplan_runner::nodes::run_nodes;
use bayplan_sim::{FleetConfig, NodeTemplate};
use futures::FutureExt;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::embedded::Embedded;
use super::observer::{Observer, Pod, pods};
use super::{Cluster, Error, Options, Progress, STOP_PATIENCE, start_scheduler, wait};
use crate::measurement::{Latencies, Memory, process_cpu_seconds};
use crate::report::Run;

const DEPLOYMENTS: Resource = Resource::new("apps", "v1", "deployments");
const NODES: Resource = Resource::new("", "v1", "nodes");
const SERVICE_ACCOUNTS: Resource = Resource::new("", "v1", "serviceaccounts");

/// Replicas of each Deployment in `ManyDeployments`.
const REPLICAS_OF_MANY: usize = 10;

/// The workloads of Deployments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deployments {
    /// One Deployment is created; ends when its last pod runs.
    Created,
    /// One Deployment gets a new image; ends when `kubectl rollout status` would return.
    Rolled,
    /// Many Deployments are created at once; ends when all are available.
    Many,
}

impl Deployments {
    /// Every workload.
    pub const ALL: [Deployments; 3] = [Deployments::Created, Deployments::Rolled, Deployments::Many];

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Deployments::Created => "Deployment",
            Deployments::Rolled => "DeploymentRollout",
            Deployments::Many => "ManyDeployments",
        }
    }

    /// What it measures, for `--list`.
    pub fn about(self) -> &'static str {
        match self {
            Deployments::Created => "one Deployment is created: until its last pod runs",
            Deployments::Rolled => "one Deployment gets a new image: until it is rolled out",
            Deployments::Many => "Deployments of 10 replicas are created at once: until all are available",
        }
    }

    /// Finds a workload by its name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|each| each.name().eq_ignore_ascii_case(name))
    }

    /// Replicas of each Deployment, for this total of pods.
    fn replicas(self, mut pods: usize) -> Vec<usize> {
        let each = if self == Deployments::Many { REPLICAS_OF_MANY } else { pods };
        let mut replicas = Vec::new();
        while pods > 0 {
            replicas.push(each.min(pods));
            pods -= each.min(pods);
        }
        replicas
    }
}

/// Runs a workload once. The latency of a pod is the time from the change of its Deployment until it runs.
pub async fn run(
    what: Deployments,
    options: &Options,
    embedded: &Embedded,
    progress: &mut Progress<'_>,
) -> Result<Run, Error> {
    let cluster = embedded.cluster();
    let measured = measure(what, options, &cluster, progress);
    beside_controllers(options, embedded, &cluster, measured).await
}

/// Runs a measurement beside the scheduler, all controllers and simulated nodes.
pub(super) async fn beside_controllers(
    options: &Options,
    embedded: &Embedded,
    cluster: &Cluster,
    measured: impl Future<Output = Result<Run, Error>>,
) -> Result<Run, Error> {
    let (stop_scheduler, scheduler) = start_scheduler(cluster, options);
    let (stop, stopping) = watch::channel(false);
    let manager = embedded.client("system:kube-controller-manager", &[]);
    let mut parts = JoinSet::new();
    parts.spawn(
        run_controllers(manager, ControllersConfig::default(), stopping.clone()).map(|()| "controllers".to_owned()),
    );
    let kubelets = embedded.client("system:kubelets", &["system:masters"]);
    let fleet = fleet(options.nodes);
    let nodes = run_nodes(kubelets, fleet, watch::channel(0).0, stopping);
    parts.spawn(nodes.map(|end| format!("simulated nodes, {end:?}")));
    parts.spawn(scheduler);
    let outcome = tokio::select! {
        outcome = measured => outcome,
        Some(ended) = parts.join_next() => Err(Error::Stopped(ended.unwrap_or_else(|error| error.to_string()))),
    };
    stop_scheduler.send_replace(true);
    stop.send_replace(true);
    // Whoever stops the server next should find nobody who complains about it.
    let _ = tokio::time::timeout(STOP_PATIENCE, async { while parts.join_next().await.is_some() {} }).await;
    outcome
}

/// Nodes that start pods without delay, so that only the control plane is measured.
fn fleet(nodes: usize) -> FleetConfig {
    FleetConfig { nodes, template: NodeTemplate::default(), pod_start_delay: Duration::ZERO, ..FleetConfig::default() }
}

async fn measure(
    what: Deployments,
    options: &Options,
    cluster: &Cluster,
    progress: &mut Progress<'_>,
) -> Result<Run, Error> {
    let running = Observer::start(&cluster.admin, pods(), |pod: &Pod| pod.status.phase == "Running").await;
    wait_for_cluster(options, cluster, progress).await?;
    if what == Deployments::Rolled {
        let complete = observe(cluster, 1).await;
        create(what, options, cluster).await?;
        wait(what.name(), &running, 0, options.pods, progress).await?;
        wait(what.name(), &complete, 0, 1, progress).await?;
    }
    let before = running.count();
    let complete = observe(cluster, if what == Deployments::Rolled { 2 } else { 1 }).await;
    let cpu = process_cpu_seconds();
    let begin = Instant::now();
    match what {
        Deployments::Rolled => roll(cluster).await?,
        _ => create(what, options, cluster).await?,
    }
    wait(what.name(), &running, before, before + options.pods, progress).await?;
    if what != Deployments::Created {
        wait(what.name(), &complete, 0, what.replicas(options.pods).len(), progress).await?;
    }
    let cpu_seconds = process_cpu_seconds() - cpu;
    let mut latencies = Latencies::with_capacity(options.pods);
    for at in running.times().into_iter().filter(|at| *at >= begin) {
        latencies.add(at.saturating_duration_since(begin));
    }
    let ends = if what == Deployments::Created { running.times() } else { complete.times() };
    let end = ends.into_iter().max().unwrap_or(begin);
    Ok(Run {
        workload: what.name().into(),
        mode: "e2e".into(),
        nodes: options.nodes,
        pods: options.pods,
        pods_per_second: options.pods as f64 / end.saturating_duration_since(begin).as_secs_f64(),
        latency_us: latencies.summary(),
        cpu_seconds,
        peak_rss_bytes: Memory::read().peak_bytes,
        others: Vec::new(),
        writes: None,
    })
}

/// Observes Deployments that are rolled out in this generation or a later one.
async fn observe(cluster: &Cluster, generation: i64) -> Observer {
    let rolled_out = move |d: &Deployment| {
        let (wanted, status) = (d.spec.replicas, &d.status);
        d.metadata.generation >= generation
            && status.observed_generation >= d.metadata.generation
            && [status.replicas, status.updated_replicas, status.available_replicas] == [wanted; 3]
    };
    Observer::start(&cluster.admin, Scope::all(&DEPLOYMENTS), rolled_out).await
}

async fn create(what: Deployments, options: &Options, cluster: &Cluster) -> Result<(), Error> {
    let replicas = what.replicas(options.pods).into_iter().enumerate();
    let creates = replicas.map(|(number, replicas)| {
        let body = encode(&deployment(number, replicas));
        send(cluster, Request::collection(&DEPLOYMENTS, "default", Verb::Create(body)))
    });
    futures::future::try_join_all(creates).await.map(drop)
}

/// What `kubectl set image` sends.
async fn roll(cluster: &Cluster) -> Result<(), Error> {
    let containers = json!([{"name": "pause", "image": "registry.k8s.io/pause:3.11"}]);
    let patch = encode(&json!({"spec": {"template": {"spec": {"containers": containers}}}}));
    let verb = Verb::Patch(PatchKind::Strategic, patch);
    send(cluster, Request::object(&DEPLOYMENTS, "default", &name(0), verb)).await
}

async fn send(cluster: &Cluster, request: Request) -> Result<(), Error> {
    let refused = |status| Error::Refused { what: "a Deployment".into(), status: Box::new(status) };
    cluster.admin.call(request).await.map(drop).map_err(refused)
}

/// Waits until the nodes are ready and pods can be created.
pub(super) async fn wait_for_cluster(
    options: &Options,
    cluster: &Cluster,
    progress: &mut Progress<'_>,
) -> Result<(), Error> {
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

fn name(number: usize) -> String {
    format!("bench-{number}")
}

fn deployment(number: usize, replicas: usize) -> Value {
    let labels = json!({"app": name(number)});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name(number), "labels": labels},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{
                "name": "pause", "image": "registry.k8s.io/pause:3.10",
                "resources": {"requests": {"cpu": "100m", "memory": "100Mi"}},
            }]}},
        },
    })
}

/// The fields of a Deployment that are read.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Deployment {
    metadata: ObjectMeta,
    spec: Spec,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    replicas: i64,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    observed_generation: i64,
    replicas: i64,
    updated_replicas: i64,
    available_replicas: i64,
}

impl HasMeta for Deployment {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}
