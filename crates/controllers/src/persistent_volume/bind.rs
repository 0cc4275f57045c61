//! Writes bindings and phases of volumes and claims.

use std::collections::BTreeMap;

use bayplan_model::api::{Api, ObjectReference, PatchKind, Request, Resource, Verb, decode, encode};
use bayplan_model::meta::ObjectMeta;
use bayplan_model::status::Status;
use bayplan_model::storage::{
    BIND_COMPLETED_ANNOTATION, BOUND_BY_CONTROLLER_ANNOTATION, PersistentVolume, PersistentVolumeClaim,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::controller::Context;
use crate::error::Error;
use crate::requests::{PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES};
use crate::workload::event_reference;

/// The reference with which events name a claim.
pub(super) fn of_claim(claim: &PersistentVolumeClaim) -> ObjectReference {
    event_reference("v1", "PersistentVolumeClaim", &claim.metadata)
}

/// The reference with which events name a volume.
pub(super) fn of_volume(volume: &PersistentVolume) -> ObjectReference {
    event_reference("v1", "PersistentVolume", &volume.metadata)
}

/// Updates an object unless it changed meanwhile; returns what is stored.
async fn change<T: DeserializeOwned>(
    api: &dyn Api,
    resource: &Resource,
    meta: &ObjectMeta,
    mut patch: Value,
    subresource: Option<&'static str>,
) -> Result<T, Status> {
    patch["metadata"]["resourceVersion"] = json!(meta.resource_version);
    let verb = Verb::Patch(PatchKind::Merge, encode(&patch));
    let mut request = Request::object(resource, &meta.namespace, &meta.name, verb);
    request.subresource = subresource;
    decode(&api.call(request).await?)
}

/// Updates a volume.
pub(super) async fn change_volume(
    volume: &PersistentVolume,
    patch: Value,
    api: &dyn Api,
) -> Result<PersistentVolume, Status> {
    change(api, &PERSISTENT_VOLUMES, &volume.metadata, patch, None).await
}

/// Updates a claim.
pub(super) async fn change_claim(
    claim: &PersistentVolumeClaim,
    patch: Value,
    api: &dyn Api,
) -> Result<PersistentVolumeClaim, Status> {
    change(api, &PERSISTENT_VOLUME_CLAIMS, &claim.metadata, patch, None).await
}

/// Sets a volume's phase and message.
pub(super) async fn set_volume_phase(
    volume: &PersistentVolume,
    phase: &str,
    message: &str,
    api: &dyn Api,
) -> Result<PersistentVolume, Status> {
    if volume.status.phase == phase {
        return Ok(volume.clone());
    }
    let message = if message.is_empty() { Value::Null } else { message.into() };
    let patch = json!({"status": {"phase": phase, "message": message}});
    change(api, &PERSISTENT_VOLUMES, &volume.metadata, patch, Some("status")).await
}

/// Sets a volume's phase, and records an event when it changed.
pub(super) async fn fail_volume(
    volume: &PersistentVolume,
    reason: &'static str,
    message: &str,
    context: Context<'_>,
) -> Result<(), Status> {
    if volume.status.phase != "Failed" {
        let stored = set_volume_phase(volume, "Failed", message, context.api).await?;
        context.warning(of_volume(&stored), reason, message.into());
    }
    Ok(())
}

/// Sets a claim's phase, access modes and capacity.
pub(super) async fn set_claim_phase(
    claim: &PersistentVolumeClaim,
    phase: &str,
    volume: Option<&PersistentVolume>,
    api: &dyn Api,
) -> Result<PersistentVolumeClaim, Status> {
    let status = &claim.status;
    let empty = (Vec::new(), None);
    let (modes, size) =
        volume.map_or(empty, |volume| (volume.spec.access_modes.clone(), volume.spec.capacity.get("storage")));
    if status.phase == phase && status.access_modes == modes && status.capacity.get("storage") == size {
        return Ok(claim.clone());
    }
    let size = size.map(|size| BTreeMap::from([("storage", size.to_string())]));
    let modes = (!modes.is_empty()).then_some(modes);
    let patch = json!({"status": {"phase": phase, "accessModes": modes, "capacity": size}});
    change(api, &PERSISTENT_VOLUME_CLAIMS, &claim.metadata, patch, Some("status")).await
}

/// Marks a claim without its volume as `Lost`, and records an event when that changed.
pub(super) async fn lose_claim(
    claim: &PersistentVolumeClaim,
    reason: &'static str,
    message: &str,
    context: Context<'_>,
) -> Result<(), Status> {
    if claim.status.phase != "Lost" {
        let stored = set_claim_phase(claim, "Lost", None, context.api).await?;
        context.warning(of_claim(&stored), reason, message.into());
    }
    Ok(())
}

/// Binds a volume and a claim to each other, the volume first: other claims may compete for it.
pub(super) async fn bind(
    volume: &PersistentVolume,
    claim: &PersistentVolumeClaim,
    context: Context<'_>,
) -> Result<(), Error> {
    let api = context.api;
    let volume = bind_volume(volume, claim, api).await?;
    let volume = set_volume_phase(&volume, "Bound", "", api).await?;
    let claim = bind_claim(claim, &volume, api).await?;
    set_claim_phase(&claim, "Bound", Some(&volume), api).await?;
    Ok(())
}

async fn bind_volume(
    volume: &PersistentVolume,
    claim: &PersistentVolumeClaim,
    api: &dyn Api,
) -> Result<PersistentVolume, Status> {
    let reserved = volume.is_reserved_for(claim);
    let complete = volume.spec.claim_ref.as_ref().is_some_and(|to| to.uid == claim.metadata.uid);
    if reserved && complete {
        return Ok(volume.clone());
    }
    let meta = &claim.metadata;
    let mut patch = json!({"spec": {"claimRef": {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": meta.namespace, "name": meta.name,
        "uid": meta.uid, "resourceVersion": meta.resource_version,
    }}});
    if !reserved {
        patch["metadata"]["annotations"] = json!({BOUND_BY_CONTROLLER_ANNOTATION: "yes"});
    }
    change_volume(volume, patch, api).await
}

async fn bind_claim(
    claim: &PersistentVolumeClaim,
    volume: &PersistentVolume,
    api: &dyn Api,
) -> Result<PersistentVolumeClaim, Status> {
    let chosen = claim.spec.volume_name == volume.metadata.name;
    if chosen && claim.metadata.annotations.contains_key(BIND_COMPLETED_ANNOTATION) {
        return Ok(claim.clone());
    }
    let mut annotations = BTreeMap::from([(BIND_COMPLETED_ANNOTATION, "yes")]);
    if !chosen {
        annotations.insert(BOUND_BY_CONTROLLER_ANNOTATION, "yes");
    }
    let patch = json!({"metadata": {"annotations": annotations}, "spec": {"volumeName": volume.metadata.name}});
    change_claim(claim, patch, api).await
}

/// Undoes a binding that lost against another one. What a user reserved stays reserved.
pub(super) async fn unbind_volume(volume: &PersistentVolume, api: &dyn Api) -> Result<(), Status> {
    let patch = if volume.metadata.annotations.contains_key(BOUND_BY_CONTROLLER_ANNOTATION) {
        json!({"metadata": {"annotations": {BOUND_BY_CONTROLLER_ANNOTATION: null}}, "spec": {"claimRef": null}})
    } else {
        json!({"spec": {"claimRef": {"uid": null}}})
    };
    let volume = change_volume(volume, patch, api).await?;
    set_volume_phase(&volume, "Available", "", api).await?;
    Ok(())
}
