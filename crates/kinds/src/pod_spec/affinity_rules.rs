//! The rules of affinity and of spreading over topology.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::field::{ErrorList, Path};
use crate::object::{given, list, number, text};
use crate::{label_selector, names};

pub(crate) const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

pub(crate) const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

pub(super) fn affinity(errors: &mut ErrorList, path: Path<'_>, affinity: &Value) {
    if !affinity.is_object() {
        return;
    }
    let node_path = path.child("nodeAffinity");
    let node = &affinity["nodeAffinity"];
    if given(node, REQUIRED) {
        node_selector(errors, node_path.child(REQUIRED), &node[REQUIRED]);
    }
    let preferred = node_path.child(PREFERRED);
    for (index, entry) in list(node, PREFERRED).iter().enumerate() {
        let path = preferred.index(index);
        weight(errors, path, entry);
        // A preference may ask for what no label can have.
        node_term(errors, path.child("preference"), &entry["preference"], false);
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let kind_path = path.child(kind);
        let required = kind_path.child(REQUIRED);
        for (index, term) in list(&affinity[kind], REQUIRED).iter().enumerate() {
            pod_term(errors, required.index(index), term);
        }
        let preferred = kind_path.child(PREFERRED);
        for (index, entry) in list(&affinity[kind], PREFERRED).iter().enumerate() {
            let path = preferred.index(index);
            weight(errors, path, entry);
            pod_term(errors, path.child("podAffinityTerm"), &entry["podAffinityTerm"]);
        }
    }
}

fn weight(errors: &mut ErrorList, path: Path<'_>, entry: &Value) {
    let weight = number(entry, "weight");
    if !(1..=100).contains(&weight) {
        errors.invalid(path.child("weight"), weight, "must be in the range 1-100");
    }
}

/// Checks a node selector. Upstream: `ValidateNodeSelector`.
pub(crate) fn node_selector(errors: &mut ErrorList, path: Path<'_>, selector: &Value) {
    let path = path.child("nodeSelectorTerms");
    let terms = list(selector, "nodeSelectorTerms");
    if terms.is_empty() {
        errors.required(path, "must have at least one node selector term");
    }
    for (index, term) in terms.iter().enumerate() {
        node_term(errors, path.index(index), term, true);
    }
}

