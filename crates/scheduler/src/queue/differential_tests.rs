//! Compares the queue with a plain one, which asks for every pod at every event, on random histories.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use bayplan_model::node::Node;
use bayplan_testkit::Rng;
use serde_json::json;

use super::*;
use crate::framework::{EventResource, ObjectChange, PluginName, SortKey, Status, action};

/// Plugins of every kind of hint. `Labels` registers for nodes and compares labels; `Own` registers for pods and
/// compares UIDs; `Each` registers for deleted nodes and reads the pod's name; `Gate` rejects gated pods in PreEnqueue
/// and registers for the removal of gates; `Held` rejects the pods in `held` in PreEnqueue, and registers for other
/// pods.
struct Plugins {
    /// False makes the queue ask for each pod, and sort by looking at pods.
    fast: bool,
    held: RefCell<BTreeSet<String>>,
}

fn hears(plugin: PluginName, event: &ClusterEvent) -> bool {
    match plugin {
        "Labels" => event.resource == EventResource::Node && event.action == action::ADD,
        "Own" | "Held" => event.resource == EventResource::AssignedPod,
        "Each" => event.resource == EventResource::Node && event.action == action::DELETE,
        _ => event.action == action::UPDATE_POD_SCHEDULING_GATES_ELIMINATED || event.action == action::ADD,
    }
}

fn wants(plugin: PluginName, pod: &PodInfo, change: &ClusterChange) -> bool {
    let ObjectChange { old, new } = ObjectChange::of(change.object.as_ref());
    match (plugin, new, old) {
        ("Labels", Some(Object::Node(node)), _) => pod.metadata.labels.get("app") == node.metadata.labels.get("app"),
        ("Own", _, Some(Object::Pod(other))) => {
            other.metadata.uid == pod.metadata.uid || other.metadata.labels == pod.metadata.labels
        }
        ("Each", _, _) => pod.metadata.name.ends_with('1'),
        ("Held", _, _) => false,
        _ => true,
    }
}

impl QueuePlugins for Plugins {
    fn pre_enqueue(&self, pod: &PodInfo, _first: Option<PluginName>) -> Status {
        if self.held.borrow().contains(pod.uid()) {
            return Status::unresolvable("held").by("Held");
        }
        match pod.spec.scheduling_gates.is_empty() {
            true => Status::SUCCESS,
            false => Status::unresolvable("gated").by("Gate"),
        }
    }
    fn queueing_strategy(&self, pod: &QueuedPod, change: &ClusterChange) -> QueueingStrategy {
        let worth = |plugin: &&PluginName| hears(plugin, &change.event) && wants(plugin, &pod.info, change);
        if pod.pending_plugins.iter().any(|plugin| worth(&plugin)) {
            QueueingStrategy::Immediately
        } else if pod.unschedulable_plugins.iter().any(|plugin| worth(&plugin)) {
            QueueingStrategy::AfterBackoff
        } else {
            QueueingStrategy::Skip
        }
    }
    fn any_registered(&self, _event: &ClusterEvent) -> bool {
        true
    }
    fn is_registered(&self, _pod: &PodInfo, plugin: PluginName, event: &ClusterEvent) -> bool {
        hears(plugin, event)
    }
    fn less(&self, a: &QueuedPod, b: &QueuedPod) -> bool {
        let key = |pod: &QueuedPod| (-i64::from(pod.info.priority()), pod.timestamp, pod.sequence());
        key(a) < key(b)
    }
    fn sort_key(&self, pod: &QueuedPod) -> Option<SortKey> {
        self.fast.then(|| SortKey::new(pod.info.priority(), pod.timestamp, pod.sequence()))
    }
    fn waits_for_activation(&self, _pod: &PodInfo, plugin: PluginName) -> bool {
        self.fast && plugin == "Held"
    }
    fn hint_scope(&self, pod: &QueuedPod, event: &ClusterEvent) -> HintScope {
        if !self.fast {
            return HintScope::Pod;
        }
        let all = pod.unschedulable_plugins.iter().chain(&pod.pending_plugins).filter(|plugin| hears(plugin, event));
        all.map(|plugin| if *plugin == "Each" { HintScope::Pod } else { HintScope::Signature })
            .max()
            .unwrap_or(HintScope::Nobody)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Active,
    Backoff,
    ErrorBackoff,
    Unschedulable,
}

/// The reference: one map, and a walk over it for every operation.
struct Plain {
    backoff: Backoff,
    pods: BTreeMap<String, (At, QueuedPod)>,
    in_flight: BTreeMap<String, usize>,
    events: Vec<ClusterChange>,
    next_sequence: u64,
    next_flush: Option<Timestamp>,
}

impl Plain {
    fn stage(&self, uid: &str) -> Option<QueueStage> {
        match self.pods.get(uid) {
            Some((At::Active, _)) => Some(QueueStage::Active),
            Some((At::Backoff | At::ErrorBackoff, _)) => Some(QueueStage::Backoff),
            Some((At::Unschedulable, pod)) if pod.gating_plugin.is_some() => Some(QueueStage::Gated),
            Some((At::Unschedulable, _)) => Some(QueueStage::Unschedulable),
            None => self.in_flight.contains_key(uid).then_some(QueueStage::InFlight),
        }
    }

