//! Upstream's metrics of the scheduler.
//!
//! The core reads no clock: the shell provides one together with the registry. Without metrics every call below costs
//! one branch. With them, each pod costs a few atomic additions; what happens for every node and plugin is sampled, as
//! upstream does.

mod points;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use bayplan_metrics::{Buckets, Counter, Family, Gauge, Grid, Histogram, ONES, Registry, SECONDS};
use rustc_hash::FxHashMap;

use crate::framework::{ClusterEvent, Code, PluginName};
use points::TracedPoints;
pub(crate) use points::{PointTime, Stopwatch};

/// A monotonic clock, in nanoseconds.
pub type Clock = fn() -> u64;

/// One cycle and one queueing hint in this many is timed plugin by plugin.
const SAMPLE_EVERY: u32 = 10;
/// Within a sampled cycle, Filter is timed on one node in this many: timing all would cost more than filtering.
pub(crate) const FILTER_SAMPLE_EVERY: usize = 16;
/// Pods with this many attempts or more share a label.
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
    /// A sub-queue that pods enter.
    QueueLabel { Active = "active", Backoff = "backoff", Unschedulable = "unschedulable" }
}

labels! {
    /// The extension points whose evaluations are counted by plugin.
    Evaluated { PreFilter = "PreFilter", Filter = "Filter", PreScore = "PreScore", Score = "Score" }
}

impl AttemptResult {
    pub(crate) fn label(self) -> &'static str {
        Self::LABELS[self as usize]
    }
}

impl QueueLabel {
    pub(crate) fn label(self) -> &'static str {
        Self::LABELS[self as usize]
    }
}

/// The sub-queues of pending pods, with gated pods apart.
const PENDING: [&str; 4] = ["active", "backoff", "unschedulable", "gated"];

/// All codes, in the order of their values.
const CODES: [Code; 7] = [
    Code::Success,
    Code::Error,
    Code::Unschedulable,
    Code::UnschedulableAndUnresolvable,
    Code::Wait,
    Code::Skip,
    Code::Pending,
];

/// Why a pod entered a sub-queue; the `event` label of upstream's metric.
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
    pub(crate) fn label(self) -> String {
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

impl TimedPoint {
    /// The point as metrics and traces name it.
    pub(crate) fn name(self) -> &'static str {
        Self::LABELS[self as usize]
    }

    /// True for points that only the owner of the queue runs, within an attempt.
    fn is_of_scheduling_cycle(self) -> bool {
        use TimedPoint::{Filter, Permit, PostFilter, PreFilter, PreScore, Reserve, Score};
        matches!(self, PreFilter | Filter | PostFilter | PreScore | Score | Reserve | Permit)
    }
}

/// The scheduler's metrics, shared by the owner of the queue and by binding cycles.
pub(crate) struct Metrics {
    clock: Clock,
    cycles: AtomicU32,
    hints: AtomicU32,
    /// For the trace of the attempt that is being made.
    pub(crate) trace: TracedPoints,
    attempts: AttemptMetrics,
    plugins: PluginMetrics,
    preemption: PreemptionMetrics,
    state: StateMetrics,
    incoming: Family<Counter>,
    event_duration: Family<Histogram>,
    permit_wait: Grid<Histogram>,
}

/// Attempts to schedule pods.
struct AttemptMetrics {
    attempts: Grid<Counter>,
    attempt_duration: Grid<Histogram>,
    algorithm_duration: Arc<Histogram>,
    sli_duration: Grid<Histogram>,
    pod_attempts: Arc<Histogram>,
    after_flush: Arc<Counter>,
}

/// Extension points and plugins.
struct PluginMetrics {
    point_duration: Grid<Histogram>,
    plugin_duration: Grid<Histogram>,
    evaluations: Grid<Counter>,
    hint_duration: Family<Histogram>,
}

struct PreemptionMetrics {
    victims: Arc<Histogram>,
    attempts: Arc<Counter>,
    evictions: Grid<Counter>,
    eviction_duration: Grid<Histogram>,
}

