//! The scheduler: owns queue and cluster, takes events in, gives effects out.

mod events;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bayplan_model::api::{EventType, Request};
use jiff::{SignedDuration, Timestamp};
use rustc_hash::FxHashMap;

use crate::bind::{BindOutcome, Binding, PreBind};
use crate::cluster::{Cluster, Object, PodInfo, PodInfoCache};
use crate::config::{Configuration, GoDuration};
use crate::cycle::filter::Search;
use crate::cycle::fit_error::Diagnosis;
use crate::cycle::preempt::Preemption;
use crate::cycle::tie_break::TieBreak;
use crate::cycle::{Attempt, Decision};
use crate::effect::{Effect, StatusUpdate, event};
use crate::engine::{DecisionInput, Engine, Verdict};
use crate::extender::{Extender, Extenders};
use crate::framework::{
    ClusterEvent, Code, Cycle, CycleStates, EventResource, ExtensionPoints, Nomination, PluginName, Registry, Status,
    action,
};
use crate::metrics::{self, AttemptResult, Clock, OwnerMetrics, TimedPoint};
use crate::profile::{self, Profile};
use crate::queue::{Backoff, ClusterChange, Queue, QueueStage, QueuedPod};
use crate::queue_plugins::ProfilePlugins;

/// Longest wait on Permit, whatever a plugin asks for.
const PERMIT_TIMEOUT_MAX: Duration = Duration::from_secs(15 * 60);

/// Why a scheduler cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A profile is wrong.
    #[error("initializing profiles: creating profile for scheduler name {name}: {error}")]
    Profile {
        /// Its name.
        name: String,
        /// What is wrong.
        #[source]
        error: profile::Error,
    },
    /// Profiles order the queue differently.
    #[error("initializing profiles: different queue sort plugins for profile {name:?}: {own:?}, first: {first:?}")]
    QueueSort {
        /// The profile.
        name: String,
        /// Its plugin.
        own: PluginName,
        /// The first profile's plugin.
        first: PluginName,
    },
    /// Profiles order the queue with different arguments.
    #[error("initializing profiles: different queue sort plugin args for profile {0:?}")]
    QueueSortArgs(String),
    /// Extenders take resources off NodeResourcesFit, which a profile does not configure.
    #[error("couldn't build extenders: can't find NodeResourcesFitArgs in plugin config")]
    NoFitArgs,
}

/// Something the scheduler is told.
pub enum Input {
    /// An object was added or changed.
    Upsert(Object),
    /// An object is gone; this is its last known version.
    Delete(Object),
    /// A binding cycle ended.
    Bound(Box<BindOutcome>),
    /// An eviction ended.
    Preempted {
        /// The pod it was for.
        uid: String,
        /// Whether all victims are on their way.
        result: Result<(), String>,
    },
}

/// A placed pod that Permit plugins hold back.
struct WaitingPod {
    binding: Binding,
    /// Who holds it back, and until when.
    pending_plugins: Vec<(PluginName, Timestamp, Duration)>,
    /// When it began to wait, on the clock of the measures.
    since: u64,
}

/// Queue, cluster and profiles under one owner.
pub struct Scheduler {
    profiles: Vec<Arc<Profile>>,
    /// By profile.
    engines: Vec<Engine>,
    pod_infos: PodInfoCache,
    queue: Queue,
    cluster: Cluster,
    ties: TieBreak,
    percentage: Option<i32>,
    next_start: usize,
    waiting: BTreeMap<String, WaitingPod>,
    /// The pods whose binding cycle runs, by UID.
    binding: BTreeMap<String, Arc<PreBind>>,
    effects: Vec<Effect>,
    metrics: Option<OwnerMetrics>,
}

impl Scheduler {
    /// Builds a scheduler without any object.
    pub fn new(configuration: &Configuration, registry: &Registry, ties: TieBreak) -> Result<Self, Error> {
        Scheduler::with_extenders(configuration, registry, Vec::new(), ties)
    }

