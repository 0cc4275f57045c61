//! The pods bound to each node, kept up to date from the deltas a loop observes.

use std::sync::Arc;

use bayplan_model::delta::Delta;
use bayplan_model::keyed::{KeyedMap, KeyedSet};

use crate::cache::Cache;
use crate::controller::split_key;
use crate::pod::Pod;

/// The keys of the pods of each node.
#[derive(Debug, Default)]
pub(crate) struct PodsByNode {
    keys: KeyedMap<String, KeyedSet<String>>,
}

impl PodsByNode {
    /// Follows a change. A bound pod never moves: it leaves its node when it is deleted or replaced by another of its
    /// name.
    pub(crate) fn observe(&mut self, delta: &Delta<Arc<Pod>>) {
        match delta {
            Delta::Added(pod) => self.insert(pod),
            Delta::Updated { old, new } if old.node_name != new.node_name => {
                self.remove(old);
                self.insert(new);
            }
            Delta::Updated { .. } => {}
            Delta::Deleted(pod) => self.remove(pod),
        }
    }

    fn insert(&mut self, pod: &Pod) {
        if !pod.node_name.is_empty() {
            self.keys.entry(pod.node_name.clone()).or_default().insert(pod.metadata.key());
        }
    }

    fn remove(&mut self, pod: &Pod) {
        if let Some(keys) = self.keys.get_mut(&pod.node_name) {
            keys.remove(&pod.metadata.key());
            if keys.is_empty() {
                self.keys.remove(&pod.node_name);
            }
        }
    }

    /// The nodes with pods.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &String> {
        self.keys.keys()
    }

    /// The pods of a node in the cache, by key.
    pub(crate) fn on(&self, node: &str, cache: &Cache) -> Vec<Arc<Pod>> {
        let Some(keys) = self.keys.get(node) else { return Vec::new() };
        let pods = cache.pods();
        let mut found: Vec<Arc<Pod>> = keys
            .iter()
            .filter_map(|key| {
                let (namespace, name) = split_key(key);
                pods.get(namespace, name)
            })
            .filter(|pod| pod.node_name == node)
            .collect();
        found.sort_by_cached_key(|pod| pod.metadata.key());
        found
    }
}
