//! The fields that field selectors may name.

use serde_json::Value;

use crate::resources::Resource;

/// The name a field label stands for, or why it cannot be selected by.
///
/// Some kinds know older spellings; `events.k8s.io` names the same fields in its own words.
pub fn check_field_label<'l>(resource: &'static Resource, label: &'l str) -> Result<&'l str, String> {
    if label == "metadata.name" || (label == "metadata.namespace" && resource.kind != "Namespace") {
        return Ok(label);
    }
    let fields = super::of(resource).selectable_fields();
    let canonical = match (resource.group, resource.kind, label) {
        ("", "Pod", "spec.host") => "spec.nodeName",
        ("events.k8s.io", "Event", _) => core_event_label(label).unwrap_or(""),
        _ => label,
    };
    if fields.contains(&canonical) {
        return Ok(canonical);
    }
    // Kinds that list their fields refuse in other words than kinds that have none.
    if fields.is_empty() {
        Err(format!("{label:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""))
    } else {
        Err(format!("field label not supported: {label}"))
    }
}

fn core_event_label(label: &str) -> Option<&'static str> {
    Some(match label {
        "regarding.kind" => "involvedObject.kind",
        "regarding.namespace" => "involvedObject.namespace",
        "regarding.name" => "involvedObject.name",
        "regarding.uid" => "involvedObject.uid",
        "regarding.apiVersion" => "involvedObject.apiVersion",
        "regarding.resourceVersion" => "involvedObject.resourceVersion",
        "regarding.fieldPath" => "involvedObject.fieldPath",
        "reportingController" => "reportingComponent",
        "reason" => "reason",
        "type" => "type",
        _ => return None,
    })
}

/// The value of a field that may be selected by, empty when unset.
pub(super) fn value(kind: &str, object: &Value, field: &str) -> String {
    match (kind, field) {
        ("Pod", "spec.hostNetwork") | ("Node", "spec.unschedulable") => {
            let (_, name) = field.split_once('.').unwrap_or(("", field));
            object["spec"][name].as_bool().unwrap_or(false).to_string()
        }
        ("Pod", "status.podIPs") => {
            let ips = object["status"]["podIPs"].as_array().into_iter().flatten();
            ips.filter_map(|entry| entry["ip"].as_str()).collect::<Vec<_>>().join(",")
        }
        ("Pod", "status.podIP") => {
            let first = object["status"]["podIPs"][0]["ip"].as_str();
            first.or_else(|| object["status"]["podIP"].as_str()).unwrap_or("").to_owned()
        }
        ("Job", "status.successful") => object["status"]["succeeded"].as_i64().unwrap_or(0).to_string(),
        ("ReplicationController", "status.replicas") => object["status"]["replicas"].as_i64().unwrap_or(0).to_string(),
        ("Event", _) => event_value(object, field).to_owned(),
        _ => {
            let found = field.split('.').fold(object, |value, name| &value[name]);
            found.as_str().unwrap_or("").to_owned()
        }
    }
}

/// Reads an event in either of its two forms.
fn event_value<'v>(object: &'v Value, field: &str) -> &'v str {
    let first = |values: &[&'v Value]| values.iter().find_map(|value| value.as_str()).unwrap_or("");
    match field {
        "reportingComponent" => first(&[&object["reportingComponent"], &object["reportingController"]]),
        "source" => {
            let source = first(&[&object["source"]["component"], &object["deprecatedSource"]["component"]]);
            if source.is_empty() {
                first(&[&object["reportingComponent"], &object["reportingController"]])
            } else {
                source
            }
        }
        _ => match field.strip_prefix("involvedObject.") {
            Some(name) => first(&[&object["involvedObject"][name], &object["regarding"][name]]),
            None => {
                let found = field.split('.').fold(object, |value, name| &value[name]);
                found.as_str().unwrap_or("")
            }
        },
    }
}
