//! Which volumes a pod would use on a node, and for which claims one would be provisioned.

use std::sync::Arc;

use bayplan_model::affinity::NodeMatcher;
use bayplan_model::csi_migration::{InTreePlugin, MIGRATED_PLUGINS_ANNOTATION, migrated_affinity};
use bayplan_model::node::Node;
use bayplan_model::storage::{
    CsiNode, PersistentVolume, PersistentVolumeClaim, SELECTED_NODE_ANNOTATION, StorageClass,
};

use super::claims::{PodVolumeClaims, serves};
use crate::cluster::Cluster;
use crate::cluster::storage::IndexedVolume;
use crate::framework::{Code, Status};

/// The provisioner of classes whose volumes are created by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// The volumes for a pod on a node.
#[derive(Default)]
pub(super) struct NodeVolumes {
    /// Claims with the free volumes that match them.
    pub(super) matches: Vec<(Arc<PersistentVolumeClaim>, Arc<PersistentVolume>)>,
    /// PersistentVolumeClaims for which a volume has to be provisioned.
    pub(super) provisions: Vec<Arc<PersistentVolumeClaim>>,
    /// Why the node is rejected, in upstream's order.
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

impl NodeVolumes {
    /// The answer of Filter.
    pub(super) fn status(&self) -> Status {
        if self.conflicts.is_empty() {
            return Status::SUCCESS;
        }
        let reasons = self.conflicts.iter().map(|conflict| conflict.reason().into()).collect();
        Status { code: Code::UnschedulableAndUnresolvable, reasons, plugin: "" }
    }
}

/// Finds the volumes of a pod on a node, like upstream's `FindPodVolumes`.
pub(super) fn search(cluster: &Cluster, claims: &PodVolumeClaims, node: &Node) -> Result<NodeVolumes, String> {
    let mut found = NodeVolumes::default();
    found.conflicts.extend(check_bound(cluster, claims, node));
    found.conflicts.extend(find_unbound(cluster, claims, node, &mut found.matches, &mut found.provisions)?);
    found.conflicts.sort();
    Ok(found)
}

fn check_bound(cluster: &Cluster, claims: &PodVolumeClaims, node: &Node) -> Option<Conflict> {
    let csi_node = cluster.objects.csi_nodes.get("", &node.metadata.name).map(|n| &**n);
    for claim in &claims.bound {
        let Some(known) = cluster.objects.storage.volume(&claim.spec.volume_name) else {
            return Some(Conflict::VolumeGone);
        };
        let reachable = match is_migrated(&known.volume, csi_node) {
            true => is_reachable(&known.volume, node, csi_node),
            false => known.is_reachable_from(node),
        };
        if !reachable {
            return Some(Conflict::NodeAffinity);
        }
    }
    None
}

/// Whether a volume can be reached from a node, by its driver's labels where the driver serves an in-tree volume.
pub(super) fn is_reachable(volume: &PersistentVolume, node: &Node, csi_node: Option<&CsiNode>) -> bool {
    let required = match is_migrated(volume, csi_node) {
        true => migrated_affinity(volume),
        false => volume.spec.node_affinity.as_ref().and_then(|affinity| affinity.required.clone()),
    };
    required.is_none_or(|required| NodeMatcher::new(&required).matches_labels(&node.metadata.labels, ""))
}

/// Whether a driver on the node serves an in-tree volume.
fn is_migrated(volume: &PersistentVolume, csi_node: Option<&CsiNode>) -> bool {
    InTreePlugin::of_persistent(&volume.spec).is_some_and(|plugin| {
        let annotation = csi_node.and_then(|n| n.metadata.annotations.get(MIGRATED_PLUGINS_ANNOTATION));
        plugin.counted && annotation.is_some_and(|names| names.split(',').any(|name| name == plugin.name))
    })
}

fn find_unbound(
    cluster: &Cluster,
    claims: &PodVolumeClaims,
    node: &Node,
    matches: &mut Vec<(Arc<PersistentVolumeClaim>, Arc<PersistentVolume>)>,
    provisions: &mut Vec<Arc<PersistentVolumeClaim>>,
) -> Result<Option<Conflict>, String> {
    let selected = |claim: &PersistentVolumeClaim| claim.metadata.annotations.get(SELECTED_NODE_ANNOTATION).cloned();
    if claims.to_bind.iter().filter_map(|claim| selected(claim)).any(|selected| selected != node.metadata.name) {
        return Ok(Some(Conflict::NoVolume));
    }
    provisions.extend(claims.to_bind.iter().filter(|claim| selected(claim).is_some()).cloned());
    for claim in claims.to_bind.iter().filter(|claim| selected(claim).is_none()) {
        match find_volume(cluster, claim, node, matches) {
            Some(volume) => matches.push((claim.clone(), volume)),
            None => provisions.push(claim.clone()),
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
pub(super) fn find_volume(
    cluster: &Cluster,
    claim: &PersistentVolumeClaim,
    node: &Node,
    taken: &[(Arc<PersistentVolumeClaim>, Arc<PersistentVolume>)],
) -> Option<Arc<PersistentVolume>> {
    let storage = &cluster.objects.storage;
    let is_left = |known: &IndexedVolume| {
        taken.iter().all(|(_, volume)| volume.metadata.name != known.volume.metadata.name)
            && serves(claim, &known.volume)
    };
    let mut kept = storage.reserved_for(&claim.metadata.namespace, &claim.metadata.name);
    if let Some(kept) = kept.find(|known| known.volume.class() == claim.class() && is_left(known)) {
        return kept.is_reachable_from(node).then(|| kept.volume.clone());
    }
    let suits = |known: &IndexedVolume| is_left(known) && known.is_reachable_from(node);
    let labels = &node.metadata.labels;
    storage
        .smallest_available(claim.class(), claim.requested_storage(), labels, suits)
        .map(|known| known.volume.clone())
}

/// Why no volume can be provisioned for a claim on a node, if so.
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

/// Whether `allowedTopologies` of a class match a node. Empty terms match nothing; without any term all nodes match.
fn allows(class: &StorageClass, node: &Node) -> bool {
    let labels = &node.metadata.labels;
    class.allowed_topologies.is_empty()
        || class.allowed_topologies.iter().any(|term| {
            !term.match_label_expressions.is_empty()
                && term.match_label_expressions.iter().all(|e| labels.get(&e.key).is_some_and(|v| e.values.contains(v)))
        })
}

/// Whether the driver has capacity for the claim at the node; true when it does not publish capacity.
fn has_space(cluster: &Cluster, class: &StorageClass, claim: &PersistentVolumeClaim, node: &Node) -> bool {
    let Some(request) = claim.spec.resources.requests.get("storage") else { return true };
    let driver = cluster.objects.csi_drivers.get("", &class.provisioner);
    if !driver.is_some_and(|driver| super::publishes_capacity(driver)) {
        return true;
    }
    cluster.objects.storage.has_capacity(&class.metadata.name, request.value(), &node.metadata.labels)
}
