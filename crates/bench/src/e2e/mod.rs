//! From create to bound: every object goes through an API server, and so does every binding.
//!
//! ```text
//!   creators ──POST──▶ API server (embedded, durable store; or any other) ◀──binding── the scheduler
//!                          │ watch                                              ▲ watch
//!                          ▼                                                    │
//!                       observer: when was which pod bound ─────────────────────┘
//! ```
//!
//! The time runs from the first create of a measured pod to the last binding that a watch shows.

mod controller_workloads;
mod creators;
mod deployments;
mod embedded;
mod observer;

use std::time::{Duration, Instant};

use bayplan_client::Client;
use bayplan_model::status::Status;
use bayplan_runner::scheduler::{SchedulerConfig, run_scheduler};
use tokio::sync::watch;

pub use controller_workloads::{ControllerWorkload, run as run_controller_workload};
pub use deployments::{Deployments, run as run_deployments};
pub use embedded::Embedded;

use crate::measurement::{Latencies, Memory, process_cpu_seconds};
use crate::report::{ProcessCost, Run};
use crate::workload::{self, Workload};
use creators::Creators;
use observer::{Observer, Pod, pods};

/// A run fails when no further pod makes progress for this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why a run gives no figures.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The workload is wrong.
    #[error(transparent)]
    Workload(#[from] workload::Error),
    /// The embedded cluster does not start.
    #[error(transparent)]
    Embedded(#[from] embedded::Error),
    /// The API server refused an object.
    #[error("the API server refused {what}: {status}")]
    Refused {
        /// Object that was refused.
        what: String,
        /// Answer of the API server.
        status: Box<Status>,
    },
    /// The workload needs a controller that this mode does not run.
    #[error("{0} needs a controller that makes claims from templates: measure it in engine mode")]
    EngineOnly(String),
    /// No pod made progress for a minute.
    #[error("{workload}: only {seen} of {wanted} pods got there, and none in the last {} s", PATIENCE.as_secs())]
    Stuck {
        /// Name of the workload.
        workload: String,
        /// Pods that reached the wanted state.
        seen: usize,
        /// Pods that should have reached it.
        wanted: usize,
    },
    /// A part of the cluster ended before the run did.
    #[error("a part of the cluster stopped: {0}")]
    Stopped(String),
}

/// Time that the parts of a cluster have to stop.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// Size, rate and seed of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Nodes in the cluster.
    pub nodes: usize,
    /// Pods that are measured.
    pub pods: usize,
    /// Pods created per second; as many as the API server accepts when absent.
    pub rate: Option<f64>,
    /// Whether to measure a scheduler that runs already, and start none.
    pub external_scheduler: bool,
    /// Seed of the generator that breaks ties.
    pub seed: u64,
}

/// Reports progress: the current step, how much of it is done, and the total.
pub type Progress<'a> = dyn FnMut(&str, usize, usize) + Send + 'a;

/// Clients of the cluster that is measured.
pub struct Cluster {
    /// Client with all rights.
    pub admin: Client,
    /// Client with the rights of `system:kube-scheduler`.
    pub scheduler: Client,
}

/// What other processes have used so far.
pub type Costs<'a> = dyn Fn() -> Vec<ProcessCost> + Sync + 'a;

/// Runs a workload once.
pub async fn run(
    workload: &Workload,
    options: &Options,
    cluster: &Cluster,
    progress: &mut Progress<'_>,
) -> Result<Run, Error> {
    run_beside(workload, options, cluster, &Vec::new, progress).await
}

