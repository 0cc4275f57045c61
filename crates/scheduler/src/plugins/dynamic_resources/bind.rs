//! Writes allocations into claims in PreBind, and undoes that when the pod is not bound.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bayplan_model::affinity::{NodeSelector, NodeSelectorRequirement};
use bayplan_model::api::{
    Api, DeleteOptions, Event, EventType, ObjectReference, PatchKind, Preconditions, Request, Resource, Verb, decode,
    encode,
};
use bayplan_model::meta::{ObjectMeta, PartialObjectMetadata};
use bayplan_model::pod::Pod;
use bayplan_model::resource_claim::{AllocationResult, DeviceResult, ResourceClaim};
use bayplan_model::status::Status as ApiStatus;
use bayplan_model::timestamp::seconds;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::allocator::Allocation;
use super::extended_resources::Mapping;
use super::{ClaimKey, ClaimState, Cluster, NodeAllocations, Prepared, lock};
use crate::cluster::{EXTENDED_RESOURCE_CLAIM_ANNOTATION, PodInfo, is_older};
use crate::framework::BindContext;

const CLAIMS: Resource = Resource::new("resource.k8s.io", "v1", "resourceclaims");
const PODS: Resource = Resource::new("", "v1", "pods");

/// The finalizer that keeps an allocated claim until its devices are free.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// How often a write is tried when others write too, and the pause between two tries: upstream's `DefaultRetry`.
const TRIES_MAX: u32 = 5;
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// What Reserve set aside for a pod.
pub(super) struct Reservation {
    claims: Vec<ReservedClaim>,
    mappings: Vec<Mapping>,
    /// Name and UID of the claim for extended resources, once it is created.
    created: Mutex<Option<(String, String)>>,
    /// The claims whose allocation was written to the API server.
    written: Mutex<Vec<ClaimKey>>,
}

/// A claim the pod will use.
struct ReservedClaim {
    claim: Arc<ResourceClaim>,
    key: ClaimKey,
    /// The new allocation; none when the claim is allocated already.
    allocation: Option<(Arc<AllocationResult>, Vec<Value>)>,
    /// The spec of the claim to create for extended resources.
    spec_to_create: Option<Value>,
}

impl Reservation {
    pub(super) fn new(prepared: &Prepared, found: &NodeAllocations, pod: &PodInfo) -> Self {
        let mut claims = Vec::new();
        for (i, claim) in prepared.claims.iter().enumerate() {
            let allocation = found.allocations.iter().find(|(of, _)| *of == i).map(|(_, allocation)| allocation);
            let is_extended = matches!(claim.state, ClaimState::ExtendedResources);
            if is_extended && allocation.is_none() {
                // The node provides the resources itself.
                continue;
            }
            let key = match is_extended {
                true => ClaimKey::ExtendedResources(pod.metadata.namespace.clone(), pod.uid().to_owned()),
                false => ClaimKey::of(&claim.claim),
            };
            claims.push(ReservedClaim {
                allocation: allocation.map(|allocation| shared(allocation, pod, i)),
                spec_to_create: is_extended.then(|| spec_of(found)),
                claim: claim.claim.clone(),
                key,
            });
        }
        Reservation { claims, mappings: found.mappings.clone(), created: Mutex::default(), written: Mutex::default() }
    }

    /// The allocations that occupy devices until the claims show them.
    pub(super) fn in_flight(&self) -> impl Iterator<Item = (ClaimKey, Arc<AllocationResult>)> {
        self.claims.iter().filter_map(|claim| Some((claim.key.clone(), claim.allocation.as_ref()?.0.clone())))
    }

    /// The claims whose allocation was not written. Written allocations occupy their devices until the claims show
    /// them, even when the pod is not bound.
    pub(super) fn unwritten(&self) -> Vec<ClaimKey> {
        let written = lock(&self.written);
        self.in_flight().map(|(key, _)| key).filter(|key| !written.contains(key)).collect()
    }

