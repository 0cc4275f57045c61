//! Which pods use which claims on which node, and which VolumeAttachments a node and a volume have.

use std::collections::BTreeSet;
use std::sync::Arc;

use bayplan_model::delta::Delta;
use bayplan_model::keyed::{KeyedMap, KeyedSet};

use super::object::VolumeAttachment;
use crate::cache::Cache;
use crate::controller::split_key;
use crate::pod::Pod;
use crate::pods_by_node::PodsByNode;

/// Kept up to date from the deltas that the loop observes; pods without claims are not in it.
#[derive(Debug, Default)]
pub(super) struct Index {
    pods: PodsByNode,
    /// Keys of the pods on nodes, by the key of a claim.
    by_claim: KeyedMap<String, KeyedSet<String>>,
    /// Names of VolumeAttachments by node.
    by_node: KeyedMap<String, BTreeSet<String>>,
    /// Names of VolumeAttachments by PersistentVolume.
    by_volume: KeyedMap<String, BTreeSet<String>>,
}

fn insert<T: Ord>(index: &mut KeyedMap<String, BTreeSet<T>>, key: &str, item: T) {
    index.entry(key.to_owned()).or_default().insert(item);
}

fn remove(index: &mut KeyedMap<String, BTreeSet<String>>, key: &str, item: &str) {
    let Some(items) = index.get_mut(key) else { return };
    items.remove(item);
    if items.is_empty() {
        index.remove(key);
    }
}

fn claim_keys(pod: &Pod) -> impl Iterator<Item = String> {
    pod.claim_names().map(|claim| format!("{}/{claim}", pod.metadata.namespace))
}

impl Index {
    pub(super) fn observe_pod(&mut self, delta: &Delta<Arc<Pod>>) {
        self.pods.observe(delta);
        match delta {
            Delta::Added(pod) => self.insert_pod(pod),
            Delta::Updated { old, new } if old.node_name != new.node_name || old.metadata.uid != new.metadata.uid => {
                self.remove_pod(old);
                self.insert_pod(new);
            }
            Delta::Updated { .. } => {}
            Delta::Deleted(pod) => self.remove_pod(pod),
        }
    }

    fn insert_pod(&mut self, pod: &Pod) {
        if pod.node_name.is_empty() {
            return;
        }
        for claim in claim_keys(pod) {
            self.by_claim.entry(claim).or_default().insert(pod.metadata.key());
        }
    }

    fn remove_pod(&mut self, pod: &Pod) {
        let key = pod.metadata.key();
        for claim in claim_keys(pod) {
            if let Some(pods) = self.by_claim.get_mut(&claim) {
                pods.remove(&key);
                if pods.is_empty() {
                    self.by_claim.remove(&claim);
                }
            }
        }
    }

    pub(super) fn observe_attachment(&mut self, delta: &Delta<Arc<VolumeAttachment>>) {
        let (gone, come) = match delta {
            Delta::Added(new) => (None, Some(new)),
            Delta::Updated { old, new } => (Some(old), Some(new)),
            Delta::Deleted(old) => (Some(old), None),
        };
        let volume = |attachment: &VolumeAttachment| attachment.spec.source.persistent_volume_name.clone();
        if let Some(old) = gone {
            remove(&mut self.by_node, &old.spec.node_name, &old.metadata.name);
            remove(&mut self.by_volume, &volume(old).unwrap_or_default(), &old.metadata.name);
        }
        if let Some(new) = come {
            insert(&mut self.by_node, &new.spec.node_name, new.metadata.name.clone());
            insert(&mut self.by_volume, &volume(new).unwrap_or_default(), new.metadata.name.clone());
        }
    }

    /// The pods with claims on a node.
    pub(super) fn pods_on(&self, node: &str, cache: &Cache) -> Vec<Arc<Pod>> {
        self.pods.on(node, cache)
    }

    /// The nodes of the pods that use a claim.
    pub(super) fn nodes_of_claim(&self, key: &str, cache: &Cache) -> BTreeSet<String> {
        let pods = cache.pods();
        let users = self.by_claim.get(key).into_iter().flatten();
        let found = users.filter_map(|key| {
            let (namespace, name) = split_key(key);
            pods.get(namespace, name)
        });
        found.map(|pod| pod.node_name.clone()).filter(|node| !node.is_empty()).collect()
    }

    /// The VolumeAttachments of a node.
    pub(super) fn attachments_on(&self, node: &str, cache: &Cache) -> Vec<Arc<VolumeAttachment>> {
        attachments(self.by_node.get(node), cache)
    }

    /// The VolumeAttachments of a PersistentVolume.
    pub(super) fn attachments_of(&self, volume: &str, cache: &Cache) -> Vec<Arc<VolumeAttachment>> {
        attachments(self.by_volume.get(volume), cache)
    }

    /// Every node that has a pod with a claim, or a VolumeAttachment.
    pub(super) fn nodes(&self) -> BTreeSet<String> {
        self.pods.nodes().chain(self.by_node.keys()).cloned().collect()
    }
}

fn attachments(names: Option<&BTreeSet<String>>, cache: &Cache) -> Vec<Arc<VolumeAttachment>> {
    let all = cache.volume_attachments();
    names.into_iter().flatten().filter_map(|name| all.get("", name)).collect()
}
