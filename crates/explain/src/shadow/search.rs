//! The search for a state in which a node was the best one.
//!
//! A scheduler decides on what it had seen by then, and on what it had decided before: pods that are on their nodes for
//! it already, while their bindings are still on their way. So the states that it may have seen are those between the
//! pod's creation, or its last failed attempt, and its binding; each also with bindings that were seen only later.

use std::sync::Arc;

use bayplan_model::pod::Pod;
use bayplan_scheduler::PodInfo;
use bayplan_scheduler::inspect::Profile;
use rustc_hash::FxHashSet;

use super::evaluation::Evaluation;
use super::timeline::{Number, Timeline};

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
    /// The change with which the attempt can have begun.
    pub(super) since: Number,
    /// The change that put it on its node.
    pub(super) placed: Number,
}

/// What the search found.
pub(super) enum Found {
    /// A state in which the node is one of the best.
    Best,
    /// None; the least regret of all states in which the node fits.
    Nothing { regret: Option<i64> },
}

pub(super) struct StateSearch<'a> {
    timeline: &'a mut Timeline,
    profile: &'a Profile,
    bound: &'a Bound,
    left: usize,
    regret: Option<i64>,
    /// The nodes that fit right before the binding.
    feasible: FxHashSet<Arc<str>>,
}

impl<'a> StateSearch<'a> {
    pub(super) fn new(timeline: &'a mut Timeline, profile: &'a Profile, bound: &'a Bound) -> Self {
        let nodes = timeline.cluster().node_count().max(1);
        let left = (NODES_MAX / nodes).clamp(STATES_MIN, STATES_MAX);
        StateSearch { timeline, profile, bound, left, regret: None, feasible: FxHashSet::default() }
    }

    /// Searches; the timeline is at its end afterwards.
    pub(super) fn run(mut self) -> Found {
        self.timeline.go_to(self.bound.placed);
        if let Some(evaluation) = self.evaluate() {
            self.feasible = evaluation.feasible.iter().cloned().collect();
        }
        let is_found = self.in_order() || self.with_later_bindings();
        let end = self.timeline.end();
        self.timeline.go_to(end);
        if is_found { Found::Best } else { Found::Nothing { regret: self.regret } }
    }

    fn evaluate(&mut self) -> Option<Evaluation> {
        self.left = self.left.saturating_sub(1);
        let Bound { pod, node, .. } = self.bound;
        let profile = self.profile;
        let now = self.timeline.change(self.bound.placed).map(|change| change.at)?;
        let evaluation = self.timeline.without_pod(pod.uid(), |timeline| {
            Evaluation::of(profile, (timeline.cluster(), timeline.nominator()), pod, node, now)
        })?;
        if let Some(regret) = evaluation.regret() {
            self.regret = Some(self.regret.map_or(regret, |least| least.min(regret)));
        }
        Some(evaluation)
    }

    /// Whether the node is the best in the state as it is; or the best of those that still fit when it is bound,
    /// because upstream takes the next of an earlier pod's nodes when that pod's own is full (KEP-5598).
    fn is_best(&mut self) -> bool {
        let Some(evaluation) = self.evaluate() else { return false };
        let is_next = evaluation.theirs.is_some() && evaluation.better.iter().all(|node| !self.feasible.contains(node));
        evaluation.is_best() || is_next
    }

    /// The states as they were seen, latest first; then those after the binding.
    fn in_order(&mut self) -> bool {
        let Bound { since, placed, .. } = *self.bound;
        let first = since.max(self.timeline.first());
        let before = (first..=placed).rev();
        for number in before.chain(placed + 1..=self.timeline.end()) {
            if self.left == 0 {
                return false;
            }
            // A state after a change that no decision reads is the one before it.
            let is_new = number == placed || self.timeline.change(number).is_none_or(|change| change.matters);
            self.timeline.go_to(number);
            if is_new && self.is_best() {
                return true;
            }
        }
        false
    }

    /// Each state with the bindings that were seen after it, one more at a time.
    fn with_later_bindings(&mut self) -> bool {
        let Bound { since, placed, .. } = *self.bound;
        let first = since.max(self.timeline.first());
        for number in (first..=placed).rev() {
            if self.left == 0 {
                return false;
            }
            if number < placed && !self.timeline.change(number).is_some_and(|change| change.matters) {
                continue;
            }
            self.timeline.go_to(number);
            if self.with_bindings_from(number) {
                return true;
            }
        }
        false
    }

    fn with_bindings_from(&mut self, number: Number) -> bool {
        let own = self.bound.pod.uid();
        let later: Vec<Arc<Pod>> = (number..self.timeline.end())
            .filter_map(|at| self.timeline.change(at)?.placed().cloned())
            .filter(|pod| pod.metadata.uid != own)
            .collect();
        let mut early = Vec::new();
        let mut is_found = false;
        for pod in later {
            if self.left == 0 || is_found {
                break;
            }
            let old = self.timeline.place_early(&pod);
            early.push((pod, old));
            is_found = self.is_best();
        }
        for (pod, old) in early.into_iter().rev() {
            self.timeline.take_back(&pod, old.as_ref());
        }
        is_found
    }
}
