//! Nodes that do not fit pods of one signature because of the pods nominated to them.
//!
//! The engine's form of upstream's `RunFilterPluginsWithNominatedPods`: nodes with nominated pods of equal or higher
//! priority are filtered with those pods on them, and hidden from the scoreboard where that fails.

use rustc_hash::FxHashSet;

use super::change_reader::{ChangeReader, ChangedNodes};
use super::evaluate::NotCacheable;
use super::scoreboard::Scoreboard;
use super::{DecisionInput, UncachedFilters};
use crate::cluster::{NodeId, NodeInfo};

/// The nodes with nominated pods that take precedence over pods of one signature.
#[derive(Default)]
pub(super) struct NominatedNodes {
    reader: ChangeReader,
    nodes: FxHashSet<NodeId>,
    /// The node to which the last pod itself was nominated: filtered for that pod alone.
    own_node: Option<NodeId>,
}

impl Scoreboard {
    /// Filters the nodes that have nominated pods with those pods on them, and hides the nodes that then fail.
    pub(super) fn account_for_nominated(
        &mut self,
        input: &DecisionInput<'_>,
        uncached: &UncachedFilters,
    ) -> Result<(), NotCacheable> {
        let mut nominated_nodes = std::mem::take(&mut self.nominated_nodes);
        let result = nominated_nodes.catch_up(self, input);
        if result.is_err() {
            nominated_nodes.reader.restart();
        }
        self.nominated_nodes = nominated_nodes;
        result?;
        let usage_suffices = uncached.is_empty() && !self.plan.counts_in_filters();
        if usage_suffices || self.nominated_nodes.nodes.is_empty() { Ok(()) } else { Err(NotCacheable) }
    }
}

impl NominatedNodes {
    fn catch_up(&mut self, scoreboard: &mut Scoreboard, input: &DecisionInput<'_>) -> Result<(), NotCacheable> {
        let DecisionInput { cluster, nominator, pod, .. } = *input;
        if nominator.is_empty() && self.nodes.is_empty() {
            self.reader.skip(cluster, nominator);
            return Ok(());
        }
        let mut changed = match self.reader.read(cluster, nominator) {
            ChangedNodes::Known { nodes, .. } => nodes,
            ChangedNodes::Unknown => {
                let nominated = nominator.nodes().filter_map(|name| cluster.node(name).map(|node| node.id));
                nominated.chain(self.nodes.iter().copied()).collect()
            }
        };
        changed.extend(self.own_node);
        // A pod takes no precedence over itself.
        self.own_node = nominator.node_of(pod.uid()).and_then(|name| cluster.node(name)).map(|node| node.id);
        changed.extend(self.own_node);
        changed.into_iter().try_for_each(|node| self.evaluate(scoreboard, input, node))
    }

    fn evaluate(
        &mut self,
        scoreboard: &mut Scoreboard,
        input: &DecisionInput<'_>,
        id: NodeId,
    ) -> Result<(), NotCacheable> {
        let DecisionInput { cluster, nominator, pod, .. } = *input;
        let node = cluster.node_by_id(id);
        let mut ahead = node.into_iter().flat_map(|node| nominator.ahead_of(pod, &node.name)).peekable();
        let Some(node) = node.filter(|_| ahead.peek().is_some()) else {
            if self.nodes.remove(&id) {
                scoreboard.unhide(id);
            }
            return Ok(());
        };
        self.nodes.insert(id);
        let mut copy = NodeInfo::clone(node);
        ahead.for_each(|other| copy.add_pod(other.clone()));
        match scoreboard.passes_usage(&input.cycle(), &copy)? {
            true => scoreboard.unhide(id),
            false => scoreboard.hide(id),
        }
        Ok(())
    }
}
