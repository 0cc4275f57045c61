//! Pods that wait for a node: active, backing off, unschedulable (some of them gated), and those in flight.
//!
//! ```text
//!             PreEnqueue ok                pop
//!   new pod ───────────────▶ active ─────────────▶ in flight ──placed──▶ done
//!      │                       ▲  ▲                   │ failed: events that happened meanwhile decide
//!      │ PreEnqueue rejects    │  └── backoff ◀───────┤
//!      └──▶ gated ─ event ─────┤       ▲              ▼
//!                              └───────┴── event ── unschedulable (flushed after five minutes)
//! ```
//!
//! The queue is a value: it takes `now`, and a [`QueuePlugins`] that asks the plugins.

#[cfg(test)]
mod differential_tests;
mod heap;
mod in_flight_events;
mod nominator;
mod slots;
mod sort_key;
#[cfg(test)]
mod tests;
mod unschedulable_pods;

use std::collections::BTreeSet;
use std::sync::Arc;

use bayplan_model::pod::Pod;
use jiff::{SignedDuration, Timestamp};
use rustc_hash::FxHashMap;

use crate::cluster::{Object, PodInfo};
use crate::framework::{ClusterEvent, EventResource, PluginName, Status, action, event::pod_updates};
use crate::metrics::{Cause, IncomingPods, QueueLabel};
use heap::Heap;
use in_flight_events::InFlightEvents;
pub use nominator::Nominator;
use slots::{Slot, Slots, SubQueue};
pub use sort_key::SortKey;
use unschedulable_pods::UnschedulablePods;

/// How often pods that nothing woke are looked for, and how long they may sleep.
pub const FLUSH_INTERVAL: SignedDuration = SignedDuration::from_secs(30);
/// After this long an unschedulable pod is tried again without any event, unless said otherwise.
pub const MAX_IN_UNSCHEDULABLE: SignedDuration = SignedDuration::from_mins(5);

/// A pod in the queue.
#[derive(Clone, Debug)]
pub struct QueuedPod {
    /// The pod.
    pub info: Arc<PodInfo>,
    /// When it last entered the queue.
    pub timestamp: Timestamp,
    /// When it could first be tried.
    pub initial_attempt: Option<Timestamp>,
    /// How often it was tried.
    pub attempts: u32,
    /// How often it was rejected.
    pub unschedulable_count: u32,
    /// How often in a row something broke.
    pub consecutive_errors: u32,
    /// Who rejected it last.
    pub unschedulable_plugins: BTreeSet<PluginName>,
    /// Who waits for something outside.
    pub pending_plugins: BTreeSet<PluginName>,
    /// Who holds it back before it is ever tried.
    pub gating_plugin: Option<PluginName>,
    /// When it was last woken without an event.
    flushed: Option<Timestamp>,
    /// Order of arrival, for pods that are otherwise equal.
    sequence: u64,
    /// When its last attempt began, on the clock of the measures.
    pub(crate) attempt_started: u64,
}

/// What an event means for a rejected pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QueueingStrategy {
    /// Nothing.
    Skip,
    /// Try again after the backoff.
    AfterBackoff,
    /// Try again now.
    Immediately,
}

/// Something that happened, with the object before and after.
#[derive(Clone, Debug)]
pub struct ClusterChange {
    /// What.
    pub event: ClusterEvent,
    /// The object before.
    pub old: Option<Object>,
    /// The object after.
    pub new: Option<Object>,
}

impl ClusterChange {
    /// An event without an object.
    pub fn of(event: ClusterEvent) -> Self {
        ClusterChange { event, old: None, new: None }
    }
}

/// What the queue asks the plugins.
pub trait QueuePlugins {
    /// Runs PreEnqueue; `first` names the plugin to ask before the others.
    fn pre_enqueue(&self, pod: &PodInfo, first: Option<PluginName>) -> Status;
    /// Asks the hints of the plugins that rejected the pod.
    fn queueing_strategy(&self, pod: &QueuedPod, change: &ClusterChange) -> QueueingStrategy;
    /// Whether anybody at all registered for the event.
    fn any_registered(&self, event: &ClusterEvent) -> bool;
    /// Whether this plugin registered for the event.
    fn is_registered(&self, pod: &PodInfo, plugin: PluginName, event: &ClusterEvent) -> bool;
    /// Whether `a` goes before `b`.
    fn less(&self, a: &QueuedPod, b: &QueuedPod) -> bool;
    /// A key that orders pods as [`QueuePlugins::less`] does, if there is one.
    fn sort_key(&self, pod: &QueuedPod) -> Option<SortKey> {
        let _ = pod;
        None
    }
    /// Whether this plugin's gate stays shut for a pod until the pod is activated, whatever happens meanwhile.
    fn waits_for_activation(&self, pod: &PodInfo, plugin: PluginName) -> bool {
        let _ = (pod, plugin);
        false
    }
    /// Whose answer [`QueuePlugins::queueing_strategy`] needs for pods that the same plugins rejected as this one.
    fn hint_scope(&self, pod: &QueuedPod, event: &ClusterEvent) -> HintScope {
        let _ = (pod, event);
        HintScope::Pod
    }
}

