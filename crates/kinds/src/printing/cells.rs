//! Cells that several kinds print.

use jiff::Timestamp;
use serde_json::Value;

use super::age;
use crate::label_selector::selector_of;
use crate::object::{given, list, text};

pub(crate) fn name_of(object: &Value) -> Value {
    text(&object["metadata"], "name").into()
}

/// How long ago the object was created.
pub(crate) fn age_of(object: &Value, now: Timestamp) -> Value {
    age::since(&object["metadata"]["creationTimestamp"], now).into()
}

pub(crate) fn or<'t>(text: &'t str, otherwise: &'t str) -> &'t str {
    if text.is_empty() { otherwise } else { text }
}

/// The names and the images of a pod spec's containers.
pub(crate) fn containers(pod_spec: &Value) -> (Value, Value) {
    let joined = |field: &str| {
        let all: Vec<&str> = list(pod_spec, "containers").iter().map(|container| text(container, field)).collect();
        Value::from(all.join(","))
    };
    (joined("name"), joined("image"))
}

/// A label selector in query form.
pub(crate) fn shown_selector(selector: &Value) -> Value {
    let text = selector_of(selector).map_or_else(|| "<error>".to_owned(), |selector| selector.to_string());
    or(&text, "<none>").into()
}

/// Labels as `k=v,k2=v2`.
pub(crate) fn labels_of(value: &Value) -> Value {
    let pairs = value.as_object().into_iter().flatten();
    let text: Vec<String> = pairs.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or(""))).collect();
    or(&text.join(","), "<none>").into()
}

/// How many entries a map has.
pub(crate) fn entries(object: &Value, name: &str) -> usize {
    object[name].as_object().map_or(0, serde_json::Map::len)
}

/// Endpoints shown before the rest is only counted.
const ENDPOINTS_MAX: usize = 3;

/// The first few, and how many more there are.
pub(crate) fn some_and_more(all: &[String]) -> String {
    if all.len() > ENDPOINTS_MAX {
        format!("{} + {} more...", all[..ENDPOINTS_MAX].join(","), all.len() - ENDPOINTS_MAX)
    } else {
        all.join(",")
    }
}

pub(crate) fn access_modes(value: &Value) -> Value {
    const SHORT: [(&str, &str); 4] =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let modes = list(value, "accessModes");
    let shown: Vec<&str> =
        SHORT.iter().filter(|(long, _)| modes.iter().any(|mode| mode == *long)).map(|(_, short)| *short).collect();
    shown.join(",").into()
}

/// The storage class, which older objects name in an annotation.
pub(crate) fn storage_class_name(object: &Value) -> Value {
    let annotated = &object["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"];
    annotated.as_str().unwrap_or_else(|| text(&object["spec"], "storageClassName")).into()
}

pub(crate) fn phase(object: &Value) -> Value {
    let deleting = given(&object["metadata"], "deletionTimestamp");
    if deleting { "Terminating".into() } else { text(&object["status"], "phase").into() }
}

pub(crate) fn or_unset(object: &Value, name: &str) -> Value {
    if given(object, name) { text(object, name).into() } else { "<unset>".into() }
}
