//! Measures what controllers other than the Deployment's do with much: time, memory, and the writes that it takes.

use std::time::{Duration, Instant};

use bayplan_client::{Client, Scope};
use bayplan_model::api::{Api, Request, Resource, Verb, encode};
use bayplan_model::meta::{HasMeta, ObjectMeta};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::deployments::{beside_controllers, wait_for_cluster};
use super::embedded::Embedded;
use super::observer::{Observer, Pod, pods};
use super::{Cluster, Error, Options, Progress, wait};
use crate::measurement::{Latencies, Memory, process_cpu_seconds};
use crate::report::Run;

/// Pods of a Job that run at the same time.
const PARALLELISM: usize = 1000;
/// Replicas of each StatefulSet.
const REPLICAS_OF_SETS: usize = 3;
/// Endpoints of a full slice.
const ENDPOINTS_PER_SLICE: usize = 100;
/// CronJobs wait for a minute to begin, and are created no later than this many seconds before it.
const BEFORE_THE_MINUTE: i64 = 5;

/// The workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerWorkload {
    /// A DaemonSet on all nodes.
    DaemonSet,
    /// A Job whose pods end at once.
    Job,
    /// Many StatefulSets.
    StatefulSets,
    /// A Service over pods that run already.
    Endpoints,
    /// CronJobs that are all due at the next minute.
    CronJobs,
}

/// An object as it is watched for its end.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Watched {
    metadata: ObjectMeta,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl HasMeta for Watched {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl Watched {
    fn status(&self, field: &str) -> &Value {
        self.rest.get("status").map_or(&Value::Null, |status| &status[field])
    }
}

/// What a workload creates, and when it is done.
struct Plan {
    creates: Vec<(Resource, Value)>,
    watched: Resource,
    /// Objects that have to be done.
    count: usize,
    is_done: fn(&Watched) -> bool,
}

const APPS: &str = "apps";
const DAEMON_SETS: Resource = Resource::new(APPS, "v1", "daemonsets");
const STATEFUL_SETS: Resource = Resource::new(APPS, "v1", "statefulsets");
const DEPLOYMENTS: Resource = Resource::new(APPS, "v1", "deployments");
const JOBS: Resource = Resource::new("batch", "v1", "jobs");
const CRON_JOBS: Resource = Resource::new("batch", "v1", "cronjobs");
const SERVICES: Resource = Resource::new("", "v1", "services");
const ENDPOINT_SLICES: Resource = Resource::new("discovery.k8s.io", "v1", "endpointslices");

impl ControllerWorkload {
    /// Every workload.
    pub const ALL: [ControllerWorkload; 5] = [
        ControllerWorkload::DaemonSet,
        ControllerWorkload::Job,
        ControllerWorkload::StatefulSets,
        ControllerWorkload::Endpoints,
        ControllerWorkload::CronJobs,
    ];

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            ControllerWorkload::DaemonSet => "DaemonSet",
            ControllerWorkload::Job => "Job",
            ControllerWorkload::StatefulSets => "StatefulSets",
            ControllerWorkload::Endpoints => "Endpoints",
            ControllerWorkload::CronJobs => "CronJobs",
        }
    }

    /// What it measures, for `--list`.
    pub fn about(self) -> &'static str {
        match self {
            ControllerWorkload::DaemonSet => "a DaemonSet is created: until its pods are ready on all nodes",
            ControllerWorkload::Job => "a Job of 1,000 pods at a time, which end at once: until it is complete",
            ControllerWorkload::StatefulSets => "StatefulSets of 3 replicas are created at once: until all are ready",
            ControllerWorkload::Endpoints => "a Service over pods that run: until its slices have them all",
            ControllerWorkload::CronJobs => "CronJobs due in the same minute: until a Job of each is complete",
        }
    }

    /// Finds a workload by its name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|each| each.name().eq_ignore_ascii_case(name))
    }

    /// The default number of pods on so many nodes.
    pub fn pods(self, nodes: usize) -> usize {
        match self {
            ControllerWorkload::DaemonSet => nodes,
            ControllerWorkload::Job | ControllerWorkload::Endpoints => 10_000,
            ControllerWorkload::StatefulSets => 3_000,
            ControllerWorkload::CronJobs => 200,
        }
    }

    fn plan(self, pods: usize) -> Plan {
        let meta = |number: usize| json!({"name": name(number)});
        match self {
            ControllerWorkload::DaemonSet => Plan {
                creates: vec![(
                    DAEMON_SETS,
                    json!({"metadata": meta(0), "spec": {
                        "selector": {"matchLabels": labels(0)}, "template": template(0, json!({})),
                    }}),
                )],
                watched: DAEMON_SETS,
                count: 1,
                is_done: |set| {
                    let wanted = set.status("desiredNumberScheduled");
                    wanted.as_u64().unwrap_or(0) > 0 && set.status("numberReady") == wanted
                },
            },
            ControllerWorkload::Job => Plan {
                creates: vec![(JOBS, json!({"metadata": meta(0), "spec": job_spec(pods, pods.min(PARALLELISM))}))],
                watched: JOBS,
                count: 1,
                is_done: is_complete,
            },
            ControllerWorkload::StatefulSets => {
                let count = pods.div_ceil(REPLICAS_OF_SETS);
                let set = |number| {
                    json!({"metadata": meta(number), "spec": {
                        "replicas": REPLICAS_OF_SETS, "selector": {"matchLabels": labels(number)},
                        "serviceName": name(number), "template": template(number, json!({})),
                    }})
                };
                let creates = (0..count).map(|number| (STATEFUL_SETS, set(number))).collect();
                let is_done = |set: &Watched| *set.status("readyReplicas") == REPLICAS_OF_SETS;
                Plan { creates, watched: STATEFUL_SETS, count, is_done }
            }
            ControllerWorkload::Endpoints => Plan {
                creates: vec![(
                    SERVICES,
                    json!({"metadata": meta(0), "spec": {
                        "selector": labels(0), "ports": [{"port": 80}],
                    }}),
                )],
                watched: ENDPOINT_SLICES,
                count: pods / ENDPOINTS_PER_SLICE,
                is_done: |slice| slice.rest["endpoints"].as_array().is_some_and(|all| all.len() == ENDPOINTS_PER_SLICE),
            },
            ControllerWorkload::CronJobs => {
                let job = |number| {
                    json!({"metadata": meta(number), "spec": {
                        "schedule": "* * * * *", "jobTemplate": {"spec": job_spec(1, 1)},
                    }})
                };
                let creates = (0..pods).map(|number| (CRON_JOBS, job(number))).collect();
                Plan { creates, watched: JOBS, count: pods, is_done: is_complete }
            }
        }
    }
}