    /// The calls that undo what was written, as far as the cluster shows it already.
    pub(super) fn give_back(&self, cluster: &Cluster, pod: &PodInfo) -> Vec<Request> {
        let mut calls = Vec::new();
        for reserved in self.claims.iter().filter(|reserved| reserved.spec_to_create.is_none()) {
            let meta = &reserved.claim.metadata;
            let known = cluster.objects.resource_claims.get(&meta.namespace, &meta.name);
            if known.is_some_and(|claim| claim.status.allocation.is_some() && claim.is_reserved_for(pod)) {
                calls.push(status_patch(
                    &meta.namespace,
                    &meta.name,
                    PatchKind::Strategic,
                    &json!({
                        "metadata": {"uid": meta.uid},
                        "status": {"reservedFor": [{"$patch": "delete", "uid": pod.metadata.uid}]},
                    }),
                ));
            }
        }
        if let Some((name, uid)) = &*lock(&self.created) {
            calls.extend(delete(&pod.metadata.namespace, name, uid));
        }
        calls
    }

    /// Writes allocations and reservations, then waits for devices that must be prepared.
    pub(super) async fn write(&self, cx: &BindContext<'_>, timeout: Duration) -> Result<(), String> {
        let mut written = Vec::new();
        for reserved in &self.claims {
            written.push(self.write_one(cx, reserved).await?);
        }
        let conditions = |(allocation, _): &(Arc<AllocationResult>, _)| has_conditions(&allocation.devices.results);
        let known = |claim: &ResourceClaim| {
            let results = claim.status.allocation.as_ref().map(|allocation| &allocation.devices.results);
            results.is_some_and(|results| has_conditions(results))
        };
        if self.claims.iter().any(|c| c.allocation.as_ref().is_some_and(conditions) || known(&c.claim)) {
            wait(cx, written, timeout).await?;
        }
        Ok(())
    }

    /// Writes a claim, unless it is reserved for the pod already.
    async fn write_one(&self, cx: &BindContext<'_>, reserved: &ReservedClaim) -> Result<WrittenClaim, String> {
        let namespace = &cx.pod.metadata.namespace;
        let claim = match &reserved.spec_to_create {
            Some(spec) => Arc::new(self.make(cx, spec).await?),
            None => Arc::clone(&reserved.claim),
        };
        let is_known = reserved.spec_to_create.is_none();
        let name = claim.metadata.name.clone();
        let mut written = WrittenClaim { name: name.clone(), version: String::new(), is_known };
        if !reserved.claim.is_reserved_for(cx.pod) {
            written.version = reserve(cx, claim, reserved).await?;
            if is_known {
                lock(&self.written).push(reserved.key.clone());
            }
        }
        if reserved.spec_to_create.is_some() {
            let patch = json!({"status": {"extendedResourceClaimStatus": {
                "resourceClaimName": name,
                "requestMappings": self.mappings,
            }}});
            let verb = Verb::Patch(PatchKind::Strategic, encode(&patch));
            let request = Request::object(&PODS, namespace, &cx.pod.metadata.name, verb).subresource("status");
            cx.api.call(request).await.map_err(|status| format!("update pod status: {}", status.message))?;
        }
        Ok(written)
    }

    async fn make(&self, cx: &BindContext<'_>, spec: &Value) -> Result<ResourceClaim, String> {
        let meta = &cx.pod.metadata;
        let claim = json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {
                "namespace": meta.namespace,
                "generateName": format!("{}-extended-resources-", meta.name),
                "annotations": {EXTENDED_RESOURCE_CLAIM_ANNOTATION: "true"},
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid, "controller": true},
                ],
            },
            "spec": spec,
        });
        let request = Request::collection(&CLAIMS, &meta.namespace, Verb::Create(encode(&claim)));
        let failed = |message: String| format!("create claim for extended resources: {message}");
        let answer = cx.api.call(request).await.map_err(|status| failed(status.message))?;
        let created: ResourceClaim = decode(&answer).map_err(|status| failed(status.message))?;
        *lock(&self.created) = Some((created.metadata.name.clone(), created.metadata.uid.clone()));
        Ok(created)
    }
}

/// A claim that PreBind has written.
struct WrittenClaim {
    name: String,
    /// The version that was written; empty when nothing had to be.
    version: String,
    /// False for a claim that the informer may not have seen yet.
    is_known: bool,
}

/// An allocation ready to be written, with unique share IDs.
fn shared(allocation: &Allocation, pod: &PodInfo, claim: usize) -> (Arc<AllocationResult>, Vec<Value>) {
    let mut result = allocation.result.clone();
    for (i, device) in result.devices.results.iter_mut().enumerate().filter(|(_, d)| d.share_id.is_some()) {
        device.share_id = Some(share_id(pod.uid(), claim, i));
    }
    (Arc::new(result), allocation.config.clone())
}

