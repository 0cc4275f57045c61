//! The annotation in which kubectl keeps what it applied on the client's side, for objects that move to server-side
//! apply.

use bayplan_model::schema::Definition;
use serde_json::Value;

use super::compare::{compare_all, field_set};
use super::conflict::Conflict;
use super::fields::{self, Fields};
use super::shape::Shape;
use super::{Request, validate};

/// The manager for which the annotation counts.
pub(super) const KUBECTL: &str = "kubectl";
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The limit for all annotations of an object together.
const ANNOTATIONS_MAX_BYTES: usize = 256 * 1024;

/// The conflicts about fields that the annotation does not explain; `None` without a usable annotation.
pub(super) fn unexplained(live: &Value, conflicts: &[Conflict], request: &Request<'_>) -> Option<Vec<Conflict>> {
    let owned = owned(live, request.definition, request.api_version)?;
    Some(conflicts.iter().filter(|conflict| !fields::has(&owned, &conflict.path)).cloned().collect())
}

/// The fields that kubectl applied and nobody changed since.
fn owned(live: &Value, definition: &'static Definition, api_version: &str) -> Option<Fields> {
    let shape = Shape::of_definition(definition);
    let applied = live["metadata"]["annotations"][ANNOTATION].as_str().filter(|text| !text.is_empty())?;
    let applied: Value = serde_json::from_str(applied).ok()?;
    if applied["apiVersion"] != api_version || validate::faults(&applied, shape).is_some() {
        return None;
    }
    let mut owned = field_set(&applied, shape);
    let changes = compare_all(&applied, live, shape);
    for changed in [&changes.modified, &changes.added, &changes.removed] {
        fields::subtract(&mut owned, changed);
    }
    Some(owned)
}

/// The object with the annotation brought up to what kubectl applied now, if it has the annotation.
pub(super) fn renewed(object: Option<Value>, live: &Value, applied: &Value, request: &Request<'_>) -> Option<Value> {
    let current = object.as_ref().unwrap_or(live);
    let old = current["metadata"]["annotations"][ANNOTATION].as_str().unwrap_or_default();
    if request.manager != KUBECTL || old.is_empty() {
        return object;
    }
    let text = annotation(applied);
    if text == old {
        return object;
    }
    let mut object = object.unwrap_or_else(|| live.clone());
    if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
        annotations.insert(ANNOTATION.to_owned(), Value::String(text));
        let size: usize = annotations.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
        if size > ANNOTATIONS_MAX_BYTES {
            annotations.remove(ANNOTATION);
        }
    }
    Some(object)
}

fn annotation(applied: &Value) -> String {
    let mut applied = applied.clone();
    if let Some(metadata) = applied.get_mut("metadata").and_then(Value::as_object_mut)
        && let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut)
    {
        annotations.remove(ANNOTATION);
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    let text = applied.to_string();
    let text = text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    format!("{text}\n")
}
