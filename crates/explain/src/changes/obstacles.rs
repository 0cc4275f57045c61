//! What is in the pod's way: every filter that refuses each node, not the first only.

use std::sync::Arc;

use bayplan_scheduler::inspect::{Attempt, Search};
use bayplan_scheduler::{Code, NodeInfo, Status};

use super::trial::Trial;
use crate::State;

/// A node and the filters that refuse it.
pub(super) struct RefusedNode {
    pub(super) name: Arc<str>,
    pub(super) refusals: Vec<Status>,
}

impl RefusedNode {
    /// Whether only these plugins refuse the node.
    pub(super) fn is_refused_only_by(&self, plugins: &[&str]) -> bool {
        !self.refusals.is_empty() && self.refusals.iter().all(|status| plugins.contains(&status.plugin))
    }

    /// Whether pods that leave may change every answer.
    pub(super) fn is_resolvable(&self) -> bool {
        !self.refusals.is_empty() && self.refusals.iter().all(|status| status.code == Code::Unschedulable)
    }

    /// The node.
    pub(super) fn info<'s>(&self, state: &'s State) -> Option<&'s NodeInfo> {
        state.cluster().node(&self.name)
    }
}

/// Why the pod, without its scheduling gates, fits nowhere.
pub(super) struct Obstacles {
    /// PreEnqueue or PreFilter refuses the pod itself, or the cycle failed: nothing is known about single nodes.
    pub(super) is_refused_as_a_whole: bool,
    /// In the cluster's order.
    pub(super) nodes: Vec<RefusedNode>,
}

impl Obstacles {
    /// Finds them; none when the pod fits and is not gated.
    pub(super) fn find(trial: &Trial<'_>) -> Option<Self> {
        let whole = Obstacles { is_refused_as_a_whole: true, nodes: Vec::new() };
        let (cluster, nominator) = (trial.state.cluster(), trial.state.nominator());
        let mut attempt = Attempt::new(trial.profile, cluster, nominator, &trial.pod, trial.now());
        if !attempt.pre_enqueue().is_success() {
            return Some(whole);
        }
        let Ok(found) = attempt.find(Search::ALL) else { return Some(whole) };
        if !found.nodes().is_empty() {
            return trial.is_gated().then_some(Obstacles { is_refused_as_a_whole: false, nodes: Vec::new() });
        }
        if found.diagnosis.pre_filter.is_some() {
            return Some(whole);
        }
        let refused = |node: &NodeInfo| RefusedNode { name: node.name.clone(), refusals: attempt.refusals(node) };
        Some(Obstacles { is_refused_as_a_whole: false, nodes: cluster.nodes().map(refused).collect() })
    }

    /// The nodes that both of these lists of plugins refuse and nobody else, as if only the first did.
    pub(super) fn refused_by_both(&self, first: &[&str], second: &[&str]) -> Obstacles {
        let is_of = |plugins: &[&str], status: &Status| plugins.contains(&status.plugin);
        let nodes = self.nodes.iter().filter_map(|node| {
            let (of_first, others): (Vec<&Status>, Vec<&Status>) =
                node.refusals.iter().partition(|status| is_of(first, status));
            let is_both = !of_first.is_empty() && !others.is_empty() && others.iter().all(|one| is_of(second, one));
            let refusals = || of_first.into_iter().cloned().collect();
            is_both.then(|| RefusedNode { name: node.name.clone(), refusals: refusals() })
        });
        Obstacles { is_refused_as_a_whole: false, nodes: nodes.collect() }
    }

    /// The nodes that only these plugins refuse.
    pub(super) fn refused_only_by(&self, plugins: &[&str]) -> impl Iterator<Item = &RefusedNode> {
        self.nodes.iter().filter(move |node| node.is_refused_only_by(plugins))
    }
}