/// How far one answer to an event goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HintScope {
    /// Nobody who rejected the pods hears of the event.
    Nobody,
    /// Pods of one signature share the answer, except the pod that the event is about.
    Signature,
    /// Each pod is asked for.
    Pod,
}

/// Where a pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueStage {
    /// Ready to be tried.
    Active,
    /// Waiting for its backoff to end.
    Backoff,
    /// Waiting for an event.
    Unschedulable,
    /// Held back before it is tried.
    Gated,
    /// Being tried or bound.
    InFlight,
}

/// Backoff limits.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// After the first failure.
    pub initial: SignedDuration,
    /// At most.
    pub max: SignedDuration,
}

/// Pods that wait for a node.
pub struct Queue {
    backoff: Backoff,
    slots: Slots,
    active: Heap,
    backing_off: Heap,
    error_backing_off: Heap,
    unschedulable: UnschedulablePods,
    in_flight_events: InFlightEvents,
    next_sequence: u64,
    next_flush: Option<Timestamp>,
    max_in_unschedulable: SignedDuration,
    incoming: Option<IncomingPods>,
    /// Which pods are expected where.
    pub nominator: Nominator,
}

impl Queue {
    /// An empty queue.
    pub fn new(backoff: Backoff) -> Self {
        Queue {
            backoff,
            slots: Slots::default(),
            active: Heap::default(),
            backing_off: Heap::default(),
            error_backing_off: Heap::default(),
            unschedulable: UnschedulablePods::default(),
            in_flight_events: InFlightEvents::default(),
            next_sequence: 0,
            next_flush: None,
            max_in_unschedulable: MAX_IN_UNSCHEDULABLE,
            incoming: None,
            nominator: Nominator::default(),
        }
    }

    /// Has pods that nothing woke tried again after this long.
    pub(crate) fn set_max_in_unschedulable(&mut self, duration: SignedDuration) {
        self.max_in_unschedulable = duration;
    }

    /// Has pods counted that enter a queue.
    pub(crate) fn count_incoming(&mut self, incoming: IncomingPods) {
        self.incoming = Some(incoming);
    }

    /// The pods being tried, and how many events are kept for them.
    pub(crate) fn in_flight(&self) -> (usize, FxHashMap<ClusterEvent, usize>) {
        let mut events = FxHashMap::default();
        for change in self.in_flight_events.iter() {
            *events.entry(change.event).or_default() += 1;
        }
        (self.in_flight_events.in_flight(), events)
    }

    fn count_entry(&mut self, queue: QueueLabel, cause: Cause) {
        if let Some(incoming) = &mut self.incoming {
            incoming.count(queue, cause);
        }
    }

    /// Where a pod is, if anywhere.
    pub fn stage(&self, uid: &str) -> Option<QueueStage> {
        let slot = self.slots.find(uid)?;
        match self.slots.sub_queue(slot) {
            SubQueue::Active => Some(QueueStage::Active),
            SubQueue::Backoff | SubQueue::ErrorBackoff => Some(QueueStage::Backoff),
            SubQueue::Unschedulable if self.slots.pod(slot).gating_plugin.is_some() => Some(QueueStage::Gated),
            SubQueue::Unschedulable => Some(QueueStage::Unschedulable),
            SubQueue::None => self.slots.in_flight_since(slot).map(|_| QueueStage::InFlight),
        }
    }

    /// How many pods are active, backing off, unschedulable and gated.
    pub fn counts(&self) -> [usize; 4] {
        let gated = self.unschedulable.gated();
        let backoff = self.backing_off.len() + self.error_backing_off.len();
        [self.active.len(), backoff, self.unschedulable.len() - gated, gated]
    }

