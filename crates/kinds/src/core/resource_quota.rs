//! ResourceQuotas.

use std::collections::BTreeSet;

use bayplan_model::quantity::Quantity;
use jiff::Timestamp;
use serde_json::Value;

use super::resource_names::{is_compute_quota, is_integer, is_standard_quota, resource_name};
use crate::defaulting::{child, round_resource_list};
use crate::field::{ErrorList, GoValue, Path};
use crate::kind::{Kind, STANDARD_VERBS, Scope, Subresource};
use crate::object::{Object, given, list, text};
use crate::printing::{AGE, NAME, Printer, age_of, name_of, string};
use crate::strategy::{StatusRule, Strategy};
use crate::validation::Validation;

pub(crate) static KIND: Kind = Kind {
    kind: "ResourceQuota",
    plural: "resourcequotas",
    singular: "resourcequota",
    scope: Scope::Namespaced,
    short_names: &["quota"],
    verbs: STANDARD_VERBS,
    subresources: &[Subresource::status("ResourceQuota")],
    storage_prefix: "resourcequotas",
    defaults,
    strategy: Strategy { returns_object_on_delete: true, status: StatusRule::Owned, ..Strategy::PLAIN },
    validation: Validation {
        rules: |errors, object, _old| spec_rules(errors, &object["spec"]),
        change_rules,
        status_rules,
        ..Validation::PLAIN
    },
    printer: Printer { columns: &[NAME, string("Request"), string("Limit"), AGE], cells, ..Printer::PLAIN },
    ..Kind::PLAIN
};

