//! The hard constraints (`DoNotSchedule`): pods by domain, and whether one more keeps the skew.

use bayplan_model::affinity::RequiredNodeAffinity;
use bayplan_model::keyed::KeyedMap;
use bayplan_model::pod::Pod;

use super::constraint::{Constraint, NodeInclusion, has_all_keys};
use crate::cluster::{Cluster, NodeInfo, PodInfo};
use crate::framework::Status;

/// What PreFilter counts for one pod.
#[derive(Clone, Default)]
pub(super) struct FilterState {
    constraints: Vec<Constraint>,
    /// By constraint: value of the topology key → pods that count.
    counts: Vec<KeyedMap<String, i64>>,
    required: RequiredNodeAffinity,
}

impl FilterState {
    /// Counts the pods of all nodes.
    pub(super) fn new(cluster: &Cluster, pod: &Pod, constraints: Vec<Constraint>) -> Self {
        let counts = vec![KeyedMap::default(); constraints.len()];
        let mut state = FilterState { constraints, counts, required: RequiredNodeAffinity::of(pod) };
        for node in cluster.nodes() {
            state.each_domain(pod, node, |constraint, counts, domain| {
                *counts.entry(domain.to_owned()).or_default() += constraint.count_on(pod, node);
            });
        }
        state
    }

    /// Counts a pod as if it came to the node (+1) or left it (-1). A terminating pod counts here, as it does upstream.
    pub(super) fn shift(&mut self, pod: &Pod, other: &PodInfo, node: &NodeInfo, by: i64) {
        if other.metadata.namespace != pod.metadata.namespace {
            return;
        }
        self.each_domain(pod, node, |constraint, counts, domain| {
            if constraint.selector.matches(&other.metadata.labels) {
                *counts.entry(domain.to_owned()).or_default() += by;
            }
        });
    }

    /// Visits the domains that a node counts in.
    fn each_domain(
        &mut self,
        pod: &Pod,
        node: &NodeInfo,
        visit: impl Fn(&Constraint, &mut KeyedMap<String, i64>, &str),
    ) {
        let labels = &node.node().metadata.labels;
        if !has_all_keys(&self.constraints, labels) {
            return;
        }
        let inclusion = NodeInclusion::of(&self.constraints, pod, &self.required, node.node());
        for (constraint, counts) in self.constraints.iter().zip(&mut self.counts) {
            if let Some(domain) = labels.get(&constraint.key)
                && constraint.includes(&inclusion)
            {
                visit(constraint, counts, domain);
            }
        }
    }

    /// Filters one node.
    pub(super) fn filter(&self, pod: &Pod, node: &NodeInfo) -> Status {
        for (constraint, counts) in self.constraints.iter().zip(&self.counts) {
            let Some(value) = node.label(&constraint.key) else {
                return Status::unresolvable(
                    "node(s) didn't match pod topology spread constraints (missing required label)",
                );
            };
            let count = counts.get(value).copied().unwrap_or(0) + constraint.self_match(pod);
            if !constraint.allows(count, counts.len(), counts.values().min().copied()) {
                return Status::unschedulable("node(s) didn't match pod topology spread constraints");
            }
        }
        Status::SUCCESS
    }
}
