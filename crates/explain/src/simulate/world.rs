//! One configuration in a simulation: the real scheduler, and a cluster that does what it asks at once.
//!
//! ```text
//!   events ─handle▶ Scheduler ─schedule_one▶ effects ─▶ bound, evicted, nominated ─handle▶ Scheduler
//!                       ▲ tick, when a timer is due                │ refused
//!                       ├── virtual time ──▶ Measures ◀────────────┤
//!                       └── schedule_pod ◀── Pending ◀─────────────┘
//! ```
//!
//! Deciding takes no time here. So a refused pod is tried again as soon as it may fit, in order of priority and age,
//! and no backoff keeps it waiting.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use bayplan_model::pod::Pod;
use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::inspect::QueueStage;
use bayplan_scheduler::{Effect, Input, Object, Preemption, Registry, Scheduler, TieBreak};
use jiff::{SignedDuration, Timestamp};
use rustc_hash::{FxHashMap, FxHashSet};

use super::history::{Change, Event};
use super::measures::Measures;
use super::pending::{Hope, Pending, Prospect, Rank};

/// Which refused pods are tried again after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retries {
    /// Those that may get another answer.
    Hopeful,
    /// All of them, one by one: slow, and the truth.
    #[cfg(test)]
    All,
}

/// A pod that is there.
struct Known {
    pod: Arc<Pod>,
    /// When it was created, or last displaced.
    since: Timestamp,
    /// Its number among all that were created or displaced.
    number: u64,
    runs_for: Option<SignedDuration>,
    /// How often it was displaced.
    generation: u32,
}

/// A pod found a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// When.
    pub time: Timestamp,
    /// `namespace/name`.
    pub pod: String,
    /// The node.
    pub node: String,
    /// False for a pod that came back after it was displaced.
    pub first: bool,
}

/// A configuration's cluster.
pub(super) struct World {
    pub(super) name: String,
    pub(super) scheduler: Scheduler,
    pub(super) measures: Measures,
    pods: FxHashMap<String, Known>,
    /// The keys of pods by UID, for those whose status changes.
    by_uid: FxHashMap<String, String>,
    /// When pods that run for some time are done: time, key and generation.
    finishing: BinaryHeap<Reverse<(Timestamp, String, u32)>>,
    pending: Pending,
    /// UIDs of pending pods that the scheduler does not know yet: it would only refuse them.
    held_back: FxHashSet<String>,
    retries: Retries,
    now: Timestamp,
    version: u64,
    /// The placements since they were last taken.
    pub(super) placements: Vec<Placement>,
}

impl World {
    pub(super) fn new(
        name: &str,
        configuration: &Configuration,
        ties: TieBreak,
        retries: Retries,
        measures: Measures,
        start: Timestamp,
    ) -> Result<Self, bayplan_scheduler::Error> {
        Ok(World {
            name: name.to_owned(),
            scheduler: Scheduler::new(configuration, &Registry::default(), ties)?.with_retries_on_request(),
            measures,
            pods: FxHashMap::default(),
            by_uid: FxHashMap::default(),
            finishing: BinaryHeap::new(),
            pending: Pending::new(configuration),
            held_back: FxHashSet::default(),
            retries,
            now: start,
            version: 0,
            placements: Vec::new(),
        })
    }

    /// Brings in an object of the beginning.
    pub(super) fn begin_with(&mut self, object: &Object) {
        let Object::Pod(pod) = object else { return self.put(object.clone()) };
        if pod.is_terminal() {
            return;
        }
        if !pod.is_assigned() {
            return self.create(pod.clone(), None);
        }
        let pod = self.renewed(pod, &pod.spec.node_name, 0);
        let key = pod.metadata.key();
        self.measures.placed(&pod, &pod.spec.node_name, &self.scheduler);
        self.pending.placed(&pod);
        let known = Known { pod: pod.clone(), since: self.now, number: self.version, runs_for: None, generation: 0 };
        self.remember(key, known);
        self.scheduler.handle(Input::upsert(Object::Pod(pod)), self.now);
    }

    fn remember(&mut self, key: String, known: Known) {
        self.by_uid.insert(known.pod.metadata.uid.clone(), key.clone());
        if let Some(former) = self.pods.insert(key, known) {
            self.by_uid.remove(&former.pod.metadata.uid);
        }
    }

