//! ConfigMaps.

use serde_json::Value;

use crate::field::{ErrorList, Path};
use crate::kind::{Kind, STANDARD_VERBS, Scope};
use crate::names;
use crate::printing::{AGE, NAME, Printer, age_of, entries, name_of, string};
use crate::validation::{MetadataRecheck, Validation};

pub(crate) static KIND: Kind = Kind {
    kind: "ConfigMap",
    plural: "configmaps",
    singular: "configmap",
    scope: Scope::Namespaced,
    short_names: &["cm"],
    verbs: STANDARD_VERBS,
    storage_prefix: "configmaps",
    validation: Validation {
        update_metadata: MetadataRecheck::AsNewAndChanged,
        rules,
        change_rules,
        ..Validation::PLAIN
    },
    printer: Printer {
        columns: &[NAME, string("Data"), AGE],
        cells: |object, now| {
            let count = entries(object, "data") + entries(object, "binaryData");
            vec![name_of(object), count.into(), age_of(object, now)]
        },
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};

/// The limit for the data of a ConfigMap or Secret.
pub(super) const DATA_MAX_BYTES: usize = 1024 * 1024;

fn rules(errors: &mut ErrorList, object: &Value, _old: Option<&Value>) {
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

fn change_rules(errors: &mut ErrorList, new: &Value, old: &Value) {
    immutable_data(errors, new, old, &["data", "binaryData"]);
}

/// Checks that an immutable object keeps its data and stays immutable.
pub(super) fn immutable_data(errors: &mut ErrorList, new: &Value, old: &Value, fields: &[&str]) {
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
