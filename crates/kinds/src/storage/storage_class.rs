//! StorageClasses.

use jiff::Timestamp;
use serde_json::Value;

use crate::defaulting::default;
use crate::field::{ErrorList, Path};
use crate::kind::{Kind, STANDARD_VERBS};
use crate::names;
use crate::object::{Object, text};
use crate::printing::{AGE, NAME, Printer, age_of, or, string};
use crate::strategy::Strategy;
use crate::validation::Validation;

pub(crate) static KIND: Kind = Kind {
    group: "storage.k8s.io",
    kind: "StorageClass",
    plural: "storageclasses",
    singular: "storageclass",
    short_names: &["sc"],
    verbs: STANDARD_VERBS,
    storage_prefix: "storageclasses",
    defaults,
    strategy: Strategy { returns_object_on_delete: true, ..Strategy::PLAIN },
    validation: Validation { rules, change_rules, ..Validation::PLAIN },
    printer: Printer {
        columns: &[
            NAME,
            string("Provisioner"),
            string("ReclaimPolicy"),
            string("VolumeBindingMode"),
            string("AllowVolumeExpansion"),
            AGE,
        ],
        cells,
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};

fn defaults(object: &mut Object) {
    default(object, "reclaimPolicy", "Delete");
    default(object, "volumeBindingMode", "Immediate");
}

fn rules(errors: &mut ErrorList, object: &Value, _old: Option<&Value>) {
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

fn change_rules(errors: &mut ErrorList, new: &Value, old: &Value) {
    for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        errors.immutable(Path::root(field), &new[field], &old[field]);
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let annotations = &object["metadata"]["annotations"];
    let is_default =
        ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"]
            .iter()
            .any(|name| annotations[name] == "true");
    let suffix = if is_default { " (default)" } else { "" };
    vec![
        format!("{}{suffix}", text(&object["metadata"], "name")).into(),
        text(object, "provisioner").into(),
        or(text(object, "reclaimPolicy"), "Delete").into(),
        or(text(object, "volumeBindingMode"), "Immediate").into(),
        (object["allowVolumeExpansion"] == true).into(),
        age_of(object, now),
    ]
}
