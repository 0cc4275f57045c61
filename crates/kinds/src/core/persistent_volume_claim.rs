//! PersistentVolumeClaims; StatefulSets and ephemeral volumes have the same spec.

use bayplan_model::quantity::Quantity;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::defaulting::{child, child_or_new, default, default_absent, round_requirements, round_resource_list};
use crate::field::{Change, ErrorList, Json, Path};
use crate::kind::{Kind, STANDARD_VERBS, Scope, Subresource};
use crate::object::{Object, given, list, put, text};
use crate::printing::{
    AGE, NAME, Printer, access_modes, age_of, name_of, or, or_unset, phase, storage_class_name, string, wide,
};
use crate::strategy::{StatusRule, Strategy};
use crate::validation::{MetadataRecheck, Validation};
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
        // Without its phase.
        stored_short: |_| true,
        on_create,
        on_update,
        warnings,
        ..Strategy::PLAIN
    },
    validation: Validation {
        update_metadata: MetadataRecheck::AsNewAndChanged,
        rules,
        change_rules,
        status_rules,
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
    default_absent(spec, "volumeMode", "Filesystem");
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
    let had_reference = old.is_some_and(|old| given(old, "dataSourceRef"));
    let in_use = had_reference || old.is_some_and(|old| given(old, "dataSource"));
    // The gate CrossNamespaceVolumeDataSource is off.
    let elsewhere = spec.get("dataSourceRef").is_some_and(|reference| !text(reference, "namespace").is_empty());
    if elsewhere && !had_reference {
        spec.remove("dataSourceRef");
    }
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
    mirror_data_source(spec);
}

