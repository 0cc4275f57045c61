//! Which pods are expected on which nodes once their victims are gone.

use std::sync::Arc;

use bayplan_model::pod::Pod;
use rustc_hash::FxHashMap;

use crate::cluster::{ChangeLog, PodInfo};
use crate::framework::Nomination;

/// Pods by the node they are nominated to.
#[derive(Clone, Debug, Default)]
pub struct Nominator {
    by_node: FxHashMap<Arc<str>, Vec<Arc<PodInfo>>>,
    node_of: FxHashMap<String, Arc<str>>,
    changes: ChangeLog<Arc<str>>,
}

impl Nominator {
    /// The pods nominated to a node, oldest first.
    pub fn on_node(&self, node: &str) -> &[Arc<PodInfo>] {
        self.by_node.get(node).map_or(&[], Vec::as_slice)
    }

    /// The pods nominated to a node that another pod has to leave room for: as important or more, and not itself.
    pub(crate) fn ahead_of<'a>(&'a self, pod: &'a PodInfo, node: &str) -> impl Iterator<Item = &'a Arc<PodInfo>> {
        let is_ahead = |other: &&Arc<PodInfo>| other.priority() >= pod.priority() && other.uid() != pod.uid();
        self.on_node(node).iter().filter(is_ahead)
    }

    /// All nodes with nominated pods, whether there are such nodes or not.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_node.keys()
    }

    /// The nodes to which other pods are nominated than before.
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

    /// Nominates a pod: to the node a preemption chose, or to the one its status names.
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
        self.note(node);
    }

    /// Takes over a new version of a pod; a nomination only this process knows of survives.
    pub fn update(&mut self, old: &Pod, new: &Arc<PodInfo>) {
        let uid = &old.metadata.uid;
        let kept = match (old.is_nominated(), new.is_nominated()) {
            (false, false) => self.node_of.get(uid).map(|node| node.to_string()),
            _ => None,
        };
        self.remove(uid);
        self.add(new, &kept.map_or(Nomination::Keep, Nomination::Override));
    }

    /// Withdraws a nomination.
    pub fn remove(&mut self, uid: &str) {
        let Some(node) = self.node_of.remove(uid) else { return };
        if let Some(pods) = self.by_node.get_mut(&node) {
            pods.retain(|pod| pod.uid() != uid);
            if pods.is_empty() {
                self.by_node.remove(&node);
            }
        }
        self.note(node);
    }

    fn note(&mut self, node: Arc<str>) {
        self.changes.push(node, self.by_node.len());
    }
}