    fn add(&mut self, info: Arc<PodInfo>, now: Timestamp, plugins: &Plugins) {
        let pod = QueuedPod::new(info, now, self.next_sequence);
        self.next_sequence += 1;
        self.put(pod, At::Active, now, plugins);
    }

    fn put(&mut self, mut pod: QueuedPod, mut at: At, now: Timestamp, plugins: &Plugins) {
        if at != At::Unschedulable && is_gated(&mut pod, plugins) {
            at = At::Unschedulable;
        }
        if at == At::Active {
            pod.initial_attempt.get_or_insert(now);
        }
        self.pods.insert(pod.info.uid().to_owned(), (at, pod));
    }

    fn requeue(&mut self, pod: QueuedPod, requeue: QueueingStrategy, now: Timestamp, plugins: &Plugins) {
        let at = match requeue {
            QueueingStrategy::Skip => At::Unschedulable,
            QueueingStrategy::AfterBackoff if !self.backoff.is_backing_off(&pod, now) => At::Active,
            QueueingStrategy::AfterBackoff if pod.is_rejected() => At::Backoff,
            QueueingStrategy::AfterBackoff => At::ErrorBackoff,
            QueueingStrategy::Immediately => At::Active,
        };
        self.put(pod, at, now, plugins);
    }

    fn first(&self, line: At, plugins: &Plugins) -> Option<String> {
        let end = |pod: &QueuedPod| if line == At::Active { Timestamp::MIN } else { self.backoff.expiry(pod) };
        let of_line = self.pods.iter().filter(|(_, (at, _))| *at == line).map(|(uid, (_, pod))| (uid, pod));
        let first = of_line.reduce(|a, b| {
            let b_first = end(b.1) < end(a.1) || (end(b.1) == end(a.1) && plugins.less(b.1, a.1));
            if b_first { b } else { a }
        });
        first.map(|(uid, _)| uid.clone())
    }

    fn pop(&mut self, plugins: &Plugins) -> Option<QueuedPod> {
        let uid = self.first(At::Active, plugins).or_else(|| self.first(At::Backoff, plugins))?;
        let (_, mut pod) = self.pods.remove(&uid)?;
        pod.attempts += 1;
        self.in_flight.insert(uid, self.events.len());
        Some(pod)
    }

    fn add_unschedulable(&mut self, mut pod: QueuedPod, now: Timestamp, plugins: &Plugins) {
        let since = self.in_flight.remove(pod.info.uid());
        if self.pods.contains_key(pod.info.uid()) {
            return;
        }
        let rejected = !pod.unschedulable_plugins.is_empty() || !pod.pending_plugins.is_empty();
        pod.unschedulable_count += u32::from(rejected);
        pod.consecutive_errors = if rejected { 0 } else { pod.consecutive_errors + 1 };
        pod.timestamp = now;
        pod.flushed = None;
        let missed = since.into_iter().flat_map(|since| &self.events[since..]);
        let requeue = match rejected {
            true => missed.map(|event| event.strategy_for(&pod, plugins)).max().unwrap_or(QueueingStrategy::Skip),
            false => QueueingStrategy::AfterBackoff,
        };
        self.requeue(pod, requeue, now, plugins);
    }