/// What one of the two fields says, the other one says too, unless it leads to another namespace.
fn mirror_data_source(spec: &mut Object) {
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

fn rules(errors: &mut ErrorList, claim: &Value, old: Option<&Value>) {
    let has_group = |field: &str| old.is_some_and(|old| given(&old["spec"][field], "apiGroup"));
    let any_group = has_group("dataSource") || has_group("dataSourceRef");
    checked_spec(errors, Path::root("spec"), &claim["spec"], any_group);
}

pub(crate) fn spec_rules(errors: &mut ErrorList, path: Path<'_>, spec: &Value) {
    checked_spec(errors, path, spec, false);
}

/// Checks a spec; `any_group` says that the groups of its sources are not looked at, as they were stored before.
fn checked_spec(errors: &mut ErrorList, path: Path<'_>, spec: &Value, any_group: bool) {
    let modes = list(spec, "accessModes");
    if modes.is_empty() {
        errors.required(path.child("accessModes"), "at least 1 access mode is required");
    }
    access_mode_rules(errors, path, modes);
    if given(spec, "selector") {
        label_selector::rules(errors, path.child("selector"), &spec["selector"]);
    }
    let resources = path.child("resources");
    match spec["resources"]["requests"]["storage"].as_str() {
        None => errors.required(resources.key("storage"), ""),
        Some(storage) => {
            if storage.parse::<Quantity>().is_ok_and(|quantity| quantity.sign() <= 0) {
                errors.invalid(resources.key("storage"), storage, "must be greater than zero");
            }
        }
    }
    for field in ["storageClassName", "volumeAttributesClassName"] {
        let class = text(spec, field);
        if !class.is_empty() {
            errors.all_invalid(path.child(field), class, names::dns_subdomain(class));
        }
    }
    let mode = text(spec, "volumeMode");
    if given(spec, "volumeMode") && !matches!(mode, "Block" | "Filesystem") {
        errors.not_supported(path.child("volumeMode"), mode, &["Block", "Filesystem"]);
    }
    for field in ["dataSource", "dataSourceRef"] {
        if given(spec, field) {
            data_source(errors, path.child(field), &spec[field], any_group);
        }
    }
    both_data_sources(errors, path, &spec["dataSource"], &spec["dataSourceRef"]);
}

/// The two fields say the same, unless the reference leads to another namespace. Upstream shows an empty object.
fn both_data_sources(errors: &mut ErrorList, path: Path<'_>, source: &Value, reference: &Value) {
    if source.is_null() || reference.is_null() {
        return;
    }
    let shown = Json(|| "{}".to_owned());
    if !text(reference, "namespace").is_empty() {
        errors.invalid(path, shown, "may not be specified when dataSourceRef.namespace is specified");
    } else if ["apiGroup", "kind", "name"].iter().any(|field| source[*field] != reference[*field]) {
        errors.invalid(path, shown, "must match dataSourceRef");
    }
}

pub(super) fn access_mode_rules(errors: &mut ErrorList, path: Path<'_>, modes: &[Value]) {
    let (mut alone, mut with_others) = (false, false);
    for mode in modes.iter().filter_map(Value::as_str) {
        match mode {
            "ReadWriteOncePod" => alone = true,
            mode if ACCESS_MODES.contains(&mode) => with_others = true,
            mode => errors.not_supported(path.child("accessModes"), mode, &ACCESS_MODES),
        }
    }
    if alone && with_others {
        errors.forbidden(path.child("accessModes"), "may not use ReadWriteOncePod with other access modes");
    }
}

fn data_source(errors: &mut ErrorList, path: Path<'_>, source: &Value, any_group: bool) {
    for field in ["name", "kind"] {
        if text(source, field).is_empty() {
            errors.required(path.child(field), "");
        }
    }
    let group = text(source, "apiGroup");
    if group.is_empty() && text(source, "kind") != "PersistentVolumeClaim" {
        errors.invalid(
            path,
            text(source, "kind"),
            "must be 'PersistentVolumeClaim' when referencing the default apiGroup",
        );
    }
    if !group.is_empty() && !any_group {
        errors.all_invalid(path.child("apiGroup"), group, names::dns_subdomain(group));
    }
    let namespace = text(source, "namespace");
    if !namespace.is_empty() {
        errors.all_invalid(path.child("namespace"), namespace, names::dns_label(namespace));
    }
}

const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

/// Upstream: `ValidatePersistentVolumeClaimUpdate`.
fn change_rules(errors: &mut ErrorList, new: &Value, old: &Value) {
    let path = Path::root("spec");
    let (spec, before) = (&new["spec"], &old["spec"]);
    let annotation = |claim: &Value| claim["metadata"]["annotations"][CLASS_ANNOTATION].as_str().map(str::to_owned);
    let (class_now, class_before) = (annotation(new), annotation(old));
    let class = spec["storageClassName"].as_str();
    let named_only_now = class.is_some() && !given(before, "storageClassName");
    // The class may move from the annotation to the field, or be named where none was.
    let moved = named_only_now
        && class_before.is_some()
        && class == class_before.as_deref()
        && class_now.as_ref().is_none_or(|now| Some(now) == class_before.as_ref());
    let named = named_only_now && class_before.as_deref().is_none_or(|before| Some(before) == class);
    if !moved && class_now.as_deref().unwrap_or("") != class_before.as_deref().unwrap_or("") {
        let root = Path::root("metadata");
        let annotations = root.child("annotations");
        let shown = class_now.as_deref().unwrap_or("");
        errors.invalid(annotations.child(CLASS_ANNOTATION), shown, "field is immutable");
    }
    let class_is_set = if moved { Some(ClassIsSet::InPlaceOfAnnotation) } else { named.then_some(ClassIsSet::Anew) };
    immutable_rest(errors, new, old, class_is_set);
    let storage = |resources: &Value| resources["storage"].as_str().unwrap_or("0").parse::<Quantity>().ok();
    let requested = |spec: &Value| storage(&spec["resources"]["requests"]);
    let shrinks = requested(spec) < requested(before) && requested(spec) <= storage(&old["status"]["capacity"]);
    if shrinks {
        let resources = path.child("resources");
        let requests = resources.child("requests");
        errors.forbidden(requests.child("storage"), "field can not be less than status.capacity");
    }
    errors.immutable(Path::root("volumeMode"), &spec["volumeMode"], &before["volumeMode"]);
    attributes_class(errors, path.child("volumeAttributesClassName"), spec, old);
}

/// How a claim comes to name a class that named none.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClassIsSet {
    InPlaceOfAnnotation,
    Anew,
}

/// Of a bound claim the amount of storage and the class of attributes may change; of others the volume, once.
fn immutable_rest(errors: &mut ErrorList, new: &Value, old: &Value, class_is_set: Option<ClassIsSet>) {
    let path = Path::root("spec");
    let resources_path = path.child("resources");
    let (Value::Object(mut now), Value::Object(mut was)) = (new["spec"].clone(), old["spec"].clone()) else { return };
    mirror_data_source(&mut was);
    if text(&was, "volumeName").is_empty() {
        put(&mut was, "volumeName", now.get("volumeName"));
    }
    match class_is_set {
        Some(ClassIsSet::InPlaceOfAnnotation) => put(&mut now, "storageClassName", None),
        Some(ClassIsSet::Anew) => put(&mut now, "storageClassName", was.get("storageClassName")),
        None => {}
    }
    if new["status"]["phase"] == "Bound" {
        put(&mut now, "volumeAttributesClassName", was.get("volumeAttributesClassName"));
        let asked = errors.was_given_empty(resources_path.child("requests"));
        if let Some(resources) = child(&mut now, "resources")
            && (asked || given(resources, "requests"))
            && let Some(requests) = child_or_new(resources, "requests")
        {
            let storage = &old["spec"]["resources"]["requests"]["storage"];
            requests.insert("storage".into(), storage.as_str().unwrap_or("0").into());
        }
    }
    if now != was {
        let detail =
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        let (now, was) = (Value::Object(now), Value::Object(was));
        let definition = "io.k8s.api.core.v1.PersistentVolumeClaimSpec";
        errors.forbidden_change(path, detail, path, Change { definition, old: &was, new: &now });
    }
}

