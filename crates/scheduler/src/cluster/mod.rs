//! The cluster state: nodes with their pods, assumed pods included, and the objects that plugins look up.
//!
//! One task owns it and changes it in place. Cycles borrow it, so there is no snapshot as upstream has one.

mod affinity_class;
mod assumed_volumes;
mod device_claims;
pub(crate) mod devices;
mod edits;
mod headroom;
mod node_changes;
mod node_info;
mod node_tree;
mod objects;
mod pod_info;
mod pod_info_cache;
mod signature;
pub(crate) mod storage;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bayplan_model::decision_log::{ImageSize, Undone};
use bayplan_model::keyed::KeyedMap;
use bayplan_model::meta::Map;
use bayplan_model::node::Node;
use rustc_hash::{FxHashMap, FxHashSet};

pub(crate) use affinity_class::{AffinityClassId, AffinityClasses};
pub use assumed_volumes::AssumeError;
pub use device_claims::ClaimKey;
pub(crate) use device_claims::{DEVICE_CLASS_PREFIX, EXTENDED_RESOURCE_CLAIM_ANNOTATION};
pub use edits::TakenPod;
pub use headroom::{Headroom, ResourceHeadroom};
pub(crate) use headroom::{balance_of_two, requested_fraction};
pub(crate) use node_changes::{ChangeLog, NodeChange, NodeChanges};
pub use node_info::{HostPorts, NodeId, NodeInfo};
use node_tree::NodeTree;
pub(crate) use objects::is_older;
pub use objects::{Object, Objects, Table};
pub use pod_info::{AffinityTerm, PodInfo};
pub(crate) use pod_info_cache::PodInfoCache;
use signature::SignatureHash;

/// Why a pod cannot be assumed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// The pod is on a node already.
    #[error("pod {uid}({key}) is in the cache, so can't be assumed")]
    AlreadyKnown {
        /// The pod's UID.
        uid: String,
        /// The pod's `namespace/name`.
        key: String,
    },
}

/// A pod on a node.
#[derive(Clone, Debug)]
struct PlacedPod {
    info: Arc<PodInfo>,
    node: NodeId,
    /// The pod's index among the node's pods, of which there may be too many to search.
    at: u32,
    affinity_class: AffinityClassId,
    assumed: bool,
}

/// Size and spread of an image. The size is that of the first node that reported it, as upstream has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// The image's size.
    pub size_bytes: i64,
    /// The number of nodes that have the image.
    pub nodes: usize,
}

/// The cluster state of the scheduler.
#[derive(Clone, Default)]
pub struct Cluster {
    slots: Vec<Option<NodeInfo>>,
    /// The headroom of each node, by slot. Apart from the nodes, so that a scan over many nodes touches little memory.
    headrooms: Vec<Headroom>,
    free: Vec<NodeId>,
    by_name: KeyedMap<Arc<str>, NodeId>,
    tree: NodeTree,
    node_count: usize,
    /// Computed from the tree on first use after nodes were added or removed.
    order: OnceLock<Vec<NodeId>>,
    affinity_classes: AffinityClasses,
    /// The nodes with pods that have affinity of any kind; next, those with pods that have required anti-affinity.
    with_affinity: FxHashSet<NodeId>,
    with_required_anti_affinity: FxHashSet<NodeId>,
    changes: NodeChanges,
    /// By UID, which the API server draws: no client can choose it.
    placed: FxHashMap<String, PlacedPod>,
    images: KeyedMap<String, Image>,
    /// Nodes have disagreed about the size of an image.
    image_sizes_differ: bool,
    /// The objects that plugins look up.
    pub objects: Objects,
    /// UIDs of pods whose victims are being evicted.
    pub preempting: FxHashSet<String>,
    /// Assumed volumes and allocations that were taken back, for a record of it.
    released: Undone,
}

impl Cluster {
    /// A cluster without objects.
    pub fn new() -> Self {
        Cluster::default()
    }

