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
//! The queue is a value: it takes `now`, and a [`Judge`] that asks the plugins.

#[cfg(test)]
mod equality;
mod heap;
mod missed;
mod nominator;
mod slots;
mod sort_key;
#[cfg(test)]
mod tests;
mod waiting;

use std::collections::BTreeSet;
use std::sync::Arc;

use bayplan_model::pod::Pod;
use jiff::{SignedDuration, Timestamp};
use rustc_hash::FxHashMap;

use crate::cluster::{Object, PodInfo};
use crate::framework::{ClusterEvent, EventResource, PluginName, Status, action, event::pod_updates};
use crate::measure::{Cause, Incoming, Queued};
use heap::Heap;
use missed::Missed;
pub use nominator::Nominator;
use slots::{Line, Slot, Slots};
pub use sort_key::SortKey;
use waiting::Waiting;

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
    pub(crate) taken: u64,
}

/// What an event means for a rejected pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Requeue {
    /// Nothing.
    Skip,
    /// Try again after the backoff.
    AfterBackoff,
    /// Try again now.
    Now,
}

/// Something that happened, with the object before and after.
#[derive(Clone, Debug)]
pub struct Happening {
    /// What.
    pub event: ClusterEvent,
    /// The object before.
    pub old: Option<Object>,
    /// The object after.
    pub new: Option<Object>,
}

impl Happening {
    /// An event without an object.
    pub fn of(event: ClusterEvent) -> Self {
        Happening { event, old: None, new: None }
    }
}

/// What the queue asks the plugins.
pub trait Judge {
    /// Runs PreEnqueue; `first` names the plugin to ask before the others.
    fn pre_enqueue(&self, pod: &PodInfo, first: Option<PluginName>) -> Status;
    /// Asks the hints of the plugins that rejected the pod.
    fn requeue(&self, pod: &QueuedPod, happening: &Happening) -> Requeue;
    /// Whether anybody at all registered for the event.
    fn anyone_listens(&self, event: &ClusterEvent) -> bool;
    /// Whether this plugin registered for the event.
    fn listens(&self, pod: &PodInfo, plugin: PluginName, event: &ClusterEvent) -> bool;
    /// Whether `a` goes before `b`.
    fn less(&self, a: &QueuedPod, b: &QueuedPod) -> bool;
    /// A key that orders pods as [`Judge::less`] does, if there is one.
    fn sort_key(&self, pod: &QueuedPod) -> Option<SortKey> {
        let _ = pod;
        None
    }
    /// Whether this plugin's gate stays shut for a pod until the pod is activated, whatever happens meanwhile.
    fn waits_for_activation(&self, pod: &PodInfo, plugin: PluginName) -> bool {
        let _ = (pod, plugin);
        false
    }
    /// Whose answer [`Judge::requeue`] needs for pods that the same plugins rejected as this one.
    fn asks(&self, pod: &QueuedPod, event: &ClusterEvent) -> Asks {
        let _ = (pod, event);
        Asks::Pod
    }
}

/// How far one answer to an event goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asks {
    /// Nobody who rejected the pods hears of the event.
    Nobody,
    /// Pods of one shape share the answer, except the pod that the event is about.
    Shape,
    /// Each pod is asked for.
    Pod,
}

