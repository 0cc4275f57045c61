//! The bindings of a pod's claims: assumed in Reserve, written and waited for in PreBind.

use std::sync::Arc;
use std::time::Duration;

use bayplan_model::api::{Api, PatchKind, Request, Resource, Verb, decode, encode};
use bayplan_model::meta::PartialObjectMetadata;
use bayplan_model::node::Node;
use bayplan_model::pod::Pod;
use bayplan_model::storage::{
    BOUND_BY_CONTROLLER_ANNOTATION, ClaimRef, CsiNode, PersistentVolume, PersistentVolumeClaim,
    SELECTED_NODE_ANNOTATION,
};
use serde_json::json;

use super::search::{NodeVolumes, is_reachable};
use crate::cluster::{AssumeError, Cluster, is_older};
use crate::framework::BindContext;

const VOLUMES: Resource = Resource::new("", "v1", "persistentvolumes");
const CLAIMS: Resource = Resource::new("", "v1", "persistentvolumeclaims");

/// What Reserve assumed for a pod.
#[derive(Default)]
pub(super) struct AssumedBindings {
    /// Claims, each with the volume that is bound to it.
    volumes: Vec<(Arc<PersistentVolumeClaim>, Arc<PersistentVolume>)>,
    /// Claims annotated with the node that a volume is to be provisioned for.
    claims: Vec<Arc<PersistentVolumeClaim>>,
}

/// The volume with its `claimRef` set, as PreBind writes it.
fn bound(volume: &Arc<PersistentVolume>, claim: &PersistentVolumeClaim) -> Arc<PersistentVolume> {
    let meta = &claim.metadata;
    let complete = |to: &ClaimRef| to.uid == meta.uid;
    if volume.is_reserved_for(claim) && volume.spec.claim_ref.as_ref().is_some_and(complete) {
        return volume.clone();
    }
    let mut bound = (**volume).clone();
    if !volume.is_reserved_for(claim) {
        bound.metadata.annotations.insert(BOUND_BY_CONTROLLER_ANNOTATION.into(), "yes".into());
    }
    bound.spec.claim_ref =
        Some(ClaimRef { namespace: meta.namespace.clone(), name: meta.name.clone(), uid: meta.uid.clone() });
    Arc::new(bound)
}

impl AssumedBindings {
    /// Assumes what was found, like upstream's `AssumePodVolumes`; on an error nothing is assumed.
    pub(super) fn assume(cluster: &mut Cluster, found: NodeVolumes, node: &str) -> Result<Self, AssumeError> {
        let mut bindings = AssumedBindings::default();
        let added = bindings.add(cluster, found, node);
        if added.is_err() {
            bindings.revert(cluster);
        }
        added.map(|()| bindings)
    }

    fn add(&mut self, cluster: &mut Cluster, found: NodeVolumes, node: &str) -> Result<(), AssumeError> {
        for (claim, volume) in found.matches {
            let volume = bound(&volume, &claim);
            cluster.assume_volume(volume.clone())?;
            self.volumes.push((claim, volume));
        }
        for claim in found.provisions {
            let mut selected = (*claim).clone();
            selected.metadata.annotations.insert(SELECTED_NODE_ANNOTATION.into(), node.into());
            let selected = Arc::new(selected);
            cluster.assume_claim(selected.clone())?;
            self.claims.push(selected);
        }
        Ok(())
    }

    /// Drops the assumptions (`RevertAssumedPodVolumes`). Objects that the API server has changed since keep their
    /// version.
    pub(super) fn revert(&self, cluster: &mut Cluster) {
        self.volumes.iter().for_each(|(_, volume)| cluster.restore_volume(volume));
        self.claims.iter().for_each(|claim| cluster.restore_claim(claim));
    }

    /// Writes the bindings and waits until all claims are bound (`BindPodVolumes`).
    pub(super) async fn bind(self: &Arc<Self>, cx: &BindContext<'_>, timeout: Duration) -> Result<(), String> {
        let written = self.write(cx.api).await?;
        let now = cx.timer.now();
        let deadline = now.saturating_add(timeout).unwrap_or(now);
        let wait =
            BindingWait { bindings: Arc::clone(self), written, pod: cx.pod.pod.clone(), node: cx.node.to_owned() };
        let bound = cx.waits.until(move |cluster, now| match wait.is_over(cluster) {
            Ok(false) if now >= deadline => Some(Err("context deadline exceeded".into())),
            Ok(false) => None,
            Ok(true) => Some(Ok(())),
            Err(reason) => Some(Err(reason)),
        });
        bound.await.map_err(|reason: String| format!("binding volumes: {reason}"))
    }

    /// Patches carry the version that was assumed, so that a change by another writer is a conflict.
    async fn write(&self, api: &dyn Api) -> Result<WrittenVersions, String> {
        let mut written = WrittenVersions::default();
        for (claim, volume) in &self.volumes {
            let patch = json!({
                "metadata": {
                    "resourceVersion": volume.metadata.resource_version,
                    "annotations": volume.metadata.annotations,
                },
                "spec": {"claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "namespace": claim.metadata.namespace,
                    "name": claim.metadata.name,
                    "uid": claim.metadata.uid,
                    "resourceVersion": claim.metadata.resource_version,
                }},
            });
            written.volumes.push(send(api, &VOLUMES, "", &volume.metadata.name, &patch).await?);
        }
        for claim in &self.claims {
            let meta = &claim.metadata;
            let patch = json!({
                "metadata": {"resourceVersion": meta.resource_version, "annotations": meta.annotations},
            });
            written.claims.push(send(api, &CLAIMS, &meta.namespace, &meta.name, &patch).await?);
        }
        Ok(written)
    }
}

