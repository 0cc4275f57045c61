//! The small kinds of the core group and of RBAC.

use serde_json::Value;

use super::{Object, child, child_or_new, children, default, round_resource_list, text};

const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn node(object: &mut Object) {
    if let Some(spec) = child(object, "spec") {
        let cidr = text(spec, "podCIDR").to_owned();
        let first =
            spec.get("podCIDRs").and_then(|cidrs| cidrs.get(0)).and_then(Value::as_str).unwrap_or("").to_owned();
        // The single range is the older client's word and wins.
        if !cidr.is_empty() && cidr != first {
            spec.insert("podCIDRs".into(), Value::Array(vec![cidr.into()]));
        } else if cidr.is_empty() && !first.is_empty() {
            spec.insert("podCIDR".into(), first.into());
        }
    }
    if let Some(status) = child(object, "status") {
        if status.get("allocatable").is_none()
            && let Some(capacity) = status.get("capacity").cloned()
        {
            status.insert("allocatable".into(), capacity);
        }
        round_resource_list(status, "capacity");
        round_resource_list(status, "allocatable");
    }
}

pub(super) fn namespace(object: &mut Object) {
    if let Some(metadata) = child(object, "metadata") {
        let name = text(metadata, "name").to_owned();
        if !name.is_empty()
            && let Some(labels) = child_or_new(metadata, "labels")
        {
            labels.insert("kubernetes.io/metadata.name".into(), name.into());
        }
    }
    if let Some(status) = child_or_new(object, "status") {
        default(status, "phase", "Active");
    }
}

pub(super) fn secret(object: &mut Object) {
    use base64::Engine;
    default(object, "type", "Opaque");
    // Written text becomes data, over data of the same name.
    if let Some(Value::Object(texts)) = object.remove("stringData")
        && let Some(data) = child_or_new(object, "data")
    {
        for (key, value) in texts {
            let bytes = value.as_str().unwrap_or("").as_bytes();
            data.insert(key, base64::engine::general_purpose::STANDARD.encode(bytes).into());
        }
    }
}

pub(super) fn limit_range(object: &mut Object) {
    let Some(spec) = child(object, "spec") else { return };
    for item in children(spec, "limits") {
        if text(item, "type") == "Container" {
            fill(item, "default", "max");
            fill(item, "defaultRequest", "default");
            fill(item, "defaultRequest", "min");
        }
        for list in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
            round_resource_list(item, list);
        }
    }
}

/// Copies what `to` lacks from `from`.
fn fill(item: &mut Object, to: &str, from: &str) {
    let Some(Value::Object(from)) = item.get(from).cloned() else { return };
    let Some(to) = child_or_new(item, to) else { return };
    for (name, quantity) in from {
        to.entry(name).or_insert(quantity);
    }
}

pub(super) fn resource_quota(object: &mut Object) {
    if let Some(spec) = child(object, "spec") {
        round_resource_list(spec, "hard");
    }
    if let Some(status) = child(object, "status") {
        round_resource_list(status, "hard");
        round_resource_list(status, "used");
    }
}

pub(super) fn binding_of_role(object: &mut Object) {
    if let Some(role) = child_or_new(object, "roleRef") {
        default(role, "apiGroup", RBAC_GROUP);
    }
    for subject in children(object, "subjects") {
        if matches!(text(subject, "kind"), "User" | "Group") {
            default(subject, "apiGroup", RBAC_GROUP);
        }
    }
}
