//! Creates and deletes pods for an owner, and records the events; upstream's `RealPodControl`.

use bayplan_model::api::{DeleteOptions, ObjectReference, Request, Verb, decode, encode};
use bayplan_model::meta::{ObjectMeta, OwnerReference, PartialObjectMetadata};
use bayplan_model::status::Status;
use bytes::Bytes;
use serde_json::{Value, json};

use crate::controller::Context;
use crate::error::{Error, namespace_terminating, not_found};
use crate::requests::{self, PODS};

/// The longest name a pod may have.
const POD_NAME_MAX: usize = 253;

/// The JSON of the pods an owner creates: encoded once, sent as often as needed.
pub(crate) fn pod_body(template: &Value, owner: &OwnerReference) -> Result<Bytes, Error> {
    pod_object(template, owner).map(|pod| encode(&pod))
}

/// A pod as its owner's template describes it.
pub(crate) fn pod_object(template: &Value, owner: &OwnerReference) -> Result<Value, Error> {
    let part = |pointer: &str| template.pointer(pointer).filter(|v| !is_empty(v)).cloned();
    let labels = part("/metadata/labels").ok_or(Error::NoLabels)?;
    let mut metadata = json!({
        "generateName": generate_name(&owner.name),
        "labels": labels,
        "ownerReferences": [owner],
    });
    for (field, pointer) in [("annotations", "/metadata/annotations"), ("finalizers", "/metadata/finalizers")] {
        if let Some(value) = part(pointer) {
            metadata[field] = value;
        }
    }
    let spec = template.get("spec").cloned().unwrap_or_default();
    Ok(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

/// `<owner>-`, unless that is too long to begin a pod name with.
fn generate_name(owner: &str) -> String {
    if owner.len() < POD_NAME_MAX { format!("{owner}-") } else { owner.into() }
}

/// Creates one pod and records an event; returns its metadata.
pub(crate) async fn create_pod(
    context: Context<'_>,
    namespace: &str,
    body: Bytes,
    regarding: &ObjectReference,
) -> Result<ObjectMeta, Status> {
    let answer = context.api.call(Request::collection(&PODS, namespace, Verb::Create(body))).await;
    match answer.and_then(|body| decode::<PartialObjectMetadata>(&body)) {
        Ok(pod) => {
            context.normal(regarding.clone(), "SuccessfulCreate", format!("Created pod: {}", pod.metadata.name));
            Ok(pod.metadata)
        }
        Err(status) => {
            if !namespace_terminating(&status) {
                context.warning(regarding.clone(), "FailedCreate", format!("Error creating: {status}"));
            }
            Err(status)
        }
    }
}

/// Deletes one pod and records an event, unless the pod no longer exists.
pub(crate) async fn delete_pod(
    context: Context<'_>,
    pod: &ObjectMeta,
    regarding: &ObjectReference,
) -> Result<(), Status> {
    match requests::delete(context.api, &PODS, pod, DeleteOptions::default()).await {
        Ok(()) => context.normal(regarding.clone(), "SuccessfulDelete", format!("Deleted pod: {}", pod.name)),
        Err(status) => {
            if !not_found(&status) {
                context.warning(regarding.clone(), "FailedDelete", format!("Error deleting: {status}"));
            }
            return Err(status);
        }
    }
    Ok(())
}
