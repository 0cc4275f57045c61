//! Conversion between API versions. One resource has two: events, in the core group and in `events.k8s.io`.

use bayplan_kinds::Kind;
use bayplan_model::status::Status;
use serde_json::{Map, Value, json};

use crate::encode::Encoded;

/// The fields of an event: name in `events.k8s.io`, name in core.
const EVENT_FIELDS: &[(&str, &str)] = &[
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("reportingController", "reportingComponent"),
];

fn rename(object: &mut Value, resource: &Kind, pairs: impl Iterator<Item = (&'static str, &'static str)>) {
    let Some(members) = object.as_object_mut() else { return };
    let moved: Vec<(&str, Value)> =
        pairs.filter_map(|(from, to)| members.remove(from).map(|value| (to, value))).collect();
    members.extend(moved.into_iter().map(|(to, value)| (to.to_owned(), value)));
    members.insert("apiVersion".to_owned(), Value::String(resource.api_version()));
}

/// Converts an object from the storage version.
pub(super) fn from_storage(resource: &'static Kind, mut object: Value) -> Value {
    if std::ptr::eq(resource, resource.storage()) {
        return object;
    }
    rename(&mut object, resource, EVENT_FIELDS.iter().map(|(new, core)| (*core, *new)));
    if let Some(members) = object.as_object_mut() {
        // The two versions differ in which empty fields they omit.
        for key in ["reportingController", "reportingInstance", "reason", "note", "type", "action"] {
            if members.get(key).is_some_and(|v| v == "") {
                members.remove(key);
            }
        }
        for key in ["deprecatedFirstTimestamp", "deprecatedLastTimestamp"] {
            members.entry(key).or_insert(Value::Null);
        }
        for key in ["regarding", "deprecatedSource"] {
            members.entry(key).or_insert_with(|| json!({}));
        }
    }
    object
}

/// Converts an object to the storage version.
pub(super) fn to_storage(resource: &'static Kind, mut object: Value) -> Value {
    let storage = resource.storage();
    if std::ptr::eq(resource, storage) {
        return object;
    }
    rename(&mut object, storage, EVENT_FIELDS.iter().copied());
    if let Some(members) = object.as_object_mut() {
        let fill = |members: &mut Map<String, Value>, key: &str, value: Value| {
            members.entry(key).or_insert(value);
        };
        fill(members, "involvedObject", json!({}));
        fill(members, "source", json!({}));
        fill(members, "firstTimestamp", Value::Null);
        fill(members, "lastTimestamp", Value::Null);
        fill(members, "eventTime", Value::Null);
        fill(members, "reportingComponent", json!(""));
        fill(members, "reportingInstance", json!(""));
    }
    object
}

/// Converts stored bytes; the storage version needs no conversion.
pub(super) fn view(resource: &'static Kind, encoded: Encoded) -> Result<Encoded, Status> {
    if std::ptr::eq(resource, resource.storage()) {
        return Ok(encoded);
    }
    Ok(Encoded::new(resource, &from_storage(resource, encoded.decode(None)?)))
}
