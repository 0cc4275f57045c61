//! PersistentVolumeClaims; StatefulSets and ephemeral volumes have the same spec.

use bayplan_model::quantity::Quantity;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::defaulting::{child, child_or_new, default, round_requirements, round_resource_list};
use crate::field::{ErrorList, Path};
use crate::kind::{Kind, STANDARD_VERBS, Scope, Subresource};
use crate::object::{Object, given, list, text};
use crate::printing::{
    AGE, NAME, Printer, access_modes, age_of, name_of, or, or_unset, phase, storage_class_name, string, wide,
};
use crate::strategy::{StatusRule, Strategy};
use crate::validation::Validation;
use crate::{label_selector, names};

pub(crate) static KIND: Kind = Kind {
    kind: "PersistentVolumeClaim",
    plural: "persistentvolumeclaims",
    singular: "persistentvolumeclaim",
    scope: Scope::Namespaced,
    short_names: &["pvc"],
    verbs: STANDARD_VERBS,
    subresources: &[Subresource::status("PersistentVolumeClaim")],
    storage_prefix: "persistentvolumeclaims",
    defaults,
    strategy: Strategy {
        returns_object_on_delete: true,
        status: StatusRule::Owned,
        on_create,
        on_update,
        ..Strategy::PLAIN
    },
    validation: Validation {
        rules: |errors, claim, _| spec_rules(errors, Path::root("spec"), &claim["spec"]),
        change_rules,
        ..Validation::PLAIN
    },
    printer: Printer {
        columns: &[
            NAME,
            string("Status"),
            string("Volume"),
            string("Capacity"),
            string("Access Modes"),
            string("StorageClass"),
            string("VolumeAttributesClass"),
            AGE,
            wide("VolumeMode"),
        ],
        cells,
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};

pub(crate) fn defaults(object: &mut Object) {
    if let Some(status) = child_or_new(object, "status") {
        default(status, "phase", "Pending");
        round_resource_list(status, "capacity");
        round_resource_list(status, "allocatedResources");
    }
    if let Some(spec) = child(object, "spec") {
        spec_defaults(spec);
    }
}

pub(crate) fn spec_defaults(spec: &mut Object) {
    default(spec, "volumeMode", "Filesystem");
    round_requirements(child(spec, "resources"));
}

fn on_create(object: &mut Object, _now: Timestamp) {
    object.insert("status".into(), json!({ "phase": "Pending" }));
    if let Some(Value::Object(spec)) = object.get_mut("spec") {
        data_sources(spec, None);
    }
}

fn on_update(object: &mut Object, old: &Value, subresource: &str, _now: Timestamp) {
    if subresource.is_empty()
        && let Some(Value::Object(spec)) = object.get_mut("spec")
    {
        data_sources(spec, Some(&old["spec"]));
    }
}

/// Mirrors `dataSource` and `dataSourceRef` (KEP-1495); drops a `dataSource` of a kind it does not support.
fn data_sources(spec: &mut Object, old: Option<&Value>) {
    let in_use = old.is_some_and(|old| old.get("dataSource").is_some() || old.get("dataSourceRef").is_some());
    if !in_use && !spec.contains_key("dataSourceRef") {
        let known = spec.get("dataSource").is_some_and(|source| {
            let group = source["apiGroup"].as_str().unwrap_or("");
            matches!(
                (group, source["kind"].as_str().unwrap_or("")),
                ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
            )
        });
        if !known {
            spec.remove("dataSource");
        }
    }
    match (spec.get("dataSource").cloned(), spec.get("dataSourceRef").cloned()) {
        (Some(source), None) => {
            spec.insert("dataSourceRef".into(), source);
        }
        (None, Some(Value::Object(mut reference)))
            if reference.get("namespace").is_none_or(|namespace| namespace == "") =>
        {
            reference.remove("namespace");
            spec.insert("dataSource".into(), Value::Object(reference));
        }
        _ => {}
    }
}

const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

pub(crate) fn spec_rules(errors: &mut ErrorList, path: Path<'_>, spec: &Value) {
    let modes = list(spec, "accessModes");
    if modes.is_empty() {
        errors.required(path.child("accessModes"), "at least 1 access mode is required");
    }
    access_mode_rules(errors, path, modes);
    if given(spec, "selector") {
        label_selector::rules(errors, path.child("selector"), &spec["selector"]);
    }
    let resources = path.child("resources");
    match text(&spec["resources"]["requests"], "storage") {
        "" => errors.required(resources.key("storage"), ""),
        storage => {
            if storage.parse::<Quantity>().is_ok_and(|quantity| quantity.sign() <= 0) {
                errors.invalid(resources.key("storage"), storage, "must be greater than zero");
            }
        }
    }
    let class = text(spec, "storageClassName");
    if !class.is_empty() {
        errors.all_invalid(path.child("storageClassName"), class, names::dns_subdomain(class));
    }
    let mode = text(spec, "volumeMode");
    if given(spec, "volumeMode") && !matches!(mode, "Block" | "Filesystem") {
        errors.not_supported(path.child("volumeMode"), mode, &["Block", "Filesystem"]);
    }
    for field in ["dataSource", "dataSourceRef"] {
        if given(spec, field) {
            data_source(errors, path.child(field), &spec[field]);
        }
    }
}

pub(super) fn access_mode_rules(errors: &mut ErrorList, path: Path<'_>, modes: &[Value]) {
    for mode in modes.iter().filter_map(Value::as_str) {
        if !ACCESS_MODES.contains(&mode) {
            errors.not_supported(path.child("accessModes"), mode, &ACCESS_MODES);
        }
    }
    let alone = modes.iter().any(|mode| mode == "ReadWriteOncePod");
    if alone && modes.iter().any(|mode| mode != "ReadWriteOncePod") {
        errors.forbidden(path.child("accessModes"), "may not use ReadWriteOncePod with other access modes");
    }
}

fn data_source(errors: &mut ErrorList, path: Path<'_>, source: &Value) {
    for field in ["name", "kind"] {
        if text(source, field).is_empty() {
            errors.required(path.child(field), "");
        }
    }
    if text(source, "apiGroup").is_empty() && text(source, "kind") != "PersistentVolumeClaim" {
        errors.invalid(
            path,
            text(source, "kind"),
            "must be 'PersistentVolumeClaim' when referencing the default apiGroup",
        );
    }
}

fn change_rules(errors: &mut ErrorList, new: &Value, old: &Value) {
    let path = Path::root("spec");
    errors.immutable(Path::root("volumeMode"), &new["spec"]["volumeMode"], &old["spec"]["volumeMode"]);
    let unbound = text(&old["spec"], "volumeName").is_empty();
    let rest = |spec: &Value| {
        let mut spec = spec.as_object().cloned().unwrap_or_default();
        if unbound {
            spec.remove("volumeName");
        }
        if old["status"]["phase"] == "Bound" {
            if let Some(Value::Object(resources)) = spec.get_mut("resources") {
                resources.remove("requests");
            }
            spec.remove("volumeAttributesClassName");
        }
        spec.remove("volumeMode");
        spec
    };
    if rest(&new["spec"]) != rest(&old["spec"]) {
        errors.forbidden(
            path,
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
        );
    }
    let quantity = |value: &Value| value.as_str().and_then(|text| text.parse::<Quantity>().ok());
    let (asked, capacity) =
        (quantity(&new["spec"]["resources"]["requests"]["storage"]), quantity(&old["status"]["capacity"]["storage"]));
    let before = quantity(&old["spec"]["resources"]["requests"]["storage"]);
    if let (Some(asked), Some(before)) = (asked, before)
        && asked < before
        && capacity.is_some_and(|capacity| asked <= capacity)
    {
        let resources = path.child("resources");
        let requests = resources.child("requests");
        errors.forbidden(requests.child("storage"), "field can not be less than status.capacity");
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let bound = !text(spec, "volumeName").is_empty();
    let capacity = if bound { or(text(&status["capacity"], "storage"), "0") } else { "" };
    vec![
        name_of(object),
        phase(object),
        text(spec, "volumeName").into(),
        capacity.into(),
        if bound { access_modes(status) } else { "".into() },
        storage_class_name(object),
        or_unset(spec, "volumeAttributesClassName"),
        age_of(object, now),
        or_unset(spec, "volumeMode"),
    ]
}
