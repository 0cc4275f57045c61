//! VolumeAttributesClasses.

use serde_json::Value;

use super::storage_class::{parameter_rules, provisioner_rules};
use crate::field::{ErrorList, Path};
use crate::kind::{Kind, STANDARD_VERBS};
use crate::object::text;
use crate::printing::{AGE, NAME, Printer, age_of, name_of, string};
use crate::strategy::Strategy;
use crate::validation::{MetadataRecheck, Validation};

pub(crate) static KIND: Kind = Kind {
    group: "storage.k8s.io",
    kind: "VolumeAttributesClass",
    plural: "volumeattributesclasses",
    singular: "volumeattributesclass",
    short_names: &["vac"],
    verbs: STANDARD_VERBS,
    storage_prefix: "volumeattributesclasses",
    strategy: Strategy { returns_object_on_delete: true, ..Strategy::PLAIN },
    validation: Validation {
        update_metadata: MetadataRecheck::AsNewAndChanged,
        rules,
        change_rules,
        ..Validation::PLAIN
    },
    printer: Printer {
        columns: &[NAME, string("DriverName"), AGE],
        cells: |object, now| vec![name_of(object), text(object, "driverName").into(), age_of(object, now)],
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};

fn rules(errors: &mut ErrorList, object: &Value, _old: Option<&Value>) {
    provisioner_rules(errors, Path::root("driverName"), text(object, "driverName"));
    let path = Path::root("parameters");
    parameter_rules(errors, path, &object["parameters"]);
    if object["parameters"].as_object().is_none_or(serde_json::Map::is_empty) {
        errors.required(path, "must contain at least one key/value pair");
    }
}

/// A class never changes: volumes have its parameters already.
fn change_rules(errors: &mut ErrorList, new: &Value, old: &Value) {
    for field in ["driverName", "parameters"] {
        if new[field] != old[field] {
            errors.forbidden(Path::root(field), &format!("updates to {field} are forbidden."));
        }
    }
}
