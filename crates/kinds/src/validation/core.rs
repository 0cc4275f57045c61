//! The small kinds.

use std::net::IpAddr;

use bayplan_model::quantity::Quantity;
use serde_json::Value;

use super::errors::{Errors, Json};
use super::path::Path;
use super::{given, list, metadata, names, number, text, workloads};

/// A ConfigMap or Secret may not hold more than this.
const DATA_MAX_BYTES: usize = 1024 * 1024;

pub(super) fn binding(errors: &mut Errors, object: &Value) {
    let path = Path::root("target");
    let kind = text(&object["target"], "kind");
    if !matches!(kind, "" | "Node") {
        errors.not_supported(path.child("kind"), kind, &["Node", "<empty>"]);
    }
    if text(&object["target"], "name").is_empty() {
        errors.required(path.child("name"), "");
    }
}

pub(super) fn config_map(errors: &mut Errors, object: &Value) {
    let mut bytes = 0;
    let binary = object["binaryData"].as_object();
    for (field, data) in [("data", &object["data"]), ("binaryData", &object["binaryData"])] {
        let path = Path::root(field);
        for (key, value) in data.as_object().into_iter().flatten() {
            errors.all_invalid(path.key(key), key, names::config_key(key));
            if field == "data" && binary.is_some_and(|binary| binary.contains_key(key)) {
                errors.invalid(path.key(key), key.as_str(), "duplicate of key present in binaryData");
            }
            let length = value.as_str().unwrap_or("").len();
            bytes += if field == "data" { length } else { length / 4 * 3 };
        }
    }
    if bytes > DATA_MAX_BYTES {
        errors.too_long(Path::root(""), DATA_MAX_BYTES);
    }
}

pub(super) fn config_map_change(errors: &mut Errors, new: &Value, old: &Value) {
    sealed(errors, new, old, &["data", "binaryData"]);
}

/// Immutable objects keep their data, and stay immutable.
fn sealed(errors: &mut Errors, new: &Value, old: &Value, fields: &[&str]) {
    const DETAIL: &str = "field is immutable when `immutable` is set";
    if old["immutable"] != true {
        return;
    }
    if new["immutable"] != true {
        errors.forbidden(Path::root("immutable"), DETAIL);
    }
    for field in fields {
        if new[field] != old[field] {
            errors.forbidden(Path::root(field), DETAIL);
        }
    }
}

pub(super) fn secret(errors: &mut Errors, object: &Value) {
    let path = Path::root("data");
    let mut bytes = 0;
    for (key, value) in object["data"].as_object().into_iter().flatten() {
        errors.all_invalid(path.key(key), key, names::config_key(key));
        bytes += value.as_str().unwrap_or("").len() / 4 * 3;
    }
    if bytes > DATA_MAX_BYTES {
        errors.too_long(path, DATA_MAX_BYTES);
    }
    let mut need = |key: &'static str| {
        if !given(&object["data"], key) {
            errors.required(path.key(key), "");
        }
    };
    match text(object, "type") {
        "kubernetes.io/dockercfg" => need(".dockercfg"),
        "kubernetes.io/dockerconfigjson" => need(".dockerconfigjson"),
        "kubernetes.io/ssh-auth" => need("ssh-privatekey"),
        "kubernetes.io/tls" => {
            need("tls.crt");
            need("tls.key");
        }
        "kubernetes.io/basic-auth" if !given(&object["data"], "username") && !given(&object["data"], "password") => {
            need("username");
            need("password");
        }
        "kubernetes.io/service-account-token"
            if text(&object["metadata"]["annotations"], "kubernetes.io/service-account.name").is_empty() =>
        {
            let metadata = Path::root("metadata");
            let annotations = metadata.child("annotations");
            errors.required(annotations.key("kubernetes.io/service-account.name"), "");
        }
        _ => {}
    }
}

