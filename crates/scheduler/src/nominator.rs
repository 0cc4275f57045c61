//! Pods nominated to nodes: they are expected there once their victims are gone. Upstream's `nominator`.

use std::sync::Arc;

use bayplan_model::keyed::KeyedMap;
use bayplan_model::pod::Pod;

use crate::cluster::{ChangeLog, PodInfo};
use crate::framework::Nomination;

/// Pods by the node they are nominated to.
#[derive(Clone, Debug, Default)]
pub struct Nominator {
    by_node: KeyedMap<Arc<str>, Vec<Arc<PodInfo>>>,
    node_of: KeyedMap<String, Arc<str>>,
    changes: ChangeLog<Arc<str>>,
}

impl Nominator {
    /// The pods nominated to a node, oldest first.
    pub fn on_node(&self, node: &str) -> &[Arc<PodInfo>] {
        self.by_node.get(node).map_or(&[], Vec::as_slice)
    }

    /// The pods nominated to a node that take precedence over a pod: other pods of equal or higher priority.
    pub(crate) fn ahead_of<'a>(&'a self, pod: &'a PodInfo, node: &str) -> impl Iterator<Item = &'a Arc<PodInfo>> {
        let is_ahead = |other: &&Arc<PodInfo>| other.priority() >= pod.priority() && other.uid() != pod.uid();
        self.on_node(node).iter().filter(is_ahead)
    }

    /// The names of all nodes with nominated pods; such a node may not exist.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_node.keys()
    }

    /// The log of nodes whose nominated pods changed.
    pub(crate) fn changes(&self) -> &ChangeLog<Arc<str>> {
        &self.changes
    }

    /// True when no pod is nominated anywhere.
    pub fn is_empty(&self) -> bool {
        self.node_of.is_empty()
    }

    /// The node a pod is nominated to.
    pub fn node_of(&self, uid: &str) -> Option<&str> {
        self.node_of.get(uid).map(|node| &**node)
    }

    /// Nominates a pod to the node that preemption chose, or to the one in its status.
    pub fn add(&mut self, pod: &Arc<PodInfo>, nomination: &Nomination) {
        self.remove(pod.uid());
        let node = match nomination {
            Nomination::Override(node) => node,
            Nomination::Keep => &pod.status.nominated_node_name,
        };
        if node.is_empty() || pod.is_assigned() {
            return;
        }
        let node: Arc<str> = node.as_str().into();
        self.node_of.insert(pod.uid().to_owned(), node.clone());
        self.by_node.entry(node.clone()).or_default().push(pod.clone());
        self.record_change(node);
    }

    /// Updates a pod to a new version; a nomination that only this process knows is kept.
    pub fn update(&mut self, old: &Pod, new: &Arc<PodInfo>) {
        let uid = &old.metadata.uid;
        let kept = match (old.is_nominated(), new.is_nominated()) {
            (false, false) => self.node_of.get(uid).map(|node| node.to_string()),
            _ => None,
        };
        self.remove(uid);
        self.add(new, &kept.map_or(Nomination::Keep, Nomination::Override));
    }

    /// Removes a nomination.
    pub fn remove(&mut self, uid: &str) {
        let Some(node) = self.node_of.remove(uid) else { return };
        if let Some(pods) = self.by_node.get_mut(&node) {
            pods.retain(|pod| pod.uid() != uid);
            if pods.is_empty() {
                self.by_node.remove(&node);
            }
        }
        self.record_change(node);
    }

    fn record_change(&mut self, node: Arc<str>) {
        self.changes.push(node, self.by_node.len());
    }
}
