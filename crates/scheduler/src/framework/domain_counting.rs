//! The incremental form of plugins that count pods by topology domain, such as InterPodAffinity and PodTopologySpread.
//!
//! In PreFilter and PreScore such a plugin counts all pods for every pod it is asked about. In this form it says once,
//! for all pods of a signature, what it counts; the engine updates the counts as pods and nodes come and go, and
//! filters and scores by counts alone. Nodes with equal counts share one answer.

use bayplan_model::label_selector::Selector;
use bayplan_model::node::Node;

use crate::cluster::PodInfo;

/// The most counts of one signature that the engine keeps. Each node has a membership in each of them, and some steps
/// look at all counts of a pod for each, so a pod with more is left to the plain cycle. Real pods have a handful.
pub(crate) const COUNTS_MAX: usize = 64;

/// Which pods are counted together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CountScope {
    /// Those on one node.
    Node {
        /// Nodes without this label have no count.
        label: String,
    },
    /// Those on all nodes with the same value of a label.
    Domain {
        /// The label's key.
        key: String,
        /// True when the number of domains among the feasible nodes is read, too.
        distinct: bool,
    },
}

impl CountScope {
    /// The label that a node must have to be counted.
    pub fn label(&self) -> &str {
        match self {
            CountScope::Node { label } => label,
            CountScope::Domain { key, .. } => key,
        }
    }
}

/// A count over all its domains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DomainSummary {
    /// The number of domains with at least one node whose pods count.
    pub domains: usize,
    /// The lowest count among these domains; 0 when there are none.
    pub lowest: i64,
    /// True when a domain's count is not 0.
    pub any: bool,
}

/// The feasible nodes, without those that scoring ignores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeasibleNodes {
    /// The number of nodes.
    pub nodes: usize,
    /// By count: the number of different domains of the nodes, where a missing label is a domain of its own; 0 for
    /// counts that are not `distinct`.
    pub domains: Vec<usize>,
}

/// Filters and scores pods of one signature by counts of pods in topology domains.
pub trait DomainCounting: Send + Sync {
    /// The counts, by scope.
    fn scopes(&self) -> &[CountScope];

    /// Everything but the pod's signature that the counts were made from, when that is selectors. Two forms with equal
    /// selectors are the same.
    fn selectors(&self) -> Option<Vec<&Selector>> {
        None
    }

    /// Calls `add` with each count that a placed pod changes, and by how much. False when the pod counts under a label
    /// that is in no scope: the form must then be built again.
    fn contributions(&self, placed: &PodInfo, add: &mut dyn FnMut(usize, i64)) -> bool;

    /// True when the pods on a node count.
    fn includes(&self, count: usize, node: &Node) -> bool;

    /// True when a node with these counts passes Filter; a count is absent when the node lacks the label.
    fn filter(&self, here: &[Option<i64>], everywhere: &[DomainSummary]) -> bool;

    /// True when Score applies to the pod.
    fn scores(&self) -> bool;

    /// True when scoring ignores a node with these counts; its score is 0.
    fn ignores(&self, here: &[Option<i64>]) -> bool;

    /// The score of a node with these counts, before normalisation.
    fn score(&self, here: &[Option<i64>], feasible: &FeasibleNodes) -> i64;

    /// The score after normalisation, given the lowest and the highest score of all nodes that are not ignored.
    fn normalize(&self, score: i64, lowest: i64, highest: i64) -> i64;
}