    /// All nodes, one of each zone in turn.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = &NodeInfo> + Clone {
        self.order().iter().map(|id| self.node_in_slot(*id))
    }

    /// The ids of all nodes, in the order of [`Cluster::nodes`].
    pub(crate) fn order(&self) -> &[NodeId] {
        self.order.get_or_init(|| self.tree.list())
    }

    /// A node by its id; none for a placeholder or an empty slot.
    pub(crate) fn node_by_id(&self, id: NodeId) -> Option<&NodeInfo> {
        self.slots.get(id.0 as usize)?.as_ref().filter(|node| !node.is_placeholder())
    }

    /// The headroom of the node in a slot; meaningless for an empty slot.
    pub(crate) fn headroom(&self, id: NodeId) -> &Headroom {
        &self.headrooms[id.0 as usize]
    }

    /// The number of slots: one more than the highest node id.
    pub(crate) fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// The nodes with pods that have affinity or anti-affinity of any kind, in no order.
    pub fn nodes_with_affinity(&self) -> impl Iterator<Item = &NodeInfo> {
        self.with_affinity.iter().filter_map(|id| self.node_by_id(*id))
    }

    /// The nodes with pods that have required anti-affinity, in no order.
    pub fn nodes_with_required_anti_affinity(&self) -> impl Iterator<Item = &NodeInfo> {
        self.with_required_anti_affinity.iter().filter_map(|id| self.node_by_id(*id))
    }

    /// The log of recent changes of nodes and of the pods on them.
    pub(crate) fn changes(&self) -> &NodeChanges {
        &self.changes
    }

    /// The affinity classes of the placed pods.
    pub(crate) fn affinity_classes(&self) -> &AffinityClasses {
        &self.affinity_classes
    }

    /// The node at an index in the order of [`Cluster::nodes`].
    pub(crate) fn node_at(&self, index: usize) -> &NodeInfo {
        self.node_in_slot(self.order()[index])
    }

    /// The number of nodes.
    pub fn node_count(&self) -> usize {
        self.node_count
    }

    /// A node by name; none for a placeholder.
    pub fn node(&self, name: &str) -> Option<&NodeInfo> {
        self.by_name.get(name).map(|id| self.node_in_slot(*id)).filter(|node| !node.is_placeholder())
    }

    /// Size and spread of an image.
    pub fn image(&self, name: &str) -> Option<Image> {
        self.images.get(name).copied()
    }

    /// The labels of a namespace; none for an unknown one.
    pub fn namespace_labels(&self, namespace: &str) -> Map {
        self.objects.namespaces.get("", namespace).map(|n| n.metadata.labels.clone()).unwrap_or_default()
    }

    /// The pod of this UID, if it is on a node.
    pub fn placed(&self, uid: &str) -> Option<&Arc<PodInfo>> {
        self.placed.get(uid).map(|p| &p.info)
    }

    /// True for an assumed pod: on a node, and not confirmed by the API server.
    pub fn is_assumed(&self, uid: &str) -> bool {
        self.placed.get(uid).is_some_and(|p| p.assumed)
    }

    /// The number of pods on nodes, assumed ones included.
    pub fn placed_count(&self) -> usize {
        self.placed.len()
    }

    /// Visits every object, in the versions that decisions see: pods, volumes and claims as they are assumed to be.
    pub fn each_seen(&self, visit: &mut dyn FnMut(Object)) {
        self.nodes().filter_map(|node| node.node_object()).for_each(|node| visit(Object::Node(node.clone())));
        let nodes: FxHashMap<&str, &str> = self.assumed().into_iter().map(|(pod, node)| (pod.uid(), node)).collect();
        self.objects.each(&mut |object| {
            visit(match object {
                Object::Pod(pod) => match nodes.get(pod.metadata.uid.as_str()) {
                    Some(node) => Object::Pod(PodInfo::new(pod).pod_on(node)),
                    None => Object::Pod(pod),
                },
                Object::PersistentVolume(stored) => {
                    let seen = self.persistent_volume(&stored.metadata.name);
                    Object::PersistentVolume(seen.unwrap_or(&stored).clone())
                }
                Object::PersistentVolumeClaim(stored) => {
                    let seen = self.persistent_volume_claim(&stored.metadata.namespace, &stored.metadata.name);
                    Object::PersistentVolumeClaim(seen.unwrap_or(&stored).clone())
                }
                other => other,
            });
        });
        // After the stored versions: the last one counts.
        self.claims_in_flight().for_each(|claim| visit(Object::ResourceClaim(Arc::new(claim))));
    }

    /// Visits the pods on each node in the node's order, with the node's name, and whether they are assumed.
    pub(crate) fn each_placed(&self, visit: &mut dyn FnMut(&Arc<PodInfo>, &str, bool)) {
        for node in self.slots.iter().flatten() {
            node.pods().iter().for_each(|pod| visit(pod, &node.name, self.is_assumed(pod.uid())));
        }
    }

    /// The assumed pods and their nodes, by UID.
    pub(crate) fn assumed(&self) -> Vec<(&Arc<PodInfo>, &str)> {
        let assumed = self.placed.values().filter(|pod| pod.assumed);
        let mut pods: Vec<_> = assumed.map(|pod| (&pod.info, &*self.node_in_slot(pod.node).name)).collect();
        pods.sort_by_key(|(pod, _)| pod.uid());
        pods
    }

    /// The number of assumed pods.
    pub fn assumed_count(&self) -> usize {
        self.placed.values().filter(|pod| pod.assumed).count()
    }

    /// The node or placeholder in an occupied slot.
    pub(crate) fn node_in_slot(&self, id: NodeId) -> &NodeInfo {
        self.slots[id.0 as usize].as_ref().expect("names, order and pods refer to occupied slots only")
    }

    fn node_in_slot_mut(&mut self, id: NodeId) -> &mut NodeInfo {
        self.slots[id.0 as usize].as_mut().expect("names, order and pods refer to occupied slots only")
    }

    /// Stores a node and returns its former version.
    pub fn set_node(&mut self, node: Arc<Node>) -> Option<Arc<Node>> {
        let id = self.claim_slot(&node.metadata.name);
        let old = self.node_in_slot(id).node_object().cloned();
        self.count_images(old.as_deref(), Some(&node));
        let zone = node.zone_key();
        // Most updates of nodes are heartbeats, which change nothing that plugins read.
        let unchanged = old.as_ref().is_some_and(|old| {
            let (a, b) = (&old.metadata, &node.metadata);
            a.labels == b.labels && a.annotations == b.annotations && old.spec == node.spec && old.status == node.status
        });
        if unchanged {
            self.node_in_slot_mut(id).replace_node(node);
            return old;
        }
        self.node_in_slot_mut(id).set_node(Some(node));
        self.record_change(NodeChange::Object(id));
        match old.as_ref().map(|n| n.zone_key()) {
            None => {
                self.tree.add(&zone, id);
                self.node_count += 1;
                self.order = OnceLock::new();
            }
            // The order changes only when nodes are added or removed; upstream keeps it on a change of zone.
            Some(former) if former != zone => {
                self.tree.remove(&former, id);
                self.tree.add(&zone, id);
            }
            Some(_) => {}
        }
        old
    }

    /// Removes a node and returns its last version. Its pods stay on a placeholder until they are gone, too.
    pub fn remove_node(&mut self, name: &str) -> Option<Arc<Node>> {
        let id = *self.by_name.get(name)?;
        let node = self.node_in_slot(id).node_object().cloned()?;
        self.count_images(Some(&node), None);
        self.node_in_slot_mut(id).set_node(None);
        self.tree.remove(&node.zone_key(), id);
        self.node_count -= 1;
        self.order = OnceLock::new();
        self.record_change(NodeChange::Object(id));
        self.release_slot(id);
        Some(node)
    }

    fn claim_slot(&mut self, name: &str) -> NodeId {
        if let Some(id) = self.by_name.get(name) {
            return *id;
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.headrooms.push(Headroom::default());
            NodeId(u32::try_from(self.slots.len() - 1).expect("a cluster has fewer than 2^32 nodes"))
        });
        let name: Arc<str> = name.into();
        self.slots[id.0 as usize] = Some(NodeInfo::placeholder(id, name.clone()));
        self.by_name.insert(name, id);
        id
    }

    /// Frees the slot if it holds a placeholder without pods.
    fn release_slot(&mut self, id: NodeId) {
        let info = self.node_in_slot(id);
        if info.is_placeholder() && info.pods().is_empty() {
            let name = info.name.clone();
            self.by_name.remove(&name);
            self.slots[id.0 as usize] = None;
            self.free.push(id);
        }
    }

    fn count_images(&mut self, old: Option<&Node>, new: Option<&Node>) {
        if let (Some(old), Some(new)) = (old, new)
            && old.status.images == new.status.images
        {
            return;
        }
        let names = |node: Option<&Node>| -> KeyedMap<String, i64> {
            let images = node.into_iter().flat_map(|n| &n.status.images);
            images.flat_map(|i| i.names.iter().map(|name| (name.clone(), i.size_bytes))).collect()
        };
        let (before, after) = (names(old), names(new));
        for (name, size) in &after {
            if !before.contains_key(name) {
                let image = self.images.entry(name.clone()).or_insert(Image { size_bytes: *size, nodes: 0 });
                image.nodes += 1;
                self.image_sizes_differ |= image.size_bytes != *size;
            }
        }
        for name in before.keys().filter(|name| !after.contains_key(*name)) {
            if let Some(image) = self.images.get_mut(name) {
                image.nodes -= 1;
                if image.nodes == 0 {
                    self.images.remove(name);
                }
            }
        }
    }

    /// The sizes that images would not count with if their nodes had come in today's order.
    pub(crate) fn disputed_image_sizes(&self) -> Vec<ImageSize> {
        if !self.image_sizes_differ {
            return Vec::new();
        }
        let mut first: BTreeMap<&str, i64> = BTreeMap::new();
        for image in self.nodes().filter_map(|node| node.node_object()).flat_map(|node| &node.status.images) {
            for name in &image.names {
                first.entry(name).or_insert(image.size_bytes);
            }
        }
        let disputed = self.images.iter().filter(|(name, image)| first.get(name.as_str()) != Some(&image.size_bytes));
        disputed.map(|(name, image)| ImageSize { name: name.clone(), size_bytes: image.size_bytes }).collect()
    }

    /// Has an image that a node reports count with a size.
    pub(crate) fn set_image_size(&mut self, name: &str, size_bytes: i64) {
        if let Some(image) = self.images.get_mut(name) {
            image.size_bytes = size_bytes;
            self.image_sizes_differ = true;
        }
    }

    /// Stores an object of any kind; terminal pods are left out.
    pub fn store(&mut self, object: Object) {
        match object {
            Object::Node(node) => drop(self.set_node(node)),
            Object::Pod(pod) if pod.is_terminal() => {}
            other => {
                if let Object::Pod(pod) = &other
                    && pod.is_assigned()
                {
                    self.set_pod(Arc::new(PodInfo::new(pod.clone())));
                }
                self.objects.store(&other);
            }
        }
    }

    /// Puts a pod on a node before the API server knows; upstream's `AssumePod`.
    pub fn assume(&mut self, pod: Arc<PodInfo>, node: &str) -> Result<(), Error> {
        if self.placed.contains_key(pod.uid()) {
            return Err(Error::AlreadyKnown { uid: pod.uid().to_owned(), key: pod.key() });
        }
        let node = self.claim_slot(node);
        self.add_pod(pod, node, true);
        Ok(())
    }

    /// Takes an assumed pod off its node; does nothing for other pods. Upstream's `ForgetPod`.
    pub fn forget(&mut self, uid: &str) {
        if self.is_assumed(uid) {
            self.remove_pod(uid);
        }
    }

    /// Stores a pod that the API server knows to be on a node: confirms an assumed one, moves or updates a known one.
    pub fn set_pod(&mut self, pod: Arc<PodInfo>) {
        let node = self.claim_slot(&pod.spec.node_name);
        if let Some(placed) = self.placed.get_mut(pod.uid())
            && placed.node == node
            && placed.info.same_on_node(&pod)
        {
            placed.assumed = false;
            placed.info = pod.clone();
            let at = placed.at as usize;
            self.node_in_slot_mut(node).replace_pod_at(at, pod);
            return;
        }
        self.remove_pod(pod.uid());
        // The slot may have been freed: a placeholder goes with its last pod.
        let node = self.claim_slot(&pod.spec.node_name);
        self.add_pod(pod, node, false);
    }

    fn add_pod(&mut self, info: Arc<PodInfo>, node: NodeId, assumed: bool) {
        let at = self.node_in_slot(node).pods().len() as u32;
        self.node_in_slot_mut(node).add_pod(info.clone());
        let affinity_class = self.affinity_classes.join(&info, node);
        self.update_affinity_lists(&info, node);
        self.record_change(NodeChange::Pod { node, affinity_class, by: 1 });
        self.placed.insert(info.uid().to_owned(), PlacedPod { info, node, at, affinity_class, assumed });
    }

    /// Takes a pod off its node.
    pub fn remove_pod(&mut self, uid: &str) {
        if let Some(PlacedPod { info, node, at, affinity_class, .. }) = self.placed.remove(uid) {
            let moved = self.node_in_slot_mut(node).remove_pod_at(at as usize).cloned();
            if let Some(placed) = moved.and_then(|moved| self.placed.get_mut(moved.uid())) {
                placed.at = at;
            }
            self.affinity_classes.leave(affinity_class, node);
            self.update_affinity_lists(&info, node);
            self.record_change(NodeChange::Pod { node, affinity_class, by: -1 });
            self.release_slot(node);
        }
    }

    /// Updates the lists of nodes with affinity after a pod was added or removed.
    fn update_affinity_lists(&mut self, pod: &PodInfo, id: NodeId) {
        if !pod.has_affinity() {
            return;
        }
        let node = self.node_in_slot(id);
        let (affinity, required) = (node.pods_with_affinity > 0, node.pods_with_required_anti_affinity > 0);
        let list = |nodes: &mut FxHashSet<NodeId>, has: bool| if has { nodes.insert(id) } else { nodes.remove(&id) };
        list(&mut self.with_affinity, affinity);
        list(&mut self.with_required_anti_affinity, required);
    }

    fn record_change(&mut self, change: NodeChange) {
        let node = change.node();
        self.headrooms[node.0 as usize] = Headroom::of(self.node_in_slot(node));
        self.changes.push(change, self.slots.len());
    }
}