/// Where a pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
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
    waiting: Waiting,
    missed: Missed,
    next_sequence: u64,
    next_flush: Option<Timestamp>,
    max_in_unschedulable: SignedDuration,
    incoming: Option<Incoming>,
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
            waiting: Waiting::default(),
            missed: Missed::default(),
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
    pub(crate) fn count_incoming(&mut self, incoming: Incoming) {
        self.incoming = Some(incoming);
    }

    /// The pods being tried, and how many events are kept for them.
    pub(crate) fn in_flight(&self) -> (usize, FxHashMap<ClusterEvent, usize>) {
        let mut events = FxHashMap::default();
        for happening in self.missed.iter() {
            *events.entry(happening.event).or_default() += 1;
        }
        (self.missed.in_flight(), events)
    }

    fn entered(&mut self, queue: Queued, cause: Cause) {
        if let Some(incoming) = &mut self.incoming {
            incoming.count(queue, cause);
        }
    }

    /// Where a pod is, if anywhere.
    pub fn place(&self, uid: &str) -> Option<Place> {
        let slot = self.slots.find(uid)?;
        match self.slots.line(slot) {
            Line::Active => Some(Place::Active),
            Line::Backoff | Line::ErrorBackoff => Some(Place::Backoff),
            Line::Waiting if self.slots.pod(slot).gating_plugin.is_some() => Some(Place::Gated),
            Line::Waiting => Some(Place::Unschedulable),
            Line::Nowhere => self.slots.flight(slot).map(|_| Place::InFlight),
        }
    }

    /// How many pods are active, backing off, unschedulable and gated.
    pub fn counts(&self) -> [usize; 4] {
        let gated = self.waiting.gated();
        let backoff = self.backing_off.len() + self.error_backing_off.len();
        [self.active.len(), backoff, self.waiting.len() - gated, gated]
    }

    /// All pods that are not in flight.
    pub fn pods(&self) -> impl Iterator<Item = &QueuedPod> {
        let heaps = self.active.iter().chain(self.backing_off.iter()).chain(self.error_backing_off.iter());
        heaps.chain(self.waiting.iter()).map(|slot| self.slots.pod(slot))
    }

    /// Takes in a new pod.
    pub fn add(&mut self, info: Arc<PodInfo>, now: Timestamp, judge: &dyn Judge) {
        self.take_in(info, action::ADD, now, judge);
    }

    fn take_in(&mut self, info: Arc<PodInfo>, action: u32, now: Timestamp, judge: &dyn Judge) {
        self.nominator.add(&info, &crate::framework::Nomination::Keep);
        let slot = self.slots.claim(info.uid());
        self.leave(slot, judge);
        let pod = QueuedPod::new(info, now, self.next_sequence);
        self.next_sequence += 1;
        let cause = Cause::Event(ClusterEvent::new(EventResource::UnschedulablePod, action));
        self.activate_or_gate(slot, pod, cause, now, judge);
    }

    /// Takes over a new version of a pod.
    pub fn update(&mut self, old: &Arc<Pod>, new: &Arc<PodInfo>, now: Timestamp, judge: &dyn Judge) {
        self.nominator.update(old, new);
        let happenings = || {
            pod_updates(old, new).into_iter().map(|event| Happening {
                event,
                old: Some(Object::Pod(old.clone())),
                new: Some(Object::Pod(new.pod.clone())),
            })
        };
        let Some(slot) = self.slots.find(new.uid()) else {
            return self.take_in(new.clone(), action::UPDATE, now, judge);
        };
        if self.slots.flight(slot).is_some() {
            return happenings().for_each(|happening| self.missed.note(happening));
        }
        let heap = match self.slots.line(slot) {
            Line::Active => &mut self.active,
            Line::Backoff => &mut self.backing_off,
            Line::ErrorBackoff => &mut self.error_backing_off,
            Line::Waiting => {
                let mut pod = self.waiting.remove(slot, &mut self.slots);
                pod.info = new.clone();
                self.waiting.insert(slot, pod, &mut self.slots);
                // The first event that brings it back is enough.
                happenings().find(|happening| self.wake(slot, happening, Cause::Event(happening.event), now, judge));
                return;
            }
            Line::Nowhere => return,
        };
        self.slots.pod_mut(slot).info = new.clone();
        heap.fix(slot, &mut self.slots, judge);
    }

    /// Drops a pod wherever it is; one in flight stays in flight until it is done.
    pub fn delete(&mut self, uid: &str, judge: &dyn Judge) {
        self.nominator.remove(uid);
        if let Some(slot) = self.slots.find(uid) {
            self.leave(slot, judge);
            self.slots.release(slot, uid);
        }
    }

    /// Takes a pod out of its line, if it stands in one.
    fn leave(&mut self, slot: Slot, judge: &dyn Judge) -> Option<QueuedPod> {
        let heap = match self.slots.line(slot) {
            Line::Nowhere => return None,
            Line::Waiting => return Some(self.waiting.remove(slot, &mut self.slots)),
            Line::Active => &mut self.active,
            Line::Backoff => &mut self.backing_off,
            Line::ErrorBackoff => &mut self.error_backing_off,
        };
        heap.remove(slot, &mut self.slots, judge);
        Some(self.slots.take(slot))
    }

    /// The next pod to try; when nothing is active, one whose backoff has not ended yet (but never one that failed
    /// with an error).
    pub fn pop(&mut self, judge: &dyn Judge) -> Option<QueuedPod> {
        let slot = match self.active.pop(&mut self.slots, judge) {
            Some(slot) => slot,
            None => {
                let early = self.backing_off.pop(&mut self.slots, judge)?;
                self.entered(Queued::Active, Cause::PopFromBackoffQ);
                early
            }
        };
        let mut pod = self.slots.take(slot);
        pod.attempts += 1;
        self.land(slot);
        let since = self.missed.take_off();
        self.slots.set_flight(slot, Some(since));
        Some(pod)
    }

    /// A pod in flight was bound or dropped: events are no longer kept for it.
    pub fn done(&mut self, uid: &str) {
        if let Some(slot) = self.slots.find(uid) {
            self.land(slot);
            self.slots.release(slot, uid);
        }
    }

    fn land(&mut self, slot: Slot) {
        if let Some(since) = self.slots.set_flight(slot, None) {
            self.missed.land(since);
        }
    }

    /// Takes back a pod that could not be placed; who rejected it is already noted in it.
    pub fn add_unschedulable(&mut self, mut pod: QueuedPod, now: Timestamp, judge: &dyn Judge) {
        let slot = self.slots.claim(pod.info.uid());
        if self.slots.line(slot) != Line::Nowhere {
            return self.land(slot);
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
        let requeue = if rejected { self.missed_by(slot, &pod, judge) } else { Requeue::AfterBackoff };
        self.land(slot);
        self.requeue(slot, pod, requeue, Cause::ScheduleAttemptFailure, now, judge);
    }

    /// What the events that happened while the pod was in flight mean for it.
    fn missed_by(&self, slot: Slot, pod: &QueuedPod, judge: &dyn Judge) -> Requeue {
        let Some(since) = self.slots.flight(slot) else { return Requeue::Skip };
        let verdicts = self.missed.since(since).map(|happening| verdict(pod, happening, judge));
        verdicts.max().unwrap_or(Requeue::Skip)
    }

    fn requeue(
        &mut self,
        slot: Slot,
        pod: QueuedPod,
        requeue: Requeue,
        cause: Cause,
        now: Timestamp,
        judge: &dyn Judge,
    ) {
        match requeue {
            Requeue::Skip => self.park(slot, pod, cause),
            Requeue::AfterBackoff if backing_off(self.backoff, &pod, now) => self.back_off(slot, pod, cause, judge),
            Requeue::AfterBackoff | Requeue::Now => self.activate_or_gate(slot, pod, cause, now, judge),
        }
    }

    fn park(&mut self, slot: Slot, pod: QueuedPod, cause: Cause) {
        self.entered(Queued::Unschedulable, cause);
        self.waiting.insert(slot, pod, &mut self.slots);
    }

    fn activate_or_gate(&mut self, slot: Slot, mut pod: QueuedPod, cause: Cause, now: Timestamp, judge: &dyn Judge) {
        let gated_before = pod.gating_plugin.is_some();
        if !gate(&mut pod, judge) {
            self.activate_ungated(slot, pod, cause, now, judge);
        } else if gated_before {
            // It never left.
            self.waiting.insert(slot, pod, &mut self.slots);
        } else {
            self.park(slot, pod, cause);
        }
    }

    fn activate_ungated(&mut self, slot: Slot, mut pod: QueuedPod, cause: Cause, now: Timestamp, judge: &dyn Judge) {
        self.entered(Queued::Active, cause);
        pod.initial_attempt.get_or_insert(now);
        self.slots.put(slot, pod, Line::Active);
        self.active.push(slot, 0, &mut self.slots, judge);
    }

    fn back_off(&mut self, slot: Slot, mut pod: QueuedPod, cause: Cause, judge: &dyn Judge) {
        if gate(&mut pod, judge) {
            return self.park(slot, pod, cause);
        }
        self.entered(Queued::Backoff, cause);
        let expiry = expiry(self.backoff, &pod).as_second();
        let (heap, line) = match pod.is_rejected() {
            true => (&mut self.backing_off, Line::Backoff),
            false => (&mut self.error_backing_off, Line::ErrorBackoff),
        };
        self.slots.put(slot, pod, line);
        heap.push(slot, expiry, &mut self.slots, judge);
    }

    /// Something happened that may let rejected pods fit, for those pods that `may` hear of it. Of pods of one shape all may
    /// or none, but for the pod that it happened to.
    pub fn move_all(
        &mut self,
        happening: &Happening,
        may: &dyn Fn(&PodInfo) -> bool,
        now: Timestamp,
        judge: &dyn Judge,
    ) {
        if !happening.event.is_wildcard() && !judge.anyone_listens(&happening.event) {
            return;
        }
        if self.waiting.len() > 0 {
            let (woken, held) = self.waiting.woken(happening, may, &self.slots, judge);
            if let Some(incoming) = &mut self.incoming {
                // As upstream counts them, though they never left.
                incoming.count_many(Queued::Unschedulable, Cause::Event(happening.event), held as u64);
            }
            for (slot, requeue) in woken {
                let pod = self.waiting.remove(slot, &mut self.slots);
                self.requeue(slot, pod, requeue, Cause::Event(happening.event), now, judge);
            }
        }
        if self.missed.anyone_in_flight() {
            self.missed.note(happening.clone());
        }
    }

    /// Moves an unschedulable pod if the event is worth it; true when it moved.
    fn wake(&mut self, slot: Slot, happening: &Happening, cause: Cause, now: Timestamp, judge: &dyn Judge) -> bool {
        let pod = self.slots.pod(slot);
        if let Some(gating) = pod.gating_plugin
            && !happening.event.is_wildcard()
            && !judge.listens(&pod.info, gating, &happening.event)
        {
            return false;
        }
        let requeue = verdict(pod, happening, judge);
        if requeue == Requeue::Skip {
            return false;
        }
        let pod = self.waiting.remove(slot, &mut self.slots);
        self.requeue(slot, pod, requeue, cause, now, judge);
        self.slots.line(slot) != Line::Waiting
    }

    /// Makes pods ready at once, whatever they wait for (gates excepted).
    pub fn activate(&mut self, uids: &[String], now: Timestamp, judge: &dyn Judge) {
        for uid in uids {
            let Some(slot) = self.slots.find(uid) else { continue };
            if self.slots.flight(slot).is_some() {
                let new = Some(targeted(uid.clone()));
                self.missed.note(Happening { event: ClusterEvent::WILDCARD, old: None, new });
                continue;
            }
            let line = self.slots.line(slot);
            if line == Line::Active {
                continue;
            }
            let cause = Cause::ForceActivate;
            match self.leave(slot, judge) {
                Some(pod) if line == Line::Waiting => self.activate_or_gate(slot, pod, cause, now, judge),
                Some(pod) => self.activate_ungated(slot, pod, cause, now, judge),
                None => {}
            }
        }
    }

    /// Something that was to help a waiting pod broke: it is tried again after an error's backoff.
    ///
    /// Upstream activates the pod at once, which becomes a busy loop while the API server refuses.
    pub fn retry_after_error(&mut self, uid: &str, now: Timestamp, judge: &dyn Judge) {
        let Some(slot) = self.slots.find(uid) else { return };
        if let Some(mut pod) = self.leave(slot, judge) {
            pod.consecutive_errors += 1;
            pod.unschedulable_plugins.clear();
            pod.pending_plugins.clear();
            pod.timestamp = now;
            self.back_off(slot, pod, Cause::ScheduleAttemptFailure, judge);
        }
    }

    /// Moves pods whose backoff has ended, and wakes those that slept for five minutes.
    pub fn tick(&mut self, now: Timestamp, judge: &dyn Judge) {
        let mut ready = Vec::new();
        for heap in [&mut self.backing_off, &mut self.error_backing_off] {
            while let Some((slot, _)) = heap.peek()
                && !backing_off(self.backoff, self.slots.pod(slot), now)
            {
                heap.pop(&mut self.slots, judge);
                ready.push((slot, self.slots.take(slot)));
            }
        }
        for (slot, pod) in ready {
            self.activate_ungated(slot, pod, Cause::BackoffComplete, now, judge);
        }
        let due = *self.next_flush.get_or_insert(now + FLUSH_INTERVAL);
        if now >= due {
            self.next_flush = Some(now + FLUSH_INTERVAL);
            self.flush(now, judge);
        }
    }

    fn flush(&mut self, now: Timestamp, judge: &dyn Judge) {
        let slept = |pod: &QueuedPod| {
            now.duration_since(pod.flushed.map_or(pod.timestamp, |flushed| flushed.max(pod.timestamp)))
        };
        let sleepers: Vec<Slot> =
            self.waiting.iter().filter(|slot| slept(self.slots.pod(*slot)) > self.max_in_unschedulable).collect();
        for slot in sleepers {
            self.slots.pod_mut(slot).flushed = Some(now);
            let happening = Happening::of(ClusterEvent::WILDCARD);
            self.wake(slot, &happening, Cause::UnschedulableTimeout, now, judge);
        }
    }

    /// When [`Queue::tick`] has something to do next.
    pub fn next_tick(&self) -> Option<Timestamp> {
        let heads = [self.backing_off.peek(), self.error_backing_off.peek()];
        let expiry = heads.into_iter().flatten().map(|(_, expiry)| {
            let end = Timestamp::from_second(expiry).unwrap_or(Timestamp::MAX);
            end.saturating_add(SignedDuration::from_secs(1)).unwrap_or(end)
        });
        let flush = if self.waiting.len() == 0 { None } else { self.next_flush };
        expiry.chain(flush).min()
    }
}

/// Runs PreEnqueue; true when the pod is held back.
fn gate(pod: &mut QueuedPod, judge: &dyn Judge) -> bool {
    let status = judge.pre_enqueue(&pod.info, pod.gating_plugin);
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

fn verdict(pod: &QueuedPod, happening: &Happening, judge: &dyn Judge) -> Requeue {
    if !pod.is_rejected() {
        return Requeue::AfterBackoff;
    }
    if happening.event.is_wildcard() {
        let other = matches!(&happening.new, Some(Object::Pod(target)) if target.metadata.uid != pod.info.uid());
        return if other { Requeue::Skip } else { Requeue::AfterBackoff };
    }
    judge.requeue(pod, happening)
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
            taken: 0,
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
