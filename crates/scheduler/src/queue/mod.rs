//! The scheduling queue: pods that wait for a node.
//!
//! ```text
//!             PreEnqueue ok                pop
//!   new pod ───────────────▶ active ─────────────▶ in flight ──placed──▶ done
//!      │                       ▲  ▲                   │ failed: the events meanwhile decide
//!      │ PreEnqueue rejects    │  └── backoff ◀───────┤
//!      └──▶ gated ─ event ─────┤       ▲              ▼
//!                              └───────┴── event ── unschedulable (flushed after five minutes)
//! ```
//!
//! The queue is a value: it takes `now`, and [`QueuePlugins`] to call the plugins with.

mod backoff;
mod cluster_change;
#[cfg(test)]
mod differential_tests;
mod heap;
mod in_flight_events;
mod plugins;
mod slots;
#[cfg(test)]
mod tests;
mod unschedulable_pods;

use std::sync::Arc;

use bayplan_model::delta::Delta;
use bayplan_model::pod::Pod;
use jiff::{SignedDuration, Timestamp};
use rustc_hash::FxHashMap;

use crate::cluster::{Object, PodInfo};
use crate::framework::{ClusterEvent, EventResource, Nomination, QueuedPod, action, pod_updates};
use crate::metrics::{Cause, IncomingPods, QueueLabel};
use crate::nominator::Nominator;
pub(crate) use backoff::Backoff;
pub(crate) use cluster_change::ClusterChange;
use heap::Heap;
use in_flight_events::InFlightEvents;
pub(crate) use plugins::{HintScope, QueuePlugins, QueueingStrategy};
use slots::{Slot, Slots, SubQueue};
use unschedulable_pods::UnschedulablePods;

/// How often the queue looks for pods that have waited too long.
const FLUSH_INTERVAL: SignedDuration = SignedDuration::from_secs(30);
/// After this long an unschedulable pod is tried again without any event, unless configured otherwise.
const MAX_IN_UNSCHEDULABLE: SignedDuration = SignedDuration::from_mins(5);

/// Where a pod is in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueStage {
    /// In the active queue: ready to be tried.
    Active,
    /// In the backoff queue.
    Backoff,
    /// Rejected, and waiting for an event.
    Unschedulable,
    /// Held back by a PreEnqueue plugin.
    Gated,
    /// In a scheduling attempt or waiting for Permit.
    InFlight,
}

/// The scheduling queue.
pub struct Queue {
    backoff: Backoff,
    slots: Slots,
    /// Pods that were never tried.
    active: Heap,
    /// Pods that were tried before. Apart from the others, because a shell may have them wait for one another.
    active_again: Heap,
    backing_off: Heap,
    error_backing_off: Heap,
    unschedulable: UnschedulablePods,
    in_flight_events: InFlightEvents,
    next_sequence: u64,
    next_flush: Option<Timestamp>,
    max_in_unschedulable: SignedDuration,
    /// Rejected pods stay where they are until they are asked for; events move only those that a gate holds back.
    holds_rejected: bool,
    incoming: Option<IncomingPods>,
    /// The pods nominated to nodes.
    pub nominator: Nominator,
}

impl Queue {
    /// An empty queue.
    pub(crate) fn new(backoff: Backoff) -> Self {
        Queue {
            backoff,
            slots: Slots::default(),
            active: Heap::default(),
            active_again: Heap::default(),
            backing_off: Heap::default(),
            error_backing_off: Heap::default(),
            unschedulable: UnschedulablePods::default(),
            in_flight_events: InFlightEvents::default(),
            next_sequence: 0,
            next_flush: None,
            max_in_unschedulable: MAX_IN_UNSCHEDULABLE,
            holds_rejected: false,
            incoming: None,
            nominator: Nominator::default(),
        }
    }

    /// Retries unschedulable pods after this long without any event.
    pub(crate) fn set_max_in_unschedulable(&mut self, duration: SignedDuration) {
        self.max_in_unschedulable = duration;
    }

