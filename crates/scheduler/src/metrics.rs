//! What the scheduler tells of its own work: upstream's metrics, counted where things happen.
//!
//! The core reads no clock: the shell lends it one when it wants to be told. Without [`Metrics`] every place below
//! costs one branch. With them, what happens to every pod costs a few atomic additions; what happens to every node
//! and plugin is sampled, as upstream does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use bayplan_metrics::{Buckets, Counter, Family, Gauge, Grid, Histogram, ONES, Registry, SECONDS};
use rustc_hash::FxHashMap;

use crate::framework::{ClusterEvent, Code, PluginName};
use crate::profile::Profile;

/// Nanoseconds on a clock that never goes back.
pub type Clock = fn() -> u64;

/// One cycle, and one queueing hint, in so many is looked at plugin by plugin.
const SAMPLE_EVERY: u32 = 10;
/// Within a sampled cycle, Filter is timed on one node in so many: timing all would cost more than filtering.
pub(crate) const FILTER_SAMPLE_EVERY: usize = 16;
/// Pods tried this often or more share a label.
const ATTEMPTS_LABELS: usize = 15;

macro_rules! labels {
    ($(#[$meta:meta])* $enum:ident { $($variant:ident = $label:literal),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $enum { $($variant),* }

        impl $enum {
            const LABELS: &[&str] = &[$($label),*];
        }
    };
}

labels! {
    /// An extension point as metrics name it.
    TimedPoint {
        PreEnqueue = "PreEnqueue",
        PreFilter = "PreFilter",
        Filter = "Filter",
        PostFilter = "PostFilter",
        PreScore = "PreScore",
        Score = "Score",
        Normalize = "ScoreExtensionNormalize",
        Reserve = "Reserve",
        Unreserve = "Unreserve",
        Permit = "Permit",
        PreBindPreFlight = "PreBindPreFlight",
        PreBind = "PreBind",
        Bind = "Bind",
        PostBind = "PostBind",
    }
}

labels! {
    /// How an attempt ended.
    AttemptResult { Scheduled = "scheduled", Unschedulable = "unschedulable", Error = "error" }
}

labels! {
    /// A queue that pods enter.
    QueueLabel { Active = "active", Backoff = "backoff", Unschedulable = "unschedulable" }
}

labels! {
    /// The points whose work is counted plugin by plugin.
    Evaluated { PreFilter = "PreFilter", Filter = "Filter", PreScore = "PreScore", Score = "Score" }
}

/// Where pods wait: gated ones are told apart.
const PENDING: [&str; 4] = ["active", "backoff", "unschedulable", "gated"];

/// All codes, in the order of their places.
const CODES: [Code; 7] = [
    Code::Success,
    Code::Error,
    Code::Unschedulable,
    Code::UnschedulableAndUnresolvable,
    Code::Wait,
    Code::Skip,
    Code::Pending,
];

/// Why a pod entered a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Cause {
    Event(ClusterEvent),
    ScheduleAttemptFailure,
    BackoffComplete,
    PopFromBackoffQ,
    ForceActivate,
    UnschedulableTimeout,
}

impl Cause {
    fn label(self) -> String {
        match self {
            Cause::Event(event) => event.label(),
            Cause::ScheduleAttemptFailure => "ScheduleAttemptFailure".into(),
            Cause::BackoffComplete => "BackoffComplete".into(),
            Cause::PopFromBackoffQ => "PopFromBackoffQ".into(),
            Cause::ForceActivate => "ForceActivate".into(),
            Cause::UnschedulableTimeout => "UnschedulableTimeout".into(),
        }
    }
}

/// The scheduler's metrics, shared by the owner of the queue and by binding cycles.
pub(crate) struct Metrics {
    clock: Clock,
    cycles: AtomicU32,
    hints: AtomicU32,
    attempts: Grid<Counter>,
    attempt_duration: Grid<Histogram>,
    pub(crate) algorithm_duration: Arc<Histogram>,
    sli_duration: Grid<Histogram>,
    pod_attempts: Arc<Histogram>,
    after_flush: Arc<Counter>,
    point_duration: Grid<Histogram>,
    plugin_duration: Grid<Histogram>,
    evaluations: Grid<Counter>,
    hint_duration: Family<Histogram>,
    incoming: Family<Counter>,
    event_duration: Family<Histogram>,
    pub(crate) victims: Arc<Histogram>,
    pub(crate) preemption_attempts: Arc<Counter>,
    evictions: Grid<Counter>,
    eviction_duration: Grid<Histogram>,
    permit_wait: Grid<Histogram>,
    pending: Grid<Gauge>,
    unschedulable: Family<Gauge>,
    in_flight_events: Family<Gauge>,
    cache_size: Grid<Gauge>,
    goroutines: Grid<Gauge>,
}

