//! Affinity classes: placed pods that other pods' affinity and spreading cannot tell apart.
//!
//! Pods of one template have one class, so what the engine computes for one of them holds for all.

use std::sync::Arc;

use bayplan_model::affinity::PodAffinity;
use bayplan_model::meta::Map;
use bayplan_model::pod::Pod;
use rustc_hash::FxHashMap;

use super::signature::hash;
use super::{NodeId, PodInfo};

/// What other pods' affinity and spreading read of a placed pod.
#[derive(PartialEq, Hash)]
struct AffinityKey<'a> {
    namespace: &'a str,
    labels: &'a Map,
    terminating: bool,
    affinity: Option<&'a PodAffinity>,
    anti_affinity: Option<&'a PodAffinity>,
}

impl<'a> AffinityKey<'a> {
    fn of(pod: &'a Pod) -> Self {
        let affinity = pod.spec.affinity.as_ref();
        AffinityKey {
            namespace: &pod.metadata.namespace,
            labels: &pod.metadata.labels,
            terminating: pod.is_terminating(),
            affinity: affinity.and_then(|a| a.pod_affinity.as_ref()),
            anti_affinity: affinity.and_then(|a| a.pod_anti_affinity.as_ref()),
        }
    }
}

/// A hash of a pod's affinity class; the same whether the pod is terminating or not.
pub(super) fn affinity_hash(pod: &Pod) -> u64 {
    hash(&AffinityKey { terminating: false, ..AffinityKey::of(pod) })
}

impl PodInfo {
    pub(super) fn same_affinity_class(&self, other: &PodInfo) -> bool {
        self.shares_template(other) && self.is_terminating() == other.is_terminating()
            || AffinityKey::of(&self.pod) == AffinityKey::of(&other.pod)
    }
}

/// An affinity class; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct AffinityClassId(u64);

impl AffinityClassId {
    /// The first id.
    pub(crate) const FIRST: AffinityClassId = AffinityClassId(0);
}

/// The affinity classes of all placed pods.
#[derive(Clone, Debug, Default)]
pub(crate) struct AffinityClasses {
    by_hash: FxHashMap<u64, Vec<AffinityClass>>,
    hash_of: FxHashMap<AffinityClassId, u64>,
    next: u64,
}

/// The pods of one affinity class.
#[derive(Clone, Debug)]
pub(crate) struct AffinityClass {
    /// The class's id.
    pub(crate) id: AffinityClassId,
    /// One of the pods.
    pub(crate) pod: Arc<PodInfo>,
    /// The number of pods on each node.
    pub(crate) nodes: FxHashMap<NodeId, u32>,
}

impl AffinityClasses {
    /// Adds a placed pod to its class.
    pub(super) fn join(&mut self, pod: &Arc<PodInfo>, node: NodeId) -> AffinityClassId {
        let key = pod.affinity_hash;
        let entries = self.by_hash.entry(key).or_default();
        let at = entries.iter().position(|entry| entry.pod.same_affinity_class(pod)).unwrap_or_else(|| {
            let id = AffinityClassId(self.next);
            self.next += 1;
            self.hash_of.insert(id, key);
            entries.push(AffinityClass { id, pod: pod.clone(), nodes: FxHashMap::default() });
            entries.len() - 1
        });
        *entries[at].nodes.entry(node).or_default() += 1;
        entries[at].id
    }

    /// Removes a pod of a class from a node.
    pub(super) fn leave(&mut self, id: AffinityClassId, node: NodeId) {
        let Some(&key) = self.hash_of.get(&id) else { return };
        let Some(entries) = self.by_hash.get_mut(&key) else { return };
        let Some(at) = entries.iter().position(|entry| entry.id == id) else { return };
        let nodes = &mut entries[at].nodes;
        if let Some(pods) = nodes.get_mut(&node) {
            *pods -= 1;
            if *pods == 0 {
                nodes.remove(&node);
            }
        }
        if nodes.is_empty() {
            entries.swap_remove(at);
            self.hash_of.remove(&id);
            if entries.is_empty() {
                self.by_hash.remove(&key);
            }
        }
    }

    /// The number of classes.
    pub(crate) fn len(&self) -> usize {
        self.hash_of.len()
    }

    /// All classes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &AffinityClass> {
        self.by_hash.values().flatten()
    }

    /// The id of the next new class.
    pub(crate) fn end(&self) -> AffinityClassId {
        AffinityClassId(self.next)
    }

    /// The classes with ids from one up to another.
    pub(crate) fn between(&self, from: AffinityClassId, end: AffinityClassId) -> impl Iterator<Item = &AffinityClass> {
        // Looks up the ids, or goes over all classes, whichever is shorter.
        let few = end.0 - from.0 < self.hash_of.len() as u64;
        let new = if few { from.0..end.0 } else { 0..0 };
        let all = self.iter().take(if few { 0 } else { usize::MAX });
        let all = all.filter(move |class| (from..end).contains(&class.id));
        new.filter_map(|id| self.get(AffinityClassId(id))).chain(all)
    }

    /// A class by id; none once its last pod is gone.
    pub(crate) fn get(&self, id: AffinityClassId) -> Option<&AffinityClass> {
        self.by_hash.get(self.hash_of.get(&id)?)?.iter().find(|entry| entry.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(json: serde_json::Value) -> Arc<PodInfo> {
        Arc::new(PodInfo::new(Arc::new(serde_json::from_value(json).unwrap())))
    }

    #[test]
    fn a_class_is_forgotten_with_its_last_pod_and_its_id_is_not_used_again() {
        let named = |name: &str| pod(json!({"metadata": {"name": name, "uid": name, "labels": {"app": "x"}}}));
        let (a, b) = (named("a"), named("b"));
        let mut affinity_classes = AffinityClasses::default();
        let id = affinity_classes.join(&a, NodeId(0));
        assert_eq!(affinity_classes.join(&b, NodeId(1)), id);
        affinity_classes.leave(id, NodeId(0));
        assert_eq!(affinity_classes.iter().count(), 1);
        affinity_classes.leave(id, NodeId(1));
        assert_eq!(affinity_classes.iter().count(), 0);
        assert_ne!(affinity_classes.join(&a, NodeId(0)), id);
    }
}
