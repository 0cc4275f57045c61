//! The search for a state in which a node was the best one.
//!
//! A scheduler decides pods one after the other. What it knows then is, for each kind, what its watch of that kind has
//! brought so far, and all that it did itself, which it need not see to know.
//!
//! ```text
//!                  p: what it had seen of pods       b: the binding
//!   pods   ──●──c──●──┊──a──●──a─────────────────────b──a──▶   c: the pod was created, or failed
//!   nodes  ───────●───────┊──●──────●────────────────●─────▶   a: what the scheduler did: it placed or nominated a pod
//!                         n: what it had seen of nodes
//! ```
//!
//! - `p` is between `c`, because it decides no pod that it has not seen, and `b`, because it binds no pod before it has
//!   decided. Both are exact: they are on the same watch.
//! - `n` is before `b`, too, by resource versions, and not much before `p` was stored.
//! - It knows the acts before `p`, and those after it up to some later one, which may have been stored after `b`:
//!   bindings overtake each other.
//! - It takes a pod from its queue a little before `p`. Who comes in between is decided later, however important.
//!
//! What lies outside explains nothing: a state of a minute ago cannot have been what the scheduler saw.

use std::sync::Arc;

use bayplan_model::meta::Map;
use bayplan_model::pod::{Pod, PodSpec};
use bayplan_scheduler::PodInfo;
use bayplan_scheduler::inspect::Profile;
use jiff::{SignedDuration, Timestamp};
use rustc_hash::FxHashSet;

use super::evaluation::Evaluation;
use super::timeline::Timeline;
use super::track::{Number, Order, Track, Turn, Version};

/// How far a watch may be behind another one, and how far bindings may overtake each other.
pub(super) const SLACK: SignedDuration = SignedDuration::from_secs(1);
/// Nodes that are looked at for one pod, in all states together: some seconds of work.
const NODES_MAX: usize = 4_000_000;
/// States that are looked at for one pod, however few nodes there are; and at least, however many.
const STATES_MAX: usize = 20_000;
const STATES_MIN: usize = 50;

/// How long before it looks at the state a scheduler may have taken the pod from its queue. The two follow each other,
/// but on a busy machine its thread may have to wait in between: 7 ms were seen, and four pods that came meanwhile.
const POPPED_BEFORE: SignedDuration = SignedDuration::from_millis(250);

/// Pods of unknown order whose decisions are tried before and after, in all combinations: 16.
const UNKNOWN_MAX: usize = 4;

/// The pod of a binding, as the scheduler saw it.
pub(super) struct Bound {
    /// Without a node.
    pub(super) pod: PodInfo,
    pub(super) node: String,
    /// Its turn, and the least position of the pods at which it can have been decided.
    pub(super) turn: Turn,
    pub(super) since: Number,
    /// The change that put it on its node.
    pub(super) placed: Number,
}

/// What the search found.
pub(super) enum Found {
    /// A state in which the node is one of the best, so far from the binding.
    Best(SignedDuration),
    /// A state in which all better nodes may be among those that were not scored.
    Sampled,
    /// None; the least regret of all states in which the node fits.
    Nothing { regret: Option<i64> },
}

pub(super) struct StateSearch<'a> {
    timeline: &'a mut Timeline,
    profile: &'a Profile,
    /// `percentageOfNodesToScore`.
    percentage: Option<i32>,
    bound: &'a Bound,
    left: usize,
    regret: Option<i64>,
    sampled: bool,
    /// Nodes that were filled by pods like this one: they fit no longer when it is bound.
    filled: FxHashSet<Arc<str>>,
    /// When the binding was seen, and its version.
    at: Timestamp,
    version: Version,
}

/// What pods of one template share.
fn template(pod: &Pod) -> (PodSpec, String, Map) {
    let spec = PodSpec { node_name: String::new(), ..pod.spec.clone() };
    (spec, pod.metadata.namespace.clone(), pod.metadata.labels.clone())
}

/// A pod as a scheduler placed or nominated it, and its turn.
type Act = (Arc<Pod>, Turn);