    /// A pod as this cluster has it: on this node, or pending when it is empty.
    fn renewed(&mut self, pod: &Pod, node: &str, generation: u32) -> Arc<Pod> {
        self.version += 1;
        let mut pod = pod.clone();
        let meta = &mut pod.metadata;
        meta.resource_version = self.version.to_string();
        if meta.uid.is_empty() {
            meta.uid = format!("{}/{}", meta.namespace, meta.name);
        }
        if generation > 0 {
            meta.uid = format!("{}+{generation}", meta.uid.split('+').next().unwrap_or_default());
        }
        node.clone_into(&mut pod.spec.node_name);
        if node.is_empty() {
            pod.status.nominated_node_name.clear();
        }
        Arc::new(pod)
    }

    /// Lets time pass until an event, with everything that happens on the way.
    pub(super) fn advance(&mut self, to: Timestamp) {
        loop {
            let tick = self.scheduler.next_tick().map(whole_second);
            let finish = self.finishing.peek().map(|Reverse((time, _, _))| *time);
            let Some(due) = tick.into_iter().chain(finish).min().filter(|due| *due <= to) else { break };
            self.pass(due.max(self.now));
            if tick.is_some_and(|tick| tick <= due) {
                self.scheduler.tick(self.now);
            }
            self.finish_due();
            self.schedule();
        }
        self.pass(to);
    }

    fn pass(&mut self, to: Timestamp) {
        if to > self.now {
            self.measures.pass(self.now, to, &self.scheduler);
            self.now = to;
        }
    }

    fn finish_due(&mut self) {
        while let Some(Reverse((time, key, generation))) = self.finishing.peek().cloned() {
            if time > self.now {
                return;
            }
            self.finishing.pop();
            if self.pods.get(&key).is_some_and(|known| known.generation == generation) {
                self.remove(&key);
            }
        }
    }

    /// Carries out an event, and lets the scheduler decide what can be decided now.
    pub(super) fn happen(&mut self, event: &Event) {
        match &event.change {
            Change::CreatePod { pod, runs_for } => self.create(pod.clone(), *runs_for),
            Change::DeletePod(namespace, name) => self.remove(&format!("{namespace}/{name}")),
            Change::Put(object) => self.put(object.clone()),
            Change::Delete(object) => {
                if let Object::Node(_) = object {
                    self.measures.nodes_changed();
                }
                self.pending.changed();
                self.scheduler.handle(Input::delete(object.clone()), self.now);
            }
        }
    }

    fn put(&mut self, object: Object) {
        if let Object::Node(_) = &object {
            self.measures.nodes_changed();
        }
        self.pending.changed();
        self.scheduler.handle(Input::upsert(object), self.now);
    }

    fn create(&mut self, pod: Arc<Pod>, runs_for: Option<SignedDuration>) {
        let key = pod.metadata.key();
        self.remove(&key);
        let pod = self.renewed(&pod, "", 0);
        self.measures.arrived();
        let known = Known { pod: pod.clone(), since: self.now, number: self.version, runs_for, generation: 0 };
        let rank = (known.since, known.number);
        self.remember(key, known);
        self.arrive(pod, rank);
    }

    /// Brings a pending pod to the scheduler, unless it would only be refused.
    fn arrive(&mut self, pod: Arc<Pod>, (since, number): (Timestamp, u64)) {
        // While nobody waits, there is most likely a node for it.
        if self.retries != Retries::Hopeful || self.pending.is_empty() || !pod.spec.scheduling_gates.is_empty() {
            return self.scheduler.handle(Input::upsert(Object::Pod(pod)), self.now);
        }
        let info = self.scheduler.pod_info(pod.clone());
        let is_refused = match self.pending.prospect(&info) {
            Prospect::Refusal => true,
            Prospect::Fit => self.scheduler.fits(&info, self.now) == Some(false),
            Prospect::Unknown => false,
        };
        if !is_refused {
            return self.scheduler.handle(Input::upsert(Object::Pod(pod)), self.now);
        }
        self.pending.add(&info, Rank::new(&info, since, number));
        self.pending.refused(info.uid());
        self.held_back.insert(info.uid().to_owned());
    }

