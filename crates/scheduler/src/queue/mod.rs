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

mod heap;
mod nominator;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use rustc_hash::FxHashMap;

use crate::cluster::{Object, PodInfo};
use crate::framework::{ClusterEvent, PluginName, Status, event::pod_updates};
use heap::Heap;
pub use nominator::Nominator;

/// How often pods that nothing woke are looked for, and how long they may sleep.
pub const FLUSH_INTERVAL: SignedDuration = SignedDuration::from_secs(30);
/// After this long an unschedulable pod is tried again without any event.
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
    active: Heap,
    backing_off: Heap,
    error_backing_off: Heap,
    unschedulable: BTreeMap<String, QueuedPod>,
    /// Sequence number of the first event each pod in flight may have missed.
    in_flight: FxHashMap<String, u64>,
    events: VecDeque<(u64, Happening)>,
    next_event: u64,
    next_sequence: u64,
    next_flush: Option<Timestamp>,
    /// Which pods are expected where.
    pub nominator: Nominator,
}

impl Queue {
    /// An empty queue.
    pub fn new(backoff: Backoff) -> Self {
        Queue {
            backoff,
            active: Heap::default(),
            backing_off: Heap::default(),
            error_backing_off: Heap::default(),
            unschedulable: BTreeMap::new(),
            in_flight: FxHashMap::default(),
            events: VecDeque::new(),
            next_event: 0,
            next_sequence: 0,
            next_flush: None,
            nominator: Nominator::default(),
        }
    }

    /// Where a pod is, if anywhere.
    pub fn place(&self, uid: &str) -> Option<Place> {
        if self.active.contains(uid) {
            return Some(Place::Active);
        }
        if self.backing_off.contains(uid) || self.error_backing_off.contains(uid) {
            return Some(Place::Backoff);
        }
        if let Some(pod) = self.unschedulable.get(uid) {
            return Some(if pod.gating_plugin.is_some() { Place::Gated } else { Place::Unschedulable });
        }
        self.in_flight.contains_key(uid).then_some(Place::InFlight)
    }

    /// How many pods are active, backing off, unschedulable and gated.
    pub fn counts(&self) -> [usize; 4] {
        let gated = self.unschedulable.values().filter(|pod| pod.gating_plugin.is_some()).count();
        let backoff = self.backing_off.len() + self.error_backing_off.len();
        [self.active.len(), backoff, self.unschedulable.len() - gated, gated]
    }

    /// All pods that are not in flight.
    pub fn pods(&self) -> impl Iterator<Item = &QueuedPod> {
        let heaps = self.active.iter().chain(self.backing_off.iter()).chain(self.error_backing_off.iter());
        heaps.chain(self.unschedulable.values())
    }

    /// Takes in a new pod.
    pub fn add(&mut self, info: Arc<PodInfo>, now: Timestamp, judge: &dyn Judge) {
        self.nominator.add(&info, &crate::framework::Nomination::Keep);
        let pod = QueuedPod {
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
            sequence: self.next_sequence,
        };
        self.next_sequence += 1;
        self.activate_or_gate(pod, now, judge);
    }

    /// Takes over a new version of a pod.
    pub fn update(&mut self, old: &PodInfo, new: &Arc<PodInfo>, now: Timestamp, judge: &dyn Judge) {
        let uid = new.uid();
        self.nominator.update(old, new);
        let happenings = || {
            pod_updates(old, new).into_iter().map(|event| Happening {
                event,
                old: Some(Object::Pod(old.pod.clone())),
                new: Some(Object::Pod(new.pod.clone())),
            })
        };
        if self.in_flight.contains_key(uid) {
            for happening in happenings() {
                self.note(happening);
            }
            return;
        }
        let less = |a: &QueuedPod, b: &QueuedPod| judge.less(a, b);
        for (heap, by_expiry) in
            [(&mut self.active, false), (&mut self.backing_off, true), (&mut self.error_backing_off, true)]
        {
            if let Some(pod) = heap.get_mut(uid) {
                pod.info = new.clone();
                let limits = self.backoff;
                let by_time = |a: &QueuedPod, b: &QueuedPod| sooner(limits, a, b, &less);
                heap.fix(uid, if by_expiry { &by_time } else { &less });
                return;
            }
        }
        let Some(pod) = self.unschedulable.get_mut(uid) else {
            return self.add(new.clone(), now, judge);
        };
        pod.info = new.clone();
        for happening in happenings() {
            if self.wake(uid, &happening, now, judge) {
                return;
            }
        }
    }

    /// Drops a pod wherever it is; one in flight stays in flight until it is done.
    pub fn delete(&mut self, uid: &str, judge: &dyn Judge) {
        self.nominator.remove(uid);
        self.take_out(uid, judge);
    }

