//! Nodes on which pods of one signature have no room because of others that are nominated to them.

use rustc_hash::FxHashSet;

use super::change_reader::{ChangeReader, ChangedNodes};
use super::scoreboard::{NotCacheable, Scoreboard};
use super::{DecisionInput, UncachedFilters};
use crate::cluster::{NodeId, NodeInfo};

/// The nodes to which pods are nominated that pods of one signature have to leave room for.
#[derive(Default)]
pub(super) struct NominatedNodes {
    reader: ChangeReader,
    nodes: FxHashSet<NodeId>,
    /// The node that was judged for the last pod alone, which was nominated to it.
    own: Option<NodeId>,
}

impl Scoreboard {
    /// Judges the nodes to which others are nominated with them on it, and hides those that do not do then.
    ///
    /// None when only the plain cycle can tell.
    pub(super) fn account_for_nominated(
        &mut self,
        input: &DecisionInput<'_>,
        uncached: &UncachedFilters,
    ) -> Option<()> {
        let mut nominated_nodes = std::mem::take(&mut self.nominated_nodes);
        let judged = nominated_nodes.catch_up(self, input);
        if judged.is_err() {
            nominated_nodes.reader.restart();
        }
        self.nominated_nodes = nominated_nodes;
        let usage_tells = uncached.is_empty() && !self.plan.counts_in_filters();
        judged.ok().filter(|()| usage_tells || self.nominated_nodes.nodes.is_empty())
    }
}

impl NominatedNodes {
    fn catch_up(&mut self, scoreboard: &mut Scoreboard, input: &DecisionInput<'_>) -> Result<(), NotCacheable> {
        let DecisionInput { cluster, nominator, pod, .. } = *input;
        if nominator.is_empty() && self.nodes.is_empty() {
            self.reader.skip(cluster, nominator);
            return Ok(());
        }
        let mut stale = match self.reader.read(cluster, nominator) {
            ChangedNodes::Known { nodes, .. } => nodes,
            ChangedNodes::Unknown => {
                let nominated = nominator.nodes().filter_map(|name| cluster.node(name).map(|node| node.id));
                nominated.chain(self.nodes.iter().copied()).collect()
            }
        };
        stale.extend(self.own);
        // A pod is not in its own way.
        self.own = nominator.node_of(pod.uid()).and_then(|name| cluster.node(name)).map(|node| node.id);
        stale.extend(self.own);
        stale.into_iter().try_for_each(|node| self.evaluate(scoreboard, input, node))
    }

    fn evaluate(
        &mut self,
        scoreboard: &mut Scoreboard,
        input: &DecisionInput<'_>,
        id: NodeId,
    ) -> Result<(), NotCacheable> {
        let DecisionInput { cluster, nominator, pod, .. } = *input;
        let node = cluster.node_by_id(id);
        let mut in_the_way = node.into_iter().flat_map(|node| nominator.ahead_of(pod, &node.name)).peekable();
        let Some(node) = node.filter(|_| in_the_way.peek().is_some()) else {
            if self.nodes.remove(&id) {
                scoreboard.unhide(id);
            }
            return Ok(());
        };
        self.nodes.insert(id);
        let mut copy = NodeInfo::clone(node);
        in_the_way.for_each(|other| copy.add_pod(other.clone()));
        match scoreboard.passes_usage(&input.cycle(), &copy)? {
            true => scoreboard.unhide(id),
            false => scoreboard.hide(id),
        }
        Ok(())
    }
}
