//! The accelerated form of a plugin that counts pods by topology domain.
//!
//! In its plain form such a plugin walks over all pods in PreFilter and PreScore. In this form it says once, for all pods
//! of a signature, what it counts; the engine keeps the counts as pods and nodes come and go, and asks for verdicts and
//! scores by counts alone. Nodes with equal counts share one answer.

use bayplan_model::label_selector::Selector;
use bayplan_model::node::Node;

use crate::cluster::PodInfo;

/// Where the pods of one count are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CountScope {
    /// On one node.
    Node {
        /// The label without which a node has no count.
        label: String,
    },
    /// On the nodes that have the same value of a label.
    Domain {
        /// The label.
        key: String,
        /// The number of domains among the feasible nodes matters, too.
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

/// What is known of a count over all its domains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DomainSummary {
    /// Domains with at least one node that counts.
    pub domains: usize,
    /// The lowest count among them; 0 when there is none.
    pub lowest: i64,
    /// Some domain's count is not 0.
    pub any: bool,
}

/// The feasible nodes that are not ignored in scoring.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeasibleNodes {
    /// How many there are.
    pub nodes: usize,
    /// By count: the number of different domains they are in, nodes without the label being one more; 0 when not asked.
    pub domains: Vec<usize>,
}

/// Counts pods by domain for pods of one signature.
pub trait DomainCounting: Send + Sync {
    /// What is counted.
    fn scopes(&self) -> &[CountScope];

    /// All that this was made from beside the pod's signature, when that is selectors; two forms that agree in them are the same.
    fn selectors(&self) -> Option<Vec<&Selector>> {
        None
    }

    /// Tells by how much a placed pod changes which counts; false when it does so under a label that is in no scope,
    /// so that this must be made anew.
    fn contributions(&self, other: &PodInfo, tell: &mut dyn FnMut(usize, i64)) -> bool;

    /// Whether the pods on a node count.
    fn includes(&self, count: usize, node: &Node) -> bool;

    /// Whether a node with these counts passes Filter; a count is absent where the node lacks the label.
    fn filter(&self, here: &[Option<i64>], everywhere: &[DomainSummary]) -> bool;

    /// Whether Score says anything.
    fn scores(&self) -> bool;

    /// Whether a node with these counts is left out of scoring, and scored 0.
    fn ignores(&self, here: &[Option<i64>]) -> bool;

    /// The score of a node with these counts, before normalisation.
    fn score(&self, here: &[Option<i64>], feasible: &FeasibleNodes) -> i64;

    /// The score after normalisation, by the lowest and highest of all that are not ignored.
    fn normalize(&self, score: i64, lowest: i64, highest: i64) -> i64;
}
