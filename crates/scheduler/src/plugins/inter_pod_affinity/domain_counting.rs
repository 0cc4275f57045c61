//! The counting form: the engine keeps counts and scores by domain, and asks for answers by counts alone.

use std::sync::Arc;

use bayplan_model::meta::Map;
use bayplan_model::node::Node;
use bayplan_model::pod::Pod;

use super::InterPodAffinity;
use super::scoring::{ScoringTerms, normalized};
use super::terms::{all_match, unroll};
use crate::cluster::{AffinityTerm, PodInfo};
use crate::framework::{COUNTS_MAX, CountScope, Cycle, DomainCounting, DomainSummary, FeasibleNodes};

/// The terms of pods of one signature. There is one count for each use of each topology key.
pub(super) struct AffinityCounting {
    pod: Arc<Pod>,
    namespace_labels: Map,
    affinity: Vec<AffinityTerm>,
    anti_affinity: Vec<AffinityTerm>,
    scoring: ScoringTerms,
    /// The pod matches its own affinity terms.
    matches_itself: bool,
    scopes: Vec<CountScope>,
    /// By count.
    uses: Vec<Use>,
}

/// What a count is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// Placed pods whose required anti-affinity matches this pod.
    ExistingAntiAffinity,
    /// Placed pods that match all affinity terms.
    Affinity,
    /// Placed pods that match an anti-affinity term.
    AntiAffinity,
    /// The sum of preferred terms.
    Score,
}

impl AffinityCounting {
    pub(super) fn new(plugin: &InterPodAffinity, cx: &Cycle<'_>) -> Self {
        let pod = cx.pod;
        let affinity = unroll(&pod.required_affinity, cx.cluster);
        let mut counting = AffinityCounting {
            namespace_labels: cx.cluster.namespace_labels(&pod.metadata.namespace),
            anti_affinity: unroll(&pod.required_anti_affinity, cx.cluster),
            scoring: ScoringTerms::new(&plugin.args, cx.cluster, pod),
            matches_itself: all_match(&affinity, pod),
            pod: pod.pod.clone(),
            affinity,
            scopes: Vec::new(),
            uses: Vec::new(),
        };
        let mut needed: Vec<(Use, String)> = Vec::new();
        let mut need = |of: Use, term: &AffinityTerm| needed.push((of, term.topology_key.clone()));
        counting.affinity.iter().for_each(|term| need(Use::Affinity, term));
        counting.anti_affinity.iter().for_each(|term| need(Use::AntiAffinity, term));
        counting.scoring.affinity.iter().for_each(|(_, term)| need(Use::Score, term));
        counting.scoring.anti_affinity.iter().for_each(|(_, term)| need(Use::Score, term));
        for class in cx.cluster.affinity_classes().iter() {
            counting.each(&class.pod, &mut |of, key, _| needed.push((of, key.to_owned())));
        }
        for (of, key) in needed {
            // With more counts than that the engine does not use this form.
            if counting.scopes.len() > COUNTS_MAX {
                break;
            }
            if counting.count_of(of, &key).is_none() {
                counting.uses.push(of);
                counting.scopes.push(CountScope::Domain { key, distinct: false });
            }
        }
        counting
    }

    fn count_of(&self, of: Use, key: &str) -> Option<usize> {
        let mut counts = self.uses.iter().zip(&self.scopes);
        counts.position(|(u, scope)| *u == of && matches!(scope, CountScope::Domain { key: k, .. } if k == key))
    }

    /// Calls `add` with everything a placed pod adds: the use, the topology key and the amount.
    fn each(&self, other: &PodInfo, add: &mut dyn FnMut(Use, &str, i64)) {
        for term in other.required_anti_affinity.iter() {
            if term.matches(&self.pod, &self.namespace_labels) {
                add(Use::ExistingAntiAffinity, &term.topology_key, 1);
            }
        }
        if all_match(&self.affinity, other) {
            self.affinity.iter().for_each(|term| add(Use::Affinity, &term.topology_key, 1));
        }
        for term in self.anti_affinity.iter().filter(|term| term.matches(other, &Map::new())) {
            add(Use::AntiAffinity, &term.topology_key, 1);
        }
        self.scoring.each(&self.pod, other, &mut |term, weight| add(Use::Score, &term.topology_key, weight));
    }

    /// The counts of one use at a node.
    fn counts<'a>(&'a self, of: Use, here: &'a [Option<i64>]) -> impl Iterator<Item = Option<i64>> + 'a {
        self.uses.iter().zip(here).filter(move |(u, _)| **u == of).map(|(_, count)| *count)
    }
}

impl DomainCounting for AffinityCounting {
    fn scopes(&self) -> &[CountScope] {
        &self.scopes
    }

    fn contributions(&self, other: &PodInfo, add: &mut dyn FnMut(usize, i64)) -> bool {
        let mut all_known = true;
        self.each(other, &mut |of, key, by| match self.count_of(of, key) {
            Some(count) => add(count, by),
            None => all_known = false,
        });
        all_known
    }

    fn includes(&self, _count: usize, _node: &Node) -> bool {
        true
    }

    fn filter(&self, here: &[Option<i64>], everywhere: &[DomainSummary]) -> bool {
        let mut has_keys = true;
        let mut all_near = true;
        for count in self.counts(Use::Affinity, here) {
            has_keys &= count.is_some();
            all_near &= count.is_some_and(|count| count > 0);
        }
        let any_match = || self.uses.iter().zip(everywhere).any(|(u, summary)| *u == Use::Affinity && summary.any);
        (all_near || (has_keys && self.matches_itself && !any_match()))
            && self.counts(Use::AntiAffinity, here).all(|count| count.is_none_or(|count| count <= 0))
            && self.counts(Use::ExistingAntiAffinity, here).all(|count| count.is_none_or(|count| count <= 0))
    }

    fn scores(&self) -> bool {
        self.uses.contains(&Use::Score)
    }

    fn ignores(&self, _here: &[Option<i64>]) -> bool {
        false
    }

    fn score(&self, here: &[Option<i64>], _feasible: &FeasibleNodes) -> i64 {
        self.counts(Use::Score, here).flatten().sum()
    }

    fn normalize(&self, score: i64, lowest: i64, highest: i64) -> i64 {
        normalized(score, lowest, highest - lowest)
    }
}
