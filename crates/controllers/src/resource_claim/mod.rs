//! ResourceClaims: created from templates for the pods that need them, released when their pods are done, and deleted
//! with the pod they were created for.

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex};

use bayplan_model::api::{Api, DeleteOptions, PatchKind, Preconditions, Request, Verb, encode};
use bayplan_model::delta::Delta;
use bayplan_model::keyed::KeyedMap;
use bayplan_model::meta::{HasMeta, Map, ObjectMeta, PartialObjectMetadata};
use bayplan_model::pod::{PodResourceClaim, PodResourceClaimStatus};
use bayplan_model::resource_claim::{ConsumerReference, ResourceClaim};
use bayplan_model::status::Status;
use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cache::{AnyDelta, Cache, ControllerKey, Kind};
use crate::controller::{Context, Controller, Requeue, Wakeup, lock, split_key};
use crate::error::{Error, not_found};
use crate::node::patch_status;
use crate::pod::Pod;
use crate::requests::{self, PODS, RESOURCE_CLAIMS};
use crate::workload::{controller_reference, event_reference};

/// The annotation of a generated claim that names the entry of `spec.resourceClaims` it was made for.
const POD_CLAIM_NAME: &str = "resource.kubernetes.io/pod-claim-name";
/// The finalizer of a claim that is allocated.
const DELETE_PROTECTION: &str = "resource.kubernetes.io/delete-protection";
/// A claim can be reserved for this many consumers.
const RESERVED_FOR_MAX: usize = 256;
/// 63 characters, less a hyphen and five random ones.
const NAME_BASE_MAX: usize = 57;

/// A ResourceClaimTemplate.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ResourceClaimTemplate {
    pub metadata: ObjectMeta,
    pub spec: ClaimTemplate,
}

/// The template of a claim: `ResourceClaimTemplate.spec`, and the `volumeClaimTemplate` of an ephemeral volume.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ClaimTemplate {
    pub metadata: TemplateMeta,
    /// Copied as it is: what is not decoded cannot be lost in a write.
    pub spec: Value,
}

/// The labels and annotations of claims created from a template.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct TemplateMeta {
    pub labels: Map,
    pub annotations: Map,
}

impl HasMeta for ResourceClaimTemplate {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

/// The ResourceClaim controller.
pub struct ResourceClaimController {
    cache: Arc<Cache>,
    /// The claims that were created and that the cache does not have yet, by the pod and the name in its spec: a claim
    /// created twice would be allocated twice.
    made: Mutex<KeyedMap<(ControllerKey, String), String>>,
}

impl ResourceClaimController {
    /// A controller over this cache.
    pub fn new(cache: Arc<Cache>) -> Self {
        ResourceClaimController { cache, made: Mutex::default() }
    }

    async fn reconcile(&self, key: &str, context: Context<'_>) -> Result<Requeue, Error> {
        let (kind, rest) = split_key(key);
        let (namespace, name) = split_key(rest);
        match kind {
            "pod" => self.sync_pod(namespace, name, context).await?,
            "claim" => self.sync_claim(namespace, name, context).await?,
            _ => {}
        }
        Ok(Requeue::OnChange)
    }