    /// All pods that are not in flight.
    pub fn pods(&self) -> impl Iterator<Item = &QueuedPod> {
        let heaps = self.active.iter().chain(self.backing_off.iter()).chain(self.error_backing_off.iter());
        heaps.chain(self.unschedulable.iter()).map(|slot| self.slots.pod(slot))
    }

    /// Takes in a new pod.
    pub fn add(&mut self, info: Arc<PodInfo>, now: Timestamp, plugins: &dyn QueuePlugins) {
        self.add_new(info, action::ADD, now, plugins);
    }

    fn add_new(&mut self, info: Arc<PodInfo>, action: u32, now: Timestamp, plugins: &dyn QueuePlugins) {
        self.nominator.add(&info, &crate::framework::Nomination::Keep);
        let slot = self.slots.claim(info.uid());
        self.leave(slot, plugins);
        let pod = QueuedPod::new(info, now, self.next_sequence);
        self.next_sequence += 1;
        let cause = Cause::Event(ClusterEvent::new(EventResource::UnschedulablePod, action));
        self.activate_or_gate(slot, pod, cause, now, plugins);
    }

    /// Takes over a new version of a pod.
    pub fn update(&mut self, old: &Arc<Pod>, new: &Arc<PodInfo>, now: Timestamp, plugins: &dyn QueuePlugins) {
        self.nominator.update(old, new);
        let changes = || {
            pod_updates(old, new).into_iter().map(|event| ClusterChange {
                event,
                old: Some(Object::Pod(old.clone())),
                new: Some(Object::Pod(new.pod.clone())),
            })
        };
        let Some(slot) = self.slots.find(new.uid()) else {
            return self.add_new(new.clone(), action::UPDATE, now, plugins);
        };
        if self.slots.in_flight_since(slot).is_some() {
            return changes().for_each(|change| self.in_flight_events.note(change));
        }
        let heap = match self.slots.sub_queue(slot) {
            SubQueue::Active => &mut self.active,
            SubQueue::Backoff => &mut self.backing_off,
            SubQueue::ErrorBackoff => &mut self.error_backing_off,
            SubQueue::Unschedulable => {
                let mut pod = self.unschedulable.remove(slot, &mut self.slots);
                pod.info = new.clone();
                self.unschedulable.insert(slot, pod, &mut self.slots);
                // The first event that brings it back is enough.
                changes().find(|change| self.wake(slot, change, Cause::Event(change.event), now, plugins));
                return;
            }
            SubQueue::None => return,
        };
        self.slots.pod_mut(slot).info = new.clone();
        heap.fix(slot, &mut self.slots, plugins);
    }

    /// Drops a pod wherever it is; one in flight stays in flight until it is done.
    pub fn delete(&mut self, uid: &str, plugins: &dyn QueuePlugins) {
        self.nominator.remove(uid);
        if let Some(slot) = self.slots.find(uid) {
            self.leave(slot, plugins);
            self.slots.release(slot, uid);
        }
    }

    /// Takes a pod out of its line, if it stands in one.
    fn leave(&mut self, slot: Slot, plugins: &dyn QueuePlugins) -> Option<QueuedPod> {
        let heap = match self.slots.sub_queue(slot) {
            SubQueue::None => return None,
            SubQueue::Unschedulable => return Some(self.unschedulable.remove(slot, &mut self.slots)),
            SubQueue::Active => &mut self.active,
            SubQueue::Backoff => &mut self.backing_off,
            SubQueue::ErrorBackoff => &mut self.error_backing_off,
        };
        heap.remove(slot, &mut self.slots, plugins);
        Some(self.slots.take(slot))
    }

    /// The next pod to try; when nothing is active, one whose backoff has not ended yet (but never one that failed
    /// with an error).
    pub fn pop(&mut self, plugins: &dyn QueuePlugins) -> Option<QueuedPod> {
        let slot = match self.active.pop(&mut self.slots, plugins) {
            Some(slot) => slot,
            None => {
                let early = self.backing_off.pop(&mut self.slots, plugins)?;
                self.count_entry(QueueLabel::Active, Cause::PopFromBackoffQ);
                early
            }
        };
        let mut pod = self.slots.take(slot);
        pod.attempts += 1;
        self.finish_in_flight(slot);
        let since = self.in_flight_events.start();
        self.slots.set_in_flight_since(slot, Some(since));
        Some(pod)
    }

    /// A pod in flight was bound or dropped: events are no longer kept for it.
    pub fn done(&mut self, uid: &str) {
        if let Some(slot) = self.slots.find(uid) {
            self.finish_in_flight(slot);
            self.slots.release(slot, uid);
        }
    }

