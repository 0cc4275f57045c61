//! The counting form: the engine keeps the counts of all constraints, and asks for answers by counts alone.

use std::sync::Arc;

use bayplan_model::affinity::RequiredNodeAffinity;
use bayplan_model::label_selector::Selector;
use bayplan_model::node::{LABEL_HOSTNAME, Node};
use bayplan_model::pod::Pod;

use super::constraint::{Constraint, NodeInclusion, has_all_keys};
use super::scoring::{domain_score, normalized, weight};
use crate::cluster::PodInfo;
use crate::framework::{CountScope, DomainCounting, DomainSummary, FeasibleNodes};

/// The constraints of pods of one signature. Counts are numbered by constraint, the hard ones first.
pub(super) struct SpreadCounting {
    pod: Arc<Pod>,
    hard: Vec<Constraint>,
    /// By hard constraint: 1 when the pod counts itself.
    self_matches: Vec<i64>,
    soft: Vec<Constraint>,
    required: RequiredNodeAffinity,
    /// Nodes that lack a topology key are ignored in scoring.
    require_all: bool,
    scopes: Vec<CountScope>,
}

impl SpreadCounting {
    pub(super) fn new(pod: &Arc<Pod>, hard: Vec<Constraint>, soft: Vec<Constraint>, require_all: bool) -> Self {
        let scopes = hard.iter().map(|c| CountScope::Domain { key: c.key.clone(), distinct: false });
        let scopes = scopes.chain(soft.iter().map(|c| match c.key == LABEL_HOSTNAME {
            true => CountScope::Node { label: c.key.clone() },
            false => CountScope::Domain { key: c.key.clone(), distinct: true },
        }));
        SpreadCounting {
            scopes: scopes.collect(),
            self_matches: hard.iter().map(|constraint| constraint.self_match(pod)).collect(),
            required: RequiredNodeAffinity::of(pod),
            pod: pod.clone(),
            hard,
            soft,
            require_all,
        }
    }
}

impl DomainCounting for SpreadCounting {
    fn scopes(&self) -> &[CountScope] {
        &self.scopes
    }

    fn selectors(&self) -> Option<Vec<&Selector>> {
        Some(self.hard.iter().chain(&self.soft).map(|constraint| &constraint.selector).collect())
    }

    fn contributions(&self, other: &PodInfo, add: &mut dyn FnMut(usize, i64)) -> bool {
        for (i, constraint) in self.hard.iter().chain(&self.soft).enumerate() {
            if constraint.counts(&self.pod, other) {
                add(i, 1);
            }
        }
        true
    }

    fn includes(&self, count: usize, node: &Node) -> bool {
        let labels = &node.metadata.labels;
        let includes = |constraint: &Constraint| {
            let alone = std::slice::from_ref(constraint);
            constraint.includes(&NodeInclusion::of(alone, &self.pod, &self.required, node))
        };
        match count.checked_sub(self.hard.len()) {
            None => has_all_keys(&self.hard, labels) && includes(&self.hard[count]),
            // On the node itself, Score counts pods without asking the inclusion policies.
            Some(soft) if self.soft[soft].key == LABEL_HOSTNAME => true,
            Some(soft) => (!self.require_all || has_all_keys(&self.soft, labels)) && includes(&self.soft[soft]),
        }
    }

    fn filter(&self, here: &[Option<i64>], everywhere: &[DomainSummary]) -> bool {
        self.hard.iter().enumerate().all(|(i, constraint)| {
            let Some(count) = here[i] else { return false };
            let DomainSummary { domains, lowest, .. } = everywhere[i];
            constraint.allows(count + self.self_matches[i], domains, (domains > 0).then_some(lowest))
        })
    }

    fn scores(&self) -> bool {
        !self.soft.is_empty()
    }

    fn ignores(&self, here: &[Option<i64>]) -> bool {
        self.require_all && here[self.hard.len()..].iter().any(Option::is_none)
    }

    fn score(&self, here: &[Option<i64>], feasible: &FeasibleNodes) -> i64 {
        let mut sum = 0.0;
        for (i, constraint) in self.soft.iter().enumerate() {
            let at = self.hard.len() + i;
            let domains = if constraint.key == LABEL_HOSTNAME { feasible.nodes } else { feasible.domains[at] };
            if let Some(count) = here[at] {
                sum += domain_score(constraint, count, weight(domains));
            }
        }
        sum.round() as i64
    }

    fn normalize(&self, score: i64, lowest: i64, highest: i64) -> i64 {
        normalized(score, lowest, highest.max(0))
    }
}