    fn take_out(&mut self, uid: &str, judge: &dyn Judge) -> Option<QueuedPod> {
        let less = |a: &QueuedPod, b: &QueuedPod| judge.less(a, b);
        let limits = self.backoff;
        let by_time = |a: &QueuedPod, b: &QueuedPod| sooner(limits, a, b, &less);
        self.active
            .remove(uid, &less)
            .or_else(|| self.backing_off.remove(uid, &by_time))
            .or_else(|| self.error_backing_off.remove(uid, &by_time))
            .or_else(|| self.unschedulable.remove(uid))
    }

    /// The next pod to try; when nothing is active, one whose backoff has not ended yet (but never one that failed
    /// with an error).
    pub fn pop(&mut self, judge: &dyn Judge) -> Option<QueuedPod> {
        let less = |a: &QueuedPod, b: &QueuedPod| judge.less(a, b);
        let limits = self.backoff;
        let mut pod = match self.active.pop(&less) {
            Some(pod) => pod,
            None => self.backing_off.pop(&|a, b| sooner(limits, a, b, &less))?,
        };
        pod.attempts += 1;
        self.in_flight.insert(pod.info.uid().to_owned(), self.next_event);
        Some(pod)
    }

    /// A pod in flight was bound or dropped: events are no longer kept for it.
    pub fn done(&mut self, uid: &str) {
        if self.in_flight.remove(uid).is_none() {
            return;
        }
        let oldest = self.in_flight.values().min().copied().unwrap_or(self.next_event);
        while self.events.front().is_some_and(|(sequence, _)| *sequence < oldest) {
            self.events.pop_front();
        }
    }

    /// Takes back a pod that could not be placed; who rejected it is already noted in it.
    pub fn add_unschedulable(&mut self, mut pod: QueuedPod, now: Timestamp, judge: &dyn Judge) {
        let uid = pod.info.uid().to_owned();
        if !matches!(self.place(&uid), None | Some(Place::InFlight)) {
            return self.done(&uid);
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
        let requeue = if rejected { self.missed(&uid, &pod, judge) } else { Requeue::AfterBackoff };
        self.done(&uid);
        self.requeue(pod, requeue, now, judge);
    }

    /// What the events that happened while the pod was in flight mean for it.
    fn missed(&self, uid: &str, pod: &QueuedPod, judge: &dyn Judge) -> Requeue {
        let Some(&since) = self.in_flight.get(uid) else { return Requeue::Skip };
        let missed = self.events.iter().filter(|(sequence, _)| *sequence >= since);
        missed.map(|(_, happening)| verdict(pod, happening, judge)).max().unwrap_or(Requeue::Skip)
    }

    fn requeue(&mut self, pod: QueuedPod, requeue: Requeue, now: Timestamp, judge: &dyn Judge) {
        match requeue {
            Requeue::Skip => drop(self.unschedulable.insert(pod.info.uid().to_owned(), pod)),
            Requeue::AfterBackoff if self.is_backing_off(&pod, now) => self.back_off(pod, judge),
            Requeue::AfterBackoff | Requeue::Now => self.activate_or_gate(pod, now, judge),
        }
    }

    fn activate_or_gate(&mut self, mut pod: QueuedPod, now: Timestamp, judge: &dyn Judge) {
        if self.gate(&mut pod, judge) {
            self.unschedulable.insert(pod.info.uid().to_owned(), pod);
        } else {
            self.activate_ungated(pod, now, judge);
        }
    }

    fn activate_ungated(&mut self, mut pod: QueuedPod, now: Timestamp, judge: &dyn Judge) {
        pod.initial_attempt.get_or_insert(now);
        self.active.push(pod, &|a, b| judge.less(a, b));
    }

    fn back_off(&mut self, mut pod: QueuedPod, judge: &dyn Judge) {
        if self.gate(&mut pod, judge) {
            self.unschedulable.insert(pod.info.uid().to_owned(), pod);
            return;
        }
        let limits = self.backoff;
        let heap = if pod.is_rejected() { &mut self.backing_off } else { &mut self.error_backing_off };
        heap.push(pod, &|a, b| sooner(limits, a, b, &|a, b| judge.less(a, b)));
    }

    /// Runs PreEnqueue; true when the pod is held back.
    fn gate(&self, pod: &mut QueuedPod, judge: &dyn Judge) -> bool {
        let status = judge.pre_enqueue(&pod.info, pod.gating_plugin);
        pod.gating_plugin = (!status.is_success()).then_some(status.plugin);
        pod.unschedulable_plugins.extend(pod.gating_plugin);
        pod.gating_plugin.is_some()
    }

    /// Something happened that may let rejected pods fit.
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
        let uids: Vec<String> =
            self.unschedulable.values().filter(|p| may(&p.info)).map(|p| p.info.uid().to_owned()).collect();
        for uid in uids {
            self.wake(&uid, happening, now, judge);
        }
        if !self.in_flight.is_empty() {
            self.note(happening.clone());
        }
    }

