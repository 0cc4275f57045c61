//! Nodes on which pods of one shape have no room because of others that are nominated to them.

use rustc_hash::FxHashSet;

use super::board::{Board, Unsuited};
use super::stale::{Reader, Stale};
use super::{Late, Question};
use crate::cluster::{NodeId, NodeInfo};

/// The nodes to which pods are nominated that pods of one shape have to leave room for.
#[derive(Default)]
pub(super) struct Expected {
    reader: Reader,
    nodes: FxHashSet<NodeId>,
    /// The node that was judged for the last pod alone, which was nominated to it.
    own: Option<NodeId>,
}

impl Board {
    /// Judges the nodes to which others are nominated with them on it, and hides those that do not do then.
    ///
    /// None when only the plain cycle can tell.
    pub(super) fn heed_nominated(&mut self, question: &Question<'_>, late: &Late) -> Option<()> {
        let mut expected = std::mem::take(&mut self.expected);
        let judged = expected.catch_up(self, question);
        if judged.is_err() {
            expected.reader.restart();
        }
        self.expected = expected;
        let usage_tells = late.is_empty() && !self.plan.counts_in_filters();
        judged.ok().filter(|()| usage_tells || self.expected.nodes.is_empty())
    }
}

impl Expected {
    fn catch_up(&mut self, board: &mut Board, question: &Question<'_>) -> Result<(), Unsuited> {
        let Question { cluster, nominator, pod, .. } = *question;
        if nominator.is_empty() && self.nodes.is_empty() {
            self.reader.skip(cluster, nominator);
            return Ok(());
        }
        let mut stale = match self.reader.read(cluster, nominator) {
            Stale::Some { nodes, .. } => nodes,
            Stale::All => {
                let nominated = nominator.nodes().filter_map(|name| cluster.node(name).map(|node| node.id));
                nominated.chain(self.nodes.iter().copied()).collect()
            }
        };
        stale.extend(self.own);
        // A pod is not in its own way.
        self.own = nominator.node_of(pod.uid()).and_then(|name| cluster.node(name)).map(|node| node.id);
        stale.extend(self.own);
        stale.into_iter().try_for_each(|node| self.judge(board, question, node))
    }

    fn judge(&mut self, board: &mut Board, question: &Question<'_>, id: NodeId) -> Result<(), Unsuited> {
        let Question { cluster, nominator, pod, .. } = *question;
        let node = cluster.node_by_id(id);
        let mut in_the_way = node.into_iter().flat_map(|node| nominator.ahead_of(pod, &node.name)).peekable();
        let Some(node) = node.filter(|_| in_the_way.peek().is_some()) else {
            if self.nodes.remove(&id) {
                board.show(id);
            }
            return Ok(());
        };
        self.nodes.insert(id);
        let mut copy = NodeInfo::clone(node);
        in_the_way.for_each(|other| copy.add_pod(other.clone()));
        match board.passes_usage(&question.cycle(), &copy)? {
            true => board.show(id),
            false => board.hide(id),
        }
        Ok(())
    }
}
