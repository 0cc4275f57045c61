//! Protects claims that pods use and volumes that claims use: each has a finalizer, which is removed when the object is
//! being deleted and no longer in use.
//!
//! The API server's admission adds the finalizers to new objects; this controller adds them to objects without one.

mod attributes_class;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bayplan_model::api::{Api, ListOptions, PatchKind, Request, Resource, Verb, decode};
use bayplan_model::delta::Delta;
use bayplan_model::meta::ObjectMeta;
use bayplan_model::storage::PersistentVolumeClaim;
use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::json;

use crate::cache::{AnyDelta, Cache, Kind};
use crate::controller::{Context, Controller, Requeue, Wakeup, split_key};
use crate::error::Error;
use crate::pod::Pod;
use crate::requests::{self, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS};
pub use attributes_class::AttributesClassProtectionController;

const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";

/// What to do with an object's finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FinalizerAction {
    /// It is missing.
    Add,
    /// The object is being deleted: it is removed as soon as nothing uses the object.
    Remove,
    Nothing,
}

fn finalizer_action(meta: &ObjectMeta, finalizer: &str) -> FinalizerAction {
    match (meta.deletion_timestamp.is_some(), meta.finalizers.iter().any(|known| known == finalizer)) {
        (true, true) => FinalizerAction::Remove,
        (false, false) => FinalizerAction::Add,
        _ => FinalizerAction::Nothing,
    }
}

/// Writes the finalizers unless the object changed meanwhile.
async fn write(
    api: &dyn Api,
    resource: &Resource,
    meta: &ObjectMeta,
    finalizer: &str,
    due: FinalizerAction,
) -> Result<Requeue, Error> {
    let mut finalizers: Vec<&str> = meta.finalizers.iter().map(String::as_str).filter(|f| *f != finalizer).collect();
    if due == FinalizerAction::Add {
        finalizers.push(finalizer);
    }
    let metadata = json!({"uid": meta.uid, "resourceVersion": meta.resource_version, "finalizers": finalizers});
    requests::patch(api, resource, meta, PatchKind::Merge, &json!({"metadata": metadata})).await?;
    Ok(Requeue::OnChange)
}

/// Protects claims that pods use.
pub struct ClaimProtectionController {
    cache: Arc<Cache>,
}

impl ClaimProtectionController {
    /// A controller over this cache.
    pub fn new(cache: Arc<Cache>) -> Self {
        ClaimProtectionController { cache }
    }

    async fn reconcile(&self, key: &str, context: Context<'_>) -> Result<Requeue, Error> {
        let (namespace, name) = split_key(key);
        let Some(claim) = self.cache.volume_claims().get(namespace, name) else { return Ok(Requeue::OnChange) };
        let due = finalizer_action(&claim.metadata, CLAIM_FINALIZER);
        if due == FinalizerAction::Nothing
            || (due == FinalizerAction::Remove && self.is_used(&claim, context.api).await?)
        {
            return Ok(Requeue::OnChange);
        }
        write(context.api, &PERSISTENT_VOLUME_CLAIMS, &claim.metadata, CLAIM_FINALIZER, due).await
    }

    /// A pod that is not in the cache yet may use the claim, so the API server is asked before the finalizer is
    /// removed.
    async fn is_used(&self, claim: &PersistentVolumeClaim, api: &dyn Api) -> Result<bool, Error> {
        let namespace = &claim.metadata.namespace;
        if self.cache.pods().namespace(namespace).any(|pod| uses(pod, claim)) {
            return Ok(true);
        }
        #[derive(Deserialize)]
        struct Pods {
            #[serde(default)]
            items: Vec<Pod>,
        }
        let list = Request::collection(&PODS, namespace, Verb::List(ListOptions::default()));
        let live: Pods = decode(&api.call(list).await?)?;
        Ok(live.items.iter().any(|pod| uses(pod, claim)))
    }
}

