//! The order of the nodes: one node of each zone in turn. Upstream's `nodeTree`.

use super::NodeId;

/// Nodes by zone. Zones are in first-seen order, nodes within a zone in insertion order.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeTree {
    zones: Vec<(String, Vec<NodeId>)>,
}

impl NodeTree {
    pub(super) fn add(&mut self, zone: &str, node: NodeId) {
        match self.zones.iter_mut().find(|(name, _)| name == zone) {
            Some((_, nodes)) => nodes.push(node),
            None => self.zones.push((zone.to_owned(), vec![node])),
        }
    }

    pub(super) fn remove(&mut self, zone: &str, node: NodeId) {
        let Some(at) = self.zones.iter().position(|(name, _)| name == zone) else { return };
        self.zones[at].1.retain(|n| *n != node);
        if self.zones[at].1.is_empty() {
            self.zones.remove(at);
        }
    }

    /// First node of each zone, then the second of each, and so on.
    pub(super) fn list(&self) -> Vec<NodeId> {
        let longest = self.zones.iter().map(|(_, nodes)| nodes.len()).max().unwrap_or(0);
        (0..longest).flat_map(|i| self.zones.iter().filter_map(move |(_, nodes)| nodes.get(i).copied())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_take_turns_and_an_emptied_zone_goes_last_when_it_returns() {
        let mut tree = NodeTree::default();
        for (zone, node) in [("a", 0), ("b", 1), ("a", 2), ("c", 3), ("a", 4), ("b", 5)] {
            tree.add(zone, NodeId(node));
        }
        assert_eq!(tree.list(), [0, 1, 3, 2, 5, 4].map(NodeId));
        tree.remove("a", NodeId(0));
        tree.remove("c", NodeId(3));
        tree.add("c", NodeId(6));
        assert_eq!(tree.list(), [2, 1, 6, 4, 5].map(NodeId));
    }
}