    fn note(&mut self, happening: Happening) {
        self.events.push_back((self.next_event, happening));
        self.next_event += 1;
    }

    /// Moves an unschedulable pod if the event is worth it; true when it moved.
    fn wake(&mut self, uid: &str, happening: &Happening, now: Timestamp, judge: &dyn Judge) -> bool {
        let Some(pod) = self.unschedulable.get(uid) else { return false };
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
        let Some(pod) = self.unschedulable.remove(uid) else { return false };
        self.requeue(pod, requeue, now, judge);
        !self.unschedulable.contains_key(uid)
    }

    /// Makes pods ready at once, whatever they wait for (gates excepted).
    pub fn activate(&mut self, uids: &[String], now: Timestamp, judge: &dyn Judge) {
        for uid in uids {
            if self.in_flight.contains_key(uid) {
                let new = Some(uid.clone());
                self.note(Happening { event: ClusterEvent::WILDCARD, old: None, new: new.map(targeted) });
            } else if self.unschedulable.contains_key(uid) || self.place(uid) == Some(Place::Backoff) {
                let from_backoff = !self.unschedulable.contains_key(uid);
                let Some(pod) = self.take_out(uid, judge) else { continue };
                if from_backoff {
                    self.activate_ungated(pod, now, judge);
                } else {
                    self.activate_or_gate(pod, now, judge);
                }
            }
        }
    }

    /// Something that was to help a waiting pod broke: it is tried again after an error's backoff.
    ///
    /// Upstream activates the pod at once, which becomes a busy loop while the API server refuses.
    pub fn retry_after_error(&mut self, uid: &str, now: Timestamp, judge: &dyn Judge) {
        if let Some(mut pod) = self.take_out(uid, judge) {
            pod.consecutive_errors += 1;
            pod.unschedulable_plugins.clear();
            pod.pending_plugins.clear();
            pod.timestamp = now;
            self.back_off(pod, judge);
        }
    }

    /// Moves pods whose backoff has ended, and wakes those that slept for five minutes.
    pub fn tick(&mut self, now: Timestamp, judge: &dyn Judge) {
        let limits = self.backoff;
        let less = |a: &QueuedPod, b: &QueuedPod| judge.less(a, b);
        let by_time = |a: &QueuedPod, b: &QueuedPod| sooner(limits, a, b, &less);
        let mut ready = Vec::new();
        for heap in [&mut self.backing_off, &mut self.error_backing_off] {
            while heap.peek().is_some_and(|pod| !backing_off(limits, pod, now)) {
                ready.extend(heap.pop(&by_time));
            }
        }
        for pod in ready {
            self.activate_ungated(pod, now, judge);
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
        let sleepers: Vec<String> = self
            .unschedulable
            .iter()
            .filter(|(_, p)| slept(p) > MAX_IN_UNSCHEDULABLE)
            .map(|(u, _)| u.clone())
            .collect();
        for uid in sleepers {
            if let Some(pod) = self.unschedulable.get_mut(&uid) {
                pod.flushed = Some(now);
            }
            self.wake(&uid, &Happening::of(ClusterEvent::WILDCARD), now, judge);
        }
    }

    /// When [`Queue::tick`] has something to do next.
    pub fn next_tick(&self) -> Option<Timestamp> {
        let heads = [self.backing_off.peek(), self.error_backing_off.peek()];
        let expiry = heads.into_iter().flatten().map(|pod| {
            let expiry = expiry(self.backoff, pod);
            expiry.saturating_add(SignedDuration::from_secs(1)).unwrap_or(expiry)
        });
        let flush = if self.unschedulable.is_empty() { None } else { self.next_flush };
        expiry.chain(flush).min()
    }

    fn is_backing_off(&self, pod: &QueuedPod, now: Timestamp) -> bool {
        backing_off(self.backoff, pod, now)
    }
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

fn sooner(limits: Backoff, a: &QueuedPod, b: &QueuedPod, less: &dyn Fn(&QueuedPod, &QueuedPod) -> bool) -> bool {
    let (first, second) = (expiry(limits, a), expiry(limits, b));
    if first == second { less(a, b) } else { first < second }
}

impl QueuedPod {
    /// Order of arrival, for sort plugins to break ties with.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// True when some plugin turned it down, as opposed to something that broke.
    fn is_rejected(&self) -> bool {
        !self.unschedulable_plugins.is_empty() || !self.pending_plugins.is_empty()
    }
}
