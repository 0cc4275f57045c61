//! Claims stay while pods use them and volumes while claims do: each has a finalizer, which goes when it was deleted and
//! nobody uses it any more.
//!
//! The API server's admission gives new objects their finalizers; those that it did not get them here.

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
use crate::controller::{Context, Controller, Next, Wakeup, split_key};
use crate::error::Error;
use crate::pod::Pod;
use crate::requests::{self, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS};

const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";

/// Whether there is anything to do about an object's finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// It is not there yet.
    Add,
    /// The object was deleted: it goes as soon as nobody uses the object.
    Remove,
    /// Nothing.
    Nothing,
}

fn due(meta: &ObjectMeta, finalizer: &str) -> Due {
    match (meta.deletion_timestamp.is_some(), meta.finalizers.iter().any(|known| known == finalizer)) {
        (true, true) => Due::Remove,
        (false, false) => Due::Add,
        _ => Due::Nothing,
    }
}

/// Writes the finalizers unless the object has changed meanwhile.
async fn write(
    api: &dyn Api,
    resource: &Resource,
    meta: &ObjectMeta,
    finalizer: &str,
    due: Due,
) -> Result<Next, Error> {
    let mut finalizers: Vec<&str> = meta.finalizers.iter().map(String::as_str).filter(|f| *f != finalizer).collect();
    if due == Due::Add {
        finalizers.push(finalizer);
    }
    let metadata = json!({"uid": meta.uid, "resourceVersion": meta.resource_version, "finalizers": finalizers});
    requests::patch(api, resource, meta, PatchKind::Merge, &json!({"metadata": metadata})).await?;
    Ok(Next::Wait)
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

    async fn reconcile(&self, key: &str, context: Context<'_>) -> Result<Next, Error> {
        let (namespace, name) = split_key(key);
        let Some(claim) = self.cache.volume_claims().get(namespace, name) else { return Ok(Next::Wait) };
        let due = due(&claim.metadata, CLAIM_FINALIZER);
        if due == Due::Nothing || (due == Due::Remove && self.is_used(&claim, context.api).await?) {
            return Ok(Next::Wait);
        }
        write(context.api, &PERSISTENT_VOLUME_CLAIMS, &claim.metadata, CLAIM_FINALIZER, due).await
    }

    /// A pod that the cache has not heard of may use the claim already, so the API server has the last word.
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
    !pod.node_name.is_empty() && (pod.volume_claims.contains(&meta.name) || (!is_over(pod) && made()))
}

/// A pod that was deleted without grace is over. Its object may wait for its claim to go, so the claim does not wait for it.
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
                if due(&claim.metadata, CLAIM_FINALIZER) != Due::Nothing =>
            {
                vec![Wakeup::now(claim.metadata.key())]
            }
            // Nothing else takes a claim's last user away.
            AnyDelta::Pod(Delta::Updated { old, new }) if old.metadata.uid != new.metadata.uid => claims_of(old),
            AnyDelta::Pod(Delta::Added(pod) | Delta::Updated { new: pod, .. }) if is_over(pod) => claims_of(pod),
            AnyDelta::Pod(Delta::Deleted(pod)) => claims_of(pod),
            _ => Vec::new(),
        }
    }

    fn sync<'a>(&'a self, key: &'a str, context: Context<'a>) -> BoxFuture<'a, Result<Next, Error>> {
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

    async fn reconcile(&self, name: &str, context: Context<'_>) -> Result<Next, Error> {
        let Some(volume) = self.cache.volumes().get("", name) else { return Ok(Next::Wait) };
        let due = due(&volume.metadata, VOLUME_FINALIZER);
        if due == Due::Nothing || (due == Due::Remove && volume.status.phase == "Bound") {
            return Ok(Next::Wait);
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
                if due(&volume.metadata, VOLUME_FINALIZER) != Due::Nothing =>
            {
                vec![Wakeup::now(volume.metadata.name.clone())]
            }
            _ => Vec::new(),
        }
    }

    fn sync<'a>(&'a self, key: &'a str, context: Context<'a>) -> BoxFuture<'a, Result<Next, Error>> {
        Box::pin(self.reconcile(key, context))
    }
}
