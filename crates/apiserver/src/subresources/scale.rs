//! `scale`: the replica count of a workload as an `autoscaling/v1` Scale.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects, reason = "clients choose the numbers"))]

use bayplan_kinds::GroupVersionKind;
use bayplan_kinds::codec::{self, Conversion};
use bayplan_model::label_selector::{LabelSelector, Selector};
use bayplan_model::status::Status;
use bayplan_patch::apply::{Applied, from_scale, put_managed_fields, to_scale};
use serde_json::{Map, Value, json};

use crate::registry::apply::Configuration;
use crate::registry::decode::{self, Input, Sent};
use crate::registry::patch::Patch;
use crate::registry::{
    Answer, Body, Call, Objects, PatchKind, Registry, ScaleWriter, UpdatedObject, check_identity, metadata,
};
use crate::request::{FieldValidation, Preconditions};
use crate::status_errors::{self, FieldError};

const SCALE: GroupVersionKind<'static> = GroupVersionKind { group: "autoscaling", version: "v1", kind: "Scale" };

/// Reads the scale.
pub(crate) async fn get(registry: &Registry, call: Call<'_>) -> Result<Answer, Status> {
    let object = Objects::get(registry, call.resource, call.namespace, call.name)
        .await?
        .ok_or_else(|| status_errors::not_found(call.resource, call.name))?;
    Ok(Answer::value(200, of(&object)))
}

/// The scale of a workload.
fn of(object: &Value) -> Value {
    let metadata = &object["metadata"];
    let mut scale_metadata = Map::new();
    for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = metadata.get(key) {
            scale_metadata.insert(key.to_owned(), value.clone());
        }
    }
    let mut spec = json!({});
    if let Some(replicas) = object["spec"]["replicas"].as_i64().filter(|r| *r != 0) {
        spec["replicas"] = json!(replicas);
    }
    let mut status = json!({"replicas": object["status"]["replicas"].as_i64().unwrap_or(0)});
    let selector = selector(&object["spec"]["selector"]);
    if !selector.is_empty() {
        status["selector"] = json!(selector);
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": scale_metadata, "spec": spec, "status": status})
}

/// The selector in the syntax of queries; replication controllers have a plain map.
fn selector(selector: &Value) -> String {
    let structured = selector.get("matchLabels").is_some() || selector.get("matchExpressions").is_some();
    let selector = if structured { selector.clone() } else { json!({"matchLabels": selector}) };
    let selector: Result<LabelSelector, _> = serde_json::from_value(selector);
    selector.ok().and_then(|s| s.selector().ok()).map(|s: Selector| s.to_string()).unwrap_or_default()
}

/// Replaces the scale.
pub(crate) async fn update(registry: &Registry, call: Call<'_>, scale: Value) -> Result<Answer, Status> {
    let mut scale = scale;
    check_identity(&call, &mut scale)?;
    let uid = Some(metadata::text(&scale, "uid").to_owned()).filter(|uid| !uid.is_empty());
    let preconditions = Preconditions { uid, resource_version: None };
    let writer = ScaleWriter { manager: call.manager, now: registry.now() };
    let mut compute = |current: &Value| {
        let mut scale = scale.clone();
        writer.track_update(current, &mut scale);
        Ok(scale)
    };
    write(registry, call, preconditions, &mut compute).await
}

/// Patches the scale.
pub(crate) async fn patch(
    registry: &Registry,
    call: Call<'_>,
    kind: PatchKind,
    body: &[u8],
    field_validation: FieldValidation,
) -> Result<Answer, Status> {
    let patch = Patch::parse(kind, body)?;
    let writer = ScaleWriter { manager: call.manager, now: registry.now() };
    let mut compute = |current: &Value| {
        let patched = patch.apply(SCALE, current)?;
        let decoded = decode::without_defaults(SCALE, Input::Patched(patched, &patch), field_validation)?;
        call.warnings.extend(decoded.warnings);
        let mut scale = decoded.object;
        check_identity(&call, &mut scale)?;
        writer.track_update(current, &mut scale);
        Ok(scale)
    };
    write(registry, call, Preconditions::default(), &mut compute).await
}

/// Applies a scale.
pub(crate) async fn apply(registry: &Registry, call: Call<'_>, configuration: Configuration) -> Result<Answer, Status> {
    let writer = ScaleWriter { manager: call.manager, now: registry.now() };
    let mut compute = |current: &Value| {
        let Applied { object, managed_fields } = writer.apply(current, &configuration.object, configuration.force)?;
        configuration.check_syntax()?;
        let mut scale = match object {
            None => current.clone(),
            Some(merged) => codec::converted(SCALE, merged, Conversion::Restored, FieldValidation::Ignore)?.object,
        };
        check_identity(&call, &mut scale)?;
        put_managed_fields(&mut scale, managed_fields);
        Ok(scale)
    };
    call.warnings.extend(configuration.warnings());
    write(registry, call, Preconditions::default(), &mut compute).await
}

/// Writes the replicas of a computed scale into the workload, by an ordinary update.
async fn write(
    registry: &Registry,
    call: Call<'_>,
    preconditions: Preconditions,
    compute: &mut (dyn FnMut(&Value) -> Result<Value, Status> + Send),
) -> Result<Answer, Status> {
    let version = call.resource.api_version();
    let mut change = |object: &Value| {
        let entries = &object["metadata"]["managedFields"];
        let mut current = of(object);
        put_managed_fields(&mut current, to_scale(entries, &version));
        let scale = compute(&current)?;
        let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
        if replicas < 0 {
            return Err(status_errors::invalid(
                SCALE.group,
                SCALE.kind,
                call.name,
                &[FieldError::invalid("spec.replicas", replicas, "must be greater than or equal to 0")],
            ));
        }
        let mut changed = object.clone();
        changed["spec"]["replicas"] = json!(replicas);
        put_managed_fields(&mut changed, from_scale(entries, &scale["metadata"]["managedFields"], &version));
        match metadata::resource_version(&scale) {
            Some(version) => metadata::of(&mut changed).insert("resourceVersion".to_owned(), json!(version)),
            None => metadata::of(&mut changed).remove("resourceVersion"),
        };
        Ok(Sent::plain(changed))
    };
    // An update of the workload: its own admission, strategy and validation apply.
    let of_workload = Call { subresource: "", ..call };
    let answer = registry.update(of_workload, UpdatedObject::Owned(&mut change), preconditions).await?;
    let Body::Object(_, updated) = answer.body else {
        return Err(status_errors::internal("an update answered without its object"));
    };
    Ok(Answer::value(200, of(&updated.encoded.decode(updated.revision)?)))
}