    fn move_one(&mut self, uid: &str, change: &ClusterChange, now: Timestamp, plugins: &Plugins) -> bool {
        let Some((At::Unschedulable, pod)) = self.pods.get(uid) else { return false };
        let deaf = pod.gating_plugin.is_some_and(|gating| !plugins.is_registered(&pod.info, gating, &change.event));
        if deaf && !change.event.is_wildcard() {
            return false;
        }
        let requeue = change.strategy_for(pod, plugins);
        if requeue == QueueingStrategy::Skip {
            return false;
        }
        let pod = pod.clone();
        self.requeue(pod, requeue, now, plugins);
        self.pods[uid].0 != At::Unschedulable
    }

    fn move_all(&mut self, change: &ClusterChange, may: &dyn Fn(&PodInfo) -> bool, now: Timestamp, plugins: &Plugins) {
        let uids: Vec<String> =
            self.pods.iter().filter(|(_, (_, pod))| may(&pod.info)).map(|(uid, _)| uid.clone()).collect();
        for uid in uids {
            self.move_one(&uid, change, now, plugins);
        }
        self.events.push(change.clone());
    }

    fn update(&mut self, old: &Arc<Pod>, new: &Arc<PodInfo>, now: Timestamp, plugins: &Plugins) {
        let uid = new.uid();
        let delta = Delta::Updated { old: Object::Pod(old.clone()), new: Object::Pod(new.pod.clone()) };
        let mut changes = pod_updates(old, new).into_iter().map(|event| ClusterChange::of_object(event, delta.clone()));
        if self.in_flight.contains_key(uid) {
            return self.events.extend(changes);
        }
        match self.pods.get_mut(uid) {
            None => self.add(new.clone(), now, plugins),
            Some((at, pod)) => {
                pod.info = new.clone();
                if *at == At::Unschedulable {
                    changes.find(|change| self.move_one(uid, change, now, plugins));
                }
            }
        }
    }

    fn activate(&mut self, uid: &str, now: Timestamp, plugins: &Plugins) {
        if self.in_flight.contains_key(uid) {
            return self.events.push(ClusterChange::activation(uid));
        }
        match self.pods.get(uid).cloned() {
            Some((At::Unschedulable, pod)) => self.put(pod, At::Active, now, plugins),
            Some((At::Backoff | At::ErrorBackoff, mut pod)) => {
                pod.initial_attempt.get_or_insert(now);
                self.pods.insert(uid.to_owned(), (At::Active, pod));
            }
            _ => {}
        }
    }

    fn tick(&mut self, now: Timestamp, plugins: &Plugins) {
        for (at, pod) in self.pods.values_mut().filter(|(at, _)| matches!(at, At::Backoff | At::ErrorBackoff)) {
            if !self.backoff.is_backing_off(pod, now) {
                *at = At::Active;
                pod.initial_attempt.get_or_insert(now);
            }
        }
        if now < *self.next_flush.get_or_insert(now + FLUSH_INTERVAL) {
            return;
        }
        self.next_flush = Some(now + FLUSH_INTERVAL);
        let slept = |pod: &QueuedPod| now.duration_since(pod.flushed.unwrap_or(pod.timestamp).max(pod.timestamp));
        let late = self.pods.iter().filter(|(_, (at, p))| *at == At::Unschedulable && slept(p) > MAX_IN_UNSCHEDULABLE);
        for uid in late.map(|(uid, _)| uid.clone()).collect::<Vec<_>>() {
            if let Some((_, pod)) = self.pods.get_mut(&uid) {
                pod.flushed = Some(now);
            }
            self.move_one(&uid, &ClusterChange::of(ClusterEvent::WILDCARD), now, plugins);
        }
    }