fn texts(labels: &[&str]) -> Vec<String> {
    labels.iter().map(ToString::to_string).collect()
}

impl Metrics {
    fn new(registry: &Registry, clock: Clock, profiles: Vec<String>, plugins: &[PluginName]) -> Self {
        let seconds = |start, factor, count| Buckets::exponential(start, factor, count, SECONDS);
        let count = |start, factor, count| Buckets::exponential(start, factor, count, ONES);
        let result = ("result", texts(AttemptResult::LABELS));
        let profile = ("profile", profiles);
        let point = ("extension_point", texts(TimedPoint::LABELS));
        let status = ("status", CODES.iter().map(|code| code.name().to_owned()).collect::<Vec<_>>());
        let plugin = ("plugin", texts(plugins));
        let attempts_label = |n: usize| if n == ATTEMPTS_LABELS { format!("{n}+") } else { n.to_string() };
        let outcomes = ("result", texts(&["success", "error"]));
        Metrics {
            clock,
            cycles: AtomicU32::new(0),
            hints: AtomicU32::new(0),
            attempts: registry.grid(
                "scheduler_schedule_attempts_total",
                "[STABLE] Attempts to schedule pods, by result; 'unschedulable' means that the pod fits nowhere, 'error' that something broke.",
                vec![result.clone(), profile.clone()],
                (),
            ),
            attempt_duration: registry.grid(
                "scheduler_scheduling_attempt_duration_seconds",
                "[STABLE] Time from taking a pod up to the end of its attempt, binding included.",
                vec![result, profile.clone()],
                seconds(0.001, 2.0, 15),
            ),
            algorithm_duration: registry.one(
                "scheduler_scheduling_algorithm_duration_seconds",
                "[ALPHA] Time to decide where a pod goes.",
                seconds(0.001, 2.0, 15),
            ),
            sli_duration: registry.grid(
                "scheduler_pod_scheduling_sli_duration_seconds",
                "[BETA] Time from when a pod could first be tried until it was bound, by the number of attempts.",
                vec![("attempts", (1..=ATTEMPTS_LABELS).map(attempts_label).collect())],
                seconds(0.01, 2.0, 20),
            ),
            pod_attempts: registry.one(
                "scheduler_pod_scheduling_attempts",
                "[STABLE] Attempts that pods took until they were bound.",
                count(1.0, 2.0, 5),
            ),
            after_flush: registry.one(
                "scheduler_pod_scheduled_after_flush_total",
                "[ALPHA] Pods bound after they were retried only because they had waited too long: no event announced that they fit.",
                (),
            ),
            point_duration: registry.grid(
                "scheduler_framework_extension_point_duration_seconds",
                "[STABLE] Time to run all plugins of an extension point.",
                vec![point.clone(), status.clone(), profile.clone()],
                seconds(0.0001, 2.0, 12),
            ),
            plugin_duration: registry.grid(
                "scheduler_plugin_execution_duration_seconds",
                "[ALPHA] Time to run one plugin at an extension point, in a tenth of the cycles.",
                vec![plugin.clone(), point, status.clone()],
                seconds(0.00001, 1.5, 20),
            ),
            evaluations: registry.grid(
                "scheduler_plugin_evaluation_total",
                "[BETA] How often a plugin had something to say about a pod or a node.",
                vec![plugin, ("extension_point", texts(Evaluated::LABELS)), profile],
                (),
            ),
            hint_duration: registry.family(
                "scheduler_queueing_hint_execution_duration_seconds",
                "[ALPHA] Time to ask a plugin whether an event may help a pod, in a tenth of the cases.",
                &["plugin", "event", "hint"],
                seconds(0.00001, 1.5, 20),
            ),
            incoming: registry.family(
                "scheduler_queue_incoming_pods_total",
                "[STABLE] Pods added to a queue, by what caused it.",
                &["queue", "event"],
                (),
            ),
            event_duration: registry.family(
                "scheduler_event_handling_duration_seconds",
                "[ALPHA] Time to take a change of an object in.",
                &["event"],
                seconds(0.0001, 2.0, 12),
            ),
            victims: registry.one(
                "scheduler_preemption_victims",
                "[STABLE] Pods chosen to go so that another fits.",
                count(1.0, 2.0, 7),
            ),
            preemption_attempts: registry.one(
                "scheduler_preemption_attempts_total",
                "[STABLE] How often preemption was considered.",
                (),
            ),
            evictions: registry.grid(
                "scheduler_preemption_goroutines_execution_total",
                "[ALPHA] Evictions of victims, by result.",
                vec![outcomes.clone()],
                (),
            ),
            eviction_duration: registry.grid(
                "scheduler_preemption_goroutines_duration_seconds",
                "[ALPHA] Time to evict the victims of one preemption.",
                vec![outcomes],
                seconds(0.01, 2.0, 20),
            ),
            permit_wait: registry.grid(
                "scheduler_permit_wait_duration_seconds",
                "[BETA] Time that pods waited for Permit.",
                vec![("result", status.1)],
                seconds(0.001, 2.0, 15),
            ),
            pending: registry.grid(
                "scheduler_pending_pods",
                "[STABLE] Pods that wait for a node, by queue.",
                vec![("queue", texts(&PENDING))],
                (),
            ),
            unschedulable: registry.family(
                "scheduler_unschedulable_pods",
                "[BETA] Pods that wait because a plugin rejected them; a pod counts once for each such plugin.",
                &["plugin", "profile"],
                (),
            ),
            in_flight_events: registry.family(
                "scheduler_inflight_events",
                "[ALPHA] Events kept for pods that are being tried, and those pods (PodPopped).",
                &["event"],
                (),
            ),
            cache_size: registry.grid(
                "scheduler_cache_size",
                "[ALPHA] What the scheduler knows of the cluster.",
                vec![("type", texts(&["nodes", "pods", "assumed_pods"]))],
                (),
            ),
            goroutines: registry.grid(
                "scheduler_goroutines",
                "[BETA] Work under way, by kind.",
                vec![("operation", texts(&["binding"]))],
                (),
            ),
        }
    }