/// The first none, one, two and so on of some pods.
fn firsts<K: Ord>(acts: &[Act], key: impl Fn(&Turn) -> K) -> Vec<Vec<Act>> {
    let mut sorted = acts.to_vec();
    sorted.sort_by_key(|(_, turn)| key(turn));
    (0..=sorted.len()).map(|count| sorted[..count].to_vec()).collect()
}

/// When the pod was taken from the queue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Popped {
    /// When it was decided.
    Then,
    /// A little earlier: before pods that were known when it was decided.
    Earlier,
}

/// What a scheduler did and may not have seen stored yet, by what the queue's order says of it.
#[derive(Default)]
struct Ahead {
    /// Decided before.
    before: Vec<Act>,
    /// Decided before if they came early enough.
    if_early: Vec<Act>,
    /// Nobody knows; in the order in which they were stored, with how far from the binding that was.
    unknown: Vec<(u64, Act)>,
}

/// The positions of a range at which the state is another one than at the next: before each change that matters, and
/// before each new pod, which may have been decided as soon as it was seen.
fn positions(track: &Track, from: Number, until: Number) -> Vec<Number> {
    let is_other = |number: &Number| track.change(*number).is_some_and(|change| change.matters || change.is_new());
    std::iter::once(until).chain((from..until).rev().filter(is_other)).collect()
}

impl<'a> StateSearch<'a> {
    pub(super) fn new(
        timeline: &'a mut Timeline,
        profile: &'a Profile,
        percentage: Option<i32>,
        bound: &'a Bound,
    ) -> Self {
        let nodes = timeline.cluster().node_count().max(1);
        let left = (NODES_MAX / nodes).clamp(STATES_MIN, STATES_MAX);
        let placed = timeline.pods().change(bound.placed);
        let (at, version) = placed.map_or((Timestamp::MAX, Version::MAX), |change| (change.at, change.version));
        let (regret, sampled, filled) = (None, false, FxHashSet::default());
        StateSearch { timeline, profile, percentage, bound, left, regret, sampled, filled, at, version }
    }

    /// Searches; the timeline is at its end afterwards.
    pub(super) fn run(mut self) -> Found {
        self.timeline.go_before(self.version);
        self.find_filled();
        let states = self.left;
        let found = self.search(Popped::Then).or_else(|| {
            self.left = states;
            self.search(Popped::Earlier)
        });
        self.timeline.go_to_end();
        match found {
            Some(distance) => Found::Best(distance),
            None if self.sampled => Found::Sampled,
            None => Found::Nothing { regret: self.regret },
        }
    }

    /// Upstream gives the pods of one template that come one after the other the nodes of the first one's list, as long
    /// as each fills its node (KEP-5598, opportunistic batching). So a node that such a pod has filled since does not
    /// count as better.
    fn find_filled(&mut self) {
        let own = template(&self.bound.pod);
        let alike: Vec<String> = (self.first()..self.bound.placed)
            .filter_map(|number| self.timeline.pods().change(number)?.placed())
            .filter(|pod| template(pod) == own)
            .map(|pod| pod.spec.node_name.clone())
            .collect();
        if alike.is_empty() {
            return;
        }
        let fits: FxHashSet<Arc<str>> = self.evaluate().into_iter().flat_map(|now| now.feasible).collect();
        self.filled = alike.into_iter().map(Arc::from).filter(|node| !fits.contains(node)).collect();
    }

    fn evaluate(&mut self) -> Option<Evaluation> {
        self.left = self.left.saturating_sub(1);
        let (profile, pod, node, at) = (self.profile, &self.bound.pod, &self.bound.node, self.at);
        let evaluation =
            self.timeline.without_pod(pod.uid(), |timeline| Evaluation::of(profile, timeline, pod, node, at))?;
        if let Some(regret) = evaluation.regret() {
            self.regret = Some(self.regret.map_or(regret, |least| least.min(regret)));
        }
        self.sampled |= evaluation.may_be_sampled(self.percentage);
        Some(evaluation)
    }