pub(super) fn secret_change(errors: &mut Errors, new: &Value, old: &Value) {
    errors.immutable(Path::root("type"), &new["type"], &old["type"]);
    sealed(errors, new, old, &["data"]);
}

pub(super) fn namespace(errors: &mut Errors, object: &Value) {
    let spec = Path::root("spec");
    let path = spec.child("finalizers");
    for finalizer in list(&object["spec"], "finalizers").iter().filter_map(Value::as_str) {
        let problems = names::qualified_name(finalizer);
        let clean = problems.is_empty();
        errors.all_invalid(path, finalizer, problems);
        if clean && !finalizer.contains('/') && !matches!(finalizer, "kubernetes" | "orphan" | "foregroundDeletion") {
            errors.invalid(path, finalizer, "name is neither a standard finalizer name nor is it fully qualified");
        }
    }
}

pub(super) fn node(errors: &mut Errors, object: &Value) {
    let metadata = Path::root("metadata");
    taints(errors, metadata.child("taints"), list(&object["spec"], "taints"));
    let spec = Path::root("spec");
    let path = spec.child("podCIDRs");
    let cidrs = list(&object["spec"], "podCIDRs");
    let mut families = [0, 0];
    for (index, cidr) in cidrs.iter().filter_map(Value::as_str).enumerate() {
        match parse_cidr(cidr) {
            Some(address) => families[usize::from(address.is_ipv6())] += 1,
            None => errors.invalid(
                path.index(index),
                cidr,
                "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
            ),
        }
    }
    if families[0] > 1 || families[1] > 1 || cidrs.len() > 2 {
        errors.invalid(path, &object["spec"]["podCIDRs"], "may specify no more than one CIDR for each IP family");
    }
    let status = Path::root("status");
    for list_name in ["capacity", "allocatable"] {
        let path = status.child(list_name);
        for (name, quantity) in object["status"][list_name].as_object().into_iter().flatten() {
            quantity_of(errors, path.child(name), name, quantity.as_str().unwrap_or(""));
        }
    }
}

/// A network prefix.
fn parse_cidr(text: &str) -> Option<IpAddr> {
    let (address, prefix) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let prefix: u8 = prefix.parse().ok()?;
    (prefix <= if address.is_ipv4() { 32 } else { 128 }).then_some(address)
}

/// Not negative, and whole where only whole ones make sense.
fn quantity_of(errors: &mut Errors, path: Path<'_>, name: &str, text: &str) {
    let Ok(quantity) = text.parse::<Quantity>() else { return };
    if quantity.sign() < 0 {
        errors.invalid(path, text, "must be greater than or equal to 0");
    }
    let counted = matches!(name, "pods" | "services" | "resourcequotas") || name.contains('/');
    if counted && quantity.milli_value() % 1000 != 0 {
        errors.invalid(path, text, "must be an integer");
    }
}

fn taints(errors: &mut Errors, path: Path<'_>, taints: &[Value]) {
    const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    for (index, taint) in taints.iter().enumerate() {
        let path = path.index(index);
        let (key, value, effect) = (text(taint, "key"), text(taint, "value"), text(taint, "effect"));
        errors.all_invalid(path.child("key"), key, names::qualified_name(key));
        let problems = names::label_value(value);
        if !problems.is_empty() {
            errors.invalid(path.child("value"), value, &problems.join(";"));
        }
        errors.one_of(path.child("effect"), effect, &EFFECTS);
        let repeated =
            taints[..index].iter().any(|other| other["key"] == taint["key"] && other["effect"] == taint["effect"]);
        if repeated {
            let shown = format!(
                "{{\"Key\":{},\"Value\":{},\"Effect\":{},\"TimeAdded\":{}}}",
                Value::from(key),
                Value::from(value),
                Value::from(effect),
                taint["timeAdded"]
            );
            errors.duplicate_with(path, Json(shown), "taints must be unique by key and effect pair");
        }
    }
}