    /// Nanoseconds on the lent clock.
    pub(crate) fn now(&self) -> u64 {
        (self.clock)()
    }

    /// Whether the cycle that begins is looked at plugin by plugin.
    pub(crate) fn sample_cycle(&self) -> bool {
        self.cycles.fetch_add(1, Relaxed).is_multiple_of(SAMPLE_EVERY)
    }

    /// When a hint is timed, the time.
    pub(crate) fn sample_hint(&self) -> Option<u64> {
        self.hints.fetch_add(1, Relaxed).is_multiple_of(SAMPLE_EVERY).then(|| self.now())
    }

    pub(crate) fn hint_evaluated(&self, since: u64, plugin: PluginName, event: &ClusterEvent, hint: &str) {
        self.hint_duration.get(&[plugin, &event.label(), hint]).observe(self.now().saturating_sub(since));
    }

    pub(crate) fn eviction_finished(&self, since: u64, failed: bool) {
        self.evictions.at([usize::from(failed)]).inc();
        self.eviction_duration.at([usize::from(failed)]).observe(self.now().saturating_sub(since));
    }

    pub(crate) fn permit_waited(&self, since: u64, code: Code) {
        self.permit_wait.at([code as usize]).observe(self.now().saturating_sub(since));
    }

    /// A pod was bound at this attempt, so long after it could first be tried.
    pub(crate) fn pod_bound(&self, attempts: u32, waited_nanos: u64, after_flush: bool) {
        self.pod_attempts.observe(attempts.into());
        let label = (attempts.max(1) as usize).min(ATTEMPTS_LABELS) - 1;
        self.sli_duration.at([label]).observe(waited_nanos);
        if after_flush {
            self.after_flush.inc();
        }
    }

    pub(crate) fn set_pending(&self, counts: [usize; 4]) {
        for (at, count) in counts.into_iter().enumerate() {
            self.pending.at([at]).set(count as f64);
        }
    }

    pub(crate) fn set_unschedulable(&self, counts: &FxHashMap<(PluginName, &str), usize>) {
        self.unschedulable.clear();
        for ((plugin, profile), count) in counts {
            self.unschedulable.get(&[plugin, profile]).set(*count as f64);
        }
    }

    pub(crate) fn set_in_flight(&self, pods: usize, events: &FxHashMap<ClusterEvent, usize>) {
        self.in_flight_events.clear();
        self.in_flight_events.get(&["PodPopped"]).set(pods as f64);
        for (event, count) in events {
            self.in_flight_events.get(&[&event.label()]).set(*count as f64);
        }
    }

    pub(crate) fn set_cache(&self, sizes: [usize; 3], binding: usize) {
        for (at, size) in sizes.into_iter().enumerate() {
            self.cache_size.at([at]).set(size as f64);
        }
        self.goroutines.at([0]).set(binding as f64);
    }
}

/// The measures as seen by one profile: its own labels are known.
#[derive(Clone)]
pub(crate) struct ProfileMetrics {
    pub(crate) all: Arc<Metrics>,
    profile: usize,
    /// Where each plugin of the profile stands among all plugins.
    plugins: Vec<usize>,
}