    /// Whether the node is the best in the state as it is, or the next on a list.
    fn is_best(&mut self) -> bool {
        let Some(evaluation) = self.evaluate() else { return false };
        let is_next = evaluation.theirs.is_some() && evaluation.better.iter().all(|node| self.filled.contains(node));
        evaluation.is_best() || is_next
    }

    /// The least position of the pods.
    fn first(&self) -> Number {
        self.bound.since.max(self.timeline.pods().first())
    }

    /// When the last change before a position was seen, or the binding if there is none.
    fn time(&self, track: &Track, position: Number) -> Timestamp {
        position.checked_sub(1).and_then(|last| track.change(last)).map_or(self.at, |change| change.at).min(self.at)
    }

    /// How far the state is behind the binding.
    fn distance(&self) -> SignedDuration {
        let known = |track: &Track| track.change(track.position()).map_or(self.at, |change| change.at.min(self.at));
        let behind = known(self.timeline.pods()).min(known(self.timeline.nodes()));
        self.at.duration_since(behind)
    }

    fn search(&mut self, popped: Popped) -> Option<SignedDuration> {
        for rest in self.rests() {
            self.timeline.go_to_rest(rest);
            for pods in positions(self.timeline.pods(), self.first(), self.last()) {
                self.timeline.go_to_pods(pods);
                let ahead = match popped {
                    Popped::Then => self.decided_ahead(pods),
                    Popped::Earlier => self.decided_before_others_came(pods),
                };
                let behind = self.time(self.timeline.pods(), pods).saturating_sub(SLACK).unwrap_or(self.at);
                let nodes = self.timeline.nodes();
                let (from, until) = (nodes.first_after(behind), nodes.first_from(self.version));
                for nodes in positions(nodes, from.min(until), until) {
                    self.timeline.go_to_nodes(nodes);
                    for acts in &ahead {
                        if self.left == 0 {
                            return None;
                        }
                        if self.is_best_after(acts) {
                            return Some(self.distance());
                        }
                    }
                }
            }
        }
        None
    }

    /// The last position of the pods: before the binding, and before pods are placed whose turn came later.
    fn last(&self) -> Number {
        let is_later = |number: &Number| {
            let act = self.timeline.pods().change(*number).and_then(|change| change.act());
            act.is_some_and(|(_, turn)| self.bound.turn.order_of(&turn) == Order::After)
        };
        (self.first()..self.bound.placed).find(is_later).unwrap_or(self.bound.placed)
    }

    fn is_best_after(&mut self, acts: &[Act]) -> bool {
        acts.iter().for_each(|(pod, turn)| self.timeline.place_early(pod, *turn));
        let found = self.is_best();
        self.timeline.take_back_early();
        found
    }

    /// What the scheduler may have done without having seen it stored, where it has seen the pods up to a position.
    fn ahead(&self, pods: Number) -> Ahead {
        let until = self.timeline.pods().first_after(self.at.saturating_add(SLACK).unwrap_or(Timestamp::MAX));
        let acts = (pods..until).filter(|number| *number != self.bound.placed).filter_map(|number| {
            let (pod, turn) = self.timeline.pods().change(number)?.act()?;
            (turn.since <= pods).then(|| (number, pod.clone(), turn))
        });
        let mut ahead = Ahead::default();
        for (number, pod, turn) in acts {
            match self.bound.turn.order_of(&turn) {
                Order::Before => ahead.before.push((pod, turn)),
                Order::After => {}
                Order::BeforeIfEarly => ahead.if_early.push((pod, turn)),
                Order::Unknown => ahead.unknown.push((number.abs_diff(self.bound.placed), (pod, turn))),
            }
        }
        let turn = Turn { since: self.first(), is_first: false, ..self.bound.turn };
        let silent = self.timeline.may_be_placed().filter(|pod| pod.metadata.uid != self.bound.pod.uid());
        ahead.unknown.extend(silent.map(|pod| (0, (pod, turn))));
        ahead
    }