/// A UUID derived from the pod's UID, because the core owns no randomness.
fn share_id(pod: &str, claim: usize, device: usize) -> String {
    use std::hash::{Hash, Hasher};
    let half = |salt: u64| {
        let mut hasher = rustc_hash::FxHasher::default();
        (salt, pod, claim, device).hash(&mut hasher);
        hasher.finish()
    };
    let (a, b) = (half(1), half(2));
    let (a, b) = (a & !0xf000 | 0x4000, b & !(0xc << 60) | (0x8 << 60));
    format!("{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", a >> 32, a >> 16 & 0xffff, a & 0xffff, b >> 48, b & 0xffff_ffff_ffff)
}

fn spec_of(found: &NodeAllocations) -> Value {
    let requests = found.extended.devices.requests.iter().map(|request| {
        let exactly = request.exactly.clone().unwrap_or_default();
        json!({"name": request.name, "exactly": {
            "deviceClassName": exactly.device_class_name,
            "allocationMode": exactly.allocation_mode,
            "count": exactly.count,
        }})
    });
    json!({"devices": {"requests": requests.collect::<Vec<_>>()}})
}

fn requirements(requirements: &[NodeSelectorRequirement]) -> Value {
    let one = |r: &NodeSelectorRequirement| match r.values.is_empty() {
        true => json!({"key": r.key, "operator": r.operator}),
        false => json!({"key": r.key, "operator": r.operator, "values": r.values}),
    };
    requirements.iter().map(one).collect()
}

fn selector(selector: &NodeSelector) -> Value {
    let terms = selector.node_selector_terms.iter().map(|term| {
        let mut json = json!({});
        if !term.match_expressions.is_empty() {
            json["matchExpressions"] = requirements(&term.match_expressions);
        }
        if !term.match_fields.is_empty() {
            json["matchFields"] = requirements(&term.match_fields);
        }
        json
    });
    json!({"nodeSelectorTerms": terms.collect::<Vec<_>>()})
}

fn allocation_json(allocation: &AllocationResult, config: &[Value], now: Timestamp) -> Value {
    let mut json = json!({"devices": {"results": allocation.devices.results}, "allocationTimestamp": seconds(now)});
    if !config.is_empty() {
        json["devices"]["config"] = config.into();
    }
    if let Some(nodes) = &allocation.node_selector {
        json["nodeSelector"] = selector(nodes);
    }
    json
}

fn status_patch(namespace: &str, name: &str, kind: PatchKind, patch: &Value) -> Request {
    Request::object(&CLAIMS, namespace, name, Verb::Patch(kind, encode(patch))).subresource("status")
}

/// The call that deallocates a claim that no other pod uses.
pub(super) fn deallocate(claim: &ResourceClaim) -> Request {
    let meta = &claim.metadata;
    status_patch(
        &meta.namespace,
        &meta.name,
        PatchKind::Merge,
        &json!({
            "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
            "status": {"allocation": null, "reservedFor": null, "devices": null},
        }),
    )
}

/// The calls that delete a claim that this scheduler created. Finalizers of others stay.
pub(super) fn delete(namespace: &str, name: &str, uid: &str) -> Vec<Request> {
    let release = json!({"metadata": {"uid": uid, "$deleteFromPrimitiveList/finalizers": [FINALIZER]}});
    let release = Verb::Patch(PatchKind::Strategic, encode(&release));
    let preconditions = Some(Preconditions { uid: Some(uid.to_owned()), ..Preconditions::default() });
    let delete = Verb::Delete(DeleteOptions { preconditions, ..DeleteOptions::default() });
    [release, delete].map(|verb| Request::object(&CLAIMS, namespace, name, verb)).into()
}

async fn read(api: &dyn Api, namespace: &str, name: &str) -> Result<ResourceClaim, String> {
    let request = Request::object(&CLAIMS, namespace, name, Verb::Get);
    let answer = api.call(request).await.map_err(|status| status.message)?;
    decode(&answer).map_err(|status| status.message)
}

/// Why a claim was not written.
enum WriteError {
    /// Another writer came first.
    Conflict(String),
    Other(String),
}

