//! A log of changes of nodes and their pods, for caches that are computed from them.

use std::collections::VecDeque;

use super::{AffinityClassId, NodeId};

/// A change of a node or of the pods on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeChange {
    /// A node was added, changed or removed.
    Object(NodeId),
    /// A pod was added to a node or removed from it.
    Pod {
        /// The node.
        node: NodeId,
        /// The pod's affinity class.
        affinity_class: AffinityClassId,
        /// 1 for an added pod, -1 for a removed one.
        by: i64,
    },
}

impl NodeChange {
    /// The changed node.
    pub(crate) fn node(self) -> NodeId {
        match self {
            NodeChange::Object(node) | NodeChange::Pod { node, .. } => node,
        }
    }
}

/// The most recent entries of a log. A reader that is further behind must start over.
#[derive(Clone, Debug)]
pub(crate) struct ChangeLog<T> {
    /// The number of dropped entries.
    dropped: u64,
    entries: VecDeque<T>,
}

/// The least number of entries that are kept, so that a reader may pause for a while.
const ENTRIES_MIN: usize = 1 << 12;

impl<T> Default for ChangeLog<T> {
    fn default() -> Self {
        ChangeLog { dropped: 0, entries: VecDeque::new() }
    }
}

impl<T> ChangeLog<T> {
    /// Appends an entry. `subjects` is the number of things that entries are about: more entries than that are not
    /// worth keeping, because starting over costs no more.
    pub(crate) fn push(&mut self, entry: T, subjects: usize) {
        if self.entries.len() >= subjects.max(ENTRIES_MIN) {
            self.entries.pop_front();
            self.dropped += 1;
        }
        self.entries.push_back(entry);
    }

    /// The position after the latest entry.
    pub(crate) fn end(&self) -> u64 {
        self.dropped + self.entries.len() as u64
    }

    /// The entries since a position; none when some were dropped.
    pub(crate) fn since(&self, position: u64) -> Option<impl Iterator<Item = &T>> {
        let from = position.checked_sub(self.dropped)?;
        Some(self.entries.range(usize::try_from(from).ok()?..))
    }
}

/// The most recent changes of nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeChanges {
    log: ChangeLog<NodeChange>,
    /// The position of each node's latest change.
    latest: Vec<u64>,
}

impl NodeChanges {
    /// Appends a change.
    pub(super) fn push(&mut self, change: NodeChange, nodes: usize) {
        let node = change.node().0 as usize;
        if self.latest.len() <= node {
            self.latest.resize(node + 1, 0);
        }
        self.latest[node] = self.end();
        self.log.push(change, nodes);
    }

    /// The position after the latest change.
    pub(crate) fn end(&self) -> u64 {
        self.log.end()
    }

    /// The changes since a position, and whether each is its node's latest; none when some were dropped.
    pub(crate) fn since(&self, position: u64) -> Option<impl Iterator<Item = (NodeChange, bool)>> {
        let changes = self.log.since(position)?;
        Some(
            changes
                .enumerate()
                .map(move |(at, change)| (*change, self.latest[change.node().0 as usize] == position + at as u64)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_sees_each_change_once_or_learns_that_it_missed_some() {
        let mut changes = NodeChanges::default();
        let at = |n: usize| NodeChange::Object(NodeId(n as u32));
        for n in 0..10 {
            changes.push(at(n), 0);
        }
        changes.push(at(8), 0);
        let seen: Vec<_> = changes.since(7).unwrap().collect();
        assert_eq!(seen, [(at(7), true), (at(8), false), (at(9), true), (at(8), true)]);
        assert_eq!(changes.since(changes.end()).unwrap().count(), 0);
        for n in 11..ENTRIES_MIN + 3 {
            changes.push(at(n), 0);
        }
        assert!(changes.since(2).is_none());
        assert_eq!(changes.since(3).unwrap().count(), ENTRIES_MIN);
    }
}
