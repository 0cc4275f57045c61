//! PersistentVolumes.

use bayplan_model::quantity::Quantity;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::persistent_volume_claim;
use crate::defaulting::{child, child_or_new, default, round_resource_list};
use crate::field::{ErrorList, Path};
use crate::kind::{Kind, STANDARD_VERBS, Subresource};
use crate::object::{Object, given, list, text};
use crate::printing::{
    AGE, NAME, Printer, access_modes, age_of, name_of, or, or_unset, phase, storage_class_name, string, wide,
};
use crate::strategy::{StatusRule, Strategy};
use crate::validation::Validation;
use crate::{codec, names, pod_spec};

pub(crate) static KIND: Kind = Kind {
    kind: "PersistentVolume",
    plural: "persistentvolumes",
    singular: "persistentvolume",
    short_names: &["pv"],
    verbs: STANDARD_VERBS,
    subresources: &[Subresource::status("PersistentVolume")],
    storage_prefix: "persistentvolumes",
    defaults,
    strategy: Strategy {
        returns_object_on_delete: true,
        status: StatusRule::Owned,
        on_create,
        on_update,
        ..Strategy::PLAIN
    },
    validation: Validation { rules, change_rules, ..Validation::PLAIN },
    printer: Printer {
        columns: &[
            NAME,
            string("Capacity"),
            string("Access Modes"),
            string("Reclaim Policy"),
            string("Status"),
            string("Claim"),
            string("StorageClass"),
            string("VolumeAttributesClass"),
            string("Reason"),
            AGE,
            wide("VolumeMode"),
        ],
        cells,
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};

fn defaults(object: &mut Object) {
    if let Some(status) = child_or_new(object, "status") {
        default(status, "phase", "Pending");
    }
    if let Some(spec) = child(object, "spec") {
        default(spec, "persistentVolumeReclaimPolicy", "Retain");
        default(spec, "volumeMode", "Filesystem");
        round_resource_list(spec, "capacity");
        pod_spec::source_defaults(spec);
    }
}

fn on_create(object: &mut Object, now: Timestamp) {
    let status = json!({ "phase": "Pending", "lastPhaseTransitionTime": codec::write_time(now) });
    object.insert("status".into(), status);
}

fn on_update(object: &mut Object, old: &Value, subresource: &str, now: Timestamp) {
    const TRANSITION: &str = "lastPhaseTransitionTime";
    if subresource != "status" {
        return;
    }
    let Some(Value::Object(status)) = object.get_mut("status") else { return };
    let same_phase = status.get("phase") == old["status"].get("phase");
    let (given, before) = (status.get(TRANSITION).cloned(), old["status"].get(TRANSITION).cloned());
    if same_phase && given.is_none() {
        if let Some(before) = before {
            status.insert(TRANSITION.into(), before);
        }
    } else if !same_phase && (given.is_none() || given == before) {
        status.insert(TRANSITION.into(), codec::write_time(now).into());
    }
}

/// The fields of a spec that are not a volume source.
const PLAIN_FIELDS: [&str; 9] = [
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

fn rules(errors: &mut ErrorList, object: &Value, _old: Option<&Value>) {
    let path = Path::root("spec");
    let spec = &object["spec"];
    let modes = list(spec, "accessModes");
    if modes.is_empty() {
        errors.required(path.child("accessModes"), "");
    }
    persistent_volume_claim::access_mode_rules(errors, path, modes);
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
    let sources =
        spec.as_object().into_iter().flatten().filter(|(name, _)| !PLAIN_FIELDS.contains(&name.as_str())).count();
    if sources == 0 {
        errors.required(path, "must specify a volume type");
    }
}

/// The volume source is immutable.
fn change_rules(errors: &mut ErrorList, new: &Value, old: &Value) {
    let path = Path::root("spec");
    let source = |volume: &Value| {
        let mut spec = volume["spec"].as_object().cloned().unwrap_or_default();
        spec.retain(|field, _| !PLAIN_FIELDS.contains(&field.as_str()));
        spec
    };
    if source(new) != source(old) {
        let detail = "spec.persistentvolumesource is immutable after creation";
        errors.forbidden(path.child("persistentvolumesource"), detail);
    }
    errors.immutable(Path::root("volumeMode"), &new["spec"]["volumeMode"], &old["spec"]["volumeMode"]);
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &object["spec"];
    let claim = match &spec["claimRef"] {
        Value::Null => String::new(),
        claim => format!("{}/{}", text(claim, "namespace"), text(claim, "name")),
    };
    vec![
        name_of(object),
        or(text(&spec["capacity"], "storage"), "0").into(),
        access_modes(spec),
        text(spec, "persistentVolumeReclaimPolicy").into(),
        phase(object),
        claim.into(),
        storage_class_name(object),
        or_unset(spec, "volumeAttributesClassName"),
        text(&object["status"], "reason").into(),
        age_of(object, now),
        or_unset(spec, "volumeMode"),
    ]
}
