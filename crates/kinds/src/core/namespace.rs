//! Namespaces.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::defaulting::{child, child_or_new, default};
use crate::field::{ErrorList, Path};
use crate::kind::{Kind, Subresource};
use crate::names;
use crate::object::{Object, list, text};
use crate::printing::{AGE, NAME, Printer, age_of, name_of, string};
use crate::selectable_fields::SelectableFields;
use crate::strategy::{StatusRule, Strategy, restore};
use crate::validation::{MetadataCheck, MetadataRecheck, Validation};
use crate::verb::Verb;

pub(crate) static KIND: Kind = Kind {
    kind: "Namespace",
    plural: "namespaces",
    singular: "namespace",
    short_names: &["ns"],
    verbs: &[Verb::Create, Verb::Delete, Verb::Get, Verb::List, Verb::Patch, Verb::Update, Verb::Watch],
    subresources: &[
        Subresource { name: "finalize", group: "", version: "", kind: "Namespace", verbs: &[Verb::Update] },
        Subresource::status("Namespace"),
    ],
    storage_prefix: "namespaces",
    defaults,
    strategy: Strategy {
        returns_object_on_delete: true,
        status: StatusRule::Owned,
        selectable: SelectableFields { by_namespace: false, ..SelectableFields::texts(&["status.phase"]) },
        on_create,
        on_update,
        ..Strategy::PLAIN
    },
    validation: Validation {
        metadata: MetadataCheck::First(names::dns_label),
        update_metadata: MetadataRecheck::AsNewAndChanged,
        rules,
        status_rules,
        ..Validation::PLAIN
    },
    printer: Printer {
        columns: &[NAME, string("Status"), AGE],
        cells: |object, now| vec![name_of(object), text(&object["status"], "phase").into(), age_of(object, now)],
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};

const KUBERNETES_FINALIZER: &str = "kubernetes";

fn defaults(object: &mut Object) {
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

fn on_create(object: &mut Object, _now: Timestamp) {
    // A generated name is known only now.
    defaults(object);
    object.insert("status".into(), json!({ "phase": "Active" }));
    let spec = object.entry("spec").or_insert_with(|| Value::Object(Map::new()));
    let Value::Object(spec) = spec else { return };
    let finalizers = spec.entry("finalizers").or_insert_with(|| Value::Array(Vec::new()));
    if let Value::Array(finalizers) = finalizers
        && !finalizers.iter().any(|finalizer| finalizer == KUBERNETES_FINALIZER)
    {
        finalizers.push(KUBERNETES_FINALIZER.into());
    }
}

fn on_update(object: &mut Object, old: &Value, subresource: &str, _now: Timestamp) {
    match subresource {
        "" => {
            let Some(Value::Object(spec)) = object.get_mut("spec") else { return };
            match old["spec"].get("finalizers") {
                Some(finalizers) => {
                    spec.insert("finalizers".into(), finalizers.clone());
                }
                None => {
                    spec.remove("finalizers");
                }
            }
        }
        "finalize" => restore(object, old, "status"),
        _ => {}
    }
}

/// Only `finalize` changes the finalizers of a namespace, and then upstream tells which one is wrong.
fn rules(errors: &mut ErrorList, object: &Value, old: Option<&Value>) {
    let spec = Path::root("spec");
    let path = spec.child("finalizers");
    for (index, finalizer) in list(&object["spec"], "finalizers").iter().filter_map(Value::as_str).enumerate() {
        let path = if old.is_some() { path.index(index) } else { path };
        errors.all_invalid(path, finalizer, names::qualified_name(finalizer));
        if !finalizer.contains('/') && !matches!(finalizer, "kubernetes" | "orphan" | "foregroundDeletion") {
            errors.invalid(path, finalizer, "name is neither a standard finalizer name nor is it fully qualified");
        }
    }
}

/// A namespace is terminating exactly while it is being deleted.
fn status_rules(errors: &mut ErrorList, namespace: &Value, _old: &Value) {
    let phase = text(&namespace["status"], "phase");
    let (wanted, detail) = match namespace["metadata"]["deletionTimestamp"].is_null() {
        true => ("Active", "may only be 'Active' if `deletionTimestamp` is empty"),
        false => ("Terminating", "may only be 'Terminating' if `deletionTimestamp` is not empty"),
    };
    if phase != wanted {
        let path = Path::root("status");
        errors.invalid(path.child("Phase"), phase, detail);
    }
}
