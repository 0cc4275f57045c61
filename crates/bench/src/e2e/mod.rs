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

mod creators;
mod deployments;
mod embedded;
mod observer;

use std::time::{Duration, Instant};

use bayplan_client::Client;
use bayplan_model::status::Status;
use bayplan_runner::scheduler::{SchedulerConfig, run_scheduler};
use tokio::sync::watch;

pub use deployments::{Deployments, run as run_deployments};
pub use embedded::Embedded;

use crate::measurement::{Latencies, Memory, process_cpu_seconds};
use crate::report::Run;
use crate::workload::{self, Workload};
use creators::Creators;
use observer::{Observer, Pod, pods};

/// Without any further pod in this time the rest is given up.
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
        /// Which object.
        what: String,
        /// Why.
        status: Box<Status>,
    },
    /// The workload needs somebody who is not there.
    #[error("{0} needs a controller that makes claims from templates: measure it in engine mode")]
    EngineOnly(String),
    /// Pods stay where they are.
    #[error("{workload}: only {seen} of {wanted} pods got there, and none in the last {} s", PATIENCE.as_secs())]
    Stuck {
        /// The workload.
        workload: String,
        /// How many got there.
        seen: usize,
        /// How many should have.
        wanted: usize,
    },
    /// A part of the cluster ended before the run did.
    #[error("a part of the cluster stopped: {0}")]
    Stopped(String),
}

/// How long the parts of a cluster may take to stop.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// How a workload is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many nodes.
    pub nodes: usize,
    /// How many measured pods.
    pub pods: usize,
    /// Pods offered per second; as many as the API server takes when absent.
    pub rate: Option<f64>,
    /// The API server has a scheduler already: measure that one.
    pub external_scheduler: bool,
    /// Breaks ties.
    pub seed: u64,
}

/// How far a run is: what is being done, how much of it, and out of how many.
pub type Progress<'a> = dyn FnMut(&str, usize, usize) + Send + 'a;

/// Clients of the cluster that is measured.
pub struct Cluster {
    /// May do everything.
    pub admin: Client,
    /// May do what a scheduler may.
    pub scheduler: Client,
}

/// Runs a workload once.
pub async fn run(
    workload: &Workload,
    options: &Options,
    cluster: &Cluster,
    progress: &mut Progress<'_>,
) -> Result<Run, Error> {
    let observer = Observer::start(&cluster.admin, pods(), |pod: &Pod| !pod.spec.node_name.is_empty()).await;
    let mut creators = Creators::new(workload, options, &cluster.admin)?;
    let (stop, scheduler) = start_scheduler(cluster, options);
    let mut scheduler = std::pin::pin!(scheduler);
    let outcome = async {
        creators.set_up(&observer, progress).await?;
        measure(workload, options, creators, &observer, progress).await
    };
    let outcome = tokio::select! {
        outcome = outcome => outcome,
        ended = &mut scheduler => return Err(Error::Stopped(ended)),
    };
    stop.send_replace(true);
    // Whoever stops the server next should find nobody who complains about it.
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
            // Nobody to wait for: such a scheduler neither fails nor stops here.
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
    progress: &mut Progress<'_>,
) -> Result<Run, Error> {
    let created = creators.measured().await?;
    let before = observer.count();
    let wanted = before + created.len();
    let cpu = process_cpu_seconds();
    let begin = Instant::now();
    let creating = tokio::spawn(creators.create_measured(created));
    wait(&workload.name, observer, before, wanted, progress).await?;
    let starts = creating.await.map_err(|error| Error::Stopped(error.to_string()))??;
    let cpu_seconds = process_cpu_seconds() - cpu;
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
    })
}

/// Waits until so many were seen as they should be.
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
        // The observer lives as long as the run; the timeout alone tells that nothing happens.
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