    fn finish_in_flight(&mut self, slot: Slot) {
        if let Some(since) = self.slots.set_in_flight_since(slot, None) {
            self.in_flight_events.finish(since);
        }
    }

    /// Takes back a pod that could not be placed; who rejected it is already noted in it.
    pub fn add_unschedulable(&mut self, mut pod: QueuedPod, now: Timestamp, plugins: &dyn QueuePlugins) {
        let slot = self.slots.claim(pod.info.uid());
        if self.slots.sub_queue(slot) != SubQueue::None {
            return self.finish_in_flight(slot);
        }
        let rejected = pod.is_rejected();
        if rejected {
            pod.unschedulable_count += 1;
            pod.consecutive_errors = 0;
        } else {
            pod.consecutive_errors += 1;
        }
        pod.timestamp = now;
        pod.flushed = None;
        let requeue =
            if rejected { self.strategy_for_missed(slot, &pod, plugins) } else { QueueingStrategy::AfterBackoff };
        self.finish_in_flight(slot);
        self.requeue(slot, pod, requeue, Cause::ScheduleAttemptFailure, now, plugins);
    }

    /// What the events that happened while the pod was in flight mean for it.
    fn strategy_for_missed(&self, slot: Slot, pod: &QueuedPod, plugins: &dyn QueuePlugins) -> QueueingStrategy {
        let Some(since) = self.slots.in_flight_since(slot) else { return QueueingStrategy::Skip };
        let strategies = self.in_flight_events.since(since).map(|change| strategy_for(pod, change, plugins));
        strategies.max().unwrap_or(QueueingStrategy::Skip)
    }

    fn requeue(
        &mut self,
        slot: Slot,
        pod: QueuedPod,
        requeue: QueueingStrategy,
        cause: Cause,
        now: Timestamp,
        plugins: &dyn QueuePlugins,
    ) {
        match requeue {
            QueueingStrategy::Skip => self.add_to_unschedulable(slot, pod, cause),
            QueueingStrategy::AfterBackoff if backing_off(self.backoff, &pod, now) => {
                self.add_to_backoff(slot, pod, cause, plugins)
            }
            QueueingStrategy::AfterBackoff | QueueingStrategy::Immediately => {
                self.activate_or_gate(slot, pod, cause, now, plugins)
            }
        }
    }

    fn add_to_unschedulable(&mut self, slot: Slot, pod: QueuedPod, cause: Cause) {
        self.count_entry(QueueLabel::Unschedulable, cause);
        self.unschedulable.insert(slot, pod, &mut self.slots);
    }

    fn activate_or_gate(
        &mut self,
        slot: Slot,
        mut pod: QueuedPod,
        cause: Cause,
        now: Timestamp,
        plugins: &dyn QueuePlugins,
    ) {
        let gated_before = pod.gating_plugin.is_some();
        if !gate(&mut pod, plugins) {
            self.activate_ungated(slot, pod, cause, now, plugins);
        } else if gated_before {
            // It never left.
            self.unschedulable.insert(slot, pod, &mut self.slots);
        } else {
            self.add_to_unschedulable(slot, pod, cause);
        }
    }

    fn activate_ungated(
        &mut self,
        slot: Slot,
        mut pod: QueuedPod,
        cause: Cause,
        now: Timestamp,
        plugins: &dyn QueuePlugins,
    ) {
        self.count_entry(QueueLabel::Active, cause);
        pod.initial_attempt.get_or_insert(now);
        self.slots.put(slot, pod, SubQueue::Active);
        self.active.push(slot, 0, &mut self.slots, plugins);
    }

    fn add_to_backoff(&mut self, slot: Slot, mut pod: QueuedPod, cause: Cause, plugins: &dyn QueuePlugins) {
        if gate(&mut pod, plugins) {
            return self.add_to_unschedulable(slot, pod, cause);
        }
        self.count_entry(QueueLabel::Backoff, cause);
        let expiry = expiry(self.backoff, &pod).as_second();
        let (heap, line) = match pod.is_rejected() {
            true => (&mut self.backing_off, SubQueue::Backoff),
            false => (&mut self.error_backing_off, SubQueue::ErrorBackoff),
        };
        self.slots.put(slot, pod, line);
        heap.push(slot, expiry, &mut self.slots, plugins);
    }

