//! The soft constraints (`ScheduleAnyway`): the emptier the domains of a node, the higher its score.

use std::sync::Arc;

use bayplan_model::affinity::RequiredNodeAffinity;
use bayplan_model::keyed::{KeyedMap, KeyedSet};
use bayplan_model::node::LABEL_HOSTNAME;
use bayplan_model::pod::Pod;

use super::constraint::{Constraint, NodeInclusion, has_all_keys};
use crate::cluster::{Cluster, NodeInfo};
use crate::framework::{MAX_NODE_SCORE, NodeScore};

/// What PreScore counts for one pod.
#[derive(Default)]
pub(super) struct ScoreState {
    constraints: Vec<Constraint>,
    /// By constraint: value of the topology key → pods that count; empty for hostnames, where Score counts the node's.
    counts: Vec<KeyedMap<String, i64>>,
    /// By constraint; see [`weight`].
    weights: Vec<f64>,
    /// Feasible nodes that lack a topology key: they score 0.
    ignored: KeyedSet<Arc<str>>,
}

impl ScoreState {
    /// Counts the pods in the domains of the feasible nodes.
    ///
    /// With `require_all`, nodes that lack a topology key are ignored; otherwise they are in a domain of their own.
    pub(super) fn new(
        cluster: &Cluster,
        pod: &Pod,
        constraints: Vec<Constraint>,
        feasible: &[&NodeInfo],
        require_all: bool,
    ) -> Self {
        let required = RequiredNodeAffinity::of(pod);
        let mut counts = vec![KeyedMap::<String, i64>::default(); constraints.len()];
        let mut ignored = KeyedSet::default();
        for node in feasible {
            if require_all && !has_all_keys(&constraints, &node.node().metadata.labels) {
                ignored.insert(node.name.clone());
                continue;
            }
            for (constraint, counts) in constraints.iter().zip(&mut counts) {
                if constraint.key != LABEL_HOSTNAME {
                    counts.entry(node.label(&constraint.key).unwrap_or("").to_owned()).or_default();
                }
            }
        }
        let domains = |(constraint, counts): (&Constraint, &KeyedMap<_, _>)| match constraint.key == LABEL_HOSTNAME {
            true => feasible.len() - ignored.len(),
            false => counts.len(),
        };
        let weights = constraints.iter().zip(&counts).map(domains).map(weight).collect();
        for node in cluster.nodes() {
            if require_all && !has_all_keys(&constraints, &node.node().metadata.labels) {
                continue;
            }
            let inclusion = NodeInclusion::of(&constraints, pod, &required, node.node());
            for (constraint, counts) in constraints.iter().zip(&mut counts) {
                if let Some(count) = counts.get_mut(node.label(&constraint.key).unwrap_or(""))
                    && constraint.includes(&inclusion)
                {
                    *count += constraint.count_on(pod, node);
                }
            }
        }
        ScoreState { constraints, counts, weights, ignored }
    }

    /// Scores one node: the lower, the emptier its domains.
    pub(super) fn score(&self, pod: &Pod, node: &NodeInfo) -> i64 {
        if self.ignored.contains(&node.name) {
            return 0;
        }
        let mut sum = 0.0;
        for (i, constraint) in self.constraints.iter().enumerate() {
            let Some(value) = node.label(&constraint.key) else { continue };
            let count = match constraint.key == LABEL_HOSTNAME {
                true => constraint.count_on(pod, node),
                false => self.counts[i].get(value).copied().unwrap_or(0),
            };
            sum += domain_score(constraint, count, self.weights[i]);
        }
        sum.round() as i64
    }

    pub(super) fn normalize(&self, scores: &mut [NodeScore]) {
        let ignored = |score: &NodeScore| self.ignored.contains(&score.node);
        let counted = scores.iter().filter(|score| !ignored(score)).map(|score| score.score);
        let (lowest, highest) = (counted.clone().min().unwrap_or(0), counted.max().unwrap_or(0).max(0));
        for score in scores {
            score.score = match ignored(score) {
                true => 0,
                false => normalized(score.score, lowest, highest),
            };
        }
    }
}

/// The weight of a constraint: the fewer domains there are, the less a difference between them counts.
pub(super) fn weight(domains: usize) -> f64 {
    ((domains + 2) as f64).ln()
}

/// What a domain with `count` pods adds to the score of its nodes: upstream's `scoreForCount`.
pub(super) fn domain_score(constraint: &Constraint, count: i64, weight: f64) -> f64 {
    count as f64 * weight + (constraint.max_skew - 1) as f64
}

/// Turns a score around, so that the emptiest domains get 100.
pub(super) fn normalized(score: i64, lowest: i64, highest: i64) -> i64 {
    if highest == 0 { MAX_NODE_SCORE } else { MAX_NODE_SCORE * (highest + lowest - score) / highest }
}