/// Gauges, which [`Scheduler::publish`](crate::Scheduler::publish) sets.
struct StateMetrics {
    pending: Grid<Gauge>,
    unschedulable: Family<Gauge>,
    in_flight_events: Family<Gauge>,
    cache_size: Grid<Gauge>,
    goroutines: Grid<Gauge>,
}

fn strings(labels: &[&str]) -> Vec<String> {
    labels.iter().map(ToString::to_string).collect()
}

fn status_labels() -> Vec<String> {
    CODES.iter().map(|code| code.name().to_owned()).collect()
}

/// Histogram buckets for durations.
fn seconds(start: f64, factor: f64, count: usize) -> Buckets {
    Buckets::exponential(start, factor, count, SECONDS)
}

/// Histogram buckets for numbers.
fn count(start: f64, factor: f64, count: usize) -> Buckets {
    Buckets::exponential(start, factor, count, ONES)
}

impl AttemptMetrics {
    fn new(registry: &Registry, profiles: &[String]) -> Self {
        let result = ("result", strings(AttemptResult::LABELS));
        let profile = ("profile", profiles.to_vec());
        let attempts_label = |n: usize| if n == ATTEMPTS_LABELS { format!("{n}+") } else { n.to_string() };
        AttemptMetrics {
            attempts: registry.grid(
                "scheduler_schedule_attempts_total",
                "[STABLE] Attempts to schedule pods, by result; 'unschedulable' means that the pod fits nowhere, \
                 'error' that something broke.",
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
                "[ALPHA] Pods bound after they were retried only because they had waited too long: no event announced \
                 that they fit.",
                (),
            ),
        }
    }
}

impl PluginMetrics {
    fn new(registry: &Registry, profiles: &[String], plugins: &[PluginName]) -> Self {
        let profile = ("profile", profiles.to_vec());
        let point = ("extension_point", strings(TimedPoint::LABELS));
        let status = ("status", status_labels());
        let plugin = ("plugin", strings(plugins));
        PluginMetrics {
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
                vec![plugin, ("extension_point", strings(Evaluated::LABELS)), profile],
                (),
            ),
            hint_duration: registry.family(
                "scheduler_queueing_hint_execution_duration_seconds",
                "[ALPHA] Time to ask a plugin whether an event may help a pod, in a tenth of the cases.",
                &["plugin", "event", "hint"],
                seconds(0.00001, 1.5, 20),
            ),
        }
    }
}

impl PreemptionMetrics {
    fn new(registry: &Registry) -> Self {
        let outcomes = ("result", strings(&["success", "error"]));
        PreemptionMetrics {
            victims: registry.one(
                "scheduler_preemption_victims",
                "[STABLE] Pods chosen to go so that another fits.",
                count(1.0, 2.0, 7),
            ),
            attempts: registry.one(
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
        }
    }
}

impl StateMetrics {
    fn new(registry: &Registry) -> Self {
        StateMetrics {
            pending: registry.grid(
                "scheduler_pending_pods",
                "[STABLE] Pods that wait for a node, by queue.",
                vec![("queue", strings(&PENDING))],
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
                vec![("type", strings(&["nodes", "pods", "assumed_pods"]))],
                (),
            ),
            goroutines: registry.grid(
                "scheduler_goroutines",
                "[BETA] Work under way, by kind.",
                vec![("operation", strings(&["binding"]))],
                (),
            ),
        }
    }
}

impl Metrics {
    fn new(registry: &Registry, clock: Clock, profiles: &[String], plugins: &[PluginName]) -> Self {
        Metrics {
            clock,
            cycles: AtomicU32::new(0),
            hints: AtomicU32::new(0),
            trace: TracedPoints::default(),
            attempts: AttemptMetrics::new(registry, profiles),
            plugins: PluginMetrics::new(registry, profiles, plugins),
            preemption: PreemptionMetrics::new(registry),
            state: StateMetrics::new(registry),
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
            permit_wait: registry.grid(
                "scheduler_permit_wait_duration_seconds",
                "[BETA] Time that pods waited for Permit.",
                vec![("result", status_labels())],
                seconds(0.001, 2.0, 15),
            ),
        }
    }