    /// A pod is gone, from its node or from the queue.
    fn remove(&mut self, key: &str) {
        let Some(known) = self.pods.remove(key) else { return };
        self.by_uid.remove(&known.pod.metadata.uid);
        self.leave(&known);
        self.scheduler.handle(Input::delete(Object::Pod(known.pod)), self.now);
    }

    fn leave(&mut self, known: &Known) {
        match known.pod.is_assigned() {
            true => {
                self.pending.left(&known.pod);
                self.measures.left(&known.pod, &self.scheduler);
            }
            false => {
                self.pending.remove(&known.pod.metadata.uid);
                self.held_back.remove(&known.pod.metadata.uid);
                if known.pod.is_nominated() {
                    self.pending.changed();
                }
                self.measures.gave_up(self.now.duration_since(known.since));
            }
        }
    }

    /// Decides until nothing is left to decide now.
    pub(super) fn schedule(&mut self) {
        loop {
            while self.scheduler.schedule_one(self.now) {}
            if !self.carry_out_effects() && !self.retry() {
                return;
            }
        }
    }

    /// Carries out what the scheduler asked for; false when there was nothing.
    fn carry_out_effects(&mut self) -> bool {
        let effects = self.scheduler.take_effects();
        let any = !effects.is_empty();
        effects.into_iter().for_each(|effect| self.carry_out(effect));
        any
    }

    /// Tries refused pods again until one of them is placed or displaces others; false when all stay refused.
    fn retry(&mut self) -> bool {
        match self.retries {
            Retries::Hopeful => self.retry_hopeful(),
            #[cfg(test)]
            Retries::All => self.pending.all().iter().any(|uid| self.try_again(uid)),
        }
    }

    fn retry_hopeful(&mut self) -> bool {
        let mut after = None;
        while let Some((rank, hope)) = self.pending.next(after) {
            after = Some(rank);
            let Some((pod, uid)) = self.pending.head(rank) else { continue };
            if hope == Hope::Fit && self.scheduler.fits(&pod, self.now) == Some(false) {
                self.pending.refused(&uid);
            } else if self.try_again(&uid) {
                return true;
            } else {
                self.pending.refused(&uid);
            }
        }
        false
    }

    /// Tries a pod; true when something came of it.
    fn try_again(&mut self, uid: &str) -> bool {
        if self.held_back.remove(uid) {
            let known = self.by_uid.get(uid).and_then(|key| self.pods.get(key));
            let pod = known.map(|known| Object::Pod(known.pod.clone()));
            pod.into_iter().for_each(|pod| self.scheduler.handle(Input::upsert(pod), self.now));
        }
        if !self.scheduler.schedule_pod(uid, self.now) {
            self.pending.remove(uid);
            return false;
        }
        let effects = self.scheduler.take_effects();
        let succeeded = effects.iter().any(|effect| matches!(effect, Effect::Bind(_) | Effect::Preempt(_)));
        effects.into_iter().for_each(|effect| self.carry_out(effect));
        succeeded
    }

    /// A pod found no node: it waits with the others, unless a gate holds it back.
    fn refused(&mut self, uid: &str) {
        let stage = self.scheduler.queue().stage(uid);
        if !matches!(stage, Some(QueueStage::Unschedulable | QueueStage::Backoff)) {
            return;
        }
        let known = self.by_uid.get(uid).and_then(|key| self.pods.get(key));
        if let (Some(queued), Some(known)) = (self.scheduler.queue().pod(uid), known) {
            let rank = Rank::new(&queued.info, known.since, known.number);
            self.pending.add(&queued.info, rank);
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Bind(binding) => {
                let (key, node) = (binding.pod_key(), binding.node().to_owned());
                self.scheduler.handle(Input::Bound(Box::new(binding.succeeded())), self.now);
                self.bound(key, node);
            }
            Effect::Preempt(preemption) => self.evict(*preemption),
            Effect::UpdateStatus(update) => {
                let node = update.nominated_node().map(str::to_owned);
                let key = self.by_uid.get(&update.uid).cloned();
                if let (Some(node), Some(key)) = (node, key) {
                    self.nominated(&key, node);
                }
            }
            Effect::Record { event, .. } if event.reason == "FailedScheduling" => self.refused(&event.regarding.uid),
            // Nobody reads other events here, and devices stay as Reserve left them.
            Effect::Record { .. } | Effect::Call(_) => {}
        }
    }