pub(super) fn node_change(errors: &mut Errors, new: &Value, old: &Value) {
    let path = Path::root("spec");
    let (new, old) = (&new["spec"], &old["spec"]);
    if !list(old, "podCIDRs").is_empty() && new["podCIDRs"] != old["podCIDRs"] {
        errors.forbidden(path.child("podCIDRs"), "node updates may not change podCIDR except from \"\" to valid");
    }
    if !text(old, "providerID").is_empty() && new["providerID"] != old["providerID"] {
        errors.forbidden(path.child("providerID"), "node updates may not change providerID except from \"\" to valid");
    }
    if text(new, "externalID") != text(old, "externalID") {
        errors.forbidden(path.child("externalID"), "may not be updated");
    }
}

pub(super) fn disruption_budget(errors: &mut Errors, spec: &Value) {
    let path = Path::root("spec");
    if given(spec, "minAvailable") && given(spec, "maxUnavailable") {
        let policy = match &spec["unhealthyPodEvictionPolicy"] {
            Value::Null => "null".to_owned(),
            policy => policy.to_string(),
        };
        let shown = format!(
            "{{\"MinAvailable\":{},\"Selector\":{},\"MaxUnavailable\":{},\"UnhealthyPodEvictionPolicy\":{policy}}}",
            spec["minAvailable"], spec["selector"], spec["maxUnavailable"],
        );
        errors.invalid(path, Json(shown), "minAvailable and maxUnavailable cannot be both set");
    }
    for field in ["minAvailable", "maxUnavailable"] {
        if given(spec, field) {
            workloads::int_or_percent(errors, path.child(field), &spec[field]);
            workloads::at_most_all(errors, path.child(field), &spec[field]);
        }
    }
    let policy = text(spec, "unhealthyPodEvictionPolicy");
    if given(spec, "unhealthyPodEvictionPolicy") && !matches!(policy, "AlwaysAllow" | "IfHealthyBudget") {
        errors.not_supported(path.child("unhealthyPodEvictionPolicy"), policy, &["AlwaysAllow", "IfHealthyBudget"]);
    }
    metadata::label_selector(errors, path.child("selector"), &spec["selector"]);
}

/// Priorities above this belong to the system.
const USER_PRIORITY_MAX: i64 = 1_000_000_000;

pub(super) fn priority_class(errors: &mut Errors, object: &Value) {
    let name = text(&object["metadata"], "name");
    let path = Path::root("metadata");
    let value = number(object, "value");
    if name.starts_with("system-") {
        let known = matches!(
            (name, value),
            ("system-cluster-critical", 2_000_000_000) | ("system-node-critical", 2_000_001_000)
        );
        if !known {
            errors.forbidden(
                path.child("name"),
                &format!(
                    "priority class names with 'system-' prefix are reserved for system use only. error: {name} is not a known system priority class"
                ),
            );
        }
    } else if value > USER_PRIORITY_MAX {
        errors.forbidden(
            Path::root("value"),
            &format!("maximum allowed value of a user defined priority is {USER_PRIORITY_MAX}"),
        );
    }
    let policy = text(object, "preemptionPolicy");
    if given(object, "preemptionPolicy") && !matches!(policy, "PreemptLowerPriority" | "Never") {
        errors.not_supported(Path::root("preemptionPolicy"), policy, &["PreemptLowerPriority", "Never"]);
    }
}

pub(super) fn priority_class_change(errors: &mut Errors, new: &Value, old: &Value) {
    if number(new, "value") != number(old, "value") {
        errors.forbidden(Path::root("value"), "may not be changed in an update.");
    }
    errors.immutable(Path::root("preemptionPolicy"), &new["preemptionPolicy"], &old["preemptionPolicy"]);
}