/// Whether a pod uses a claim. One that is not bound does not: no kubelet starts a pod whose claim is being deleted.
fn uses(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let meta = &claim.metadata;
    let owned = || meta.controller().is_some_and(|owner| owner.uid == pod.metadata.uid);
    let made = || pod.ephemeral_volumes.iter().any(|volume| volume.claim == meta.name) && owned();
    let named = || pod.volume_claims.iter().any(|volume| volume.claim == meta.name);
    !pod.node_name.is_empty() && (named() || (!is_over(pod) && made()))
}

/// Whether a pod has ended, or was deleted without grace. Its object may wait for its claim to be deleted, so the claim
/// does not wait for it.
fn is_over(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some() && pod.metadata.deletion_grace_period_seconds == Some(0)
}

fn claims_of(pod: &Pod) -> Vec<Wakeup> {
    pod.claim_names().map(|name| Wakeup::now(format!("{}/{name}", pod.metadata.namespace))).collect()
}

impl Controller for ClaimProtectionController {
    fn name(&self) -> &'static str {
        "persistentvolumeclaim-protection-controller"
    }

    fn watches(&self) -> &'static [Kind] {
        &[Kind::VolumeClaim, Kind::Pod]
    }

    fn workers(&self) -> usize {
        1
    }

    fn observe(&self, delta: &AnyDelta) -> Vec<Wakeup> {
        match delta {
            AnyDelta::VolumeClaim(Delta::Added(claim) | Delta::Updated { new: claim, .. })
                if finalizer_action(&claim.metadata, CLAIM_FINALIZER) != FinalizerAction::Nothing =>
            {
                vec![Wakeup::now(claim.metadata.key())]
            }
            // Only these changes can remove the last user of a claim.
            AnyDelta::Pod(Delta::Updated { old, new }) if old.metadata.uid != new.metadata.uid => claims_of(old),
            AnyDelta::Pod(Delta::Added(pod) | Delta::Updated { new: pod, .. }) if is_over(pod) => claims_of(pod),
            AnyDelta::Pod(Delta::Deleted(pod)) => claims_of(pod),
            _ => Vec::new(),
        }
    }

    fn sync<'a>(&'a self, key: &'a str, context: Context<'a>) -> BoxFuture<'a, Result<Requeue, Error>> {
        Box::pin(self.reconcile(key, context))
    }
}

/// Protects volumes that claims are bound to.
pub struct VolumeProtectionController {
    cache: Arc<Cache>,
}

impl VolumeProtectionController {
    /// A controller over this cache.
    pub fn new(cache: Arc<Cache>) -> Self {
        VolumeProtectionController { cache }
    }

    async fn reconcile(&self, name: &str, context: Context<'_>) -> Result<Requeue, Error> {
        let Some(volume) = self.cache.volumes().get("", name) else { return Ok(Requeue::OnChange) };
        let due = finalizer_action(&volume.metadata, VOLUME_FINALIZER);
        if due == FinalizerAction::Nothing || (due == FinalizerAction::Remove && volume.status.phase == "Bound") {
            return Ok(Requeue::OnChange);
        }
        write(context.api, &PERSISTENT_VOLUMES, &volume.metadata, VOLUME_FINALIZER, due).await
    }
}

impl Controller for VolumeProtectionController {
    fn name(&self) -> &'static str {
        "persistentvolume-protection-controller"
    }

    fn watches(&self) -> &'static [Kind] {
        &[Kind::Volume]
    }

    fn workers(&self) -> usize {
        1
    }

    fn observe(&self, delta: &AnyDelta) -> Vec<Wakeup> {
        match delta {
            AnyDelta::Volume(Delta::Added(volume) | Delta::Updated { new: volume, .. })
                if finalizer_action(&volume.metadata, VOLUME_FINALIZER) != FinalizerAction::Nothing =>
            {
                vec![Wakeup::now(volume.metadata.name.clone())]
            }
            _ => Vec::new(),
        }
    }

    fn sync<'a>(&'a self, key: &'a str, context: Context<'a>) -> BoxFuture<'a, Result<Requeue, Error>> {
        Box::pin(self.reconcile(key, context))
    }
}
