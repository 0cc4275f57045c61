//! One look at a node: which volumes its pods need, which are there, and in which state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::index::Index;
use super::object::VolumeAttachment;
use super::operations::Operations;
use super::volume::AttachableVolume;
use crate::cache::Cache;
use crate::node::Node;
use crate::pod::Pod;

/// The annotation by which a kubelet leaves attaching to this controller.
const MANAGED: &str = "volumes.kubernetes.io/controller-managed-attach-detach";

/// A volume that pods of the node need.
pub(super) struct Needed {
    pub(super) volume: AttachableVolume,
    pub(super) pods: Vec<Arc<Pod>>,
}

/// A volume that is on the node, or on its way there or away.
pub(super) struct Present {
    pub(super) volume: AttachableVolume,
    pub(super) link: Link,
    /// The UID of its VolumeAttachment; empty while the cache has none.
    pub(super) uid: String,
}

/// How a volume is connected with a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// An external attacher says that it is attached.
    Attached,
    /// It was asked for, and is not attached yet; maybe an external attacher says why.
    Requested(Option<String>),
    /// Only the status of the node tells of it.
    Reported,
    /// It is being detached.
    Leaving,
}

/// What is known of a node.
pub(super) struct Round {
    pub(super) name: String,
    pub(super) node: Option<Arc<Node>>,
    pub(super) needed: BTreeMap<String, Needed>,
    pub(super) present: BTreeMap<String, Present>,
    /// The names of the volumes that the status of the node lists as attached.
    reported: BTreeSet<String>,
    /// The names of the volumes that its kubelet says that it uses.
    in_use: BTreeSet<String>,
}

impl Present {
    fn new(volume: AttachableVolume, link: Link, uid: &str) -> Self {
        Present { volume, link, uid: uid.to_owned() }
    }
}

impl Round {
    /// Looks at a node.
    pub(super) fn look(name: &str, cache: &Cache, index: &Index, operations: &mut Operations) -> Round {
        let node = cache.nodes().get("", name);
        let needed = match &node {
            // Without the Node nothing is attached, but what its pods need stays until they are gone.
            Some(node) if !node.metadata.annotations.contains_key(MANAGED) => BTreeMap::new(),
            _ => needed(name, cache, index),
        };
        let status = node.as_ref().map(|node| &node.status);
        let reported = status.iter().flat_map(|status| &status.volumes_attached).map(|one| one.name.clone()).collect();
        let in_use = status.iter().flat_map(|status| &status.volumes_in_use).cloned().collect();
        let mut round = Round { name: name.to_owned(), needed, present: BTreeMap::new(), reported, in_use, node };
        round.find_present(cache, index, operations);
        round.add_operations(operations);
        round
    }

    /// Whether the status of the node lists a volume as attached.
    pub(super) fn is_reported(&self, unique: &str) -> bool {
        self.reported.contains(unique)
    }

    fn find_present(&mut self, cache: &Cache, index: &Index, operations: &Operations) {
        let mut present = BTreeMap::new();
        for (unique, volume) in self.reported.iter().filter_map(|name| Some((name, AttachableVolume::named(name)?))) {
            present.insert(unique.clone(), Present::new(volume, Link::Reported, ""));
        }
        // A PersistentVolume may go before its VolumeAttachment does.
        let remembered =
            present.keys().chain(operations.on(&self.name)).filter_map(|name| AttachableVolume::named(name));
        let remembered: BTreeMap<String, AttachableVolume> =
            remembered.map(|volume| (volume.attachment_name(&self.name), volume)).collect();
        for attachment in index.attachments_on(&self.name, cache) {
            let volume = attachment.spec.source.persistent_volume_name.as_deref();
            let volume = volume.and_then(|name| cache.volumes().get("", name));
            let volume = volume.and_then(|volume| AttachableVolume::of(&volume));
            let known = volume.filter(|volume| volume.attachment_name(&self.name) == attachment.metadata.name);
            // One that nobody can tell the volume of is not ours.
            if let Some(volume) = known.or_else(|| remembered.get(&attachment.metadata.name).cloned()) {
                let link = Link::of(&attachment);
                present.insert(volume.unique_name(), Present::new(volume, link, &attachment.metadata.uid));
            }
        }
        self.present = present;
    }

