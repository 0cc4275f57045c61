//! Jobs choose their own selector.

use jiff::Timestamp;
use serde_json::{Map, Value};

const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";

/// Labels the template and selects by the job's UID, unless the user manages the selector.
pub(super) fn on_create(object: &mut Map<String, Value>, _now: Timestamp) {
    let metadata = object.get("metadata").unwrap_or(&Value::Null);
    let name = metadata["name"].clone();
    let uid = metadata["uid"].clone();
    let Some(Value::Object(spec)) = object.get_mut("spec") else { return };
    if spec.get("manualSelector").and_then(Value::as_bool) == Some(true) {
        return;
    }
    if let Some(labels) = spec.get_mut("template").and_then(|template| labels_of(template, "metadata", "labels")) {
        for label in ["job-name", "batch.kubernetes.io/job-name"] {
            labels.entry(label).or_insert_with(|| name.clone());
        }
        for label in ["controller-uid", CONTROLLER_UID] {
            labels.entry(label).or_insert_with(|| uid.clone());
        }
    }
    let labels = spec["template"]["metadata"]["labels"].clone();
    let selector = spec.entry("selector").or_insert(Value::Null);
    if selector.is_null() {
        *selector = Value::Object(Map::new());
    }
    if let Value::Object(selector) = selector {
        let labels = selector.entry("matchLabels").or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(labels) = labels {
            labels.entry(CONTROLLER_UID).or_insert(uid);
        }
    }
    // A job without labels has those of its template.
    if let Some(Value::Object(metadata)) = object.get_mut("metadata")
        && metadata.get("labels").and_then(Value::as_object).is_none_or(Map::is_empty)
    {
        metadata.insert("labels".to_owned(), labels);
    }
}

fn labels_of<'v>(value: &'v mut Value, outer: &str, inner: &str) -> Option<&'v mut Map<String, Value>> {
    let outer = value.as_object_mut()?.entry(outer).or_insert_with(|| Value::Object(Map::new()));
    let inner = outer.as_object_mut()?.entry(inner).or_insert_with(|| Value::Object(Map::new()));
    inner.as_object_mut()
}
