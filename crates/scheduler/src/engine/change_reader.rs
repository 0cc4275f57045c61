//! Which nodes changed since a cache last looked.

use crate::cluster::{Cluster, NodeChange, NodeId};
use crate::nominator::Nominator;

/// How far a cache has read the logs of changed nodes and of nominations.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ChangeReader {
    /// The positions in both logs; none before the first read.
    seen: Option<[u64; 2]>,
}

/// The nodes that may have changed.
pub(super) enum ChangedNodes {
    /// The logs no longer reach back far enough: all nodes may have changed.
    Unknown,
    /// These nodes, each once.
    Known {
        /// The changed nodes, some of which may be gone.
        nodes: Vec<NodeId>,
        /// True when node objects changed, as opposed to the pods on them or nominated to them.
        objects_changed: bool,
    },
}

impl ChangeReader {
    /// The nodes that changed since the last call.
    pub(super) fn read(&mut self, cluster: &Cluster, nominator: &Nominator) -> ChangedNodes {
        let last = self.seen;
        self.skip(cluster, nominator);
        let unread = last.and_then(|[changes, nominations]| {
            Some((cluster.changes().since(changes)?, nominator.changes().since(nominations)?))
        });
        let Some((changes, nominations)) = unread else { return ChangedNodes::Unknown };
        let mut objects_changed = false;
        let latest = changes.filter_map(|(change, is_latest)| {
            objects_changed |= matches!(change, NodeChange::Object(_));
            is_latest.then(|| change.node())
        });
        let mut nodes: Vec<NodeId> = latest.collect();
        nodes.extend(nominations.filter_map(|name| cluster.node(name).map(|node| node.id)));
        nodes.sort_unstable();
        nodes.dedup();
        ChangedNodes::Known { nodes, objects_changed }
    }

    /// Marks all changes up to now as read.
    pub(super) fn skip(&mut self, cluster: &Cluster, nominator: &Nominator) {
        self.seen = Some([cluster.changes().end(), nominator.changes().end()]);
    }

    /// Makes the next read answer [`ChangedNodes::Unknown`].
    pub(super) fn restart(&mut self) {
        self.seen = None;
    }
}