    /// The current time on the metrics' clock.
    pub(crate) fn now(&self) -> u64 {
        (self.clock)()
    }

    /// True when the cycle that begins is timed plugin by plugin.
    pub(crate) fn sample_cycle(&self) -> bool {
        self.cycles.fetch_add(1, Relaxed).is_multiple_of(SAMPLE_EVERY)
    }

    /// The current time, when the hint that begins is timed.
    pub(crate) fn sample_hint(&self) -> Option<u64> {
        self.hints.fetch_add(1, Relaxed).is_multiple_of(SAMPLE_EVERY).then(|| self.now())
    }

    pub(crate) fn hint_evaluated(&self, since: u64, plugin: PluginName, event: &ClusterEvent, hint: &str) {
        self.plugins.hint_duration.get(&[plugin, &event.label(), hint]).observe(self.now().saturating_sub(since));
    }

    pub(crate) fn eviction_finished(&self, since: u64, failed: bool) {
        self.preemption.evictions.at([usize::from(failed)]).inc();
        self.preemption.eviction_duration.at([usize::from(failed)]).observe(self.now().saturating_sub(since));
    }

    /// A decision took the time since the attempt began.
    pub(crate) fn observe_decision(&self, attempt_started: u64) {
        self.attempts.algorithm_duration.observe(self.now().saturating_sub(attempt_started));
    }

    /// PostFilter ended: whether preemption was attempted, and the number of victims it chose.
    pub(crate) fn preemption_considered(&self, attempted: bool, victims: Option<usize>) {
        if attempted {
            self.preemption.attempts.inc();
        }
        if let Some(victims) = victims {
            self.preemption.victims.observe(victims as u64);
        }
    }

    pub(crate) fn permit_waited(&self, since: u64, code: Code) {
        self.permit_wait.at([code as usize]).observe(self.now().saturating_sub(since));
    }

    /// A pod was bound at this attempt, so many nanoseconds after it first became active.
    pub(crate) fn pod_bound(&self, attempts: u32, waited_nanos: u64, after_flush: bool) {
        self.attempts.pod_attempts.observe(attempts.into());
        let label = (attempts.max(1) as usize).min(ATTEMPTS_LABELS) - 1;
        self.attempts.sli_duration.at([label]).observe(waited_nanos);
        if after_flush {
            self.attempts.after_flush.inc();
        }
    }

    pub(crate) fn set_pending(&self, counts: [usize; 4]) {
        for (at, count) in counts.into_iter().enumerate() {
            self.state.pending.at([at]).set(count as f64);
        }
    }

    pub(crate) fn set_unschedulable(&self, counts: &FxHashMap<(PluginName, &str), usize>) {
        self.state.unschedulable.clear();
        for ((plugin, profile), count) in counts {
            self.state.unschedulable.get(&[plugin, profile]).set(*count as f64);
        }
    }

    pub(crate) fn set_in_flight(&self, pods: usize, events: &FxHashMap<ClusterEvent, usize>) {
        self.state.in_flight_events.clear();
        self.state.in_flight_events.get(&["PodPopped"]).set(pods as f64);
        for (event, count) in events {
            self.state.in_flight_events.get(&[&event.label()]).set(*count as f64);
        }
    }

    pub(crate) fn set_cache(&self, sizes: [usize; 3], binding: usize) {
        for (at, size) in sizes.into_iter().enumerate() {
            self.state.cache_size.at([at]).set(size as f64);
        }
        self.state.goroutines.at([0]).set(binding as f64);
    }
}

/// The metrics of one profile.
#[derive(Clone)]
pub(crate) struct ProfileMetrics {
    pub(crate) all: Arc<Metrics>,
    profile: usize,
    /// The indexes of the profile's plugins among all plugins.
    plugins: Vec<usize>,
}

impl ProfileMetrics {
    /// An attempt that began at `since` has ended.
    pub(crate) fn attempt_finished(&self, since: u64, result: AttemptResult) {
        self.all.attempts.attempts.at([result as usize, self.profile]).inc();
        let elapsed = self.all.now().saturating_sub(since);
        self.all.attempts.attempt_duration.at([result as usize, self.profile]).observe(elapsed);
    }