/// Runs a workload once, beside processes whose cost is part of it.
pub async fn run_beside(
    workload: &Workload,
    options: &Options,
    cluster: &Cluster,
    costs: &Costs<'_>,
    progress: &mut Progress<'_>,
) -> Result<Run, Error> {
    let observer = Observer::start(&cluster.admin, pods(), |pod: &Pod| !pod.spec.node_name.is_empty()).await;
    let mut creators = Creators::new(workload, options, &cluster.admin)?;
    let (stop, scheduler) = start_scheduler(cluster, options);
    let mut scheduler = std::pin::pin!(scheduler);
    let outcome = async {
        creators.set_up(&observer, progress).await?;
        measure(workload, options, creators, &observer, costs, progress).await
    };
    let outcome = tokio::select! {
        outcome = outcome => outcome,
        ended = &mut scheduler => return Err(Error::Stopped(ended)),
    };
    stop.send_replace(true);
    // The scheduler stops before the server does, so that it does not log the loss of its connections.
    if !options.external_scheduler {
        let _ = tokio::time::timeout(STOP_PATIENCE, scheduler).await;
    }
    outcome
}

/// Starts the scheduler; the future ends only when it does.
fn start_scheduler(
    cluster: &Cluster,
    options: &Options,
) -> (watch::Sender<bool>, impl Future<Output = String> + use<>) {
    let (stop, stopping) = watch::channel(false);
    let config = SchedulerConfig { seed: options.seed, ..SchedulerConfig::default() };
    let task =
        (!options.external_scheduler).then(|| tokio::spawn(run_scheduler(cluster.scheduler.clone(), config, stopping)));
    let ended = async move {
        match task {
            // An external scheduler neither fails nor stops here.
            None => std::future::pending().await,
            Some(task) => match task.await {
                Ok(Ok(())) => "asked to".into(),
                Ok(Err(error)) => error.to_string(),
                Err(error) => error.to_string(),
            },
        }
    };
    (stop, ended)
}

async fn measure(
    workload: &Workload,
    options: &Options,
    mut creators: Creators,
    observer: &Observer,
    costs: &Costs<'_>,
    progress: &mut Progress<'_>,
) -> Result<Run, Error> {
    let created = creators.measured().await?;
    let before = observer.count();
    let wanted = before + created.len();
    let (cpu, before_others) = (process_cpu_seconds(), costs());
    let begin = Instant::now();
    let creating = tokio::spawn(creators.create_measured(created));
    wait(&workload.name, observer, before, wanted, progress).await?;
    let starts = creating.await.map_err(|error| Error::Stopped(error.to_string()))??;
    let cpu_seconds = process_cpu_seconds() - cpu;
    let mut others = costs();
    for (after, before) in others.iter_mut().zip(before_others) {
        after.cpu_seconds -= before.cpu_seconds;
    }
    let mut latencies = Latencies::with_capacity(starts.len());
    let (mut first, mut last) = (None, begin);
    for (key, start) in starts {
        let Some(seen) = observer.seen_at(&key) else { continue };
        first = Some(first.map_or(start, |first: Instant| first.min(start)));
        last = last.max(seen);
        latencies.add(seen.saturating_duration_since(start));
    }
    let time = last.saturating_duration_since(first.unwrap_or(begin)).as_secs_f64();
    Ok(Run {
        workload: workload.name.clone(),
        mode: "e2e".into(),
        nodes: options.nodes,
        pods: options.pods,
        pods_per_second: options.pods as f64 / time,
        latency_us: latencies.summary(),
        cpu_seconds,
        peak_rss_bytes: Memory::read().peak_bytes,
        others,
        writes: None,
    })
}

/// Waits until the observer has seen this many objects in the wanted state.
async fn wait(
    workload: &str,
    observer: &Observer,
    before: usize,
    wanted: usize,
    progress: &mut Progress<'_>,
) -> Result<(), Error> {
    let mut changed = observer.changes();
    let mut last = (observer.count(), Instant::now());
    while last.0 < wanted {
        progress("pods", last.0 - before, wanted - before);
        // The observer outlives the run, so only the timeout shows that nothing happens.
        let _ = tokio::time::timeout(Duration::from_millis(200), changed.changed()).await;
        let count = observer.count();
        if count != last.0 {
            last = (count, Instant::now());
        } else if last.1.elapsed() > PATIENCE {
            return Err(Error::Stuck { workload: workload.into(), seen: count - before, wanted: wanted - before });
        }
    }
    Ok(())
}
