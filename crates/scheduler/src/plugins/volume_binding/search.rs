//! Which volumes a pod would use on a node, and which would have to be made there.

use std::sync::Arc;

use bayplan_model::affinity::NodeMatcher;
use bayplan_model::csi_migration::{InTreePlugin, MIGRATED_PLUGINS_ANNOTATION, migrated_affinity};
use bayplan_model::label_selector::Selector;
use bayplan_model::node::Node;
use bayplan_model::storage::{
    CsiNode, CsiStorageCapacity, PersistentVolume, PersistentVolumeClaim, SELECTED_NODE_ANNOTATION, StorageClass,
};

use super::claims::{Claims, ToBind};
use crate::cluster::Cluster;
use crate::framework::{Code, Status};

/// A provisioner that makes no volumes.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// What was found for a pod on a node.
#[derive(Default)]
pub(super) struct Found {
    /// Free volumes for claims.
    pub(super) matches: Vec<(Arc<PersistentVolumeClaim>, Arc<PersistentVolume>)>,
    /// Claims that a provisioner must make volumes for.
    pub(super) provisions: Vec<Arc<PersistentVolumeClaim>>,
    /// Why the node does not do, in upstream's order.
    conflicts: Vec<Conflict>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Conflict {
    NodeAffinity,
    NoVolume,
    NoSpace,
    VolumeGone,
}

impl Conflict {
    fn reason(self) -> &'static str {
        match self {
            Conflict::NodeAffinity => "node(s) didn't match PersistentVolume's node affinity",
            Conflict::NoVolume => "node(s) didn't find available persistent volumes to bind",
            Conflict::NoSpace => "node(s) did not have enough free storage",
            Conflict::VolumeGone => "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
        }
    }
}

impl Found {
    /// The verdict on the node.
    pub(super) fn status(&self) -> Status {
        if self.conflicts.is_empty() {
            return Status::SUCCESS;
        }
        let reasons = self.conflicts.iter().map(|conflict| conflict.reason().into()).collect();
        Status { code: Code::UnschedulableAndUnresolvable, reasons, plugin: "" }
    }
}

/// Looks for the volumes of a pod on a node.
pub(super) fn search(cluster: &Cluster, claims: &Claims, node: &Node) -> Result<Found, String> {
    let mut found = Found::default();
    found.conflicts.extend(check_bound(cluster, claims, node));
    found.conflicts.extend(find_unbound(cluster, claims, node, &mut found.matches, &mut found.provisions)?);
    found.conflicts.sort();
    Ok(found)
}

fn check_bound(cluster: &Cluster, claims: &Claims, node: &Node) -> Option<Conflict> {
    let csi_node = cluster.objects.csi_nodes.get("", &node.metadata.name).map(|n| &**n);
    for claim in &claims.bound {
        let Some(volume) = cluster.persistent_volume(&claim.spec.volume_name) else {
            return Some(Conflict::VolumeGone);
        };
        if !is_reachable(volume, node, csi_node) {
            return Some(Conflict::NodeAffinity);
        }
    }
    None
}

/// Whether a volume can be reached from a node, by its driver's labels where the driver serves an in-tree volume.
pub(super) fn is_reachable(volume: &PersistentVolume, node: &Node, csi_node: Option<&CsiNode>) -> bool {
    let migrated = InTreePlugin::of_persistent(&volume.spec).is_some_and(|plugin| {
        let annotation = csi_node.and_then(|n| n.metadata.annotations.get(MIGRATED_PLUGINS_ANNOTATION));
        plugin.counted && annotation.is_some_and(|names| names.split(',').any(|name| name == plugin.name))
    });
    let required = match migrated {
        true => migrated_affinity(volume),
        false => volume.spec.node_affinity.as_ref().and_then(|affinity| affinity.required.clone()),
    };
    required.is_none_or(|required| NodeMatcher::new(&required).matches_labels(&node.metadata.labels, ""))
}