    fn bound(&mut self, key: String, node: String) {
        let Some(known) = self.pods.get(&key) else { return };
        let Known { since, number, runs_for, generation, .. } = *known;
        let former = known.pod.clone();
        self.pending.remove(&former.metadata.uid);
        self.pending.placed(&former);
        let pod = self.renewed(&former, &node, generation);
        self.measures.waited(self.now.duration_since(since));
        self.scheduler.handle(Input::upsert(Object::Pod(pod.clone())), self.now);
        self.measures.placed(&pod, &node, &self.scheduler);
        self.measures.check_spread(&pod, &node, &self.scheduler);
        if let Some(time) = runs_for.and_then(|runs_for| self.now.checked_add(runs_for).ok()) {
            self.finishing.push(Reverse((time, key.clone(), generation)));
        }
        self.placements.push(Placement { time: self.now, pod: key.clone(), node, first: generation == 0 });
        self.remember(key, Known { pod, since, number, runs_for, generation });
    }

    fn nominated(&mut self, key: &str, node: String) {
        let Some(known) = self.pods.get_mut(key).filter(|known| !known.pod.is_assigned()) else { return };
        if known.pod.status.nominated_node_name == node {
            return;
        }
        self.version += 1;
        let mut pod = (*known.pod).clone();
        pod.status.nominated_node_name = node;
        pod.metadata.resource_version = self.version.to_string();
        known.pod = Arc::new(pod);
        let uid = known.pod.metadata.uid.clone();
        self.scheduler.handle(Input::upsert(Object::Pod(known.pod.clone())), self.now);
        // It is answered by itself now, or with its like again, and others may fit where it would have gone.
        self.pending.changed();
        if self.pending.remove(&uid).is_some() {
            self.refused(&uid);
        }
    }

    /// Victims leave at once, and come back as new pods: what they were there for still has to be done.
    fn evict(&mut self, preemption: Preemption) {
        for victim in &preemption.victims {
            let key = victim.key();
            let Some(known) = self.pods.remove(&key).filter(|known| known.pod.metadata.uid == *victim.uid()) else {
                continue;
            };
            self.measures.preempted();
            self.by_uid.remove(victim.uid());
            self.leave(&known);
            let generation = known.generation + 1;
            let next = self.renewed(&known.pod, "", generation);
            self.scheduler.handle(Input::delete(Object::Pod(known.pod)), self.now);
            self.measures.arrived();
            let (runs_for, number) = (known.runs_for, self.version);
            self.remember(key, Known { pod: next.clone(), since: self.now, number, runs_for, generation });
            // Tried like any new pod, and before those that wait: what else is evicted may let it in elsewhere.
            self.scheduler.handle(Input::upsert(Object::Pod(next)), self.now);
        }
        let uid = preemption.preemptor.uid().to_owned();
        self.scheduler.handle(Input::Preempted { uid, result: Ok(()) }, self.now);
    }

    /// Ends the simulation: pods that still wait count with the time they waited.
    pub(super) fn end(&mut self) {
        let waiting: Vec<SignedDuration> = (self.pods.values().filter(|known| !known.pod.is_assigned()))
            .map(|known| self.now.duration_since(known.since))
            .collect();
        waiting.into_iter().for_each(|waited| self.measures.gave_up(waited));
        self.measures.end(self.now, &self.scheduler);
    }

    /// A pod as it is there.
    pub(super) fn pod(&self, key: &str) -> Option<&Arc<Pod>> {
        self.pods.get(key).map(|known| &known.pod)
    }

    /// The time.
    pub(super) fn now(&self) -> Timestamp {
        self.now
    }
}

/// The first whole second from a time on: the scheduler's timers run about once a second.
fn whole_second(time: Timestamp) -> Timestamp {
    let second = time.as_second() + i64::from(time.subsec_nanosecond() > 0);
    Timestamp::from_second(second).unwrap_or(time)
}

/// The configuration without what evicts pods for more important ones.
pub(super) fn without_preemption(configuration: &Configuration) -> Configuration {
    let mut changed = configuration.clone();
    for profile in &mut changed.profiles {
        *profile = profile.without_preemption();
    }
    changed
}