pub(super) fn lease(errors: &mut Errors, spec: &Value) {
    let path = Path::root("spec");
    if let Some(duration) = spec["leaseDurationSeconds"].as_i64()
        && duration <= 0
    {
        errors.invalid(path.child("leaseDurationSeconds"), duration, "must be greater than 0");
    }
    errors.non_negative(path.child("leaseTransitions"), number(spec, "leaseTransitions"));
    if given(spec, "holderIdentity") && text(spec, "holderIdentity").is_empty() {
        errors.invalid(path.child("holderIdentity"), "", "must not be empty");
    }
}

pub(super) fn role(errors: &mut Errors, kind: &str, object: &Value) {
    let path = Path::root("rules");
    for (index, rule) in list(object, "rules").iter().enumerate() {
        let path = path.index(index);
        if list(rule, "verbs").is_empty() {
            errors.required(path.child("verbs"), "verbs must contain at least one value");
        }
        let urls = !list(rule, "nonResourceURLs").is_empty();
        if urls {
            if kind == "Role" {
                let value = &rule["nonResourceURLs"];
                errors.invalid(
                    path.child("nonResourceURLs"),
                    value,
                    "namespaced rules cannot apply to non-resource URLs",
                );
            }
            let resources =
                ["apiGroups", "resources", "resourceNames"].iter().any(|field| !list(rule, field).is_empty());
            if resources {
                let value = &rule["nonResourceURLs"];
                errors.invalid(
                    path.child("nonResourceURLs"),
                    value,
                    "rules cannot apply to both regular resources and non-resource URLs",
                );
            }
            continue;
        }
        if list(rule, "apiGroups").is_empty() {
            errors.required(path.child("apiGroups"), "resource rules must supply at least one api group");
        }
        if list(rule, "resources").is_empty() {
            errors.required(path.child("resources"), "resource rules must supply at least one resource");
        }
    }
}

pub(super) fn role_binding(errors: &mut Errors, kind: &str, object: &Value) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    let role = &object["roleRef"];
    let path = Path::root("roleRef");
    if text(role, "apiGroup") != GROUP {
        errors.not_supported(path.child("apiGroup"), text(role, "apiGroup"), &[GROUP]);
    }
    let kinds: &[&str] = if kind == "RoleBinding" { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !kinds.contains(&text(role, "kind")) {
        errors.not_supported(path.child("kind"), text(role, "kind"), kinds);
    }
    match text(role, "name") {
        "" => errors.required(path.child("name"), ""),
        name => errors.all_invalid(path.child("name"), name, names::path_segment(name)),
    }
    let path = Path::root("subjects");
    for (index, subject) in list(object, "subjects").iter().enumerate() {
        let path = path.index(index);
        let (group, name) = (text(subject, "apiGroup"), text(subject, "name"));
        if name.is_empty() {
            errors.required(path.child("name"), "");
        }
        match text(subject, "kind") {
            "ServiceAccount" => {
                if !name.is_empty() {
                    errors.all_invalid(path.child("name"), name, names::dns_subdomain(name));
                }
                if !group.is_empty() {
                    errors.not_supported(path.child("apiGroup"), group, &[""]);
                }
                if text(subject, "namespace").is_empty() {
                    errors.required(path.child("namespace"), "");
                }
            }
            "User" | "Group" => {
                if group != GROUP {
                    errors.not_supported(path.child("apiGroup"), group, &[GROUP]);
                }
            }
            other => errors.not_supported(path.child("kind"), other, &["ServiceAccount", "User", "Group"]),
        }
    }
}

/// A namespace is terminating exactly while it is being deleted.
pub(super) fn namespace_status(errors: &mut Errors, namespace: &Value) {
    let phase = text(&namespace["status"], "phase");
    let (wanted, detail) = match namespace["metadata"]["deletionTimestamp"].is_null() {
        true => ("Active", "may only be 'Active' if `deletionTimestamp` is empty"),
        false => ("Terminating", "may only be 'Terminating' if `deletionTimestamp` is not empty"),
    };
    if phase != wanted {
        let path = Path::root("status");
        errors.invalid(path.child("Phase"), phase, detail);
    }
}
