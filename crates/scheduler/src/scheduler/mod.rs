//! The scheduler: owns the queue and the cluster state, takes inputs and gives effects.
//!
//! ```text
//!   handle(input) ──▶ events ──▶ cluster, queue
//!   schedule_one  ──▶ attempt ──▶ assume, Reserve ──▶ permit ──▶ binding ──▶ Effect::Bind
//!                        │ no node fits                  │ rejected   │ failed
//!                        ▼                               ▼            ▼
//!                     preemption ──▶ Effect::Preempt    failure: back to the queue, FailedScheduling event
//! ```

mod attempt;
mod binding;
mod events;
mod failure;
mod on_request;
mod permit;
mod preemption;
mod profiles;
mod queue_plugins;
mod recording;
mod traced;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bayplan_model::decision_log::{Changed, Evicted};
use bayplan_model::pod::Pod;
use jiff::{SignedDuration, Timestamp};
use rustc_hash::FxHashMap;

use crate::bind::CancellablePreBind;
use crate::cluster::{Cluster, PodInfo, PodInfoCache};
use crate::config::Configuration;
use crate::cycle::tie_break::TieBreak;
use crate::effect::{Effect, Input};
use crate::extender::Extender;
use crate::framework::preemption::Preemption;
use crate::framework::{ClusterEvent, PluginName, QueuedPod, Registry};
use crate::metrics::{Clock, OwnerMetrics};
use crate::profile::{self, Profile};
use crate::queue::{Backoff, ClusterChange, Queue};
use crate::record::Recorder;
use crate::trace::Traces;
use permit::WaitingPod;
pub(crate) use profiles::Profiles;
pub(crate) use queue_plugins::ProfilePlugins;
pub use recording::RecordedChoice;

/// Where the ends of attempts are logged, at level debug: `-v=3` switches it on, as upstream's.
const ATTEMPTS: &str = "bayplan_scheduler::attempts";

/// Why a scheduler cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A profile is invalid.
    #[error("initializing profiles: creating profile for scheduler name {name}: {error}")]
    Profile {
        /// The profile's `schedulerName`.
        name: String,
        /// What is wrong with it.
        #[source]
        error: profile::Error,
    },
    /// Profiles have different QueueSort plugins.
    #[error("initializing profiles: different queue sort plugins for profile {name:?}: {own:?}, first: {first:?}")]
    QueueSort {
        /// The profile's `schedulerName`.
        name: String,
        /// The profile's plugin.
        own: PluginName,
        /// The first profile's plugin.
        first: PluginName,
    },
    /// Profiles have different arguments of the QueueSort plugin.
    #[error("initializing profiles: different queue sort plugin args for profile {0:?}")]
    QueueSortArgs(String),
    /// Extenders manage resources that NodeResourcesFit must ignore, but a profile does not configure it.
    #[error("couldn't build extenders: can't find NodeResourcesFitArgs in plugin config")]
    NoFitArgs,
}

/// Queue, cluster state and profiles under one owner.
pub struct Scheduler {
    profiles: Profiles,
    pod_infos: PodInfoCache,
    queue: Queue,
    cluster: Cluster,
    ties: TieBreak,
    /// `percentageOfNodesToScore` of the configuration.
    percentage: Option<i32>,
    /// The node at which the next search begins.
    next_start: usize,
    /// Assumed pods that Permit plugins delay, by UID.
    waiting: BTreeMap<String, WaitingPod>,
    /// Pods whose binding cycle runs, by UID.
    binding: BTreeMap<String, Arc<CancellablePreBind>>,
    /// Victims that are not bound yet and go only when the others of their preemption are evicted, by the preemptor's
    /// UID.
    last_victims: BTreeMap<String, Preemption>,
    effects: Vec<Effect>,
    metrics: Option<OwnerMetrics>,
    traces: Option<Traces>,
    /// What a decision log is written from, when there is one.
    recorder: Option<Box<Recorder>>,
}

impl Scheduler {
    /// Builds a scheduler that knows no objects.
    pub fn new(configuration: &Configuration, registry: &Registry, ties: TieBreak) -> Result<Self, Error> {
        Scheduler::with_extenders(configuration, registry, Vec::new(), ties)
    }

    /// Builds a scheduler with extenders; ignorable ones are called last.
    pub fn with_extenders(
        configuration: &Configuration,
        registry: &Registry,
        extenders: Vec<Arc<dyn Extender>>,
        ties: TieBreak,
    ) -> Result<Self, Error> {
        let backoff = Backoff {
            initial: SignedDuration::from_secs(configuration.pod_initial_backoff_seconds),
            max: SignedDuration::from_secs(configuration.pod_max_backoff_seconds),
        };
        Ok(Scheduler {
            profiles: Profiles::build(configuration, registry, extenders)?,
            pod_infos: PodInfoCache::default(),
            queue: Queue::new(backoff),
            cluster: Cluster::new(),
            ties,
            percentage: configuration.percentage_of_nodes_to_score.filter(|percentage| *percentage > 0),
            next_start: 0,
            waiting: BTreeMap::new(),
            binding: BTreeMap::new(),
            last_victims: BTreeMap::new(),
            effects: Vec::new(),
            metrics: None,
            traces: None,
            recorder: None,
        })
    }