    /// Builds a scheduler that asks these extenders too; those it can do without are asked last.
    pub fn with_extenders(
        configuration: &Configuration,
        registry: &Registry,
        mut extenders: Vec<Arc<dyn Extender>>,
        ties: TieBreak,
    ) -> Result<Self, Error> {
        extenders.sort_by_key(|extender| extender.config().ignorable);
        let extenders = Extenders::from(extenders);
        let ignored = configuration.ignored_by_scheduler();
        let mut profiles: Vec<Arc<Profile>> = Vec::new();
        for config in &configuration.profiles {
            let name = config.scheduler_name.clone().unwrap_or_default();
            let changed = match ignored.as_slice() {
                [] => None,
                ignored => Some(config.ignoring(ignored).ok_or(Error::NoFitArgs)?),
            };
            let profile = Profile::build(changed.as_ref().unwrap_or(config), registry)
                .map_err(|error| Error::Profile { name, error })?
                .with_extenders(Extenders::clone(&extenders));
            if let Some(first) = profiles.first()
                && first.queue_sort().name() != profile.queue_sort().name()
            {
                let (own, first) = (profile.queue_sort().name(), first.queue_sort().name());
                return Err(Error::QueueSort { name: profile.name.clone(), own, first });
            }
            let plugin = profile.queue_sort().name();
            if config.args(plugin) != configuration.profiles[0].args(plugin) {
                return Err(Error::QueueSortArgs(profile.name.clone()));
            }
            profiles.push(Arc::new(profile));
        }
        let backoff = Backoff {
            initial: SignedDuration::from_secs(configuration.pod_initial_backoff_seconds),
            max: SignedDuration::from_secs(configuration.pod_max_backoff_seconds),
        };
        Ok(Scheduler {
            engines: profiles.iter().map(|_| Engine::default()).collect(),
            pod_infos: PodInfoCache::default(),
            profiles,
            queue: Queue::new(backoff),
            cluster: Cluster::new(),
            ties,
            percentage: configuration.percentage_of_nodes_to_score.filter(|percentage| *percentage > 0),
            next_start: 0,
            waiting: BTreeMap::new(),
            binding: BTreeMap::new(),
            effects: Vec::new(),
            metrics: None,
        })
    }

    /// Has a new scheduler tell of its work, by this clock.
    #[must_use]
    pub fn with_metrics(mut self, registry: &bayplan_metrics::Registry, clock: Clock) -> Self {
        let (metrics, incoming) = metrics::register(&mut self.profiles, registry, clock);
        self.queue.count_incoming(incoming);
        self.metrics = Some(metrics);
        self
    }

    /// Has pods that no event woke tried again after this long instead of five minutes.
    #[must_use]
    pub fn with_max_in_unschedulable(mut self, duration: SignedDuration) -> Self {
        self.queue.set_max_in_unschedulable(duration);
        self
    }

