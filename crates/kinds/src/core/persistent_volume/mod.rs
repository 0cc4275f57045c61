//! PersistentVolumes.

mod rules;
mod sources;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::defaulting::{child, child_or_new, default, default_absent, round_resource_list};
use crate::field::Path;
use crate::kind::{Kind, STANDARD_VERBS, Subresource};
use crate::object::{Object, given, list, text};
use crate::printing::{
    AGE, NAME, Printer, access_modes, age_of, name_of, or, or_unset, phase, storage_class_name, string, wide,
};
use crate::strategy::{StatusRule, Strategy};
use crate::validation::{MetadataRecheck, Validation};
use crate::{codec, node_labels, pod_spec};
pub(crate) use rules::inline_rules;
pub(crate) use sources::driver_name;

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
        warnings,
        ..Strategy::PLAIN
    },
    validation: Validation {
        update_metadata: MetadataRecheck::AsNewTwice,
        rules: rules::rules,
        change_rules: rules::change_rules,
        status_rules: rules::status_rules,
        ..Validation::PLAIN
    },
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
        default_absent(spec, "volumeMode", "Filesystem");
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

/// Warns of what is deprecated. Upstream: `warningsForPersistentVolumeSpecAndMeta`.
fn warnings(object: &Value, _old: Option<&Value>) -> Vec<String> {
    let spec = &object["spec"];
    let mut warnings = Vec::new();
    for (annotation, since, field) in
        [("storage-class", "v1.8", "storageClassName"), ("mount-options", "v1.31", "mountOptions")]
    {
        let key = format!("volume.beta.kubernetes.io/{annotation}");
        if given(&object["metadata"]["annotations"], &key) {
            warnings.push(format!(
                "metadata.annotations[{key}]: deprecated since {since}; use {field:?} attribute instead"
            ));
        }
    }
    if text(spec, "persistentVolumeReclaimPolicy") == "Recycle" {
        warnings.push(
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended \
             approach is to use dynamic provisioning."
                .to_owned(),
        );
    }
    let path = Path::root("spec");
    let path = path.child("nodeAffinity");
    let path = path.child("required");
    let path = path.child("nodeSelectorTerms");
    for (index, term) in list(&spec["nodeAffinity"]["required"], "nodeSelectorTerms").iter().enumerate() {
        node_labels::expression_warnings(&mut warnings, path.index(index), term);
    }
    sources::warnings(&mut warnings, spec);
    warnings
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