    fn next_tick(&self) -> Option<Timestamp> {
        let ends = self.pods.values().filter(|(at, _)| matches!(at, At::Backoff | At::ErrorBackoff));
        let ends = ends.map(|(_, pod)| self.backoff.expiry(pod) + SignedDuration::from_secs(1));
        let flush = self.pods.values().any(|(at, _)| *at == At::Unschedulable).then_some(self.next_flush).flatten();
        ends.chain(flush).min()
    }
}

const UIDS: [&str; 12] = ["p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8", "p9", "p10", "p11"];

fn pod(uid: &str, rng: &mut Rng) -> Arc<PodInfo> {
    let gates = if rng.below(5) == 0 { json!([{"name": "g"}]) } else { json!([]) };
    let app = ["a", "b"][rng.below(2)];
    let json = json!({
        "metadata": {"name": uid, "namespace": "d", "uid": uid, "labels": {"app": app}},
        "spec": {"priority": rng.below(3), "schedulingGates": gates},
    });
    Arc::new(PodInfo::new(Arc::new(serde_json::from_value(json).unwrap())))
}

fn change(rng: &mut Rng, known: &BTreeMap<&str, Arc<PodInfo>>) -> ClusterChange {
    let app = ["a", "b"][rng.below(2)];
    let node = || -> Object {
        let json = json!({"metadata": {"name": "n", "labels": {"app": app}}});
        Object::Node(Arc::new(serde_json::from_value::<Node>(json).unwrap()))
    };
    match rng.below(3) {
        0 => ClusterChange::of_object(ClusterEvent::new(EventResource::Node, action::ADD), Delta::Added(node())),
        1 => ClusterChange::of_object(ClusterEvent::new(EventResource::Node, action::DELETE), Delta::Deleted(node())),
        _ => {
            let at = rng.below(UIDS.len());
            let left = known.get(UIDS[at]).cloned().unwrap_or_else(|| pod("other", rng));
            let event = ClusterEvent::new(EventResource::AssignedPod, action::DELETE);
            ClusterChange::of_object(event, Delta::Deleted(Object::Pod(left.pod.clone())))
        }
    }
}

/// Both queues side by side.
struct History {
    rng: Rng,
    plugins: Plugins,
    queue: Queue,
    plain: Plain,
    now: Timestamp,
    known: BTreeMap<&'static str, Arc<PodInfo>>,
    in_flight: Vec<(QueuedPod, QueuedPod)>,
}

impl History {
    fn new(seed: u64, fast: bool) -> Self {
        let backoff = Backoff { initial: SignedDuration::from_secs(1), max: SignedDuration::from_secs(10) };
        History {
            rng: Rng::new(seed),
            plugins: Plugins { fast, held: RefCell::default() },
            queue: Queue::new(backoff),
            plain: Plain {
                backoff,
                pods: BTreeMap::new(),
                in_flight: BTreeMap::new(),
                events: Vec::new(),
                next_sequence: 0,
                next_flush: None,
            },
            now: Timestamp::from_second(1_000).unwrap(),
            known: BTreeMap::new(),
            in_flight: Vec::new(),
        }
    }

    fn step(&mut self) {
        let uid = UIDS[self.rng.below(UIDS.len())];
        let History { rng, plugins, queue, plain, now, known, in_flight } = self;
        match rng.below(12) {
            0 | 1 => self.add_or_update(uid),
            2..=4 => {
                let (a, b) = (queue.pop(plugins), plain.pop(plugins));
                let shown = |pod: &QueuedPod| (pod.info.uid().to_owned(), pod.attempts, pod.initial_attempt);
                assert_eq!(a.as_ref().map(shown), b.as_ref().map(shown));
                in_flight.extend(a.zip(b));
            }
            5 | 6 if !in_flight.is_empty() => self.fail_one(),
            7 if !in_flight.is_empty() => {
                let at = rng.below(in_flight.len());
                let (pod, _) = in_flight.swap_remove(at);
                queue.done(pod.info.uid());
                plain.in_flight.remove(pod.info.uid());
            }
            8 | 9 => {
                let change = change(rng, known);
                let priority = rng.below(4) as i32;
                queue.move_all(&change, &|pod| pod.priority() <= priority, *now, plugins);
                plain.move_all(&change, &|pod| pod.priority() <= priority, *now, plugins);
            }
            10 => self.change_one(uid),
            _ => {
                let jump = [10, 500, 3_000, 40_000, 310_000][rng.below(5)];
                *now += SignedDuration::from_millis(jump);
                queue.tick(*now, plugins);
                plain.tick(*now, plugins);
            }
        }
    }