    /// Brings what is told as a state (queue lengths, sizes) up to date; everything else is always.
    pub fn publish(&self) {
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

    /// The time on the clock of the measures.
    fn metrics_now(&self) -> u64 {
        self.metrics.as_ref().map_or(0, |metrics| metrics.all.now())
    }

    /// What is known of the cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The pods that wait for a node.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// The profile of this `schedulerName`.
    pub fn profile(&self, name: &str) -> Option<&Arc<Profile>> {
        self.profiles.iter().find(|profile| profile.name == name)
    }

    /// True for a pod that was placed and waits for Permit.
    pub fn is_waiting(&self, uid: &str) -> bool {
        self.waiting.contains_key(uid)
    }

    /// True for a pod whose binding cycle runs.
    pub fn is_binding(&self, uid: &str) -> bool {
        self.binding.contains_key(uid)
    }

    /// What is to be done outside, oldest first.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Takes an event in.
    pub fn handle(&mut self, input: Input, now: Timestamp) {
        let since = self.metrics_now();
        match input {
            Input::Upsert(object) => {
                let event = self.upsert(object, now);
                self.report_handled(since, event);
            }
            Input::Delete(object) => {
                let event = self.delete(object, now);
                self.report_handled(since, event);
            }
            Input::Bound(outcome) => self.binding_finished(*outcome, now),
            Input::Preempted { uid, result } => self.eviction_finished(&uid, result.is_err(), now),
        }
    }

    fn report_handled(&mut self, since: u64, event: Option<ClusterEvent>) {
        if let (Some(metrics), Some(event)) = (&mut self.metrics, event) {
            metrics.handled(since, event);
        }
    }

    /// Runs timers: backoffs, the flush of pods that nothing woke, and waits on Permit.
    pub fn tick(&mut self, now: Timestamp) {
        let plugins = ProfilePlugins { profiles: &self.profiles, cluster: &self.cluster, now };
        self.queue.tick(now, &plugins);
        let expired: Vec<(String, Status)> = self
            .waiting
            .iter()
            .filter_map(|(uid, waiting)| {
                let (plugin, _, timeout) = waiting.pending_plugins.iter().find(|(_, deadline, _)| *deadline <= now)?;
                let waited = GoDuration::from(*timeout);
                let text = format!("rejected due to timeout after waiting {waited} at plugin {plugin}");
                Some((uid.clone(), Status::unschedulable(text).by(plugin)))
            })
            .collect();
        for (uid, status) in expired {
            self.reject_waiting(&uid, status, now);
        }
    }

    /// When [`Scheduler::tick`] has something to do next.
    pub fn next_tick(&self) -> Option<Timestamp> {
        let permits = self.waiting.values().flat_map(|w| w.pending_plugins.iter().map(|(_, deadline, _)| *deadline));
        self.queue.next_tick().into_iter().chain(permits).min()
    }

    /// A Permit plugin lets a waiting pod go; the last one starts the binding.
    pub fn allow(&mut self, uid: &str, plugin: PluginName) {
        let Some(waiting) = self.waiting.get_mut(uid) else { return };
        waiting.pending_plugins.retain(|(holder, ..)| *holder != plugin);
        if waiting.pending_plugins.is_empty()
            && let Some(waiting) = self.waiting.remove(uid)
        {
            self.report_permit_wait(waiting.since, Code::Success);
            self.start_binding(waiting.binding);
        }
    }

    /// A Permit plugin rejects a waiting pod.
    pub fn reject(&mut self, uid: &str, plugin: PluginName, reason: String, now: Timestamp) {
        self.reject_waiting(uid, Status::unschedulable(reason).by(plugin), now);
    }

    /// Makes pods ready to be tried at once.
    pub fn activate(&mut self, uids: &[String], now: Timestamp) {
        let plugins = ProfilePlugins { profiles: &self.profiles, cluster: &self.cluster, now };
        self.queue.activate(uids, now, &plugins);
    }

    /// Tries the next pod; false when none is ready.
    pub fn schedule_one(&mut self, now: Timestamp) -> bool {
        let plugins = ProfilePlugins { profiles: &self.profiles, cluster: &self.cluster, now };
        let Some(mut pod) = self.queue.pop(&plugins) else { return false };
        pod.attempt_started = self.metrics_now();
        let uid = pod.info.uid().to_owned();
        let Some(profile) = self.profile(&pod.info.spec.scheduler_name).cloned() else {
            self.queue.done(&uid);
            return true;
        };
        if pod.info.is_terminating() {
            let note = format!("skip schedule deleting pod: {}", pod.info.key());
            let event = event(&pod.info, EventType::Warning, "FailedScheduling", "Scheduling", note);
            self.effects.push(Effect::record(&pod.info, event));
            self.queue.done(&uid);
        } else if self.cluster.placed(&uid).is_some() {
            self.queue.done(&uid);
        } else {
            self.attempt(profile, pod, now);
        }
        true
    }

    fn attempt(&mut self, profile: Arc<Profile>, pod: QueuedPod, now: Timestamp) {
        let search = Search { start: self.next_start, percentage: profile.percentage.or(self.percentage) };
        let sampled = self.metrics.as_ref().is_some_and(|metrics| metrics.all.sample_cycle());
        if search.is_exhaustive() {
            match self.decide(&profile, &pod.info, now) {
                Some(Verdict::Node(node, mut states)) => {
                    states.sampled = sampled;
                    self.report_decision_time(&pod);
                    return self.place(profile, pod, node.to_string(), states, now);
                }
                Some(Verdict::Nowhere) => {
                    if let Some((failure, preemption, calls)) = self.explain(&profile, &pod.info, now) {
                        self.report_decision_time(&pod);
                        return self.unfit(&profile, pod, failure, preemption, calls, now);
                    }
                }
                None => {}
            }
        }
        let info = pod.info.clone();
        let mut attempt = Attempt::new(&profile, &self.cluster, &self.queue.nominator, &info, now).sampled(sampled);
        let (decision, evaluated) = attempt.decide(search, &mut self.ties);
        attempt.report_metrics();
        let states = attempt.states;
        self.report_decision_time(&pod);
        self.next_start = (self.next_start + evaluated) % self.cluster.node_count().max(1);
        match decision {
            Decision::Node(node) => self.place(Arc::clone(&profile), pod, node, states, now),
            Decision::NoNodes => {
                let status = Status::unresolvable("no nodes available to schedule pods");
                self.fail(pod, Failure::of(status), now);
            }
            Decision::Failed(status) => self.fail(pod, Failure::of(status), now),
            Decision::Unschedulable(unfit) => {
                let unfit = *unfit;
                let failure = Failure::unfit(&unfit.diagnosis, unfit.nomination);
                self.unfit(&profile, pod, failure, unfit.preemption, unfit.calls, now);
            }
        }
    }

    /// Tells how long the decision took.
    fn report_decision_time(&self, pod: &QueuedPod) {
        if let Some(OwnerMetrics { all, .. }) = &self.metrics {
            all.algorithm_duration.observe(all.now().saturating_sub(pod.attempt_started));
        }
    }

    /// A pod fits nowhere: begins what PostFilter asks for.
    fn unfit(
        &mut self,
        profile: &Profile,
        pod: QueuedPod,
        failure: Failure,
        preemption: Option<Preemption>,
        calls: Vec<Request>,
        now: Timestamp,
    ) {
        self.report_preemption(profile, preemption.as_ref());
        let preemption = preemption.and_then(|preemption| self.begin_preemption(preemption, now));
        self.fail(pod, failure, now);
        self.effects.extend(preemption.map(|preemption| Effect::Preempt(Box::new(preemption))));
        self.push_calls(calls);
    }

    /// Asks the engine why a pod fits nowhere; none when only the plain cycle can tell.
    fn explain(
        &mut self,
        profile: &Arc<Profile>,
        pod: &PodInfo,
        now: Timestamp,
    ) -> Option<(Failure, Option<Preemption>, Vec<Request>)> {
        let at = self.profiles.iter().position(|own| Arc::ptr_eq(own, profile))?;
        let input = DecisionInput { profile, cluster: &self.cluster, nominator: &self.queue.nominator, pod, now };
        let (unfit, answer) = self.engines[at].explain(input, &mut self.ties)?;
        Some((Failure::unfit(&unfit.diagnosis, answer.nomination), answer.preemption, answer.calls))
    }

    /// Asks the engine; none when only the plain cycle can tell.
    fn decide(&mut self, profile: &Arc<Profile>, pod: &PodInfo, now: Timestamp) -> Option<Verdict> {
        let at = self.profiles.iter().position(|own| Arc::ptr_eq(own, profile))?;
        let input = DecisionInput { profile, cluster: &self.cluster, nominator: &self.queue.nominator, pod, now };
        let watch = profile.stopwatch();
        let strategy_for = self.engines[at].decide(input, &mut self.ties);
        if strategy_for.is_some() {
            // The engine does not filter first and score then; all of it is told as Filter.
            watch.point(TimedPoint::Filter, Code::Success);
        }
        strategy_for
    }

    /// Assume, Reserve, Permit.
    fn place(&mut self, profile: Arc<Profile>, pod: QueuedPod, node: String, states: CycleStates, now: Timestamp) {
        let assumed = pod.info.clone();
        if let Err(error) = self.cluster.assume(assumed.clone(), &node) {
            return self.fail(pod, Failure::of(Status::error(error.to_string())), now);
        }
        self.queue.nominator.remove(pod.info.uid());
        let mut binding = Binding::new(profile, pod, assumed, node, states);
        let status = self.reserve(&mut binding);
        if !status.is_success() {
            return self.fail_in_cycle(binding, status, now);
        }
        match self.permit(&mut binding, now) {
            Err(status) => self.fail_in_cycle(binding, status, now),
            Ok(pending_plugins) if pending_plugins.is_empty() => self.start_binding(binding),
            Ok(pending_plugins) => {
                let nominate = StatusUpdate::nominate(&binding.pod.info, &binding.node);
                self.effects.push(Effect::UpdateStatus(Box::new(nominate)));
                let since = self.metrics_now();
                self.waiting.insert(binding.pod.info.uid().to_owned(), WaitingPod { binding, pending_plugins, since });
            }
        }
    }

    fn report_preemption(&self, profile: &Profile, preemption: Option<&Preemption>) {
        let Some(OwnerMetrics { all, .. }) = &self.metrics else { return };
        if profile.at(ExtensionPoints::POST_FILTER).iter().any(|&at| profile.plugin(at).name() == "DefaultPreemption") {
            all.preemption_attempts.inc();
        }
        if let Some(preemption) = preemption {
            all.victims.observe(preemption.victims.len() as u64);
        }
    }

    fn reserve(&mut self, binding: &mut Binding) -> Status {
        let profile = Arc::clone(&binding.profile);
        let watch = profile.stopwatch();
        let status = self.ask_reserve(binding);
        watch.point(TimedPoint::Reserve, status.code);
        status
    }

    fn ask_reserve(&mut self, binding: &mut Binding) -> Status {
        for &plugin in binding.profile.at(ExtensionPoints::RESERVE) {
            let watch = binding.profile.stopwatch_if(binding.states.sampled);
            let state = binding.states.get_mut(plugin);
            let status = state.reserve(&mut self.cluster, &binding.assumed, &binding.node);
            watch.plugin(plugin, TimedPoint::Reserve, status.code);
            if !status.is_success() {
                return with_point("Reserve", status);
            }
        }
        Status::SUCCESS
    }

    /// Runs Permit; who makes the pod wait is returned with the deadline.
    fn permit(&self, binding: &mut Binding, now: Timestamp) -> Result<Vec<(PluginName, Timestamp, Duration)>, Status> {
        let mut pending_plugins = Vec::new();
        let profile = Arc::clone(&binding.profile);
        let watch = profile.stopwatch();
        for &plugin in profile.at(ExtensionPoints::PERMIT) {
            let cycle = Cycle { pod: &binding.assumed, cluster: &self.cluster, now };
            let answer = binding.states.get_mut(plugin).permit(&cycle, &binding.node);
            match answer.status.code {
                Code::Success => {}
                Code::Wait => {
                    let timeout = answer.timeout.min(PERMIT_TIMEOUT_MAX);
                    let deadline = now.saturating_add(timeout).unwrap_or(now);
                    pending_plugins.push((answer.status.plugin, deadline, timeout));
                }
                code => {
                    watch.point(TimedPoint::Permit, code);
                    return Err(with_point("Permit", answer.status));
                }
            }
        }
        watch.point(TimedPoint::Permit, if pending_plugins.is_empty() { Code::Success } else { Code::Wait });
        Ok(pending_plugins)
    }

    fn start_binding(&mut self, binding: Binding) {
        let uid = binding.pod.info.uid();
        self.queue.done(uid);
        self.binding.insert(uid.to_owned(), Arc::clone(&binding.pre_bind));
        self.effects.push(Effect::Bind(Box::new(binding)));
    }

    /// Has calls sent that plugins ask for.
    fn push_calls(&mut self, calls: Vec<Request>) {
        if !calls.is_empty() {
            self.effects.push(Effect::Call(calls));
        }
    }

    /// Turns back a pod in the cycle that placed it: nobody has seen its room taken, so nobody hears that it is free.
    fn fail_in_cycle(&mut self, mut binding: Binding, status: Status, now: Timestamp) {
        self.unreserve(&mut binding);
        let failure = Failure::after_placing(&binding.node, status);
        self.fail(binding.pod, failure, now);
    }

    /// Takes an assumed pod off its node.
    fn unreserve(&mut self, binding: &mut Binding) {
        let profile = Arc::clone(&binding.profile);
        let watch = profile.stopwatch();
        for &plugin in binding.profile.at(ExtensionPoints::RESERVE).iter().rev() {
            let state = binding.states.get_mut(plugin);
            state.unreserve(&mut self.cluster, &binding.assumed, &binding.node);
        }
        watch.point(TimedPoint::Unreserve, Code::Success);
        let calls = std::mem::take(&mut self.cluster.calls);
        self.push_calls(calls);
        self.cluster.forget(binding.assumed.uid());
    }

    /// Takes an assumed pod off its node and back into the queue, and tells who waits for room.
    fn fail_binding_cycle(&mut self, mut binding: Binding, status: Status, now: Timestamp) {
        self.unreserve(&mut binding);
        let rejected = status.is_rejected();
        let failure = Failure::after_placing(&binding.node, status);
        let uid = binding.pod.info.uid().to_owned();
        let freed = ClusterChange {
            event: ClusterEvent::new(EventResource::AssignedPod, action::DELETE),
            old: Some(Object::Pod(binding.assumed.pod_on(&binding.node))),
            new: None,
        };
        if rejected {
            // A pod that was turned down does not wake itself.
            self.fail(binding.pod, failure, now);
            self.requeue_for(&freed, &|pod| pod.uid() != uid, now);
        } else {
            self.requeue_for(&freed, &|_| true, now);
            self.fail(binding.pod, failure, now);
        }
    }

    fn binding_finished(&mut self, outcome: BindOutcome, now: Timestamp) {
        self.binding.remove(outcome.uid());
        if !outcome.status.is_success() {
            return self.fail_binding_cycle(outcome.binding, outcome.status, now);
        }
        let pod = &outcome.binding.pod;
        if let Some(metrics) = &outcome.binding.profile.metrics {
            metrics.attempt_finished(pod.attempt_started, AttemptResult::Scheduled);
            let waited = now.duration_since(pod.initial_attempt.unwrap_or(now)).unsigned_abs();
            let waited = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
            metrics.all.pod_bound(pod.attempts, waited, pod.was_flushed());
        }
    }

    fn reject_waiting(&mut self, uid: &str, status: Status, now: Timestamp) {
        if let Some(waiting) = self.waiting.remove(uid) {
            self.report_permit_wait(waiting.since, status.code);
            self.fail_binding_cycle(waiting.binding, status, now);
        }
    }

    fn report_permit_wait(&self, since: u64, code: Code) {
        if let Some(metrics) = &self.metrics {
            metrics.all.permit_waited(since, code);
        }
    }

    /// Turns victims that are not bound yet away in memory; what is left to evict through the API is returned.
    fn begin_preemption(&mut self, mut preemption: Preemption, now: Timestamp) -> Option<Preemption> {
        let (preemptor, node) = (&preemption.preemptor, &preemption.node);
        preemption.victims.retain(|victim| {
            if !self.cancel_binding(victim.uid(), now) {
                return !victim.is_terminating() && self.cluster.placed(victim.uid()).is_some();
            }
            let by = preemptor.uid();
            let note = format!("Preempted by pod {by} on node {node} (in kube-scheduler memory).");
            let event = event(victim, EventType::Normal, "Preempted", "Preempting", note);
            self.effects.push(Effect::record(preemptor, event));
            false
        });
        if preemption.victims.is_empty() {
            return None;
        }
        let uid = preemption.preemptor.uid().to_owned();
        if let Some(metrics) = &mut self.metrics {
            metrics.evictions.insert(uid.clone(), metrics.all.now());
        }
        self.cluster.preempting.insert(uid);
        Some(preemption)
    }

    /// Ends the way of a pod to its node; false when it cannot be ended any more.
    fn cancel_binding(&mut self, uid: &str, now: Timestamp) -> bool {
        if self.waiting.contains_key(uid) {
            self.reject_waiting(uid, Status::error("preempted"), now);
            return true;
        }
        self.binding.get(uid).is_some_and(|binding| binding.cancel())
    }

    fn eviction_finished(&mut self, uid: &str, failed: bool, now: Timestamp) {
        self.cluster.preempting.remove(uid);
        if let Some(metrics) = &mut self.metrics
            && let Some(since) = metrics.evictions.remove(uid)
        {
            metrics.all.eviction_finished(since, failed);
        }
        if failed {
            let plugins = ProfilePlugins { profiles: &self.profiles, cluster: &self.cluster, now };
            self.queue.retry_after_error(uid, now, &plugins);
        } else if self.queue.stage(uid) == Some(QueueStage::Gated) {
            self.activate(&[uid.to_owned()], now);
        }
    }

    /// A pod could not be placed: back into the queue, and tell the user.
    fn fail(&mut self, mut pod: QueuedPod, failure: Failure, now: Timestamp) {
        let profile = self.profile(&pod.info.spec.scheduler_name);
        if let Some(metrics) = profile.and_then(|profile| profile.metrics.as_ref()) {
            metrics.attempt_finished(pod.attempt_started, failure.attempted());
        }
        let meta = &pod.info.metadata;
        let uid = meta.uid.clone();
        let current = self.cluster.objects.pods.get(&meta.namespace, &meta.name).cloned();
        let Some(current) = current.filter(|now| now.metadata.uid == uid && !now.is_assigned()) else {
            return self.queue.done(&uid);
        };
        if current.metadata.resource_version != meta.resource_version {
            pod.info = self.pod_infos.info(current);
        }
        let info = pod.info.clone();
        pod.unschedulable_plugins = failure.unschedulable_plugins;
        pod.pending_plugins = failure.pending_plugins;
        let plugins = ProfilePlugins { profiles: &self.profiles, cluster: &self.cluster, now };
        self.queue.add_unschedulable(pod, now, &plugins);
        self.queue.nominator.add(&info, &failure.nomination);
        let event = event(&info, EventType::Warning, "FailedScheduling", "Scheduling", failure.message.clone());
        self.effects.push(Effect::record(&info, event));
        let nominated = match &failure.nomination {
            Nomination::Keep => None,
            Nomination::Override(node) => Some(node.as_str()),
        };
        let why = (failure.reason, failure.message.as_str());
        let update = StatusUpdate::of(&info, "PodScheduled", "False", why, nominated, now);
        self.effects.extend(update.map(|update| Effect::UpdateStatus(Box::new(update))));
    }

    /// Something happened that may let rejected pods fit.
    fn requeue_for(&mut self, change: &ClusterChange, may: &dyn Fn(&PodInfo) -> bool, now: Timestamp) {
        let plugins = ProfilePlugins { profiles: &self.profiles, cluster: &self.cluster, now };
        self.queue.move_all(change, may, now, &plugins);
    }
}

/// Rejections pass through; errors say which plugin failed where.
fn with_point(point: &str, status: Status) -> Status {
    if status.is_rejected() {
        return status;
    }
    let name = status.plugin;
    Status::error(format!("running {point} plugin {name:?}: {status}")).by(name)
}

/// Why a pod goes back into the queue.
struct Failure {
    reason: &'static str,
    message: String,
    nomination: Nomination,
    unschedulable_plugins: BTreeSet<PluginName>,
    pending_plugins: BTreeSet<PluginName>,
}

impl Failure {
    fn attempted(&self) -> AttemptResult {
        if self.reason == "Unschedulable" { AttemptResult::Unschedulable } else { AttemptResult::Error }
    }

    fn of(status: Status) -> Self {
        Failure {
            reason: if status.is_rejected() { "Unschedulable" } else { "SchedulerError" },
            message: status.message(),
            nomination: Nomination::Override(String::new()),
            unschedulable_plugins: BTreeSet::new(),
            pending_plugins: BTreeSet::new(),
        }
    }

    /// What became of a pod that had a node already.
    fn after_placing(node: &str, status: Status) -> Self {
        match status.is_rejected() {
            true => Failure::unfit(&Diagnosis::for_node(node, status), Nomination::Override(String::new())),
            false => Failure::of(status),
        }
    }

    fn unfit(diagnosis: &Diagnosis, nomination: Nomination) -> Self {
        Failure {
            reason: "Unschedulable",
            message: diagnosis.message(),
            nomination,
            unschedulable_plugins: diagnosis.unschedulable_plugins.clone(),
            pending_plugins: diagnosis.pending_plugins.clone(),
        }
    }
}