impl ProfileMetrics {
    /// An attempt that began then has ended.
    pub(crate) fn attempt_finished(&self, since: u64, result: AttemptResult) {
        self.all.attempts.at([result as usize, self.profile]).inc();
        let elapsed = self.all.now().saturating_sub(since);
        self.all.attempt_duration.at([result as usize, self.profile]).observe(elapsed);
    }

    /// A plugin had something to say, so often.
    pub(crate) fn evaluated(&self, plugin: usize, point: Evaluated, many: u64) {
        if many > 0 {
            self.all.evaluations.at([self.plugins[plugin], point as usize, self.profile]).add(many);
        }
    }
}

/// A stopwatch for an extension point or a plugin, or nothing at all.
#[derive(Clone, Copy)]
pub(crate) struct Stopwatch<'a>(Option<(&'a ProfileMetrics, u64)>);

impl<'a> Stopwatch<'a> {
    /// Starts, if anybody wants to know.
    pub(crate) fn start(metrics: Option<&'a ProfileMetrics>) -> Self {
        Stopwatch(metrics.map(|metrics| (metrics, metrics.all.now())))
    }

    /// An extension point ended.
    pub(crate) fn point(self, point: TimedPoint, code: Code) {
        if let Some((metrics, since)) = self.0 {
            let elapsed = metrics.all.now().saturating_sub(since);
            metrics.all.point_duration.at([point as usize, code as usize, metrics.profile]).observe(elapsed);
        }
    }

    /// A plugin's part in an extension point ended.
    pub(crate) fn plugin(self, plugin: usize, point: TimedPoint, code: Code) {
        if let Some((metrics, since)) = self.0 {
            let elapsed = metrics.all.now().saturating_sub(since);
            let cell = [metrics.plugins[plugin], point as usize, code as usize];
            metrics.all.plugin_duration.at(cell).observe(elapsed);
        }
    }
}

/// What the owner of queue and cluster counts by events, with the series at hand.
pub(crate) struct OwnerMetrics {
    pub(crate) all: Arc<Metrics>,
    events: FxHashMap<ClusterEvent, Arc<Histogram>>,
    /// When each eviction under way began, by the preemptor's UID.
    pub(crate) evictions: FxHashMap<String, u64>,
}

impl OwnerMetrics {
    /// An event that began then was taken in.
    pub(crate) fn handled(&mut self, since: u64, event: ClusterEvent) {
        let elapsed = self.all.now().saturating_sub(since);
        let family = &self.all.event_duration;
        self.events.entry(event).or_insert_with(|| family.get(&[&event.label()])).observe(elapsed);
    }
}

/// Pods that enter queues, with the series at hand.
pub(crate) struct IncomingPods {
    family: Family<Counter>,
    known: FxHashMap<(Cause, usize), Arc<Counter>>,
}

impl IncomingPods {
    pub(crate) fn count(&mut self, queue: QueueLabel, cause: Cause) {
        self.count_many(queue, cause, 1);
    }

    pub(crate) fn count_many(&mut self, queue: QueueLabel, cause: Cause, pods: u64) {
        if pods == 0 {
            return;
        }
        let family = &self.family;
        let queue_label = QueueLabel::LABELS[queue as usize];
        let fresh = || family.get(&[queue_label, &cause.label()]);
        self.known.entry((cause, queue as usize)).or_insert_with(fresh).add(pods);
    }
}

/// Makes the measures of these profiles and hands each its own.
pub(crate) fn register(
    profiles: &mut [Arc<Profile>],
    registry: &Registry,
    clock: Clock,
) -> (OwnerMetrics, IncomingPods) {
    let mut names: Vec<PluginName> = profiles.iter().flat_map(|p| p.plugins().iter().map(|p| p.name())).collect();
    names.sort_unstable();
    names.dedup();
    let profile_names = profiles.iter().map(|profile| profile.name.clone()).collect();
    let all = Arc::new(Metrics::new(registry, clock, profile_names, &names));
    for (at, profile) in profiles.iter_mut().enumerate() {
        let index = |name: PluginName| names.binary_search(&name).expect("all names were collected");
        let plugins = profile.plugins().iter().map(|plugin| index(plugin.name())).collect();
        let own = ProfileMetrics { all: Arc::clone(&all), profile: at, plugins };
        Arc::get_mut(profile).expect("nobody else has the profiles of a new scheduler").metrics = Some(own);
    }
    all.set_pending([0; 4]);
    let incoming = IncomingPods { family: all.incoming.clone(), known: FxHashMap::default() };
    (OwnerMetrics { all, events: FxHashMap::default(), evictions: FxHashMap::default() }, incoming)
}