    /// Creates the claims a pod is missing; reserves those it has when it was bound without a scheduler.
    async fn sync_pod(&self, namespace: &str, name: &str, context: Context<'_>) -> Result<(), Error> {
        let Some(pod) = self.cache.pods().get(namespace, name) else { return Ok(()) };
        if pod.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let mut made = Vec::new();
        let known = self.known_claims(&pod);
        for wanted in &pod.resource_claims {
            match self.claim_for(&pod, wanted, &known, context).await {
                Ok(claim) => made.extend(claim.map(|claim| json!({"name": wanted.name, "resourceClaimName": claim}))),
                Err(error) => {
                    let note = format!("PodResourceClaim {}: {error}", wanted.name);
                    let regarding = event_reference("v1", "Pod", &pod.metadata);
                    context.warning(regarding, "FailedResourceClaimCreation", note);
                    return Err(error);
                }
            }
        }
        if !made.is_empty() {
            let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"resourceClaimStatuses": made}});
            patch_status(context.api, &PODS, &pod.metadata, patch).await?;
        }
        if pod.node_name.is_empty() || pod.is_terminal() {
            return Ok(()); // The scheduler reserves before it binds.
        }
        for name in claim_names(&pod) {
            let claim = self.cache.resource_claims().get(&pod.metadata.namespace, &name);
            if let Some(claim) = claim {
                reserve(&claim, &pod, context).await?;
            }
        }
        Ok(())
    }

    /// What is known of a pod's claims, read once for all of them.
    fn known_claims<'a>(&self, pod: &'a Pod) -> KnownClaims<'a> {
        let claims = self.cache.resource_claims();
        let mut own = KeyedMap::default();
        for claim in claims.controlled_by(&ControllerKey::of("Pod", &pod.metadata)) {
            if let Some(name) = claim.metadata.annotations.get(POD_CLAIM_NAME) {
                own.entry(name.clone()).or_insert_with(|| claim.metadata.name.clone());
            }
        }
        KnownClaims { statuses: statuses(pod), own }
    }

    /// The name of the claim to write into the pod's status; creates the claim when it does not exist.
    async fn claim_for(
        &self,
        pod: &Pod,
        wanted: &PodResourceClaim,
        known: &KnownClaims<'_>,
        context: Context<'_>,
    ) -> Result<Option<String>, Error> {
        let Some(template) = &wanted.resource_claim_template_name else { return Ok(None) };
        let namespace = &pod.metadata.namespace;
        if let Some(status) = known.statuses.get(wanted.name.as_str()) {
            let Some(name) = &status.resource_claim_name else { return Ok(None) };
            let claim = self.cache.resource_claims().get(namespace, name);
            // A claim that was deleted, or has another owner now, is created again.
            if claim.is_some_and(|claim| is_for(&claim.metadata, pod)) {
                return Ok(None);
            }
        }
        if let Some(claim) = known.own.get(wanted.name.as_str()) {
            return Ok(Some(claim.clone()));
        }
        let entry = (ControllerKey::of("Pod", &pod.metadata), wanted.name.clone());
        if let Some(name) = lock(&self.made).get(&entry) {
            return Ok(Some(name.clone()));
        }
        let made = self.cache.resource_claim_templates().get(namespace, template);
        let made = made.ok_or_else(|| {
            let why = format!("resourceclaimtemplate.resource.k8s.io {template:?} not found");
            Error::Invalid(format!("resource claim template {template:?}: {why}"))
        })?;
        let claim = generated(pod, wanted, &made);
        let stored: PartialObjectMetadata = requests::create(context.api, &RESOURCE_CLAIMS, namespace, &claim).await?;
        lock(&self.made).insert(entry, stored.metadata.name.clone());
        Ok(Some(stored.metadata.name))
    }

    /// Releases a claim from consumers that are done, and deletes it when it was created for one of them.
    async fn sync_claim(&self, namespace: &str, name: &str, context: Context<'_>) -> Result<(), Error> {
        let Some(claim) = self.cache.resource_claims().get(namespace, name) else { return Ok(()) };
        let mut kept = Vec::new();
        for consumer in &claim.status.reserved_for {
            if self.still_uses(namespace, consumer, context.api).await? {
                kept.push(consumer);
            }
        }
        let protected = claim.metadata.finalizers.iter().any(|finalizer| finalizer == DELETE_PROTECTION);
        let mut version = claim.metadata.resource_version.clone();
        let mut allocated = claim.status.allocation.is_some();
        let unused = kept.is_empty();
        if kept.len() < claim.status.reserved_for.len() {
            let kept: Vec<Value> = kept.iter().map(|consumer| reference(consumer)).collect();
            let mut status = json!({"reservedFor": kept});
            if unused && protected {
                status["allocation"] = Value::Null;
                allocated = false;
            }
            version = write_status(&claim, &version, status, context.api).await?;
            if protected && !allocated {
                unprotect(&claim, &version, context.api).await?;
            }
        } else if protected && claim.metadata.deletion_timestamp.is_some() && unused {
            if allocated {
                version = write_status(&claim, &version, json!({"allocation": null}), context.api).await?;
            }
            unprotect(&claim, &version, context.api).await?;
        }
        if unused {
            self.remove_if_done(&claim, context.api).await?;
        }
        Ok(())
    }

    async fn still_uses(&self, namespace: &str, consumer: &ConsumerReference, api: &dyn Api) -> Result<bool, Error> {
        if !consumer.api_group.is_empty() || consumer.resource != "pods" {
            return Err(Error::Invalid(format!("unsupported ReservedFor entry: {consumer:?}")));
        }
        if let Some(pod) = self.cache.pods().get(namespace, &consumer.name) {
            return Ok(pod.metadata.uid == consumer.uid && !pod.is_done());
        }
        // A pod that the cache does not have yet may be in the scheduler's binding cycle.
        let live: Result<PartialObjectMetadata, Status> = requests::get(api, &PODS, namespace, &consumer.name).await;
        match live {
            Ok(pod) => Ok(pod.metadata.uid == consumer.uid),
            Err(status) if not_found(&status) => Ok(false),
            Err(status) => Err(status.into()),
        }
    }

    async fn remove_if_done(&self, claim: &ResourceClaim, api: &dyn Api) -> Result<(), Error> {
        let meta = &claim.metadata;
        let owner = meta.controller().filter(|owner| owner.api_version == "v1" && owner.kind == "Pod");
        let pod = owner.and_then(|owner| Some((owner, self.cache.pods().get(&meta.namespace, &owner.name)?)));
        // A pod that is not in the cache is left to the garbage collector.
        let done = pod.is_some_and(|(owner, pod)| pod.metadata.uid != owner.uid || pod.is_done());
        if !done || meta.deletion_timestamp.is_some() {
            return Ok(());
        }
        let preconditions = Some(Preconditions { uid: Some(meta.uid.clone()), resource_version: None });
        let options = DeleteOptions { preconditions, ..DeleteOptions::default() };
        match requests::delete(api, &RESOURCE_CLAIMS, meta, options).await {
            Err(status) if not_found(&status) => Ok(()),
            outcome => outcome.map_err(Error::from),
        }
    }

    /// The keys to reconcile when a pod changes: its claims when it is done, itself when it may lack some.
    fn pod_keys(&self, pod: &Pod, gone: bool) -> Vec<Wakeup> {
        if pod.resource_claims.is_empty() && pod.extended_resource_claim.is_none() {
            return Vec::new();
        }
        let namespace = &pod.metadata.namespace;
        let mut keys = Vec::new();
        if gone || pod.is_done() {
            let named = claim_names(pod).into_iter().chain(pod.extended_resource_claim.clone());
            let store = self.cache.resource_claims();
            let own =
                store.controlled_by(&ControllerKey::of("Pod", &pod.metadata)).map(|claim| claim.metadata.name.clone());
            keys.extend(named.chain(own).map(|name| Wakeup::now(format!("claim/{namespace}/{name}"))));
        }
        if !gone {
            keys.push(Wakeup::now(format!("pod/{}", pod.metadata.key())));
        }
        keys
    }
}