impl WriteError {
    fn of(status: &ApiStatus, what: &str, key: &str) -> Self {
        let text = format!("{what} claim {key}: {}", status.message);
        if status.code == 409 { WriteError::Conflict(text) } else { WriteError::Other(text) }
    }
}

/// Writes allocation and reservation into a claim; a conflict with another writer is tried again with the latest
/// version. The answer is the version that was written.
async fn reserve(
    cx: &BindContext<'_>,
    mut claim: Arc<ResourceClaim>,
    reserved: &ReservedClaim,
) -> Result<String, String> {
    let key = claim.metadata.key();
    let mut tries = 1;
    loop {
        match reserve_once(cx, &claim, &key, reserved).await {
            Ok(version) => return Ok(version),
            Err(WriteError::Conflict(_)) if tries < TRIES_MAX => tries += 1,
            Err(WriteError::Conflict(error) | WriteError::Other(error)) => return Err(error),
        }
        cx.timer.sleep(RETRY_PAUSE).await;
        let latest = read(cx.api, &claim.metadata.namespace, &claim.metadata.name).await;
        claim = Arc::new(latest.map_err(|error| format!("get updated claim {key} after conflict: {error}"))?);
    }
}

/// Writes the finalizer, which takes a write of its own, and the status.
async fn reserve_once(
    cx: &BindContext<'_>,
    claim: &ResourceClaim,
    key: &str,
    reserved: &ReservedClaim,
) -> Result<String, WriteError> {
    let ObjectMeta { namespace, name, finalizers, resource_version: version, .. } = &claim.metadata;
    let Some(mut patch) = patch_for(claim, key, cx, reserved).map_err(WriteError::Other)? else {
        return Ok(version.clone());
    };
    let undecodable = |status: ApiStatus| WriteError::Other(status.message);
    if reserved.allocation.is_some() && !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        let finalizers: Vec<&str> = finalizers.iter().map(String::as_str).chain([FINALIZER]).collect();
        let body = json!({"metadata": {"resourceVersion": version, "finalizers": finalizers}});
        let request = Request::object(&CLAIMS, namespace, name, Verb::Patch(PatchKind::Merge, encode(&body)));
        let answer = cx.api.call(request).await;
        let answer = answer.map_err(|status| WriteError::of(&status, "add finalizer to", key))?;
        let made: PartialObjectMetadata = decode(&answer).map_err(undecodable)?;
        patch["metadata"]["resourceVersion"] = made.metadata.resource_version.into();
    }
    let what = if reserved.allocation.is_some() { "add allocation and reservation to" } else { "add reservation to" };
    let answer = cx.api.call(status_patch(namespace, name, PatchKind::Merge, &patch)).await;
    let answer = answer.map_err(|status| WriteError::of(&status, what, key))?;
    let made: PartialObjectMetadata = decode(&answer).map_err(undecodable)?;
    Ok(made.metadata.resource_version)
}

/// The next write that a claim needs; none when it has the allocation and the reservation.
fn patch_for(
    claim: &ResourceClaim,
    key: &str,
    cx: &BindContext<'_>,
    reserved: &ReservedClaim,
) -> Result<Option<Value>, String> {
    let made_here = reserved.spec_to_create.is_some();
    if claim.metadata.deletion_timestamp.is_some() || (!made_here && claim.metadata.uid != reserved.claim.metadata.uid)
    {
        return Err(format!("claim {key} got deleted in the meantime"));
    }
    if claim.is_reserved_for(cx.pod) {
        return Ok(None);
    }
    let mut consumers: Vec<Value> = claim.status.reserved_for.iter().map(consumer).collect();
    consumers.push(json!({"resource": "pods", "name": cx.pod.metadata.name, "uid": cx.pod.metadata.uid}));
    let mut status = json!({"reservedFor": consumers});
    if let Some((allocation, config)) = &reserved.allocation {
        if claim.status.allocation.is_some() {
            return Err(format!("claim {key} got allocated elsewhere in the meantime"));
        }
        status["allocation"] = allocation_json(allocation, config, cx.timer.now());
    } else if claim.status.allocation.is_none() {
        return Err(format!("claim {key} got deallocated elsewhere in the meantime"));
    }
    Ok(Some(json!({"metadata": {"resourceVersion": claim.metadata.resource_version}, "status": status})))
}