/// What a quota can be narrowed to.
const SCOPES: &[&str] = &[
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
];
/// Scopes that a selector can only name, without values.
const WITHOUT_VALUES: &[&str] =
    &["Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "CrossNamespacePodAffinity"];
const ONLY_EXISTS: &str = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
    ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or \
    ResourceQuotaScopeCrossNamespacePodAffinity";

fn defaults(object: &mut Object) {
    if let Some(spec) = child(object, "spec") {
        round_resource_list(spec, "hard");
    }
    if let Some(status) = child(object, "status") {
        round_resource_list(status, "hard");
        round_resource_list(status, "used");
    }
}

fn spec_rules(errors: &mut ErrorList, spec: &Value) {
    let path = Path::root("spec");
    amounts(errors, path.child("hard"), &spec["hard"]);
    let names: Vec<&str> = list(spec, "scopes").iter().map(|scope| scope.as_str().unwrap_or_default()).collect();
    let at = path.child("scopes");
    for scope in &names {
        if !SCOPES.contains(scope) {
            errors.invalid(at, &spec["scopes"], "unsupported scope");
        }
        for _ in misfits(spec, scope) {
            errors.invalid(at, &spec["scopes"], "unsupported scope applied to resource");
        }
    }
    conflicts(errors, at, spec, &names.into_iter().collect());
    if given(spec, "scopeSelector") {
        let at = path.child("scopeSelector");
        selector(errors, at.child("matchExpressions"), spec);
    }
}

fn amounts(errors: &mut ErrorList, path: Path<'_>, amounts: &Value) {
    for (name, amount) in amounts.as_object().into_iter().flatten() {
        let path = path.key(name);
        resource_name(errors, path, name);
        if !name.contains('/') && !is_standard_quota(name) {
            errors.invalid(path, name.as_str(), "must be a standard resource for quota");
        }
        let shown = amount.as_str().unwrap_or_default();
        let Ok(quantity) = shown.parse::<Quantity>() else { continue };
        if quantity.sign() < 0 {
            errors.invalid(path, shown, "must be greater than or equal to 0");
        }
        if is_integer(name) && quantity.milli_value() % 1000 != 0 {
            errors.invalid(path, shown, "must be an integer");
        }
    }
}

/// The resources of a quota that a scope does not narrow.
fn misfits<'v>(spec: &'v Value, scope: &'v str) -> impl Iterator<Item = &'v str> {
    let fits = move |name: &str| match scope {
        "Terminating" | "NotTerminating" | "NotBestEffort" | "PriorityClass" | "CrossNamespacePodAffinity" => {
            name == "pods" || is_compute_quota(name)
        }
        "BestEffort" => name == "pods",
        "VolumeAttributesClass" => matches!(name, "persistentvolumeclaims" | "requests.storage"),
        _ => true,
    };
    let hard = spec["hard"].as_object().into_iter().flatten().map(|(name, _)| name.as_str());
    hard.filter(move |name| is_standard_quota(name) && !fits(name))
}

fn conflicts(errors: &mut ErrorList, path: Path<'_>, spec: &Value, scopes: &BTreeSet<&str>) {
    for (one, other) in [("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")] {
        if scopes.contains(one) && scopes.contains(other) {
            errors.invalid(path, &spec["scopes"], "conflicting scopes");
        }
    }
}

fn selector(errors: &mut ErrorList, path: Path<'_>, spec: &Value) {
    let expressions = list(&spec["scopeSelector"], "matchExpressions");
    let mut scopes = BTreeSet::new();
    for expression in expressions {
        let (scope, operator) = (text(expression, "scopeName"), text(expression, "operator"));
        let values = list(expression, "values");
        if !SCOPES.contains(&scope) {
            errors.invalid(path.child("scopeName"), scope, "unsupported scope");
        }
        for _ in misfits(spec, scope) {
            let shown = GoValue("io.k8s.api.core.v1.ScopeSelector", &spec["scopeSelector"]);
            errors.invalid(path, shown, "unsupported scope applied to resource");
        }
        if WITHOUT_VALUES.contains(&scope) && operator != "Exists" {
            errors.invalid(path.child("operator"), operator, ONLY_EXISTS);
        }
        match operator {
            "In" | "NotIn" if values.is_empty() => {
                let detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                errors.required(path.child("values"), detail);
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                errors.invalid(path.child("values"), &expression["values"], detail);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => errors.invalid(path.child("operator"), other, "not a valid selector operator"),
        }
        scopes.insert(scope);
    }
    conflicts(errors, path, spec, &scopes);
}

fn change_rules(errors: &mut ErrorList, new: &Value, old: &Value) {
    let scopes = |object: &Value| -> BTreeSet<String> {
        list(&object["spec"], "scopes").iter().filter_map(|scope| scope.as_str().map(str::to_owned)).collect()
    };
    if scopes(new) != scopes(old) {
        let path = Path::root("spec");
        errors.invalid(path.child("scopes"), &new["spec"]["scopes"], "field is immutable");
    }
}

fn status_rules(errors: &mut ErrorList, object: &Value, _old: &Value) {
    let path = Path::root("status");
    for field in ["hard", "used"] {
        amounts(errors, path.child(field), &object["status"][field]);
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let status = &object["status"];
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (resource, hard) in status["hard"].as_object().into_iter().flatten() {
        let used = status["used"][resource].as_str().unwrap_or("0");
        let entry = format!("{resource}: {used}/{}", hard.as_str().unwrap_or("0"));
        if resource.starts_with("limits.") { limits.push(entry) } else { requests.push(entry) }
    }
    vec![name_of(object), requests.join(", ").into(), limits.join(", ").into(), age_of(object, now)]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_amounts_and_scopes_are_checked() {
        for (spec, expected) in [
            (json!({"hard": {"pods": "1", "requests.x.io/gate": "1", "count/gates.x.io": "2"}}), 0),
            (json!({"hard": {"gates": "1"}}), 2),
            (json!({"hard": {"pods": "-500m"}}), 2),
            (json!({"hard": {"requests.storage": "1"}, "scopes": ["VolumeAttributesClass"]}), 0),
            (json!({"hard": {"requests.cpu": "1", "pods": "1"}, "scopes": ["BestEffort"]}), 1),
            (json!({"hard": {"secrets": "1"}, "scopes": ["BestEffort", "NotBestEffort"]}), 3),
            (json!({"scopes": ["Everything"]}), 1),
            (json!({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In"}]}}), 1),
            (json!({"scopeSelector": {"matchExpressions": [{"scopeName": "BestEffort", "operator": "Like"}]}}), 2),
        ] {
            let object = json!({"metadata": {"name": "a", "namespace": "b"}, "spec": spec});
            let found = KIND.validate_create(&object);
            assert_eq!(found.len(), expected, "{spec}: {found:?}");
        }
    }

    #[test]
    fn scopes_stay_as_they_are_in_any_order() {
        let metadata = json!({"name": "a", "namespace": "b", "resourceVersion": "1"});
        let quota = |scopes: &[&str]| json!({"metadata": metadata, "spec": {"scopes": scopes}});
        let old = quota(&["BestEffort", "Terminating"]);
        assert_eq!(KIND.validate_update("", &quota(&["Terminating", "BestEffort"]), &old), []);
        assert_eq!(KIND.validate_update("", &quota(&["Terminating"]), &old).len(), 1);
    }
}
