//! The search for a state in which a node was the best one.
//!
//! A scheduler decides pods one after the other: on what it has seen by then, and on what it decided before. Pods that
//! it placed are on their nodes for it, while their bindings are still on their way. It sees changes and sends bindings
//! at other moments than we see them.
//!
//! ```text
//!      │◀─────────────────── the window ──────────────────────▶│
//!   ───┼─────────┼───────────────────────────────────┼─────────┼──▶ changes as we see them
//!      ◀─ SLACK ─┤                                   ├─ SLACK ─▶
//!   what it may  since: the pod was created,         the       what it may have
//!   not have     or failed, or another was that      binding   known already
//!   seen yet     was decided before it
//! ```
//!
//! Looked at are the states of the window, each as it was seen and with the bindings that followed it, one more at a
//! time. What lies outside explains nothing: a state of a minute ago cannot have been what the scheduler saw.

use std::sync::Arc;

use bayplan_model::meta::Map;
use bayplan_model::pod::{Pod, PodSpec};
use bayplan_scheduler::PodInfo;
use bayplan_scheduler::inspect::Profile;
use jiff::{SignedDuration, Timestamp};
use rustc_hash::FxHashSet;

use super::evaluation::Evaluation;
use super::timeline::{Number, Timeline};

/// How far the moments at which the scheduler and we see a change may be apart, and how far bindings may overtake each
/// other. Beside kube-scheduler on two processors half of the raced bindings are within a millisecond and 99 of 100
/// within 280; where six others want the same processors, some are more than 500 apart.
pub(super) const SLACK: SignedDuration = SignedDuration::from_secs(1);
/// Nodes that are looked at for one pod, in all states together: some seconds of work.
const NODES_MAX: usize = 4_000_000;
/// States that are looked at for one pod, however few nodes there are; and at least, however many.
const STATES_MAX: usize = 4_000;
const STATES_MIN: usize = 50;

/// The pod of a binding, as the scheduler saw it.
pub(super) struct Bound {
    /// Without a node.
    pub(super) pod: PodInfo,
    pub(super) node: String,
    /// The change from which on it can have been decided.
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
    /// When the binding was seen.
    at: Timestamp,
    /// The change that is the first to come too late.
    end: Number,
}

/// What pods of one template share.
fn template(pod: &Pod) -> (PodSpec, String, Map) {
    let spec = PodSpec { node_name: String::new(), ..pod.spec.clone() };
    (spec, pod.metadata.namespace.clone(), pod.metadata.labels.clone())
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
        let at = timeline.change(bound.placed).map_or(Timestamp::MAX, |change| change.at);
        let end = timeline.first_after(at.saturating_add(SLACK).unwrap_or(Timestamp::MAX));
        let (regret, sampled, filled) = (None, false, FxHashSet::default());
        StateSearch { timeline, profile, percentage, bound, left, regret, sampled, filled, at, end }
    }

    /// Searches; the timeline is at its end afterwards.
    pub(super) fn run(mut self) -> Found {
        self.timeline.go_to(self.bound.placed);
        self.find_filled();
        let found = self.in_order().or_else(|| self.with_later_bindings());
        let end = self.timeline.end();
        self.timeline.go_to(end);
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
            .filter_map(|number| self.timeline.change(number)?.placed())
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
        let evaluation = self.timeline.without_pod(pod.uid(), |timeline| {
            Evaluation::of(profile, (timeline.cluster(), timeline.nominator()), pod, node, at)
        })?;
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

    /// The change with which the window begins.
    fn first(&self) -> Number {
        let since = self.bound.since.max(self.timeline.first());
        let seen = self.timeline.change(since).and_then(|change| change.at.checked_sub(SLACK).ok());
        seen.map_or(since, |seen| self.timeline.first_after(seen))
    }

    /// How far a change is from the binding.
    fn distance(&self, number: Number) -> SignedDuration {
        self.timeline.change(number).map_or(SignedDuration::ZERO, |change| change.at.duration_since(self.at).abs())
    }

    /// The states as they were seen, latest first; then those right after the binding.
    fn in_order(&mut self) -> Option<SignedDuration> {
        let placed = self.bound.placed;
        for number in (self.first()..=placed).rev().chain(placed + 1..=self.end) {
            if self.left == 0 {
                return None;
            }
            // A state after a change that no decision reads is the one before it.
            let is_new = number == placed || self.timeline.change(number).is_none_or(|change| change.matters);
            self.timeline.go_to(number);
            if is_new && self.is_best() {
                return Some(self.distance(number));
            }
        }
        None
    }

    /// Each state with the bindings that were seen after it, one more at a time.
    fn with_later_bindings(&mut self) -> Option<SignedDuration> {
        let placed = self.bound.placed;
        for number in (self.first()..=placed).rev() {
            if self.left == 0 {
                return None;
            }
            if number < placed && !self.timeline.change(number).is_some_and(|change| change.matters) {
                continue;
            }
            self.timeline.go_to(number);
            let found = self.with_bindings_from(number);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    fn with_bindings_from(&mut self, number: Number) -> Option<SignedDuration> {
        let own = self.bound.pod.uid();
        let later: Vec<(Number, Arc<Pod>)> = (number..self.end)
            .filter_map(|at| Some((at, self.timeline.change(at)?.placed().cloned()?)))
            .filter(|(_, pod)| pod.metadata.uid != own)
            .collect();
        let mut early = Vec::new();
        let mut found = None;
        for (at, pod) in later {
            if self.left == 0 || found.is_some() {
                break;
            }
            let old = self.timeline.place_early(&pod);
            early.push((pod, old));
            found = self.is_best().then(|| self.distance(number).max(self.distance(at)));
        }
        for (pod, old) in early.into_iter().rev() {
            self.timeline.take_back(&pod, old.as_ref());
        }
        found
    }
}
