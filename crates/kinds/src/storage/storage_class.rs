//! StorageClasses.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;

use crate::defaulting::default_absent;
use crate::field::{ErrorList, Path};
use crate::kind::{Kind, STANDARD_VERBS};
use crate::object::{Object, list, text};
use crate::printing::{AGE, NAME, Printer, age_of, or, string};
use crate::strategy::Strategy;
use crate::validation::{MetadataRecheck, Validation};
use crate::{names, node_labels};

pub(crate) static KIND: Kind = Kind {
    group: "storage.k8s.io",
    kind: "StorageClass",
    plural: "storageclasses",
    singular: "storageclass",
    short_names: &["sc"],
    verbs: STANDARD_VERBS,
    storage_prefix: "storageclasses",
    defaults,
    strategy: Strategy { returns_object_on_delete: true, warnings, ..Strategy::PLAIN },
    validation: Validation {
        update_metadata: MetadataRecheck::AsNewAndChanged,
        rules,
        change_rules,
        ..Validation::PLAIN
    },
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
    default_absent(object, "reclaimPolicy", "Delete");
    default_absent(object, "volumeBindingMode", "Immediate");
}

fn rules(errors: &mut ErrorList, object: &Value, _old: Option<&Value>) {
    provisioner_rules(errors, Path::root("provisioner"), text(object, "provisioner"));
    parameter_rules(errors, Path::root("parameters"), &object["parameters"]);
    let policy = text(object, "reclaimPolicy");
    if !matches!(policy, "" | "Delete" | "Retain") {
        errors.not_supported(Path::root("reclaimPolicy"), policy, &["Delete", "Retain"]);
    }
    let mode = text(object, "volumeBindingMode");
    if !matches!(mode, "Immediate" | "WaitForFirstConsumer") {
        errors.not_supported(Path::root("volumeBindingMode"), mode, &["Immediate", "WaitForFirstConsumer"]);
    }
    topologies(errors, Path::root("allowedTopologies"), list(object, "allowedTopologies"));
}

/// Checks the name of who provisions.
pub(super) fn provisioner_rules(errors: &mut ErrorList, path: Path<'_>, name: &str) {
    if name.is_empty() {
        errors.required(path, "");
        return;
    }
    // The name in small letters is what upstream checks and shows.
    let name = name.to_lowercase();
    errors.all_invalid(path, &name, names::qualified_name(&name));
}

/// Checks the parameters of a class.
pub(super) fn parameter_rules(errors: &mut ErrorList, path: Path<'_>, parameters: &Value) {
    const COUNT_MAX: usize = 512;
    const BYTES_MAX: usize = 256 * 1024;
    let Some(parameters) = parameters.as_object() else { return };
    if parameters.len() > COUNT_MAX {
        errors.too_long(path, COUNT_MAX);
        return;
    }
    if parameters.contains_key("") {
        errors.invalid(path, "", "field can not be empty.");
    }
    let bytes: usize = parameters.iter().map(|(key, value)| key.len() + value.as_str().unwrap_or("").len()).sum();
    if bytes > BYTES_MAX {
        errors.too_long(path, BYTES_MAX);
    }
}

/// The values of each label of a term.
type Term<'v> = BTreeMap<&'v str, BTreeSet<&'v str>>;

fn topologies(errors: &mut ErrorList, path: Path<'_>, terms: &[Value]) {
    let mut seen: BTreeMap<Term<'_>, usize> = BTreeMap::new();
    for (index, term) in terms.iter().enumerate() {
        let path = path.index(index);
        let path = path.child("matchLabelExpressions");
        let term = topology_term(errors, path, list(term, "matchLabelExpressions"));
        // Upstream compares with as many empty terms as there are terms, too.
        let empty = if term.is_empty() { terms.len() } else { 0 };
        let earlier = seen.entry(term).or_default();
        for _ in 0..(*earlier + empty).min(REPEATED_MAX) {
            errors.duplicate(path, "");
        }
        *earlier += 1;
    }
}

/// How often an error about one term is named at most: more than are listed.
const REPEATED_MAX: usize = 128;

fn topology_term<'v>(errors: &mut ErrorList, path: Path<'_>, expressions: &'v [Value]) -> Term<'v> {
    let mut term = Term::new();
    for (index, expression) in expressions.iter().enumerate() {
        let path = path.index(index);
        let values_path = path.child("values");
        let mut values = BTreeSet::new();
        if list(expression, "values").is_empty() {
            errors.required(values_path, "");
        }
        for (index, value) in list(expression, "values").iter().filter_map(Value::as_str).enumerate() {
            if !values.insert(value) {
                errors.duplicate(values_path.index(index), value);
            }
        }
        let key = text(expression, "key");
        errors.all_invalid(path.child("key"), key, names::qualified_name(key));
        if term.insert(key, values).is_some() {
            errors.duplicate(path.child("key"), key);
        }
    }
    term
}

fn warnings(object: &Value, _old: Option<&Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    let root = Path::root("allowedTopologies");
    for (index, term) in list(object, "allowedTopologies").iter().enumerate() {
        let path = root.index(index);
        let path = path.child("matchLabelExpressions");
        for (index, expression) in list(term, "matchLabelExpressions").iter().enumerate() {
            if let Some(message) = node_labels::deprecation(text(expression, "key")) {
                let path = path.index(index);
                warnings.push(format!("{}: {message}", path.child("key")));
            }
        }
    }
    warnings
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
