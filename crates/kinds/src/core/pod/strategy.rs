//! What a write of a pod may set: status, scheduling gates, merged label keys.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::quality_of_service::quality_of_service;
use crate::codec;
use crate::object::{Object, put, text};
use crate::strategy::{restore, restore_metadata};
use crate::{pod_spec, workload};

pub(super) fn on_create(object: &mut Object, now: Timestamp) {
    let quality = quality_of_service(object.get("spec").unwrap_or(&Value::Null));
    let mut status = json!({ "phase": "Pending", "qosClass": quality });
    let gated =
        object.get("spec").is_some_and(|spec| spec["schedulingGates"].as_array().is_some_and(|g| !g.is_empty()));
    if gated {
        status["conditions"] = json!([{
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": null,
            "lastTransitionTime": codec::write_time(now),
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }]);
    }
    object.insert("status".into(), status);
    merge_label_keys(object);
    pod_spec::profiles_from_annotations(object);
}

/// What the client of a new pod is warned of. Changes warn of nothing, because seldom a person makes them.
pub(super) fn create_warnings(pod: &Value) -> Vec<String> {
    let mut warnings = workload::name_warnings(pod, "the Pod's hostname");
    warnings.extend(pod_spec::warnings("", pod));
    warnings
}

pub(super) fn on_update(object: &mut Object, old: &Value, subresource: &str, _now: Timestamp) {
    match subresource {
        "status" => status_on_update(object, old),
        "ephemeralcontainers" => keep_but(object, old, |spec, given| {
            put(spec, "ephemeralContainers", given.get("ephemeralContainers"));
        }),
        "resize" => keep_but(object, old, resized),
        _ => {}
    }
}

/// The status endpoint does not write owners, and keeps fields that older clients leave out.
fn status_on_update(object: &mut Object, old: &Value) {
    restore_metadata(object, old, "ownerReferences");
    let Some(Value::Object(status)) = object.get_mut("status") else { return };
    let before = &old["status"];
    for field in ["qosClass", "observedGeneration"] {
        if !status.contains_key(field)
            && let Some(value) = before.get(field)
        {
            status.insert(field.into(), value.clone());
        }
    }
    let mut generations: BTreeMap<&str, VecDeque<&Value>> = BTreeMap::new();
    for condition in before["conditions"].as_array().into_iter().flatten() {
        let entry = generations.entry(condition["type"].as_str().unwrap_or("")).or_default();
        entry.push_back(&condition["observedGeneration"]);
    }
    for condition in status.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(known) = generations.get_mut(condition["type"].as_str().unwrap_or("")) else { continue };
        let Some(generation) = known.pop_front() else { continue };
        if condition.get("observedGeneration").is_none() && !generation.is_null() {
            condition["observedGeneration"] = generation.clone();
        }
    }
}

/// Restores the old pod, except for what the subresource may change.
fn keep_but(object: &mut Object, old: &Value, take: impl Fn(&mut Object, &Value)) {
    let given = object.get("spec").cloned().unwrap_or(Value::Null);
    restore(object, old, "spec");
    for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
        restore_metadata(object, old, field);
    }
    if let Some(Value::Object(spec)) = object.get_mut("spec") {
        take(spec, &given);
    }
}

fn resized(spec: &mut Object, given: &Value) {
    put(spec, "resources", given.get("resources"));
    for list in ["containers", "initContainers"] {
        let new = given[list].as_array();
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        let (Some(containers), Some(new)) = (containers, new) else { continue };
        if containers.len() != new.len() {
            // Refused later, for what it is.
            new.clone_into(containers);
            continue;
        }
        // Of several with one name the first, which goes last because the last one stays.
        let new: BTreeMap<&str, &Value> = new.iter().rev().map(|given| (text(given, "name"), given)).collect();
        for container in containers {
            let Some(given) = new.get(text(container, "name")) else { continue };
            if let Value::Object(container) = container {
                put(container, "resources", given.get("resources"));
                put(container, "resizePolicy", given.get("resizePolicy"));
            }
        }
    }
}

/// Adds `key In/NotIn [the pod's own value]` to the selectors of affinity terms and spread constraints (KEP-3633).
fn merge_label_keys(object: &mut Object) {
    let labels = object.get("metadata").map_or(Value::Null, |metadata| metadata["labels"].clone());
    let Some(Value::Object(spec)) = object.get_mut("spec") else { return };
    if let Some(affinity) = spec.get_mut("affinity") {
        for kind in ["podAffinity", "podAntiAffinity"] {
            let Some(affinity) = affinity.get_mut(kind) else { continue };
            for term in terms(affinity, "preferredDuringSchedulingIgnoredDuringExecution") {
                if let Some(term) = term.get_mut("podAffinityTerm") {
                    merge_into_selector(term, &labels);
                }
            }
            for term in terms(affinity, "requiredDuringSchedulingIgnoredDuringExecution") {
                merge_into_selector(term, &labels);
            }
        }
    }
    for constraint in spec.get_mut("topologySpreadConstraints").and_then(Value::as_array_mut).into_iter().flatten() {
        merge_into_selector(constraint, &labels);
    }
}

fn terms<'v>(affinity: &'v mut Value, name: &str) -> impl Iterator<Item = &'v mut Value> {
    affinity.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten()
}

fn merge_into_selector(term: &mut Value, labels: &Value) {
    let mut added = Vec::new();
    for (keys, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        for key in term[keys].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if let Some(value) = labels.get(key) {
                added.push(json!({ "key": key, "operator": operator, "values": [value] }));
            }
        }
    }
    if added.is_empty() {
        return;
    }
    // A missing selector matches nothing, whatever the keys say.
    let Some(Value::Object(selector)) = term.get_mut("labelSelector") else { return };
    let expressions = selector.entry("matchExpressions").or_insert_with(|| Value::Array(Vec::new()));
    if let Value::Array(expressions) = expressions {
        expressions.extend(added);
    }
}
