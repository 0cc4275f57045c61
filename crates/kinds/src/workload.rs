//! What the kinds that make pods have in common: selectors, templates and replica counts.

use bayplan_model::label_selector::Selector;
use serde_json::{Map, Value, json};

use crate::defaulting::child_or_new;
use crate::field::{ErrorList, Path};
use crate::label_selector::{is_empty_selector, selector_of, selects};
use crate::object::{Object, given, number, text};
use crate::{label_selector, names, pod_spec};

/// The default number of old revisions that are kept.
pub(crate) const REVISION_HISTORY_LIMIT: i64 = 10;

/// The labels of the pod template, if it has any.
pub(crate) fn template_labels(spec: &Object) -> Option<Value> {
    let labels = spec.get("template")?.get("metadata")?.get("labels")?;
    labels.as_object().filter(|labels| !labels.is_empty()).map(|labels| json!(labels))
}

/// An object without labels gets those of its template.
pub(crate) fn label_like_template(object: &mut Object, labels: Value) {
    let Some(metadata) = child_or_new(object, "metadata") else { return };
    if metadata.get("labels").and_then(Value::as_object).is_none_or(Map::is_empty) {
        metadata.insert("labels".into(), labels);
    }
}

/// Upstream's internal form counts replicas even where none are given.
pub(crate) fn no_replicas(object: &mut Object) {
    if let Some(spec) = child_or_new(object, "spec") {
        spec.insert("replicas".to_owned(), 0.into());
    }
}

/// Requires a selector that selects something.
pub(crate) fn selector_rules(errors: &mut ErrorList, spec_path: Path<'_>, spec: &Value, kind: &str) {
    let path = spec_path.child("selector");
    if !given(spec, "selector") {
        errors.required(path, "");
        return;
    }
    label_selector::rules(errors, path, &spec["selector"]);
    if is_empty_selector(&spec["selector"]) {
        let shown = label_selector::shown(&spec["selector"]);
        errors.invalid(path, shown, &format!("empty selector is invalid for {kind}"));
    }
}

/// Requires a selector that finds the pods of the template, which must always restart.
pub(crate) fn selector_and_template_rules(errors: &mut ErrorList, path: Path<'_>, spec: &Value) {
    // Upstream's messages name these two kinds for Deployments and ReplicaSets alike.
    selector_rules(errors, path, spec, "deployment");
    match selector_of(&spec["selector"]) {
        Some(selector) => template_rules(errors, path, spec, &selector, "ReplicaSet"),
        None => {
            let shown = label_selector::shown(&spec["selector"]);
            errors.invalid(path.child("selector"), shown, "invalid label selector");
        }
    }
}

/// Checks a template whose pods the selector must find and which must always restart.
pub(crate) fn template_rules(
    errors: &mut ErrorList,
    spec_path: Path<'_>,
    spec: &Value,
    selector: &Selector,
    kind: &str,
) {
    let path = spec_path.child("template");
    let template = &spec["template"];
    if !selector.is_everything() && !selects(selector, &template["metadata"]["labels"]) {
        let metadata = path.child("metadata");
        errors.invalid(
            metadata.child("labels"),
            &template["metadata"]["labels"],
            "`selector` does not match template `labels`",
        );
    }
    pod_spec::template_rules(errors, path, template);
    always_restarts(errors, path, template, kind);
}

/// The selector must find the pods of the template.
pub(crate) fn selected_template_rules(errors: &mut ErrorList, path: Path<'_>, spec: &Value) {
    let template_path = path.child("template");
    if let Some(selector) = selector_of(&spec["selector"]) {
        let labels = &spec["template"]["metadata"]["labels"];
        if !selects(&selector, labels) {
            let metadata = template_path.child("metadata");
            errors.invalid(metadata.child("labels"), labels, "`selector` does not match template `labels`");
        }
    }
}

pub(crate) fn always_restarts(errors: &mut ErrorList, path: Path<'_>, template: &Value, kind: &str) {
    let path = path.child("spec");
    let policy = text(&template["spec"], "restartPolicy");
    if policy != "Always" {
        errors.not_supported(path.child("restartPolicy"), policy, &["Always"]);
    }
    if given(&template["spec"], "activeDeadlineSeconds") {
        errors.forbidden(
            path.child("activeDeadlineSeconds"),
            &format!("activeDeadlineSeconds in {kind} is not Supported"),
        );
    }
}

pub(crate) fn non_negative(errors: &mut ErrorList, path: Path<'_>, object: &Value, fields: &[&str]) {
    for field in fields {
        errors.non_negative(path.child(field), number(object, field));
    }
}

/// No part of a status counts more than the whole; `ready` is how the kind calls the pods that are ready.
pub(crate) fn status_counts(errors: &mut ErrorList, path: Path<'_>, status: &Value, parts: &[&str], ready: &str) {
    for part in parts {
        if number(status, part) > number(status, "replicas") {
            errors.invalid(path.child(part), number(status, part), "cannot be greater than status.replicas");
        }
    }
    let available = number(status, "availableReplicas");
    if available > number(status, "readyReplicas") {
        errors.invalid(path.child("availableReplicas"), available, &format!("cannot be greater than {ready}"));
    }
}

pub(crate) fn collisions_only_grow(errors: &mut ErrorList, path: Path<'_>, status: &Value, old: &Value) {
    let (count, before) = (number(status, "collisionCount"), number(old, "collisionCount"));
    let is_taken_away = given(old, "collisionCount") && !given(status, "collisionCount");
    if is_taken_away || (given(old, "collisionCount") && count < before) {
        errors.invalid(path.child("collisionCount"), count, "cannot be decremented");
    }
}

/// The selector of a workload never changes.
pub(crate) fn selector_is_immutable(errors: &mut ErrorList, new: &Value, old: &Value) {
    let path = Path::root("spec");
    let (new, old) = (&new["spec"]["selector"], &old["spec"]["selector"]);
    if new != old {
        errors.invalid(path.child("selector"), label_selector::shown(new), "field is immutable");
    }
}

/// What clients are warned of in a template, when the workload is new or its spec changes.
pub(crate) fn template_warnings(object: &Value, old: Option<&Value>) -> Vec<String> {
    if !spec_changes(object, old) {
        return Vec::new();
    }
    pod_spec::warnings("spec.template.", &object["spec"]["template"])
}

/// The same, and of a new workload's name where pods are called after it.
pub(crate) fn named_template_warnings(object: &Value, old: Option<&Value>) -> Vec<String> {
    let mut warnings = if old.is_none() { name_warnings(object, "Pod names and hostnames") } else { Vec::new() };
    warnings.extend(template_warnings(object, old));
    warnings
}

/// Whether an object is new or of another generation than it was.
pub(crate) fn spec_changes(object: &Value, old: Option<&Value>) -> bool {
    old.is_none_or(|old| old["metadata"]["generation"] != object["metadata"]["generation"])
}

pub(crate) fn name_warnings(object: &Value, used_in: &str) -> Vec<String> {
    let problems = names::dns_label(text(&object["metadata"], "name"));
    if problems.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "metadata.name: this is used in {used_in}, which can result in surprising behavior; a DNS label is \
         recommended: [{}]",
        problems.join(" ")
    )]
}