    /// What this process did and the cache does not show yet.
    fn add_operations(&mut self, operations: &mut Operations) {
        let known: Vec<String> = operations.on(&self.name).cloned().collect();
        for unique in known {
            let operation = operations.of(&unique, &self.name);
            let present = self.present.get_mut(&unique).filter(|present| present.link != Link::Reported);
            match (present, &operation.deleted) {
                (Some(present), Some(deleted)) if present.uid == *deleted => present.link = Link::Leaving,
                (Some(_), _) => {
                    operation.is_created = false;
                    operation.deleted = None;
                }
                (None, Some(_)) => {
                    operation.deleted = None;
                    operation.is_created = false;
                    operation.success_told = false;
                }
                (None, None) if operation.is_created => {
                    let volume = self.needed.get(&unique).map(|needed| needed.volume.clone());
                    if let Some(volume) = volume.or_else(|| AttachableVolume::named(&unique)) {
                        self.present.insert(unique, Present::new(volume, Link::Requested(None), ""));
                    }
                }
                (None, None) => {}
            }
        }
    }

    /// Whether the kubelet says that it uses a volume. One that is gone says nothing, so the volume may be mounted.
    pub(super) fn is_in_use(&self, unique: &str) -> bool {
        self.node.is_none() || self.in_use.contains(unique)
    }
}

impl Link {
    /// What a VolumeAttachment says.
    pub(super) fn of(attachment: &VolumeAttachment) -> Link {
        let status = &attachment.status;
        match (attachment.metadata.deletion_timestamp, status.attached) {
            (Some(_), _) => Link::Leaving,
            (None, true) => Link::Attached,
            (None, false) => Link::Requested(status.attach_error.as_ref().map(|error| error.message.clone())),
        }
    }
}

/// The volumes that the pods of a node need, as far as they are bound and their driver attaches them.
pub(super) fn needed(node: &str, cache: &Cache, index: &Index) -> BTreeMap<String, Needed> {
    let mut needed: BTreeMap<String, Needed> = BTreeMap::new();
    for pod in index.pods_on(node, cache).into_iter().filter(|pod| !pod.is_stopped) {
        for volume in pod.claim_names().filter_map(|claim| bound_volume(&pod, claim, cache)) {
            let one = needed.entry(volume.unique_name()).or_insert_with(|| Needed { volume, pods: Vec::new() });
            // A pod may name a claim twice.
            if one.pods.last().is_none_or(|known| known.metadata.uid != pod.metadata.uid) {
                one.pods.push(Arc::clone(&pod));
            }
        }
    }
    needed
}

/// The volume behind a claim of a pod, if both know of each other and it has to be attached.
fn bound_volume(pod: &Pod, claim: &str, cache: &Cache) -> Option<AttachableVolume> {
    let made = pod.ephemeral_volumes.iter().any(|volume| volume.claim == claim);
    let claim = cache.volume_claims().get(&pod.metadata.namespace, claim)?;
    let is_for_pod = || claim.metadata.controller().is_some_and(|owner| owner.uid == pod.metadata.uid);
    if claim.status.phase != "Bound" || (made && !is_for_pod()) {
        return None;
    }
    let volume = cache.volumes().get("", &claim.spec.volume_name)?;
    if volume.spec.claim_ref.as_ref().is_none_or(|bound| bound.uid != claim.metadata.uid) {
        return None;
    }
    let volume = AttachableVolume::of(&volume)?;
    let driver = cache.csi_drivers().get("", &volume.driver);
    let skips = driver.is_some_and(|driver| driver.spec.attach_required == Some(false));
    (!skips).then_some(volume)
}