/// What is known of a pod's claims, by their names in its spec.
struct KnownClaims<'a> {
    statuses: KeyedMap<&'a str, &'a PodResourceClaimStatus>,
    /// The names of the claims that were created for it.
    own: KeyedMap<String, String>,
}

/// The statuses of a pod's claims by name; of two with one name, the first counts.
fn statuses(pod: &Pod) -> KeyedMap<&str, &PodResourceClaimStatus> {
    pod.resource_claim_statuses.iter().rev().map(|status| (status.name.as_str(), status)).collect()
}

fn is_for(claim: &ObjectMeta, pod: &Pod) -> bool {
    claim.controller().is_some_and(|owner| owner.uid == pod.metadata.uid)
}

/// The claims a pod uses, as far as they have names.
fn claim_names(pod: &Pod) -> Vec<String> {
    let statuses = statuses(pod);
    let name = |claim: &PodResourceClaim| match &claim.resource_claim_name {
        Some(name) => Some(name.clone()),
        None => statuses.get(claim.name.as_str())?.resource_claim_name.clone(),
    };
    pod.resource_claims.iter().filter_map(name).collect()
}

/// The claim created from a template for a pod.
fn generated(pod: &Pod, wanted: &PodResourceClaim, template: &ResourceClaimTemplate) -> Value {
    let mut annotations = template.spec.metadata.annotations.clone();
    annotations.insert(POD_CLAIM_NAME.into(), wanted.name.clone());
    let generate_name = generate_name(&pod.metadata.name, &wanted.name);
    let mut metadata = json!({
        "generateName": generate_name,
        "annotations": annotations,
        "ownerReferences": [controller_reference("v1", "Pod", &pod.metadata)],
    });
    if !template.spec.metadata.labels.is_empty() {
        metadata["labels"] = json!(template.spec.metadata.labels);
    }
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": template.spec.spec,
    })
}

/// Both names, each cut in proportion to its length when they are too long together.
fn generate_name(pod: &str, claim: &str) -> String {
    let whole = format!("{pod}-{claim}-");
    if whole.len() <= NAME_BASE_MAX {
        return whole;
    }
    let cut = |name: &str| name.chars().take(name.len() * NAME_BASE_MAX / whole.len()).collect::<String>();
    format!("{}-{}", cut(pod), cut(claim))
}

fn reference(consumer: &ConsumerReference) -> Value {
    let mut value = json!({"resource": consumer.resource, "name": consumer.name, "uid": consumer.uid});
    if !consumer.api_group.is_empty() {
        value["apiGroup"] = json!(consumer.api_group);
    }
    value
}