    /// Lets rejected pods stay where they are until [`Queue::pop_pod`] asks for them.
    pub(crate) fn hold_rejected(&mut self) {
        self.holds_rejected = true;
    }

    /// Counts pods that enter a sub-queue.
    pub(crate) fn count_incoming(&mut self, incoming: IncomingPods) {
        self.incoming = Some(incoming);
    }

    /// The number of pods in flight, and of the events kept for them.
    pub(crate) fn in_flight(&self) -> (usize, FxHashMap<ClusterEvent, usize>) {
        let mut events = FxHashMap::default();
        for change in self.in_flight_events.iter() {
            *events.entry(change.event).or_default() += 1;
        }
        (self.in_flight_events.in_flight(), events)
    }

    /// Reports that a pod enters a sub-queue.
    fn report_entry(&mut self, pod: &QueuedPod, queue: QueueLabel, cause: Cause) {
        tracing::debug!(pod = %pod.info.key(), queue = queue.label(), cause = cause.label(), "pod queued");
        if let Some(incoming) = &mut self.incoming {
            incoming.count(queue, cause);
        }
    }

    /// The stage of a pod; none when the queue does not have it.
    pub fn stage(&self, uid: &str) -> Option<QueueStage> {
        let slot = self.slots.find(uid)?;
        match self.slots.sub_queue(slot) {
            SubQueue::Active | SubQueue::ActiveAgain => Some(QueueStage::Active),
            SubQueue::Backoff | SubQueue::ErrorBackoff => Some(QueueStage::Backoff),
            SubQueue::Unschedulable if self.slots.pod(slot).gating_plugin.is_some() => Some(QueueStage::Gated),
            SubQueue::Unschedulable => Some(QueueStage::Unschedulable),
            SubQueue::None => self.slots.in_flight_since(slot).map(|_| QueueStage::InFlight),
        }
    }

    /// A pod that is not in flight.
    pub fn pod(&self, uid: &str) -> Option<&QueuedPod> {
        let slot = self.slots.find(uid)?;
        (self.slots.sub_queue(slot) != SubQueue::None).then(|| self.slots.pod(slot))
    }

    /// The number of pods that are active, backing off, unschedulable and gated.
    pub fn counts(&self) -> [usize; 4] {
        let gated = self.unschedulable.gated();
        let backoff = self.backing_off.len() + self.error_backing_off.len();
        [self.active.len() + self.active_again.len(), backoff, self.unschedulable.len() - gated, gated]
    }

    /// All pods but those in flight.
    pub fn pods(&self) -> impl Iterator<Item = &QueuedPod> {
        let active = self.active.iter().chain(self.active_again.iter());
        let heaps = active.chain(self.backing_off.iter()).chain(self.error_backing_off.iter());
        heaps.chain(self.unschedulable.iter()).map(|slot| self.slots.pod(slot))
    }

    /// A pod of the queue by its UID.
    pub(crate) fn info(&self, uid: &str) -> Option<&Arc<PodInfo>> {
        let slot = self.slots.find(uid).filter(|slot| self.slots.sub_queue(*slot) != SubQueue::None)?;
        Some(&self.slots.pod(slot).info)
    }

    /// Adds a new pod.
    pub(crate) fn add(&mut self, info: Arc<PodInfo>, now: Timestamp, plugins: &dyn QueuePlugins) {
        self.add_new(info, action::ADD, now, plugins);
    }

    fn add_new(&mut self, info: Arc<PodInfo>, action: u32, now: Timestamp, plugins: &dyn QueuePlugins) {
        self.nominator.add(&info, &Nomination::Keep);
        let slot = self.slots.claim(info.uid());
        self.leave(slot, plugins);
        let pod = QueuedPod::new(info, now, self.next_sequence);
        self.next_sequence += 1;
        let cause = Cause::Event(ClusterEvent::new(EventResource::UnschedulablePod, action));
        self.activate_or_gate(slot, pod, cause, now, plugins);
    }