    fn add_or_update(&mut self, uid: &'static str) {
        let History { rng, plugins, queue, plain, now, known, .. } = self;
        let new = pod(uid, rng);
        match known.insert(uid, new.clone()) {
            Some(old) => {
                queue.update(&old.pod, &new, *now, plugins);
                plain.update(&old.pod, &new, *now, plugins);
            }
            None => {
                queue.add(new.clone(), *now, plugins);
                plain.add(new, *now, plugins);
            }
        }
    }

    /// Puts a pod in flight back, rejected by some plugins or none.
    fn fail_one(&mut self) {
        let History { rng, plugins, queue, plain, now, in_flight, .. } = self;
        let at = rng.below(in_flight.len());
        let rejected = rng.below(8);
        let (mut a, mut b) = in_flight.swap_remove(at);
        if rng.below(3) == 0 {
            plugins.held.borrow_mut().insert(a.info.uid().to_owned());
        }
        for pod in [&mut a, &mut b] {
            let plugins: &[&[PluginName]] = &[&[], &["Labels"], &["Own"], &["Each"], &["Labels", "Own"]];
            pod.unschedulable_plugins = plugins.get(rejected).unwrap_or(&plugins[1]).iter().copied().collect();
            pod.pending_plugins = if rejected == 7 { ["Own"].into() } else { BTreeSet::new() };
        }
        queue.add_unschedulable(a, *now, plugins);
        plain.add_unschedulable(b, *now, plugins);
    }

    /// Activates, releases or deletes a pod.
    fn change_one(&mut self, uid: &'static str) {
        let History { rng, plugins, queue, plain, now, known, .. } = self;
        match rng.below(3) {
            0 => {
                queue.activate(&[uid.to_owned()], *now, plugins);
                plain.activate(uid, *now, plugins);
            }
            1 => {
                plugins.held.borrow_mut().remove(uid);
                if plain.stage(uid) == Some(QueueStage::Gated) {
                    queue.activate(&[uid.to_owned()], *now, plugins);
                    plain.activate(uid, *now, plugins);
                }
            }
            _ => {
                known.remove(uid);
                queue.delete(uid, plugins);
                plain.pods.remove(uid);
            }
        }
    }

    fn compare(&self, context: &str) {
        let History { queue, plain, .. } = self;
        let stages = |stage: &dyn Fn(&str) -> Option<QueueStage>| UIDS.map(stage);
        let expected = stages(&|uid| plain.stage(uid));
        assert_eq!(stages(&|uid| queue.stage(uid)), expected, "{context}");
        let count = |of: QueueStage| expected.iter().filter(|stage| **stage == Some(of)).count();
        let counts = [QueueStage::Active, QueueStage::Backoff, QueueStage::Unschedulable, QueueStage::Gated].map(count);
        assert_eq!(queue.counts(), counts, "{context}");
        assert_eq!(queue.pods().count(), counts.iter().sum::<usize>(), "{context}");
        assert_eq!(queue.next_tick(), plain.next_tick(), "{context}");
    }
}

/// One history of a few hundred steps.
fn history(seed: u64, fast: bool) {
    let mut history = History::new(seed, fast);
    for step in 0..300 {
        history.step();
        history.compare(&format!("seed {seed}, step {step}"));
    }
}

#[test]
fn the_queue_does_what_a_plain_one_does_on_random_histories() {
    for seed in 0..400 {
        history(seed, true);
        history(seed, false);
    }
}