    /// Reports metrics to `registry`, timed by `clock`.
    #[must_use]
    pub fn with_metrics(mut self, registry: &bayplan_metrics::Registry, clock: Clock) -> Self {
        let (metrics, incoming) = self.profiles.register_metrics(registry, clock);
        self.queue.count_incoming(incoming);
        self.metrics = Some(metrics);
        self
    }

    /// Retries unschedulable pods after this long without any event, instead of after five minutes.
    #[must_use]
    pub fn with_max_in_unschedulable(mut self, duration: SignedDuration) -> Self {
        self.queue.set_max_in_unschedulable(duration);
        self
    }

    /// Updates the gauges (lengths of queues, sizes of caches) and what decisions that were not timed are taken to have
    /// taken; all other metrics are always current.
    pub fn publish(&mut self) {
        self.profiles.report_decisions();
        let Some(OwnerMetrics { all, .. }) = &self.metrics else { return };
        all.set_pending(self.queue.counts());
        let mut rejected = FxHashMap::default();
        for pod in self.queue.pods() {
            for plugin in pod.unschedulable_plugins.union(&pod.pending_plugins) {
                *rejected.entry((*plugin, pod.info.spec.scheduler_name.as_str())).or_default() += 1;
            }
        }
        all.set_unschedulable(&rejected);
        let (pods, events) = self.queue.in_flight();
        all.set_in_flight(pods, &events);
        let assumed = self.cluster.assumed_count();
        all.set_cache([self.cluster.node_count(), self.cluster.placed_count(), assumed], self.binding.len());
    }

    /// The current time on the metrics' clock; 0 without metrics.
    fn metrics_now(&self) -> u64 {
        self.metrics.as_ref().map_or(0, |metrics| metrics.all.now())
    }

    /// How long the current attempt of a pod has taken, if there is a clock.
    fn latency(&self, pod: &QueuedPod) -> Option<Duration> {
        let metrics = self.metrics.as_ref()?;
        Some(Duration::from_nanos(metrics.all.now().saturating_sub(pod.attempt_started)))
    }

    /// The cluster state, assumed pods included.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// All pods that have not ended, of other schedulers too, in no order.
    pub fn pods(&self) -> Vec<Arc<Pod>> {
        self.cluster.objects.pods.values().cloned().collect()
    }

    /// The scheduling queue.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// The profile of a `schedulerName`.
    pub fn profile(&self, name: &str) -> Option<&Arc<Profile>> {
        self.profiles.get(name).map(|entry| &entry.profile)
    }

    /// True for an assumed pod that waits for Permit.
    pub fn is_waiting(&self, uid: &str) -> bool {
        self.waiting.contains_key(uid)
    }

    /// True for a pod whose binding cycle runs.
    pub fn is_binding(&self, uid: &str) -> bool {
        self.binding.contains_key(uid)
    }

    /// The effects since the last call, oldest first. The shell runs them and gives their answers to
    /// [`Scheduler::handle`].
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Handles an input.
    pub fn handle(&mut self, input: Input, now: Timestamp) {
        let since = self.metrics_now();
        match input {
            Input::Delta(delta) => {
                self.record(now, || match delta.current() {
                    Some(object) => Changed::Put(object.clone()),
                    None => Changed::Gone(Box::new(delta.object().identity())),
                });
                let event = self.apply(delta, now);
                self.report_handled(since, event);
            }
            Input::Bound(outcome) => self.binding_finished(*outcome, now),
            Input::Preempted { uid, result } => {
                self.record(now, || Changed::Evicted(Evicted { uid: uid.clone(), failed: result.is_err() }));
                self.eviction_finished(&uid, result, now);
            }
        }
    }

    fn report_handled(&mut self, since: u64, event: Option<ClusterEvent>) {
        if let (Some(metrics), Some(event)) = (&mut self.metrics, event) {
            metrics.handled(since, event);
        }
    }

    /// Runs timers: backoffs, the flush of pods that waited too long, timeouts of Permit, and what binding cycles wait
    /// for. To be called about once a second.
    pub fn tick(&mut self, now: Timestamp) {
        let plugins = ProfilePlugins { profiles: &self.profiles, cluster: &self.cluster, now };
        self.queue.tick(now, &plugins);
        self.expire_waiting(now);
        self.profiles.iter().for_each(|profile| profile.waits.ask(&self.cluster, now));
    }

    /// When [`Scheduler::tick`] is due next.
    pub fn next_tick(&self) -> Option<Timestamp> {
        self.queue.next_tick().into_iter().chain(self.waiting.values().filter_map(WaitingPod::deadline)).min()
    }

    /// Moves pods to the active queue at once; gates still hold them back.
    pub fn activate(&mut self, uids: &[String], now: Timestamp) {
        let plugins = ProfilePlugins { profiles: &self.profiles, cluster: &self.cluster, now };
        self.queue.activate(uids, now, &plugins);
    }

    /// Moves the pods that a change of the cluster may make schedulable, of those that `may` move.
    fn requeue_for(&mut self, change: &ClusterChange, may: &dyn Fn(&PodInfo) -> bool, now: Timestamp) {
        let plugins = ProfilePlugins { profiles: &self.profiles, cluster: &self.cluster, now };
        self.queue.move_all(change, may, now, &plugins);
    }
}