    /// What the scheduler may have done by then: one list for each possibility.
    fn decided_ahead(&self, pods: Number) -> Vec<Vec<Act>> {
        let Ahead { before, if_early, mut unknown } = self.ahead(pods);
        let mut possible: Vec<Vec<Act>> = Vec::new();
        if unknown.len() > UNKNOWN_MAX {
            // Bindings overtake each other only a little: as a rule the first of them.
            for count in 0..=unknown.len() {
                let some = unknown[..count].iter().map(|(_, act)| act);
                possible.push(before.iter().chain(&if_early).chain(some).cloned().collect());
            }
        }
        // Those that were stored closest to the binding are the most doubtful.
        unknown.sort_by_key(|(distance, _)| *distance);
        unknown.truncate(UNKNOWN_MAX);
        let by_age = firsts(&if_early, |turn| (0, turn.since));
        let by_priority = firsts(&if_early, |turn| (-i64::from(turn.priority), turn.since));
        for early in by_age.into_iter().chain(by_priority.into_iter().skip(1)) {
            for chosen in 0..1_usize << unknown.len() {
                let some = unknown.iter().enumerate().filter(|(at, _)| chosen >> at & 1 == 1).map(|(_, (_, act))| act);
                possible.push(before.iter().chain(&early).chain(some).cloned().collect());
            }
        }
        if !self.filled.is_empty() {
            // The list is from before the first of them was placed.
            let own = template(&self.bound.pod);
            possible.push(before.into_iter().filter(|(pod, _)| template(pod) != own).collect());
        }
        possible
    }

    /// What the scheduler may have done by then if it took the pod from its queue before others came that it knows
    /// already: those of higher priority are decided later, too. One list for each possibility.
    fn decided_before_others_came(&self, pods: Number) -> Vec<Vec<Act>> {
        let Ahead { before, if_early, unknown } = self.ahead(pods);
        let came = |since: Number| self.time(self.timeline.pods(), since);
        let earliest = self.time(self.timeline.pods(), pods).saturating_sub(POPPED_BEFORE).unwrap_or(self.at);
        let mut recent: Vec<Number> = before.iter().map(|(_, turn)| turn.since).collect();
        recent.retain(|since| came(*since) >= earliest && *since > self.bound.turn.since);
        recent.sort_unstable();
        recent.dedup();
        let mut possible = Vec::new();
        for popped in recent {
            let known = |(_, turn): &&Act| turn.since < popped;
            for count in 0..=unknown.len() {
                let some = unknown[..count].iter().map(|(_, act)| act);
                let all = before.iter().chain(&if_early).chain(some);
                possible.push(all.filter(known).cloned().collect());
            }
        }
        possible
    }

    /// The versions up to which the other kinds may have been seen.
    fn rests(&self) -> Vec<Version> {
        let claims = super::waits_in_pre_bind(&self.bound.pod);
        let behind = self.time(self.timeline.pods(), self.first()).saturating_sub(SLACK).unwrap_or(self.at);
        let ahead = self.at.saturating_add(SLACK).unwrap_or(Timestamp::MAX);
        let mut versions: Vec<Version> = vec![self.version];
        for (kind, track) in self.timeline.rest() {
            if claims || !OF_CLAIMS.contains(&kind) {
                // What the scheduler does to volumes and claims it knows before the API server does.
                let until = if claims { track.first_after(ahead) } else { track.first_from(self.version) };
                let seen = (track.first_after(behind)..until).filter_map(|number| track.change(number));
                versions.extend(seen.map(|change| change.version + u64::from(change.version >= self.version)));
            }
        }
        versions.sort_unstable_by_key(|version| version.abs_diff(self.version));
        versions.dedup();
        versions
    }
}

/// Kinds that only pods with claims are decided by.
const OF_CLAIMS: [&str; 8] = [
    "PersistentVolume",
    "PersistentVolumeClaim",
    "StorageClass",
    "CSINode",
    "CSIDriver",
    "CSIStorageCapacity",
    "VolumeAttachment",
    "ResourceClaim",
];
