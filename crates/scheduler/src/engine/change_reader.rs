//! What a reader that keeps something for each node has to look at again.

use crate::cluster::{Cluster, NodeChange, NodeId};
use crate::queue::Nominator;

/// How far a reader has read what happened to nodes, to their pods and to nominations.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ChangeReader {
    /// Nothing yet, unless this says otherwise.
    seen: Option<[u64; 2]>,
}

/// The nodes that may have changed.
pub(super) enum ChangedNodes {
    /// It is not known which.
    Unknown,
    /// These, each once.
    Known {
        /// The nodes, some of which may be gone.
        nodes: Vec<NodeId>,
        /// Some came, went or changed, as opposed to the pods on them and those nominated to them.
        objects: bool,
    },
}

impl ChangeReader {
    /// Reads on.
    pub(super) fn read(&mut self, cluster: &Cluster, nominator: &Nominator) -> ChangedNodes {
        let last = self.seen;
        self.skip(cluster, nominator);
        let news = last.and_then(|[changes, nominations]| {
            Some((cluster.changes().since(changes)?, nominator.changes().since(nominations)?))
        });
        let Some((changes, nominations)) = news else { return ChangedNodes::Unknown };
        let mut objects = false;
        let latest = changes.filter_map(|(change, is_latest)| {
            objects |= matches!(change, NodeChange::Object(_));
            is_latest.then(|| change.node())
        });
        let mut nodes: Vec<NodeId> = latest.collect();
        nodes.extend(nominations.filter_map(|name| cluster.node(name).map(|node| node.id)));
        nodes.sort_unstable();
        nodes.dedup();
        ChangedNodes::Known { nodes, objects }
    }

    /// Passes over what happened.
    pub(super) fn skip(&mut self, cluster: &Cluster, nominator: &Nominator) {
        self.seen = Some([cluster.changes().end(), nominator.changes().end()]);
    }

    /// Has everything looked at anew the next time.
    pub(super) fn restart(&mut self) {
        self.seen = None;
    }
}