/// A claim whose class of attributes took effect keeps one.
fn attributes_class(errors: &mut ErrorList, path: Path<'_>, spec: &Value, old: &Value) {
    const FIELD: &str = "volumeAttributesClassName";
    if spec[FIELD] == old["spec"][FIELD] || !given(&old["status"], "currentVolumeAttributesClassName") {
        return;
    }
    let to = match spec[FIELD].as_str() {
        None => "nil",
        Some("") => "empty string",
        Some(_) => return,
    };
    let why = "is forbidden when status.currentVolumeAttributesClassName is not nil";
    errors.forbidden(path, &format!("update to {to} {why}"));
}

const RESIZE_STATUSES: [&str; 5] = [
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];

/// Upstream: `ValidatePersistentVolumeClaimStatusUpdate`.
fn status_rules(errors: &mut ErrorList, new: &Value, _old: &Value) {
    if text(&new["metadata"], "resourceVersion").is_empty() {
        errors.required(Path::root("resourceVersion"), "");
    }
    if list(&new["spec"], "accessModes").is_empty() {
        // The path is spelled as the field is in Go.
        let spec = Path::root("Spec");
        errors.required(spec.child("accessModes"), "");
    }
    let status = &new["status"];
    let path = Path::root("status");
    let amounts = |field: &str| status[field].as_object().into_iter().flatten();
    let capacity = path.child("capacity");
    for (name, quantity) in amounts("capacity") {
        amount(errors, capacity.key(name), quantity);
    }
    let statuses = path.child("allocatedResourceStatuses");
    for (name, value) in amounts("allocatedResourceStatuses") {
        resource_key(errors, statuses, name);
        if !RESIZE_STATUSES.contains(&value.as_str().unwrap_or("")) {
            // Upstream shows the resource.
            errors.not_supported(statuses, name.as_str(), &RESIZE_STATUSES);
        }
    }
    let allocated = path.child("allocatedResources");
    for (name, quantity) in amounts("allocatedResources") {
        if resource_key(errors, allocated, name) {
            amount(errors, allocated.key(name), quantity);
        }
    }
}

fn amount(errors: &mut ErrorList, path: Path<'_>, quantity: &Value) {
    let quantity = quantity.as_str().unwrap_or("0").parse::<Quantity>();
    if let Some(value) = quantity.ok().map(|quantity| quantity.value()).filter(|value| *value < 0) {
        errors.invalid(path, value, "must be a valid resource quantity");
    }
}

/// Of the resources of Kubernetes itself only storage grows.
fn resource_key(errors: &mut ErrorList, path: Path<'_>, name: &str) -> bool {
    let problems = names::qualified_name(name);
    if !problems.is_empty() {
        errors.all_invalid(path, name, problems);
        return false;
    }
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    if native && name != "storage" {
        errors.not_supported(path, name, &["storage"]);
        return false;
    }
    true
}

fn warnings(claim: &Value, _old: Option<&Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    if given(&claim["metadata"]["annotations"], CLASS_ANNOTATION) {
        warnings.push(format!(
            "metadata.annotations[{CLASS_ANNOTATION}]: deprecated since v1.8; use \"storageClassName\" attribute \
             instead"
        ));
    }
    spec_warnings(&mut warnings, Path::root("spec"), &claim["spec"]);
    warnings
}

/// Warns of parts of bytes.
pub(crate) fn spec_warnings(warnings: &mut Vec<String>, path: Path<'_>, spec: &Value) {
    let path = path.child("resources");
    for field in ["requests", "limits"] {
        let Ok(quantity) = text(&spec["resources"][field], "storage").parse::<Quantity>() else { continue };
        if quantity.milli_value() % 1000 != 0 {
            let path = path.child(field);
            let path = path.key("storage");
            let quantity = quantity.to_string();
            warnings.push(format!("{path}: fractional byte value {quantity:?} is invalid, must be an integer"));
        }
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