fn is_complete(job: &Watched) -> bool {
    let conditions = job.status("conditions").as_array();
    conditions.is_some_and(|all| all.iter().any(|c| c["type"] == "Complete" && c["status"] == "True"))
}

fn name(number: usize) -> String {
    format!("bench-{number}")
}

fn labels(number: usize) -> Value {
    json!({"app": name(number)})
}

fn template(number: usize, annotations: Value) -> Value {
    json!({"metadata": {"labels": labels(number), "annotations": annotations}, "spec": {"containers": [{
        "name": "pause", "image": "registry.k8s.io/pause:3.10",
        "resources": {"requests": {"cpu": "100m", "memory": "100Mi"}},
    }]}})
}

fn job_spec(completions: usize, parallelism: usize) -> Value {
    let mut template = template(0, json!({"bayplan.dev/run-for": "0s"}));
    template["spec"]["restartPolicy"] = json!("Never");
    json!({"completions": completions, "parallelism": parallelism, "template": template})
}

/// Runs a workload once.
pub async fn run(
    what: ControllerWorkload,
    options: &Options,
    embedded: &Embedded,
    progress: &mut Progress<'_>,
) -> Result<Run, Error> {
    let cluster = embedded.cluster();
    let measured = measure(what, options, &cluster, progress);
    beside_controllers(options, embedded, &cluster, measured).await
}

async fn measure(
    what: ControllerWorkload,
    options: &Options,
    cluster: &Cluster,
    progress: &mut Progress<'_>,
) -> Result<Run, Error> {
    let plan = what.plan(options.pods);
    wait_for_cluster(options, cluster, progress).await?;
    if what == ControllerWorkload::Endpoints {
        run_pods(options.pods, cluster, progress).await?;
    }
    let done = Observer::start(&cluster.admin, Scope::all(&plan.watched), plan.is_done).await;
    let mut begin = Instant::now();
    let (mut cpu, mut writes) = (process_cpu_seconds(), count_writes(&cluster.admin).await?);
    if what == ControllerWorkload::CronJobs {
        not_just_before_a_minute().await;
        create(plan.creates, cluster).await?;
        until_the_minute(0).await;
        (begin, cpu, writes) = (Instant::now(), process_cpu_seconds(), count_writes(&cluster.admin).await?);
    } else {
        create(plan.creates, cluster).await?;
    }
    wait(what.name(), &done, 0, plan.count, progress).await?;
    let (cpu_seconds, writes) = (process_cpu_seconds() - cpu, count_writes(&cluster.admin).await? - writes);
    let mut latencies = Latencies::with_capacity(plan.count);
    let times = done.times();
    for at in &times {
        latencies.add(at.saturating_duration_since(begin));
    }
    let end = times.into_iter().max().unwrap_or(begin);
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
        writes: Some(writes),
    })
}

