//! Which pods are expected on which nodes once their victims are gone.

use std::sync::Arc;

use bayplan_model::pod::Pod;
use rustc_hash::FxHashMap;

use crate::cluster::PodInfo;
use crate::framework::Nomination;

/// Pods by the node they are nominated to.
#[derive(Clone, Debug, Default)]
pub struct Nominator {
    by_node: FxHashMap<String, Nominated>,
    node_of: FxHashMap<String, String>,
    version: u64,
}

/// The pods nominated to one node.
#[derive(Clone, Debug, Default)]
struct Nominated {
    pods: Vec<Arc<PodInfo>>,
    /// Another one after each change.
    version: u64,
}

impl Nominator {
    /// The pods nominated to a node, oldest first.
    pub fn on_node(&self, node: &str) -> impl Iterator<Item = &Arc<PodInfo>> {
        self.by_node.get(node).into_iter().flat_map(|nominated| &nominated.pods)
    }

    /// All nodes with nominated pods.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[Arc<PodInfo>])> {
        self.by_node.iter().map(|(node, nominated)| (node.as_str(), nominated.pods.as_slice()))
    }

    /// All nodes with nominated pods, with the version of their list.
    pub(crate) fn versions(&self) -> impl Iterator<Item = (&str, u64)> {
        self.by_node.iter().map(|(node, nominated)| (node.as_str(), nominated.version))
    }

    /// True when no pod is nominated anywhere.
    pub fn is_empty(&self) -> bool {
        self.node_of.is_empty()
    }

    /// The node a pod is nominated to.
    pub fn node_of(&self, uid: &str) -> Option<&str> {
        self.node_of.get(uid).map(String::as_str)
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
        self.node_of.insert(pod.uid().to_owned(), node.clone());
        self.version += 1;
        let nominated = self.by_node.entry(node.clone()).or_default();
        nominated.version = self.version;
        nominated.pods.push(pod.clone());
    }

    /// Takes over a new version of a pod; a nomination only this process knows of survives.
    pub fn update(&mut self, old: &Pod, new: &Arc<PodInfo>) {
        let uid = &old.metadata.uid;
        let kept = match (old.is_nominated(), new.is_nominated()) {
            (false, false) => self.node_of.get(uid).cloned(),
            _ => None,
        };
        self.remove(uid);
        self.add(new, &kept.map_or(Nomination::Keep, Nomination::Override));
    }

    /// Withdraws a nomination.
    pub fn remove(&mut self, uid: &str) {
        let Some(node) = self.node_of.remove(uid) else { return };
        if let Some(nominated) = self.by_node.get_mut(&node) {
            self.version += 1;
            nominated.version = self.version;
            nominated.pods.retain(|pod| pod.uid() != uid);
            if nominated.pods.is_empty() {
                self.by_node.remove(&node);
            }
        }
    }
}