fn node_term(errors: &mut ErrorList, path: Path<'_>, term: &Value, checks_values: bool) {
    let expressions = path.child("matchExpressions");
    for (index, expression) in list(term, "matchExpressions").iter().enumerate() {
        let path = expressions.index(index);
        let values = list(expression, "values");
        match text(expression, "operator") {
            "In" | "NotIn" if values.is_empty() => {
                errors.required(path.child("values"), "must be specified when `operator` is 'In' or 'NotIn'");
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => errors
                .forbidden(path.child("values"), "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"),
            "Gt" | "Lt" if values.len() != 1 => {
                errors.required(path.child("values"), "must be specified single value when `operator` is 'Lt' or 'Gt'")
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            other => errors.invalid(path.child("operator"), other, "not a valid selector operator"),
        }
        let key = text(expression, "key");
        errors.all_invalid(path.child("key"), key, names::qualified_name(key));
        if checks_values {
            label_selector::values(errors, path.child("values"), values);
        }
    }
    let fields = path.child("matchFields");
    for (index, field) in list(term, "matchFields").iter().enumerate() {
        let path = fields.index(index);
        let values = list(field, "values");
        match text(field, "operator") {
            "In" | "NotIn" if values.len() != 1 => errors.required(
                path.child("values"),
                "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
            ),
            "In" | "NotIn" => {}
            other => errors.invalid(path.child("operator"), other, "not a valid selector operator"),
        }
        if text(field, "key") == "metadata.name" {
            let values_path = path.child("values");
            for (index, value) in values.iter().filter_map(Value::as_str).enumerate() {
                errors.all_invalid(values_path.index(index), value, names::dns_subdomain(value));
            }
        } else {
            errors.invalid(path.child("key"), text(field, "key"), "not a valid field selector key");
        }
    }
}

fn pod_term(errors: &mut ErrorList, path: Path<'_>, term: &Value) {
    label_selector::rules(errors, path.child("labelSelector"), &term["labelSelector"]);
    label_selector::rules(errors, path.child("namespaceSelector"), &term["namespaceSelector"]);
    for namespace in list(term, "namespaces").iter().filter_map(Value::as_str) {
        errors.all_invalid(path.child("namespace"), namespace, names::dns_label(namespace));
    }
    label_keys(errors, path, term);
    selected_keys(errors, path, term);
    let key = text(term, "topologyKey");
    if key.is_empty() {
        errors.required(path.child("topologyKey"), "can not be empty");
    }
    errors.all_invalid(path.child("topologyKey"), key, names::qualified_name(key));
}

/// Label keys need a selector to merge into, and no key may be in both lists.
fn label_keys(errors: &mut ErrorList, path: Path<'_>, term: &Value) {
    let mismatch: BTreeSet<&str> = list(term, "mismatchLabelKeys").iter().filter_map(Value::as_str).collect();
    for field in ["matchLabelKeys", "mismatchLabelKeys"] {
        let keys = list(term, field);
        if keys.is_empty() {
            continue;
        }
        let keys_path = path.child(field);
        let has_selector = given(term, "labelSelector");
        if !has_selector {
            errors.forbidden(keys_path, "must not be specified when labelSelector is not set");
        }
        for (index, key) in keys.iter().filter_map(Value::as_str).enumerate() {
            if has_selector {
                errors.all_invalid(keys_path.index(index), key, names::qualified_name(key));
            }
            if field == "matchLabelKeys" && mismatch.contains(key) {
                errors.invalid(keys_path.index(index), key, "exists in both matchLabelKeys and mismatchLabelKeys");
            }
        }
    }
}

/// A key that is matched against the pod's own label is selected by nothing else: the selector has it once by then.
fn selected_keys(errors: &mut ErrorList, path: Path<'_>, term: &Value) {
    let places: BTreeMap<&str, usize> =
        list(term, "matchLabelKeys").iter().filter_map(Value::as_str).zip(0..).collect();
    if places.is_empty() || !given(term, "labelSelector") {
        return;
    }
    let selector = &term["labelSelector"];
    let mut selected: BTreeSet<&str> =
        selector["matchLabels"].as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect();
    for key in list(selector, "matchExpressions").iter().map(|expression| text(expression, "key")) {
        if let (Some(index), false) = (places.get(key), selected.insert(key)) {
            errors.invalid(path.index(*index), key, "exists in both matchLabelKeys and labelSelector");
        }
    }
}

pub(super) fn spread(errors: &mut ErrorList, path: Path<'_>, constraints: &[Value]) {
    fn domain(constraint: &Value) -> (&str, &str) {
        (text(constraint, "topologyKey"), text(constraint, "whenUnsatisfiable"))
    }
    let last: BTreeMap<_, usize> = constraints.iter().map(domain).zip(0..).collect();
    for (index, constraint) in constraints.iter().enumerate() {
        let path = path.index(index);
        let skew = number(constraint, "maxSkew");
        if skew <= 0 {
            errors.invalid(path.child("maxSkew"), skew, "must be greater than zero");
        }
        let (key, policy) = domain(constraint);
        if key.is_empty() {
            errors.required(path.child("topologyKey"), "can not be empty");
        }
        if !matches!(policy, "DoNotSchedule" | "ScheduleAnyway") {
            errors.not_supported(path.child("whenUnsatisfiable"), policy, &["DoNotSchedule", "ScheduleAnyway"]);
        }
        if last.get(&(key, policy)).is_some_and(|last| *last > index) {
            let shown = format!("{{{key}, {policy}}}");
            errors.duplicate(path.child("{topologyKey, whenUnsatisfiable}"), shown.as_str());
        }
        if let Some(domains) = constraint["minDomains"].as_i64() {
            if domains <= 0 {
                errors.invalid(path.child("minDomains"), domains, "must be greater than zero");
            }
            if policy != "DoNotSchedule" {
                let detail = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {policy}");
                errors.invalid(path.child("minDomains"), domains, &detail);
            }
        }
        for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            let value = text(constraint, field);
            if given(constraint, field) && !matches!(value, "Ignore" | "Honor") {
                errors.not_supported(path.child(field), value, &["Honor", "Ignore"]);
            }
        }
        label_keys(errors, path, constraint);
        label_selector::rules(errors, path.child("labelSelector"), &constraint["labelSelector"]);
    }
}