    /// An extension point took so long, so many times.
    pub(crate) fn point_took(&self, point: TimedPoint, code: Code, nanos: u64, times: u64) {
        self.all.plugins.point_duration.at([point as usize, code as usize, self.profile]).observe_times(nanos, times);
    }

    /// A plugin took so long for so many calls together.
    pub(crate) fn plugin_ran(&self, plugin: usize, point: TimedPoint, code: Code, nanos: u64, calls: usize) {
        let calls = calls as u64;
        if let Some(each) = nanos.checked_div(calls) {
            let cell = [self.plugins[plugin], point as usize, code as usize];
            self.all.plugins.plugin_duration.at(cell).observe_times(each, calls);
        }
    }

    /// A plugin was evaluated so many times.
    pub(crate) fn evaluated(&self, plugin: usize, point: Evaluated, many: u64) {
        if many > 0 {
            self.all.plugins.evaluations.at([self.plugins[plugin], point as usize, self.profile]).add(many);
        }
    }
}

/// The metrics of the task that owns the queue and the cluster, with its series looked up once.
pub(crate) struct OwnerMetrics {
    pub(crate) all: Arc<Metrics>,
    events: FxHashMap<ClusterEvent, Arc<Histogram>>,
    /// When the running evictions began, by the preemptor's UID.
    pub(crate) evictions: FxHashMap<String, u64>,
}

impl OwnerMetrics {
    /// An event whose handling began at `since` was handled.
    pub(crate) fn handled(&mut self, since: u64, event: ClusterEvent) {
        let elapsed = self.all.now().saturating_sub(since);
        let family = &self.all.event_duration;
        self.events.entry(event).or_insert_with(|| family.get(&[&event.label()])).observe(elapsed);
    }
}

/// Counts pods that enter sub-queues, with its series looked up once.
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
        let queue_label = queue.label();
        let fresh = || family.get(&[queue_label, &cause.label()]);
        self.known.entry((cause, queue as usize)).or_insert_with(fresh).add(pods);
    }
}

/// The registered metrics, for those who report them.
pub(crate) struct Registered {
    pub(crate) owner: OwnerMetrics,
    pub(crate) incoming: IncomingPods,
    /// In the order of the profiles.
    pub(crate) profiles: Vec<ProfileMetrics>,
}

/// Registers the metrics of these profiles, each given by its name and its plugins.
pub(crate) fn register(profiles: &[(String, Vec<PluginName>)], registry: &Registry, clock: Clock) -> Registered {
    let mut plugins: Vec<PluginName> = profiles.iter().flat_map(|(_, plugins)| plugins).copied().collect();
    plugins.sort_unstable();
    plugins.dedup();
    let names: Vec<String> = profiles.iter().map(|(name, _)| name.clone()).collect();
    let all = Arc::new(Metrics::new(registry, clock, &names, &plugins));
    let index = |name: &PluginName| plugins.binary_search(name).expect("all names were collected");
    let of_profile = |(profile, (_, plugins)): (usize, &(String, Vec<PluginName>))| ProfileMetrics {
        all: Arc::clone(&all),
        profile,
        plugins: plugins.iter().map(index).collect(),
    };
    let profiles = profiles.iter().enumerate().map(of_profile).collect();
    all.set_pending([0; 4]);
    let incoming = IncomingPods { family: all.incoming.clone(), known: FxHashMap::default() };
    let owner = OwnerMetrics { all, events: FxHashMap::default(), evictions: FxHashMap::default() };
    Registered { owner, incoming, profiles }
}