/// Pods for a Service, all running.
async fn run_pods(count: usize, cluster: &Cluster, progress: &mut Progress<'_>) -> Result<(), Error> {
    let running = Observer::start(&cluster.admin, pods(), |pod: &Pod| pod.status.phase == "Running").await;
    let spec = json!({"replicas": count, "selector": {"matchLabels": labels(0)}, "template": template(0, json!({}))});
    create(vec![(DEPLOYMENTS, json!({"metadata": {"name": name(0)}, "spec": spec}))], cluster).await?;
    wait("the pods of the Service", &running, 0, count, progress).await
}

async fn create(objects: Vec<(Resource, Value)>, cluster: &Cluster) -> Result<(), Error> {
    let creates = objects.into_iter().map(|(resource, object)| async move {
        let request = Request::collection(&resource, "default", Verb::Create(encode(&object)));
        let what = resource.plural.to_string();
        cluster.admin.call(request).await.map(drop).map_err(|status| refused(what, status))
    });
    futures::future::try_join_all(creates).await.map(drop)
}

fn refused(what: String, status: bayplan_model::status::Status) -> Error {
    Error::Refused { what, status: Box::new(status) }
}

/// The requests that wrote so far, by the API server's own metrics. Leases of nodes are left out: they come with time.
async fn count_writes(admin: &Client) -> Result<u64, Error> {
    let text = admin.get("/metrics", "text/plain").await.map_err(|status| refused("/metrics".into(), status))?;
    Ok(writes_in(&String::from_utf8_lossy(&text)))
}

fn writes_in(text: &str) -> u64 {
    let mutating = |line: &&str| {
        let verb = |verb| line.contains(&format!("verb=\"{verb}\""));
        line.starts_with("apiserver_request_total{")
            && ["POST", "PUT", "PATCH", "DELETE"].into_iter().any(verb)
            && !line.contains("resource=\"leases\"")
    };
    let count = |line: &str| line.rsplit_once(' ').and_then(|(_, count)| count.parse::<f64>().ok());
    text.lines().filter(mutating).filter_map(count).map(|count| count as u64).sum()
}

/// How many seconds of the minute have passed.
fn second_of_minute() -> i64 {
    Timestamp::now().as_second().rem_euclid(60)
}

async fn not_just_before_a_minute() {
    if second_of_minute() >= 60 - BEFORE_THE_MINUTE {
        until_the_minute(1).await;
    }
}

/// Waits until a minute begins, and some seconds more.
async fn until_the_minute(more: u64) {
    let left = u64::try_from(60 - second_of_minute()).unwrap_or(0);
    tokio::time::sleep(Duration::from_secs(left + more)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_counted_but_for_those_of_leases() {
        let line = |verb: &str, resource: &str, count: &str| {
            format!("apiserver_request_total{{code=\"200\",resource=\"{resource}\",verb=\"{verb}\"}} {count}\n")
        };
        let text = [
            line("POST", "pods", "3"),
            line("PATCH", "pods", "4"),
            line("GET", "pods", "50"),
            line("PUT", "leases", "600"),
            "apiserver_request_duration_seconds_count{verb=\"POST\"} 7000\n".to_owned(),
        ];
        assert_eq!(writes_in(&text.concat()), 7);
    }

    #[test]
    fn workloads_are_found_by_name_and_end_with_all_their_objects() {
        for what in ControllerWorkload::ALL {
            assert_eq!(ControllerWorkload::named(what.name()), Some(what));
        }
        let sizes = ControllerWorkload::ALL.map(|what| (what.plan(300).creates.len(), what.plan(300).count));
        assert_eq!(sizes, [(1, 1), (1, 1), (100, 100), (1, 3), (300, 300)]);
    }
}