    /// Updates a pod to a new version.
    pub(crate) fn update(&mut self, old: &Arc<Pod>, new: &Arc<PodInfo>, now: Timestamp, plugins: &dyn QueuePlugins) {
        self.nominator.update(old, new);
        let changes = || {
            pod_updates(old, new).into_iter().map(|event| {
                let delta = Delta::Updated { old: Object::Pod(old.clone()), new: Object::Pod(new.pod.clone()) };
                ClusterChange::of_object(event, delta)
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
            SubQueue::ActiveAgain => &mut self.active_again,
            SubQueue::Backoff => &mut self.backing_off,
            SubQueue::ErrorBackoff => &mut self.error_backing_off,
            SubQueue::Unschedulable => {
                let mut pod = self.unschedulable.remove(slot, &mut self.slots);
                pod.info = new.clone();
                self.unschedulable.insert(slot, pod, &mut self.slots);
                // The first event that moves it suffices.
                changes().find(|change| self.move_one(slot, change, Cause::Event(change.event), now, plugins));
                return;
            }
            SubQueue::None => return,
        };
        self.slots.pod_mut(slot).info = new.clone();
        heap.fix(slot, &mut self.slots, plugins);
    }

    /// Removes a pod; one in flight stays in flight until it is done.
    pub(crate) fn delete(&mut self, uid: &str, plugins: &dyn QueuePlugins) {
        self.nominator.remove(uid);
        if let Some(slot) = self.slots.find(uid) {
            self.leave(slot, plugins);
            self.slots.release(slot, uid);
        }
    }

    /// Takes a pod out of its sub-queue, if it is in one.
    fn leave(&mut self, slot: Slot, plugins: &dyn QueuePlugins) -> Option<QueuedPod> {
        let heap = match self.slots.sub_queue(slot) {
            SubQueue::None => return None,
            SubQueue::Unschedulable => return Some(self.unschedulable.remove(slot, &mut self.slots)),
            SubQueue::Active => &mut self.active,
            SubQueue::ActiveAgain => &mut self.active_again,
            SubQueue::Backoff => &mut self.backing_off,
            SubQueue::ErrorBackoff => &mut self.error_backing_off,
        };
        heap.remove(slot, &mut self.slots, plugins);
        Some(self.slots.take(slot))
    }

    /// The next pod to try. When no pod is active, one that is backing off, unless it failed with an error (upstream's
    /// `SchedulerPopFromBackoffQ`).
    pub(crate) fn pop(&mut self, plugins: &dyn QueuePlugins) -> Option<QueuedPod> {
        let is_new = self.active.is_ahead_of(&self.active_again, &self.slots, plugins);
        let heap = if is_new { &mut self.active } else { &mut self.active_again };
        let active = heap.pop(&mut self.slots, plugins);
        let is_early = active.is_none();
        let slot = active.or_else(|| self.backing_off.pop(&mut self.slots, plugins))?;
        Some(self.start_attempt(slot, is_early))
    }

    /// The next pod to try of those that were never tried; none while a more important one waits to be tried again.
    pub(crate) fn pop_new(&mut self, plugins: &dyn QueuePlugins) -> Option<QueuedPod> {
        let priority = |slot: Slot| self.slots.pod(slot).info.priority();
        let (new, _) = self.active.peek()?;
        if self.active_again.peek().is_some_and(|(again, _)| priority(again) > priority(new)) {
            return None;
        }
        let slot = self.active.pop(&mut self.slots, plugins)?;
        Some(self.start_attempt(slot, false))
    }

    /// This pod, to be tried whatever its stage; none when it is in flight or not here.
    pub(crate) fn pop_pod(&mut self, uid: &str, plugins: &dyn QueuePlugins) -> Option<QueuedPod> {
        let slot = self.slots.find(uid)?;
        let pod = self.leave(slot, plugins)?;
        Some(self.start_attempt_of(slot, pod))
    }

    /// The number of pods that could be tried again now.
    pub(crate) fn retries(&self) -> usize {
        self.active_again.len() + self.backing_off.len()
    }

    fn start_attempt(&mut self, slot: Slot, is_early: bool) -> QueuedPod {
        let pod = self.slots.take(slot);
        if is_early {
            self.report_entry(&pod, QueueLabel::Active, Cause::PopFromBackoffQ);
        }
        self.start_attempt_of(slot, pod)
    }

    fn start_attempt_of(&mut self, slot: Slot, mut pod: QueuedPod) -> QueuedPod {
        pod.attempts += 1;
        self.finish_in_flight(slot);
        let since = self.in_flight_events.start();
        self.slots.set_in_flight_since(slot, Some(since));
        pod
    }

    /// Ends the attempt of a pod that is bound or dropped: events are no longer kept for it.
    pub(crate) fn done(&mut self, uid: &str) {
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

    /// Puts a pod back that could not be placed; the plugins that rejected it are noted in it.
    pub(crate) fn add_unschedulable(&mut self, mut pod: QueuedPod, now: Timestamp, plugins: &dyn QueuePlugins) {
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

    /// How the events during a pod's attempt move it.
    fn strategy_for_missed(&self, slot: Slot, pod: &QueuedPod, plugins: &dyn QueuePlugins) -> QueueingStrategy {
        let Some(since) = self.slots.in_flight_since(slot) else { return QueueingStrategy::Skip };
        let strategies = self.in_flight_events.since(since).map(|change| change.strategy_for(pod, plugins));
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
            QueueingStrategy::AfterBackoff if self.backoff.is_backing_off(&pod, now) => {
                self.add_to_backoff(slot, pod, cause, plugins)
            }
            QueueingStrategy::AfterBackoff | QueueingStrategy::Immediately => {
                self.activate_or_gate(slot, pod, cause, now, plugins)
            }
        }
    }

    fn add_to_unschedulable(&mut self, slot: Slot, pod: QueuedPod, cause: Cause) {
        self.report_entry(&pod, QueueLabel::Unschedulable, cause);
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
        if !is_gated(&mut pod, plugins) {
            self.activate_ungated(slot, pod, cause, now, plugins);
        } else if gated_before {
            // It stays gated, which is no new entry.
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
        self.report_entry(&pod, QueueLabel::Active, cause);
        pod.initial_attempt.get_or_insert(now);
        let (heap, line) = match pod.attempts {
            0 => (&mut self.active, SubQueue::Active),
            _ => (&mut self.active_again, SubQueue::ActiveAgain),
        };
        self.slots.put(slot, pod, line);
        heap.push(slot, 0, &mut self.slots, plugins);
    }

    fn add_to_backoff(&mut self, slot: Slot, mut pod: QueuedPod, cause: Cause, plugins: &dyn QueuePlugins) {
        if is_gated(&mut pod, plugins) {
            return self.add_to_unschedulable(slot, pod, cause);
        }
        self.report_entry(&pod, QueueLabel::Backoff, cause);
        let expiry = self.backoff.expiry(&pod).as_second();
        let (heap, line) = match pod.is_rejected() {
            true => (&mut self.backing_off, SubQueue::Backoff),
            false => (&mut self.error_backing_off, SubQueue::ErrorBackoff),
        };
        self.slots.put(slot, pod, line);
        heap.push(slot, expiry, &mut self.slots, plugins);
    }

    /// Moves the pods that a change of the cluster may make schedulable, of those that `may` move; upstream's
    /// `MoveAllToActiveOrBackoffQueue`. `may` must give the same answer for all pods of one signature, except the pod
    /// that the change is about.
    pub(crate) fn move_all(
        &mut self,
        change: &ClusterChange,
        may: &dyn Fn(&PodInfo) -> bool,
        now: Timestamp,
        plugins: &dyn QueuePlugins,
    ) {
        if !change.event.is_wildcard() && !plugins.any_registered(&change.event) {
            return;
        }
        let movable = self.movable();
        if movable > 0 {
            let (mut moved, still_gated) = self.unschedulable.moved_by(change, may, &self.slots, plugins);
            moved.retain(|(slot, _)| self.is_moved_by_events(*slot));
            if let Some(incoming) = &mut self.incoming {
                // Counted as upstream does, though they stay where they are.
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

    /// Moves an unschedulable pod if the change may make it schedulable; true when it moved.
    fn move_one(
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
        let requeue = change.strategy_for(pod, plugins);
        if requeue == QueueingStrategy::Skip {
            return false;
        }
        let pod = self.unschedulable.remove(slot, &mut self.slots);
        self.requeue(slot, pod, requeue, cause, now, plugins);
        self.slots.sub_queue(slot) != SubQueue::Unschedulable
    }

    /// Moves pods to the active queue at once; gates still hold them back.
    pub(crate) fn activate(&mut self, uids: &[String], now: Timestamp, plugins: &dyn QueuePlugins) {
        for uid in uids {
            let Some(slot) = self.slots.find(uid) else { continue };
            if self.slots.in_flight_since(slot).is_some() {
                self.in_flight_events.note(ClusterChange::activation(uid));
                continue;
            }
            let line = self.slots.sub_queue(slot);
            if matches!(line, SubQueue::Active | SubQueue::ActiveAgain) {
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

    /// Moves pods whose backoff has ended, and those that have waited too long.
    pub(crate) fn tick(&mut self, now: Timestamp, plugins: &dyn QueuePlugins) {
        let mut ready = Vec::new();
        for heap in [&mut self.backing_off, &mut self.error_backing_off] {
            while let Some((slot, _)) = heap.peek()
                && !self.backoff.is_backing_off(self.slots.pod(slot), now)
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
        let waited = |pod: &QueuedPod| {
            now.duration_since(pod.flushed.map_or(pod.timestamp, |flushed| flushed.max(pod.timestamp)))
        };
        let overdue: Vec<Slot> = self
            .unschedulable
            .iter()
            .filter(|slot| waited(self.slots.pod(*slot)) > self.max_in_unschedulable && self.is_moved_by_events(*slot))
            .collect();
        for slot in overdue {
            self.slots.pod_mut(slot).flushed = Some(now);
            let change = ClusterChange::of(ClusterEvent::WILDCARD);
            self.move_one(slot, &change, Cause::UnschedulableTimeout, now, plugins);
        }
    }

    /// The number of pods that events may move.
    fn movable(&self) -> usize {
        if self.holds_rejected { self.unschedulable.gated() } else { self.unschedulable.len() }
    }

    fn is_moved_by_events(&self, slot: Slot) -> bool {
        !self.holds_rejected || self.slots.pod(slot).gating_plugin.is_some()
    }

    /// When [`Queue::tick`] is due next.
    pub(crate) fn next_tick(&self) -> Option<Timestamp> {
        let heads = [self.backing_off.peek(), self.error_backing_off.peek()];
        let expiry = heads.into_iter().flatten().map(|(_, expiry)| {
            let end = Timestamp::from_second(expiry).unwrap_or(Timestamp::MAX);
            end.saturating_add(SignedDuration::from_secs(1)).unwrap_or(end)
        });
        let movable = self.movable();
        let flush = if movable == 0 { None } else { self.next_flush };
        expiry.chain(flush).min()
    }
}

/// Runs PreEnqueue; true when a plugin holds the pod back.
fn is_gated(pod: &mut QueuedPod, plugins: &dyn QueuePlugins) -> bool {
    let status = plugins.pre_enqueue(&pod.info, pod.gating_plugin);
    pod.gating_plugin = (!status.is_success()).then_some(status.plugin);
    pod.unschedulable_plugins.extend(pod.gating_plugin);
    pod.gating_plugin.is_some()
}