    /// Something happened that may let rejected pods fit, for those pods that `may` hear of it. Of pods of one signature all may
    /// or none, but for the pod that it happened to.
    pub fn move_all(
        &mut self,
        change: &ClusterChange,
        may: &dyn Fn(&PodInfo) -> bool,
        now: Timestamp,
        plugins: &dyn QueuePlugins,
    ) {
        if !change.event.is_wildcard() && !plugins.any_registered(&change.event) {
            return;
        }
        if self.unschedulable.len() > 0 {
            let (moved, still_gated) = self.unschedulable.moved_by(change, may, &self.slots, plugins);
            if let Some(incoming) = &mut self.incoming {
                // As upstream counts them, though they never left.
                incoming.count_many(QueueLabel::Unschedulable, Cause::Event(change.event), still_gated as u64);
            }
            for (slot, requeue) in moved {
                let pod = self.unschedulable.remove(slot, &mut self.slots);
                self.requeue(slot, pod, requeue, Cause::Event(change.event), now, plugins);
            }
        }
        if self.in_flight_events.anyone_in_flight() {
            self.in_flight_events.note(change.clone());
        }
    }

    /// Moves an unschedulable pod if the event is worth it; true when it moved.
    fn wake(
        &mut self,
        slot: Slot,
        change: &ClusterChange,
        cause: Cause,
        now: Timestamp,
        plugins: &dyn QueuePlugins,
    ) -> bool {
        let pod = self.slots.pod(slot);
        if let Some(gating) = pod.gating_plugin
            && !change.event.is_wildcard()
            && !plugins.is_registered(&pod.info, gating, &change.event)
        {
            return false;
        }
        let requeue = strategy_for(pod, change, plugins);
        if requeue == QueueingStrategy::Skip {
            return false;
        }
        let pod = self.unschedulable.remove(slot, &mut self.slots);
        self.requeue(slot, pod, requeue, cause, now, plugins);
        self.slots.sub_queue(slot) != SubQueue::Unschedulable
    }

    /// Makes pods ready at once, whatever they wait for (gates excepted).
    pub fn activate(&mut self, uids: &[String], now: Timestamp, plugins: &dyn QueuePlugins) {
        for uid in uids {
            let Some(slot) = self.slots.find(uid) else { continue };
            if self.slots.in_flight_since(slot).is_some() {
                let new = Some(targeted(uid.clone()));
                self.in_flight_events.note(ClusterChange { event: ClusterEvent::WILDCARD, old: None, new });
                continue;
            }
            let line = self.slots.sub_queue(slot);
            if line == SubQueue::Active {
                continue;
            }
            let cause = Cause::ForceActivate;
            match self.leave(slot, plugins) {
                Some(pod) if line == SubQueue::Unschedulable => self.activate_or_gate(slot, pod, cause, now, plugins),
                Some(pod) => self.activate_ungated(slot, pod, cause, now, plugins),
                None => {}
            }
        }
    }

    /// Something that was to help a waiting pod broke: it is tried again after an error's backoff.
    ///
    /// Upstream activates the pod at once, which becomes a busy loop while the API server refuses.
    pub fn retry_after_error(&mut self, uid: &str, now: Timestamp, plugins: &dyn QueuePlugins) {
        let Some(slot) = self.slots.find(uid) else { return };
        if let Some(mut pod) = self.leave(slot, plugins) {
            pod.consecutive_errors += 1;
            pod.unschedulable_plugins.clear();
            pod.pending_plugins.clear();
            pod.timestamp = now;
            self.add_to_backoff(slot, pod, Cause::ScheduleAttemptFailure, plugins);
        }
    }

    /// Moves pods whose backoff has ended, and wakes those that slept for five minutes.
    pub fn tick(&mut self, now: Timestamp, plugins: &dyn QueuePlugins) {
        let mut ready = Vec::new();
        for heap in [&mut self.backing_off, &mut self.error_backing_off] {
            while let Some((slot, _)) = heap.peek()
                && !backing_off(self.backoff, self.slots.pod(slot), now)
            {
                heap.pop(&mut self.slots, plugins);
                ready.push((slot, self.slots.take(slot)));
            }
        }
        for (slot, pod) in ready {
            self.activate_ungated(slot, pod, Cause::BackoffComplete, now, plugins);
        }
        let due = *self.next_flush.get_or_insert(now + FLUSH_INTERVAL);
        if now >= due {
            self.next_flush = Some(now + FLUSH_INTERVAL);
            self.flush(now, plugins);
        }
    }

