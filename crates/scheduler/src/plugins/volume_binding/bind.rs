//! The bindings of a pod's claims: assumed in Reserve, written and waited for in PreBind.

use std::sync::Arc;
use std::time::Duration;

use bayplan_model::api::{Api, PatchKind, Request, Resource, Verb, decode, encode};
use bayplan_model::node::Node;
use bayplan_model::pod::Pod;
use bayplan_model::storage::{
    BOUND_BY_CONTROLLER_ANNOTATION, ClaimRef, CsiNode, PersistentVolume, PersistentVolumeClaim,
    SELECTED_NODE_ANNOTATION,
};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::search::{NodeVolumes, is_reachable};
use crate::cluster::{AssumeError, Cluster};
use crate::framework::BindContext;

const VOLUMES: Resource = Resource::new("", "v1", "persistentvolumes");
const CLAIMS: Resource = Resource::new("", "v1", "persistentvolumeclaims");
const NODES: Resource = Resource::new("", "v1", "nodes");
const PODS: Resource = Resource::new("", "v1", "pods");
const CSI_NODES: Resource = Resource::new("storage.k8s.io", "v1", "csinodes");

/// How often PreBind looks whether the claims are bound.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

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
    pub(super) async fn bind(&self, cx: &BindContext<'_>, timeout: Duration) -> Result<(), String> {
        self.write(cx.api).await?;
        let mut waited = Duration::ZERO;
        loop {
            if waited + POLL_INTERVAL > timeout {
                return Err("context deadline exceeded".into());
            }
            cx.timer.sleep(POLL_INTERVAL).await;
            waited += POLL_INTERVAL;
            if self.are_bound(cx).await? {
                return Ok(());
            }
        }
    }

    /// Patches carry the version that was assumed, so that a change by another writer is a conflict.
    async fn write(&self, api: &dyn Api) -> Result<(), String> {
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
            send(api, &VOLUMES, "", &volume.metadata.name, &patch).await?;
        }
        for claim in &self.claims {
            let meta = &claim.metadata;
            let patch = json!({
                "metadata": {"resourceVersion": meta.resource_version, "annotations": meta.annotations},
            });
            send(api, &CLAIMS, &meta.namespace, &meta.name, &patch).await?;
        }
        Ok(())
    }

    async fn are_bound(&self, cx: &BindContext<'_>) -> Result<bool, String> {
        let api = cx.api;
        let node: Node = get(api, &NODES, "", cx.node).await.and_then(or_missing).map_err(|error| {
            let name = cx.node;
            format!("failed to get node {name:?}: {error}")
        })?;
        let csi_node: Option<CsiNode> = get(api, &CSI_NODES, "", cx.node).await.unwrap_or_default();
        let meta = &cx.pod.metadata;
        let pod: Result<Pod, String> = get(api, &PODS, &meta.namespace, &meta.name).await.and_then(or_missing);
        pod.map_err(|error| format!("pod does not exist any more: {error}"))?;
        for (claim, volume) in &self.volumes {
            if !is_bound(api, claim, volume, &node, csi_node.as_ref()).await? {
                return Ok(false);
            }
        }
        for claim in &self.claims {
            if !is_provisioned(api, claim, &node, csi_node.as_ref()).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

async fn is_bound(
    api: &dyn Api,
    claim: &PersistentVolumeClaim,
    volume: &PersistentVolume,
    node: &Node,
    csi_node: Option<&CsiNode>,
) -> Result<bool, String> {
    let name = &volume.metadata.name;
    let volume: PersistentVolume = get(api, &VOLUMES, "", name)
        .await
        .and_then(or_missing)
        .map_err(|error| format!("failed to check binding: {error}"))?;
    check_reachable(&volume, node, csi_node)?;
    if volume.spec.claim_ref.as_ref().is_none_or(|to| to.uid.is_empty()) {
        return Err(format!("ClaimRef got reset for pv {name:?}"));
    }
    Ok(latest(api, claim).await?.is_fully_bound())
}

async fn is_provisioned(
    api: &dyn Api,
    claim: &PersistentVolumeClaim,
    node: &Node,
    csi_node: Option<&CsiNode>,
) -> Result<bool, String> {
    let claim = latest(api, claim).await?;
    let name = &claim.metadata.name;
    if claim.metadata.annotations.is_empty() {
        return Err(format!("selectedNode annotation reset for PVC {name:?}"));
    }
    if claim.metadata.annotations.get(SELECTED_NODE_ANNOTATION) != Some(&node.metadata.name) {
        // The provisioner could not make a volume there and gives the pod back to the scheduler.
        return Err(format!("provisioning failed for PVC {name:?}"));
    }
    if !claim.spec.volume_name.is_empty() {
        let volume: Option<PersistentVolume> = get(api, &VOLUMES, "", &claim.spec.volume_name).await?;
        let Some(volume) = volume else { return Ok(false) };
        check_reachable(&volume, node, csi_node)?;
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

async fn latest(api: &dyn Api, claim: &PersistentVolumeClaim) -> Result<PersistentVolumeClaim, String> {
    let meta = &claim.metadata;
    let claim = get(api, &CLAIMS, &meta.namespace, &meta.name).await.and_then(or_missing);
    claim.map_err(|error| format!("failed to check pvc binding: {error}"))
}

async fn send(
    api: &dyn Api,
    resource: &Resource,
    namespace: &str,
    name: &str,
    patch: &serde_json::Value,
) -> Result<(), String> {
    let verb = Verb::Patch(PatchKind::Merge, encode(patch));
    match api.call(Request::object(resource, namespace, name, verb)).await {
        Ok(_) => Ok(()),
        Err(status) => Err(status.message),
    }
}

/// Reads an object; none when there is no such object.
async fn get<T: DeserializeOwned>(
    api: &dyn Api,
    resource: &Resource,
    namespace: &str,
    name: &str,
) -> Result<Option<T>, String> {
    match api.call(Request::object(resource, namespace, name, Verb::Get)).await {
        Ok(answer) => decode(&answer).map(Some).map_err(|status| status.message),
        Err(status) if status.code == 404 => Ok(None),
        Err(status) => Err(status.message),
    }
}

fn or_missing<T>(object: Option<T>) -> Result<T, String> {
    object.ok_or_else(|| "not found".into())
}