fn find_unbound(
    cluster: &Cluster,
    claims: &Claims,
    node: &Node,
    matches: &mut Vec<(Arc<PersistentVolumeClaim>, Arc<PersistentVolume>)>,
    provisions: &mut Vec<Arc<PersistentVolumeClaim>>,
) -> Result<Option<Conflict>, String> {
    let selected = |to_bind: &ToBind| to_bind.claim.metadata.annotations.get(SELECTED_NODE_ANNOTATION).cloned();
    if claims.to_bind.iter().filter_map(selected).any(|selected| selected != node.metadata.name) {
        return Ok(Some(Conflict::NoVolume));
    }
    provisions.extend(claims.to_bind.iter().filter(|c| selected(c).is_some()).map(|c| c.claim.clone()));
    for to_bind in claims.to_bind.iter().filter(|c| selected(c).is_none()) {
        match find_volume(to_bind, node, matches) {
            Some(volume) => matches.push((to_bind.claim.clone(), volume)),
            None => provisions.push(to_bind.claim.clone()),
        }
    }
    for claim in provisions.iter() {
        if let Some(conflict) = check_provision(cluster, claim, node)? {
            return Ok(Some(conflict));
        }
    }
    Ok(None)
}

/// The smallest free volume that serves; one that is reserved for the claim goes first and admits no other.
fn find_volume(
    to_bind: &ToBind,
    node: &Node,
    taken: &[(Arc<PersistentVolumeClaim>, Arc<PersistentVolume>)],
) -> Option<Arc<PersistentVolume>> {
    let free = to_bind
        .candidates
        .iter()
        .filter(|candidate| taken.iter().all(|(_, volume)| volume.metadata.name != candidate.volume.metadata.name));
    let mut best: Option<&Arc<PersistentVolume>> = None;
    for candidate in free {
        let reachable = candidate.is_reachable_from(node);
        if candidate.volume.is_reserved_for(&to_bind.claim) {
            return reachable.then(|| candidate.volume.clone());
        }
        if reachable && best.is_none_or(|best| candidate.volume.capacity() < best.capacity()) {
            best = Some(&candidate.volume);
        }
    }
    best.cloned()
}

/// What keeps a provisioner from making a volume for a claim near a node.
fn check_provision(cluster: &Cluster, claim: &PersistentVolumeClaim, node: &Node) -> Result<Option<Conflict>, String> {
    let key = claim.metadata.key();
    if claim.class().is_empty() {
        return Err(format!("no class for claim {key:?}"));
    }
    let class = cluster.objects.storage_classes.get("", claim.class());
    let class = class.ok_or_else(|| format!("failed to find storage class {:?}", claim.class()))?;
    if class.provisioner.is_empty() || class.provisioner == NO_PROVISIONER || !allows(class, node) {
        return Ok(Some(Conflict::NoVolume));
    }
    Ok((!has_space(cluster, class, claim, node)).then_some(Conflict::NoSpace))
}

/// Whether volumes of a class may be made for a node. Empty terms match nothing; without any term all nodes do.
fn allows(class: &StorageClass, node: &Node) -> bool {
    let labels = &node.metadata.labels;
    class.allowed_topologies.is_empty()
        || class.allowed_topologies.iter().any(|term| {
            !term.match_label_expressions.is_empty()
                && term.match_label_expressions.iter().all(|e| labels.get(&e.key).is_some_and(|v| e.values.contains(v)))
        })
}

/// Whether the driver has room for the claim near the node, if it says how much it has.
fn has_space(cluster: &Cluster, class: &StorageClass, claim: &PersistentVolumeClaim, node: &Node) -> bool {
    let Some(request) = claim.spec.resources.requests.get("storage") else { return true };
    let driver = cluster.objects.csi_drivers.get("", &class.provisioner);
    if !driver.is_some_and(|driver| super::publishes_capacity(driver)) {
        return true;
    }
    cluster.objects.csi_storage_capacities.iter().any(|capacity| {
        capacity.storage_class_name == class.metadata.name
            && largest_volume(capacity).is_some_and(|limit| limit >= request.value())
            && capacity.node_topology.is_some()
            && Selector::of(capacity.node_topology.as_ref()).is_ok_and(|s| s.matches(&node.metadata.labels))
    })
}

/// The largest volume that can be made out of this capacity, in bytes.
pub(super) fn largest_volume(capacity: &CsiStorageCapacity) -> Option<i64> {
    capacity.maximum_volume_size.as_ref().or(capacity.capacity.as_ref()).map(|size| size.value())
}