/// The versions that PreBind wrote, in the order of [`AssumedBindings`]. What the informers show of an older version
/// says nothing yet.
#[derive(Default)]
struct WrittenVersions {
    volumes: Vec<String>,
    claims: Vec<String>,
}

/// What a pod waits for in PreBind: upstream's `checkBindings`.
struct BindingWait {
    bindings: Arc<AssumedBindings>,
    written: WrittenVersions,
    pod: Arc<Pod>,
    node: String,
}

impl BindingWait {
    fn is_over(&self, cluster: &Cluster) -> Result<bool, String> {
        let name = &self.node;
        let node = cluster.node(name).ok_or_else(|| format!("failed to get node {name:?}: node {name:?} not found"))?;
        let (node, csi_node) = (node.node(), cluster.objects.csi_nodes.get("", name).map(|node| &**node));
        let meta = &self.pod.metadata;
        let known = cluster.objects.pods.get(&meta.namespace, &meta.name);
        if known.is_none_or(|known| known.metadata.uid != meta.uid) {
            return Err(format!("pod does not exist any more: pod {:?} not found", meta.name));
        }
        for ((claim, volume), written) in self.bindings.volumes.iter().zip(&self.written.volumes) {
            if !is_bound(cluster, claim, volume, written, node, csi_node)? {
                return Ok(false);
            }
        }
        for (claim, written) in self.bindings.claims.iter().zip(&self.written.claims) {
            if !is_provisioned(cluster, claim, written, node, csi_node)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn is_bound(
    cluster: &Cluster,
    claim: &PersistentVolumeClaim,
    volume: &PersistentVolume,
    written: &str,
    node: &Node,
    csi_node: Option<&CsiNode>,
) -> Result<bool, String> {
    let name = &volume.metadata.name;
    let volume = cluster.objects.persistent_volumes.get("", name);
    let volume = volume.ok_or_else(|| format!("failed to check binding: persistentvolumes {name:?} not found"))?;
    let claim = latest(cluster, claim).map_err(|error| format!("failed to check binding: {error}"))?;
    if is_older(&volume.metadata.resource_version, written) {
        return Ok(false);
    }
    check_reachable(volume, node, csi_node)?;
    if volume.spec.claim_ref.as_ref().is_none_or(|to| to.uid.is_empty()) {
        return Err(format!("ClaimRef got reset for pv {name:?}"));
    }
    Ok(claim.is_fully_bound())
}

fn is_provisioned(
    cluster: &Cluster,
    claim: &PersistentVolumeClaim,
    written: &str,
    node: &Node,
    csi_node: Option<&CsiNode>,
) -> Result<bool, String> {
    let claim = latest(cluster, claim).map_err(|error| format!("failed to check provisioning pvc: {error}"))?;
    if is_older(&claim.metadata.resource_version, written) {
        return Ok(false);
    }
    let name = &claim.metadata.name;
    if claim.metadata.annotations.is_empty() {
        return Err(format!("selectedNode annotation reset for PVC {name:?}"));
    }
    if claim.metadata.annotations.get(SELECTED_NODE_ANNOTATION) != Some(&node.metadata.name) {
        // The provisioner could not make a volume there and gives the pod back to the scheduler.
        return Err(format!("provisioning failed for PVC {name:?}"));
    }
    if !claim.spec.volume_name.is_empty() {
        let volume = cluster.objects.persistent_volumes.get("", &claim.spec.volume_name);
        let Some(volume) = volume else { return Ok(false) };
        check_reachable(volume, node, csi_node)?;
    }
    Ok(claim.is_fully_bound())
}

fn check_reachable(volume: &PersistentVolume, node: &Node, csi_node: Option<&CsiNode>) -> Result<(), String> {
    if is_reachable(volume, node, csi_node) {
        return Ok(());
    }
    let (volume, node) = (&volume.metadata.name, &node.metadata.name);
    Err(format!("pv {volume:?} node affinity doesn't match node {node:?}: no matching NodeSelectorTerms"))
}

/// The claim as the informer shows it, whatever is assumed of it.
fn latest<'a>(cluster: &'a Cluster, claim: &PersistentVolumeClaim) -> Result<&'a PersistentVolumeClaim, String> {
    let meta = &claim.metadata;
    let known = cluster.objects.persistent_volume_claims.get(&meta.namespace, &meta.name);
    known.map(|claim| &**claim).ok_or_else(|| format!("persistentvolumeclaims {:?} not found", meta.key()))
}

/// Sends a patch; the answer is the version that it made.
async fn send(
    api: &dyn Api,
    resource: &Resource,
    namespace: &str,
    name: &str,
    patch: &serde_json::Value,
) -> Result<String, String> {
    let verb = Verb::Patch(PatchKind::Merge, encode(patch));
    let answer = api.call(Request::object(resource, namespace, name, verb)).await.map_err(|status| status.message)?;
    let made: PartialObjectMetadata = decode(&answer).map_err(|status| status.message)?;
    Ok(made.metadata.resource_version)
}