fn consumer(consumer: &bayplan_model::resource_claim::ConsumerReference) -> Value {
    let mut json = json!({"resource": consumer.resource, "name": consumer.name, "uid": consumer.uid});
    if !consumer.api_group.is_empty() {
        json["apiGroup"] = consumer.api_group.clone().into();
    }
    json
}

fn has_conditions(results: &[DeviceResult]) -> bool {
    results.iter().any(|result| !result.binding_conditions.is_empty())
}

/// Whether the devices of a claim are ready to be used.
fn is_ready(claim: &ResourceClaim) -> Result<bool, String> {
    let results = claim.status.allocation.iter().flat_map(|allocation| &allocation.devices.results);
    let mut ready = true;
    for result in results.filter(|result| !result.binding_conditions.is_empty()) {
        let device = claim.status.devices.iter().find(|device| {
            (&device.driver, &device.pool, &device.device, &device.share_id)
                == (&result.driver, &result.pool, &result.device, &result.share_id)
        });
        let Some(device) = device else {
            ready = false;
            continue;
        };
        let is_true = |kind: &String| device.conditions.iter().find(|c| c.kind == *kind && c.status == "True");
        if let Some(failure) = result.binding_failure_conditions.iter().find_map(is_true) {
            let (name, reason, message) = (&claim.metadata.name, &failure.reason, &failure.message);
            return Err(format!("device binding failed: claim={name}, reason={reason}, message={message:?}"));
        }
        ready &= result.binding_conditions.iter().all(|kind| is_true(kind).is_some());
    }
    Ok(ready)
}

/// Whether the binding timeout of a claim has passed.
fn is_late(claim: &ResourceClaim, timeout: Duration, now: Timestamp) -> bool {
    let since = claim.status.allocation.as_ref().and_then(|allocation| allocation.allocation_timestamp);
    let timeout = SignedDuration::try_from(timeout).unwrap_or(SignedDuration::MAX);
    since.is_some_and(|since| now.duration_since(since) > timeout)
}

/// Whether the devices of an allocated claim have failed, or are not ready in time.
pub(super) fn has_failed(claim: &ResourceClaim, timeout: Duration, now: Timestamp) -> bool {
    match is_ready(claim) {
        Ok(ready) => !ready && is_late(claim, timeout, now),
        Err(_) => true,
    }
}

/// Waits until the devices of all claims are ready.
async fn wait(cx: &BindContext<'_>, claims: Vec<WrittenClaim>, timeout: Duration) -> Result<(), String> {
    cx.recorder.record(Event {
        regarding: reference(cx.pod),
        event_type: EventType::Normal,
        reason: "BindingConditionsPending".into(),
        action: "Scheduling".into(),
        note: format!("waiting for binding conditions for device on node {}", cx.node),
    });
    let now = cx.timer.now();
    let deadline = now.saturating_add(timeout).unwrap_or(now);
    let (namespace, mut claims) = (cx.pod.metadata.namespace.clone(), claims);
    let ready = cx.waits.until(move |cluster, now| match are_ready(cluster, &namespace, &mut claims, timeout, now) {
        Ok(true) => Some(Ok(())),
        Ok(false) if now >= deadline => Some(Err("device binding timeout: context deadline exceeded".into())),
        Ok(false) => None,
        Err(reason) => Some(Err(reason)),
    });
    ready.await
}

/// Whether the devices of all claims are ready, as far as the informer shows what was written.
fn are_ready(
    cluster: &Cluster,
    namespace: &str,
    claims: &mut [WrittenClaim],
    timeout: Duration,
    now: Timestamp,
) -> Result<bool, String> {
    let mut ready = true;
    for WrittenClaim { name, version, is_known } in claims {
        let Some(claim) = cluster.objects.resource_claims.get(namespace, name) else {
            if *is_known {
                return Err(format!("could not find ResourceClaim \"{namespace}/{name}\""));
            }
            ready = false;
            continue;
        };
        *is_known = true;
        if is_older(&claim.metadata.resource_version, version) {
            ready = false;
            continue;
        }
        let is_ready = is_ready(claim)?;
        if !is_ready && is_late(claim, timeout, now) {
            return Err(format!("device binding timeout: claim={name}"));
        }
        ready &= is_ready;
    }
    Ok(ready)
}

fn reference(pod: &Pod) -> ObjectReference {
    let meta = &pod.metadata;
    ObjectReference {
        api_version: "v1".into(),
        kind: "Pod".into(),
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
    }
}