    fn flush(&mut self, now: Timestamp, plugins: &dyn QueuePlugins) {
        let slept = |pod: &QueuedPod| {
            now.duration_since(pod.flushed.map_or(pod.timestamp, |flushed| flushed.max(pod.timestamp)))
        };
        let sleepers: Vec<Slot> =
            self.unschedulable.iter().filter(|slot| slept(self.slots.pod(*slot)) > self.max_in_unschedulable).collect();
        for slot in sleepers {
            self.slots.pod_mut(slot).flushed = Some(now);
            let change = ClusterChange::of(ClusterEvent::WILDCARD);
            self.wake(slot, &change, Cause::UnschedulableTimeout, now, plugins);
        }
    }

    /// When [`Queue::tick`] has something to do next.
    pub fn next_tick(&self) -> Option<Timestamp> {
        let heads = [self.backing_off.peek(), self.error_backing_off.peek()];
        let expiry = heads.into_iter().flatten().map(|(_, expiry)| {
            let end = Timestamp::from_second(expiry).unwrap_or(Timestamp::MAX);
            end.saturating_add(SignedDuration::from_secs(1)).unwrap_or(end)
        });
        let flush = if self.unschedulable.len() == 0 { None } else { self.next_flush };
        expiry.chain(flush).min()
    }
}

/// Runs PreEnqueue; true when the pod is held back.
fn gate(pod: &mut QueuedPod, plugins: &dyn QueuePlugins) -> bool {
    let status = plugins.pre_enqueue(&pod.info, pod.gating_plugin);
    pod.gating_plugin = (!status.is_success()).then_some(status.plugin);
    pod.unschedulable_plugins.extend(pod.gating_plugin);
    pod.gating_plugin.is_some()
}

/// A wildcard event that is meant for one pod only.
fn targeted(uid: String) -> Object {
    let mut pod = bayplan_model::pod::Pod::default();
    pod.metadata.uid = uid;
    Object::Pod(Arc::new(pod))
}

fn strategy_for(pod: &QueuedPod, change: &ClusterChange, plugins: &dyn QueuePlugins) -> QueueingStrategy {
    if !pod.is_rejected() {
        return QueueingStrategy::AfterBackoff;
    }
    if change.event.is_wildcard() {
        let other = matches!(&change.new, Some(Object::Pod(target)) if target.metadata.uid != pod.info.uid());
        return if other { QueueingStrategy::Skip } else { QueueingStrategy::AfterBackoff };
    }
    plugins.queueing_strategy(pod, change)
}

/// 1 s, 2 s, 4 s, … up to the limit; nothing for a pod that never failed.
fn duration(limits: Backoff, pod: &QueuedPod) -> SignedDuration {
    let count = if pod.consecutive_errors > 0 { pod.consecutive_errors } else { pod.unschedulable_count };
    if count == 0 || limits.max.is_zero() {
        return SignedDuration::ZERO;
    }
    let factor = 1i32.checked_shl(count - 1).filter(|factor| *factor > 0).unwrap_or(i32::MAX);
    limits.initial.checked_mul(factor).unwrap_or(limits.max).min(limits.max)
}

/// The second in which the backoff ends. Whole seconds let pods that failed together be tried together.
fn expiry(limits: Backoff, pod: &QueuedPod) -> Timestamp {
    let end = pod.timestamp.saturating_add(duration(limits, pod)).unwrap_or(pod.timestamp);
    Timestamp::from_second(end.as_second()).unwrap_or(end)
}

fn backing_off(limits: Backoff, pod: &QueuedPod, now: Timestamp) -> bool {
    !duration(limits, pod).is_zero() && expiry(limits, pod).as_second() >= now.as_second()
}

impl QueuedPod {
    /// A pod that has just come.
    fn new(info: Arc<PodInfo>, now: Timestamp, sequence: u64) -> Self {
        QueuedPod {
            info,
            timestamp: now,
            initial_attempt: None,
            attempts: 0,
            unschedulable_count: 0,
            consecutive_errors: 0,
            unschedulable_plugins: BTreeSet::new(),
            pending_plugins: BTreeSet::new(),
            gating_plugin: None,
            flushed: None,
            sequence,
            attempt_started: 0,
        }
    }

    /// Whether it is being tried only because it had waited too long.
    pub(crate) fn was_flushed(&self) -> bool {
        self.flushed.is_some()
    }

    /// Order of arrival, for sort plugins to break ties with.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// True when some plugin turned it down, as opposed to something that broke.
    fn is_rejected(&self) -> bool {
        !self.unschedulable_plugins.is_empty() || !self.pending_plugins.is_empty()
    }
}
