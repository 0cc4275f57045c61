//! What new pods must satisfy, and what may change in pods that exist.

use std::collections::BTreeSet;

use serde_json::Value;

use super::gated_update;
use crate::field::{Change, ErrorList, Path};
use crate::object::{Object, list, number, put, text};
use crate::pod_spec::{self, SECONDS_MAX, toleration_rules};

/// What only new pods must satisfy.
pub(super) fn create(errors: &mut ErrorList, pod: &Value) {
    let path = Path::root("spec");
    let spec = &pod["spec"];
    if !list(spec, "ephemeralContainers").is_empty() {
        errors.forbidden(path.child("ephemeralContainers"), "cannot be set on create");
    }
    if !text(spec, "nodeName").is_empty() && !list(spec, "schedulingGates").is_empty() {
        errors.forbidden(path.child("nodeName"), "cannot be set until all schedulingGates have been cleared");
    }
    let annotations = &pod["metadata"]["annotations"];
    pod_spec::seccomp_agrees(errors, path, annotations, spec);
    pod_spec::app_armor_agrees(errors, path, annotations, spec);
}

const UPDATABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
    `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
    `spec.tolerations` (only additions to existing tolerations),\
    `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// What may change in a pod that exists.
pub(super) fn change(errors: &mut ErrorList, new: &Value, old: &Value) {
    annotation_changes(errors, new, old);
    let path = Path::root("spec");
    let (new, old) = (&new["spec"], &old["spec"]);
    for containers in ["containers", "initContainers"] {
        if list(new, containers).len() != list(old, containers).len() {
            errors.forbidden(path.child(containers), "pod updates may not add or remove containers");
            return;
        }
    }
    let deadline = path.child("activeDeadlineSeconds");
    match (new["activeDeadlineSeconds"].as_i64(), old["activeDeadlineSeconds"].as_i64()) {
        (Some(seconds), _) if !(0..=SECONDS_MAX).contains(&seconds) => {
            errors.invalid(deadline, seconds, "must be between 0 and 2147483647, inclusive");
            return;
        }
        (Some(seconds), Some(before)) if before < seconds => {
            errors.invalid(deadline, seconds, "must be less than or equal to previous value");
            return;
        }
        (None, Some(_)) => {
            errors.invalid(deadline, &Value::Null, "must not update from a positive integer to nil value");
        }
        _ => {}
    }
    tolerations_only_added(errors, path.child("tolerations"), new, old);
    let gates = path.child("schedulingGates");
    let known: BTreeSet<&str> = list(old, "schedulingGates").iter().map(|gate| text(gate, "name")).collect();
    for (index, gate) in list(new, "schedulingGates").iter().enumerate() {
        if !known.contains(text(gate, "name")) {
            let gate_path = gates.index(index);
            let detail = format!("only deletion is allowed, but found new scheduling gate '{}'", text(gate, "name"));
            errors.forbidden(gate_path.child("name"), &detail);
        }
    }
    if new == old {
        return;
    }
    let mut rest = new.as_object().cloned().unwrap_or_default();
    restore_mutable(&mut rest, old);
    if !list(old, "schedulingGates").is_empty() {
        gated_update::rules(errors, path, &mut rest, old);
    }
    if Some(&rest) != old.as_object() {
        let rest = Value::Object(rest);
        let definition = "io.k8s.api.core.v1.PodSpec";
        errors.forbidden_change(path, UPDATABLE, path, Change { definition, old, new: &rest });
    }
}

/// What may not change in the annotations of a pod.
pub(super) fn annotation_changes(errors: &mut ErrorList, new: &Value, old: &Value) {
    let path = Path::root("metadata");
    let (new, old) = (&new["metadata"]["annotations"], &old["metadata"]["annotations"]);
    pod_spec::annotation_changes(errors, path.child("annotations"), new, old);
}

/// Puts back what may change, so that the rest must be equal.
fn restore_mutable(rest: &mut Object, old: &Value) {
    for containers in ["containers", "initContainers"] {
        let Some(Value::Array(given)) = rest.get_mut(containers) else { continue };
        for (container, before) in given.iter_mut().zip(list(old, containers)) {
            if let Value::Object(container) = container {
                put(container, "image", before.get("image"));
            }
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        put(rest, field, old.get(field));
    }
    let grace = "terminationGracePeriodSeconds";
    if number(old, grace) < 0 && rest.get(grace).and_then(Value::as_i64) == Some(1) {
        put(rest, grace, old.get(grace));
    }
}

fn tolerations_only_added(errors: &mut ErrorList, path: Path<'_>, new: &Value, old: &Value) {
    fn without_seconds(toleration: &Value) -> [&str; 4] {
        ["key", "operator", "value", "effect"].map(|field| text(toleration, field))
    }
    let kept: BTreeSet<[&str; 4]> = list(new, "tolerations").iter().map(without_seconds).collect();
    if !list(old, "tolerations").iter().all(|toleration| kept.contains(&without_seconds(toleration))) {
        errors.forbidden(path, "existing toleration can not be modified except its tolerationSeconds");
        return;
    }
    toleration_rules(errors, path, list(new, "tolerations"));
}
