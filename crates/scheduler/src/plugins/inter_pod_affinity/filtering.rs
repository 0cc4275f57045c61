//! Required terms: which domains a pod must be in, and which it must not be in.

use bayplan_model::keyed::KeyedMap;
use bayplan_model::meta::Map;
use bayplan_model::pod::Pod;

use super::terms::{all_match, unroll};
use crate::cluster::{AffinityTerm, Cluster, NodeInfo, PodInfo};
use crate::framework::Status;

/// Pods by domain, which is a topology key and its value: upstream's `topologyToMatchedTermCount`.
type TermCounts = KeyedMap<(String, String), i64>;

/// What PreFilter counts for one pod.
#[derive(Clone, Default)]
pub(super) struct FilterState {
    affinity_terms: Vec<AffinityTerm>,
    anti_affinity_terms: Vec<AffinityTerm>,
    /// The labels of the pod's own namespace.
    namespace_labels: Map,
    /// Placed pods whose required anti-affinity matches this pod.
    existing_anti_affinity: TermCounts,
    /// Placed pods that match all affinity terms of this pod.
    affinity: TermCounts,
    /// Placed pods that match an anti-affinity term of this pod.
    anti_affinity: TermCounts,
}

impl FilterState {
    /// Counts placed pods; only those with required anti-affinity when the pod itself has no terms.
    pub(super) fn new(cluster: &Cluster, pod: &PodInfo) -> Self {
        let mut state = FilterState {
            affinity_terms: unroll(&pod.required_affinity, cluster),
            anti_affinity_terms: unroll(&pod.required_anti_affinity, cluster),
            namespace_labels: cluster.namespace_labels(&pod.metadata.namespace),
            ..FilterState::default()
        };
        let has_terms = state.has_terms();
        let mut count = |node: &NodeInfo| node.pods().iter().for_each(|other| state.shift(pod, other, node, 1));
        match has_terms {
            true => cluster.nodes().for_each(&mut count),
            false => cluster.nodes_with_required_anti_affinity().for_each(&mut count),
        }
        state
    }

    fn has_terms(&self) -> bool {
        !self.affinity_terms.is_empty() || !self.anti_affinity_terms.is_empty()
    }

    /// Whether Filter would pass on every node.
    pub(super) fn is_irrelevant(&self) -> bool {
        !self.has_terms() && self.existing_anti_affinity.is_empty()
    }

    /// Counts a pod as if it came to the node (+1) or left it (-1).
    pub(super) fn shift(&mut self, pod: &PodInfo, other: &PodInfo, node: &NodeInfo, by: i64) {
        for term in other.required_anti_affinity.iter() {
            if term.matches(pod, &self.namespace_labels) {
                shift(&mut self.existing_anti_affinity, node, &term.topology_key, by);
            }
        }
        if all_match(&self.affinity_terms, other) {
            for term in &self.affinity_terms {
                shift(&mut self.affinity, node, &term.topology_key, by);
            }
        }
        for term in &self.anti_affinity_terms {
            if term.matches(other, &Map::new()) {
                shift(&mut self.anti_affinity, node, &term.topology_key, by);
            }
        }
    }

    /// Filters one node.
    pub(super) fn filter(&self, pod: &Pod, node: &NodeInfo) -> Status {
        if !self.satisfies_affinity(pod, node) {
            return Status::unresolvable("node(s) didn't match pod affinity rules");
        }
        if !self.satisfies_anti_affinity(node) {
            return Status::unschedulable("node(s) didn't match pod anti-affinity rules");
        }
        if !self.satisfies_existing_anti_affinity(node) {
            return Status::unschedulable("node(s) didn't satisfy existing pods anti-affinity rules");
        }
        Status::SUCCESS
    }

    fn satisfies_affinity(&self, pod: &Pod, node: &NodeInfo) -> bool {
        let mut all_near = true;
        for term in &self.affinity_terms {
            match count_at(&self.affinity, node, &term.topology_key) {
                None => return false,
                Some(count) => all_near &= count > 0,
            }
        }
        // The first of a group of pods with affinity to each other may go anywhere.
        all_near || (self.affinity.is_empty() && all_match(&self.affinity_terms, pod))
    }

    fn satisfies_anti_affinity(&self, node: &NodeInfo) -> bool {
        let mut terms = self.anti_affinity_terms.iter();
        terms.all(|term| count_at(&self.anti_affinity, node, &term.topology_key).is_none_or(|count| count <= 0))
    }

    fn satisfies_existing_anti_affinity(&self, node: &NodeInfo) -> bool {
        let mut counts = self.existing_anti_affinity.iter();
        counts.all(|((key, value), count)| *count <= 0 || node.label(key) != Some(value))
    }
}

/// Changes the count of the node's domain. Counts of 0 are removed, so that an empty map means that no pod matches.
fn shift(counts: &mut TermCounts, node: &NodeInfo, key: &str, by: i64) {
    let Some(value) = node.label(key) else { return };
    let domain = (key.to_owned(), value.to_owned());
    let count = counts.entry(domain.clone()).or_default();
    *count += by;
    if *count == 0 {
        counts.remove(&domain);
    }
}

/// The count of the node's domain; none when the node has no such label.
fn count_at(counts: &TermCounts, node: &NodeInfo, key: &str) -> Option<i64> {
    let value = node.label(key)?;
    Some(counts.get(&(key.to_owned(), value.to_owned())).copied().unwrap_or(0))
}
