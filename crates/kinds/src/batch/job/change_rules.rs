//! What may change in a job that exists.

use serde_json::Value;

use super::rules::own_spec_rules;
use crate::defaulting::child;
use crate::field::{ErrorList, GoValue, Path};
use crate::label_selector;
use crate::object::{Object, list, number, put, text};

pub(super) fn rules(errors: &mut ErrorList, new: &Value, old: &Value) {
    let path = Path::root("spec");
    let (spec, before) = (&new["spec"], &old["spec"]);
    // Upstream checks the spec again, and says so.
    own_spec_rules(errors, spec);
    completions(errors, path.child("completions"), spec, before);
    if spec["selector"] != before["selector"] {
        let shown = label_selector::shown(&spec["selector"]);
        errors.invalid(path.child("selector"), shown, "field is immutable");
    }
    template(errors, path.child("template"), new, old);
    for field in ["completionMode", "backoffLimitPerIndex", "managedBy"] {
        errors.immutable(path.child(field), &spec[field], &before[field]);
    }
    for (field, kind) in [
        ("podFailurePolicy", "io.k8s.api.batch.v1.PodFailurePolicy"),
        ("successPolicy", "io.k8s.api.batch.v1.SuccessPolicy"),
    ] {
        if spec[field] != before[field] {
            errors.invalid(path.child(field), GoValue(kind, &spec[field]), "field is immutable");
        }
    }
}

/// The completions of an indexed job follow its parallelism.
fn completions(errors: &mut ErrorList, path: Path<'_>, spec: &Value, before: &Value) {
    let (new, old) = (&spec["completions"], &before["completions"]);
    if text(spec, "completionMode") != "Indexed" {
        return errors.immutable(path, new, old);
    }
    if new != old && !new.is_null() && number(spec, "completions") != number(spec, "parallelism") {
        errors.invalid(path, new, "can only be modified in tandem with spec.parallelism");
    }
}

/// Where the pods of a suspended job run may change (KEP-2926), and what they ask for (KEP-5440).
fn template(errors: &mut ErrorList, path: Path<'_>, new: &Value, old: &Value) {
    let (template, before) = (&new["spec"]["template"], &old["spec"]["template"]);
    if template == before {
        return;
    }
    if may_change_template(old) {
        // Of such a template upstream compares the spec alone.
        let mut expected = before.clone();
        allow_scheduling(&mut expected, template);
        allow_resources(&mut expected, template);
        if template["spec"] != expected["spec"] {
            let shown = GoValue("io.k8s.api.core.v1.PodSpec", &template["spec"]);
            errors.invalid(path.child("spec"), shown, "field is immutable");
        }
    } else {
        let shown = GoValue("io.k8s.api.core.v1.PodTemplateSpec", template);
        errors.invalid(path, shown, "field is immutable");
    }
}

/// The job is suspended, and no pod of it runs.
fn may_change_template(old: &Value) -> bool {
    let said = list(&old["status"], "conditions")
        .iter()
        .any(|condition| text(condition, "type") == "Suspended" && text(condition, "status") == "True");
    let not_started = old["status"]["startTime"].is_null();
    old["spec"]["suspend"] == true && (not_started || said) && number(&old["status"], "active") == 0
}

fn allow_scheduling(expected: &mut Value, template: &Value) {
    let Some(expected) = expected.as_object_mut() else { return };
    let Some(spec) = child(expected, "spec") else { return };
    for field in ["nodeSelector", "tolerations", "schedulingGates"] {
        put(spec, field, template["spec"].get(field));
    }
    let node = template["spec"]["affinity"].get("nodeAffinity");
    let given = template["spec"].get("affinity").is_some();
    match child(spec, "affinity") {
        Some(affinity) => {
            put(affinity, "nodeAffinity", node);
            if !given && affinity.is_empty() {
                spec.remove("affinity");
            }
        }
        None if given => {
            let mut affinity = Object::new();
            put(&mut affinity, "nodeAffinity", node);
            spec.insert("affinity".into(), Value::Object(affinity));
        }
        None => {}
    }
}

fn allow_resources(expected: &mut Value, template: &Value) {
    for kind in ["containers", "initContainers"] {
        let given = list(&template["spec"], kind);
        let Some(containers) = expected["spec"].get_mut(kind).and_then(Value::as_array_mut) else { continue };
        if containers.len() != given.len() {
            continue;
        }
        for (container, given) in containers.iter_mut().zip(given) {
            if let Value::Object(container) = container
                && container.get("name") == given.get("name")
            {
                put(container, "resources", given.get("resources"));
            }
        }
    }
}