/// Reserves an allocated claim for a pod that did not come through the scheduler.
async fn reserve(claim: &ResourceClaim, pod: &Pod, context: Context<'_>) -> Result<(), Error> {
    let reserved = &claim.status.reserved_for;
    let owned = claim.metadata.controller().is_none_or(|owner| owner.uid == pod.metadata.uid);
    if claim.status.allocation.is_none()
        || reserved.iter().any(|consumer| consumer.uid == pod.metadata.uid)
        || reserved.len() >= RESERVED_FOR_MAX
        || !owned
    {
        return Ok(());
    }
    let mut consumers: Vec<Value> = reserved.iter().map(reference).collect();
    consumers.push(json!({"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid}));
    let status = json!({"reservedFor": consumers});
    write_status(claim, &claim.metadata.resource_version, status, context.api).await?;
    Ok(())
}

/// Updates a claim's status unless it changed meanwhile; returns the new version.
async fn write_status(claim: &ResourceClaim, version: &str, status: Value, api: &dyn Api) -> Result<String, Status> {
    let patch = json!({"metadata": {"resourceVersion": version, "uid": claim.metadata.uid}, "status": status});
    let verb = Verb::Patch(PatchKind::Merge, encode(&patch));
    let request = Request::object(&RESOURCE_CLAIMS, &claim.metadata.namespace, &claim.metadata.name, verb);
    let stored: PartialObjectMetadata = bayplan_model::api::decode(&api.call(request.subresource("status")).await?)?;
    Ok(stored.metadata.resource_version)
}

/// Removes the finalizer from a claim that is no longer allocated.
async fn unprotect(claim: &ResourceClaim, version: &str, api: &dyn Api) -> Result<(), Status> {
    let left: Vec<&String> = claim.metadata.finalizers.iter().filter(|name| *name != DELETE_PROTECTION).collect();
    let patch = json!({"metadata": {"resourceVersion": version, "finalizers": left}});
    requests::patch(api, &RESOURCE_CLAIMS, &claim.metadata, PatchKind::Merge, &patch).await.map(drop)
}

impl Controller for ResourceClaimController {
    fn name(&self) -> &'static str {
        "resourceclaim-controller"
    }

    fn component(&self) -> &'static str {
        "resource_claim"
    }

    fn watches(&self) -> &'static [Kind] {
        &[Kind::Pod, Kind::ResourceClaim, Kind::ResourceClaimTemplate]
    }

    fn workers(&self) -> usize {
        10
    }

    fn observe(&self, delta: &AnyDelta) -> Vec<Wakeup> {
        match delta {
            AnyDelta::Pod(Delta::Added(pod) | Delta::Updated { new: pod, .. }) => self.pod_keys(pod, false),
            AnyDelta::Pod(Delta::Deleted(pod)) => self.pod_keys(pod, true),
            AnyDelta::ResourceClaim(Delta::Added(claim) | Delta::Updated { new: claim, .. }) => {
                let entry = claim.metadata.controller().zip(claim.metadata.annotations.get(POD_CLAIM_NAME));
                if let Some((owner, name)) = entry {
                    let pod = ControllerKey::named_in(&claim.metadata.namespace, owner);
                    lock(&self.made).remove(&(pod, name.clone()));
                }
                vec![Wakeup::now(format!("claim/{}", claim.metadata.key()))]
            }
            AnyDelta::ResourceClaim(Delta::Deleted(claim)) => {
                // A pod whose generated claim was deleted gets another one.
                let owner = claim.metadata.controller().filter(|owner| owner.kind == "Pod");
                let key = |name: &str| Wakeup::now(format!("pod/{}/{name}", claim.metadata.namespace));
                owner.map(|owner| key(&owner.name)).into_iter().collect()
            }
            AnyDelta::ResourceClaimTemplate(Delta::Added(template)) => {
                let pods = self.cache.pods();
                let waits = |pod: &&Arc<Pod>| {
                    pod.resource_claims
                        .iter()
                        .any(|claim| claim.resource_claim_template_name.as_ref() == Some(&template.metadata.name))
                };
                let waiting = pods.namespace(&template.metadata.namespace).filter(waits);
                waiting.map(|pod| Wakeup::now(format!("pod/{}", pod.metadata.key()))).collect()
            }
            _ => Vec::new(),
        }
    }

    fn sync<'a>(&'a self, key: &'a str, context: Context<'a>) -> BoxFuture<'a, Result<Requeue, Error>> {
        Box::pin(self.reconcile(key, context))
    }
}
