//! Claims, volumes and storage classes.

use bayplan_model::quantity::Quantity;
use serde_json::Value;

use super::errors::Errors;
use super::path::Path;
use super::{given, list, metadata, names, text};

const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

pub(super) fn claim_spec(errors: &mut Errors, path: Path<'_>, spec: &Value) {
    let modes = list(spec, "accessModes");
    if modes.is_empty() {
        errors.required(path.child("accessModes"), "at least 1 access mode is required");
    }
    access_modes(errors, path, modes);
    if given(spec, "selector") {
        metadata::label_selector(errors, path.child("selector"), &spec["selector"]);
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

fn access_modes(errors: &mut Errors, path: Path<'_>, modes: &[Value]) {
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

fn data_source(errors: &mut Errors, path: Path<'_>, source: &Value) {
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

pub(super) fn claim_change(errors: &mut Errors, new: &Value, old: &Value) {
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

pub(super) fn volume(errors: &mut Errors, object: &Value) {
    let path = Path::root("spec");
    let spec = &object["spec"];
    let modes = list(spec, "accessModes");
    if modes.is_empty() {
        errors.required(path.child("accessModes"), "");
    }
    access_modes(errors, path, modes);
    let capacity = &spec["capacity"];
    if capacity.as_object().is_none_or(serde_json::Map::is_empty) {
        errors.required(path.child("capacity"), "");
    } else if !given(capacity, "storage") || capacity.as_object().is_some_and(|all| all.len() > 1) {
        errors.not_supported(path.child("capacity"), capacity, &["storage"]);
    }
    let capacity_path = path.child("capacity");
    for (name, quantity) in capacity.as_object().into_iter().flatten() {
        let text = quantity.as_str().unwrap_or("");
        if text.parse::<Quantity>().is_ok_and(|quantity| quantity.sign() <= 0) {
            errors.invalid(capacity_path.key(name), text, "must be greater than zero");
        }
    }
    let policy = text(spec, "persistentVolumeReclaimPolicy");
    if !matches!(policy, "Delete" | "Recycle" | "Retain") {
        errors.not_supported(path.child("persistentVolumeReclaimPolicy"), policy, &["Delete", "Recycle", "Retain"]);
    }
    let class = text(spec, "storageClassName");
    if !class.is_empty() {
        errors.all_invalid(path.child("storageClassName"), class, names::dns_subdomain(class));
    }
    let mode = text(spec, "volumeMode");
    if given(spec, "volumeMode") && !matches!(mode, "Block" | "Filesystem") {
        errors.not_supported(path.child("volumeMode"), mode, &["Block", "Filesystem"]);
    }
    const PLAIN: [&str; 9] = [
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeMode",
        "volumeAttributesClassName",
    ];
    let sources = spec.as_object().into_iter().flatten().filter(|(name, _)| !PLAIN.contains(&name.as_str())).count();
    if sources == 0 {
        errors.required(path, "must specify a volume type");
    }
}

pub(super) fn storage_class(errors: &mut Errors, object: &Value) {
    let provisioner = text(object, "provisioner");
    let path = Path::root("provisioner");
    if provisioner.is_empty() {
        errors.required(path, "");
    } else {
        errors.all_invalid(path, provisioner, names::qualified_name(&provisioner.to_lowercase()));
    }
    for (key, _) in object["parameters"].as_object().into_iter().flatten() {
        if key.is_empty() {
            errors.invalid(Path::root("parameters"), "", "field can not be empty.");
        }
    }
    let policy = text(object, "reclaimPolicy");
    if !matches!(policy, "Delete" | "Retain") {
        errors.not_supported(Path::root("reclaimPolicy"), policy, &["Delete", "Retain"]);
    }
    let mode = text(object, "volumeBindingMode");
    if !matches!(mode, "Immediate" | "WaitForFirstConsumer") {
        errors.not_supported(Path::root("volumeBindingMode"), mode, &["Immediate", "WaitForFirstConsumer"]);
    }
}

pub(super) fn storage_class_change(errors: &mut Errors, new: &Value, old: &Value) {
    for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        errors.immutable(Path::root(field), &new[field], &old[field]);
    }
}

/// What a volume's spec says beside where the data is.
const VOLUME_FIELDS: [&str; 9] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

/// Where the data is does not change.
pub(super) fn volume_change(errors: &mut Errors, new: &Value, old: &Value) {
    let path = Path::root("spec");
    let source = |volume: &Value| {
        let mut spec = volume["spec"].as_object().cloned().unwrap_or_default();
        spec.retain(|field, _| !VOLUME_FIELDS.contains(&field.as_str()));
        spec
    };
    if source(new) != source(old) {
        let detail = "spec.persistentvolumesource is immutable after creation";
        errors.forbidden(path.child("persistentvolumesource"), detail);
    }
    errors.immutable(Path::root("volumeMode"), &new["spec"]["volumeMode"], &old["spec"]["volumeMode"]);
}

/// The drivers of a node need a name and the node's name there.
pub(super) fn node_drivers(errors: &mut Errors, node: &Value) {
    let path = Path::root("spec");
    let path = path.child("drivers");
    for (index, driver) in list(&node["spec"], "drivers").iter().enumerate() {
        let path = path.index(index);
        for field in ["name", "nodeID"] {
            if text(driver, field).is_empty() {
                errors.required(path.child(field), "");
            }
        }
    }
}

/// How volumes of a driver are attached and live does not change.
pub(super) fn driver_change(errors: &mut Errors, new: &Value, old: &Value) {
    let path = Path::root("spec");
    for (field, shown) in [("attachRequired", "attachedRequired"), ("volumeLifecycleModes", "volumeLifecycleModes")] {
        errors.immutable(path.child(shown), &new["spec"][field], &old["spec"][field]);
    }
}
