//! Preferred terms of the pod and of placed pods: each adds its weight to the domain of the placed pod.

use bayplan_model::keyed::KeyedMap;
use bayplan_model::meta::Map;
use bayplan_model::pod::Pod;

use super::terms::unroll_weighted;
use crate::cluster::{AffinityTerm, Cluster, NodeInfo, PodInfo};
use crate::config::args::InterPodAffinityArgs;
use crate::framework::MAX_NODE_SCORE;

/// What PreScore adds up for one pod: topology key → value → score.
pub(super) type DomainScores = KeyedMap<String, KeyedMap<String, i64>>;

/// The terms that make the score of one pod.
pub(super) struct ScoringTerms {
    pub(super) affinity: Vec<(i32, AffinityTerm)>,
    pub(super) anti_affinity: Vec<(i32, AffinityTerm)>,
    /// The labels of the pod's own namespace.
    namespace_labels: Map,
    /// The weight of a placed pod's required affinity terms: `hardPodAffinityWeight`.
    hard_weight: i64,
    /// Terms of placed pods do not count: `ignorePreferredTermsOfExistingPods`, for a pod without preferred terms.
    ignores_existing: bool,
}

impl ScoringTerms {
    pub(super) fn new(args: &InterPodAffinityArgs, cluster: &Cluster, pod: &PodInfo) -> Self {
        let affinity = unroll_weighted(&pod.preferred_affinity, cluster);
        let anti_affinity = unroll_weighted(&pod.preferred_anti_affinity, cluster);
        ScoringTerms {
            ignores_existing: args.ignore_preferred_terms_of_existing_pods
                && affinity.is_empty()
                && anti_affinity.is_empty(),
            affinity,
            anti_affinity,
            namespace_labels: cluster.namespace_labels(&pod.metadata.namespace),
            hard_weight: i64::from(args.hard_pod_affinity_weight),
        }
    }

    fn has_own_terms(&self) -> bool {
        !self.affinity.is_empty() || !self.anti_affinity.is_empty()
    }

    /// Calls `add` with every term between the pod and a placed pod, and with what it counts for.
    pub(super) fn each(&self, pod: &Pod, other: &PodInfo, add: &mut dyn FnMut(&AffinityTerm, i64)) {
        let matches_other = |term: &AffinityTerm| term.matches(other, &Map::new());
        for (weight, term) in self.affinity.iter().filter(|(_, term)| matches_other(term)) {
            add(term, i64::from(*weight));
        }
        for (weight, term) in self.anti_affinity.iter().filter(|(_, term)| matches_other(term)) {
            add(term, -i64::from(*weight));
        }
        if self.ignores_existing {
            return;
        }
        let matches_pod = |term: &AffinityTerm| term.matches(pod, &self.namespace_labels);
        if self.hard_weight > 0 {
            other
                .required_affinity
                .iter()
                .filter(|term| matches_pod(term))
                .for_each(|term| add(term, self.hard_weight));
        }
        for (weight, term) in other.preferred_affinity.iter().filter(|(_, term)| matches_pod(term)) {
            add(term, i64::from(*weight));
        }
        for (weight, term) in other.preferred_anti_affinity.iter().filter(|(_, term)| matches_pod(term)) {
            add(term, -i64::from(*weight));
        }
    }

    /// Adds up the scores of all domains; empty when nothing speaks for or against any.
    pub(super) fn domain_scores(&self, cluster: &Cluster, pod: &Pod) -> DomainScores {
        let mut scores = DomainScores::default();
        if self.ignores_existing {
            return scores;
        }
        let mut add_pods_of = |node: &NodeInfo| {
            if node.node().metadata.labels.is_empty() {
                return;
            }
            for other in node.pods().iter().filter(|other| self.has_own_terms() || other.has_affinity()) {
                self.each(pod, other, &mut |term, weight| {
                    if let Some(value) = node.label(&term.topology_key) {
                        let values = scores.entry(term.topology_key.clone()).or_default();
                        *values.entry(value.to_owned()).or_default() += weight;
                    }
                });
            }
        };
        match self.has_own_terms() {
            true => cluster.nodes().for_each(&mut add_pods_of),
            false => cluster.nodes_with_affinity().for_each(&mut add_pods_of),
        }
        scores
    }
}

/// The sum of the scores of the node's domains.
pub(super) fn score(scores: &DomainScores, node: &NodeInfo) -> i64 {
    let of_key = |(key, values): (&String, &KeyedMap<String, i64>)| Some(*values.get(node.label(key)?)?);
    scores.iter().filter_map(of_key).sum()
}

/// Maps scores from `lowest..=lowest + range` to 0..=100; all of them to 0 when they are equal.
pub(super) fn normalized(score: i64, lowest: i64, range: i64) -> i64 {
    match range > 0 {
        true => (MAX_NODE_SCORE as f64 * ((score - lowest) as f64 / range as f64)) as i64,
        false => 0,
    }
}
