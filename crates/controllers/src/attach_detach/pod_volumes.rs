//! The attachable volumes that the pods of a node use, for whoever stands in for its kubelet.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use super::index::Index;
use super::round::needed;
use crate::cache::{AnyDelta, Cache};
use crate::controller::lock;

/// Kept up to date from deltas of pods.
pub struct PodVolumes {
    cache: Arc<Cache>,
    index: Mutex<Index>,
}

impl PodVolumes {
    /// Nothing is known yet.
    pub fn new(cache: Arc<Cache>) -> Self {
        PodVolumes { cache, index: Mutex::default() }
    }

    /// Follows a change of a pod.
    pub fn observe(&self, delta: &AnyDelta) {
        if let AnyDelta::Pod(delta) = delta {
            lock(&self.index).observe_pod(delta);
        }
    }

    /// The names of the volumes, as in the status of the node.
    pub fn on(&self, node: &str) -> BTreeSet<String> {
        needed(node, &self.cache, &lock(&self.index)).into_keys().collect()
    }
}
