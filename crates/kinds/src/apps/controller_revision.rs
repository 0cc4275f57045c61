//! ControllerRevisions.

use serde_json::Value;

use crate::field::{ErrorList, Path};
use crate::kind::{Kind, STANDARD_VERBS, Scope};
use crate::object::{list, number, text};
use crate::printing::{AGE, NAME, Printer, age_of, name_of, string};
use crate::validation::{MetadataRecheck, Validation};

pub(crate) static KIND: Kind = Kind {
    group: "apps",
    kind: "ControllerRevision",
    plural: "controllerrevisions",
    singular: "controllerrevision",
    scope: Scope::Namespaced,
    verbs: STANDARD_VERBS,
    storage_prefix: "controllerrevisions",
    validation: Validation {
        update_metadata: MetadataRecheck::AsNewAndChanged,
        rules,
        change_rules,
        ..Validation::PLAIN
    },
    printer: Printer {
        columns: &[NAME, string("Controller"), string("Revision"), AGE],
        cells: |object, now| {
            let controller = controller(&object["metadata"]).into();
            vec![name_of(object), controller, number(object, "revision").into(), age_of(object, now)]
        },
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};

fn rules(errors: &mut ErrorList, object: &Value, _old: Option<&Value>) {
    errors.non_negative(Path::root("revision"), number(object, "revision"));
    match &object["data"] {
        Value::Null => errors.required(Path::root("data"), "data is mandatory"),
        Value::Object(_) => {}
        _ => errors.required(Path::root("data"), "data must be a valid JSON object"),
    }
}

fn change_rules(errors: &mut ErrorList, new: &Value, old: &Value) {
    errors.immutable(Path::root("data"), &new["data"], &old["data"]);
}

/// `kind.group/name` of the owner that controls the object.
fn controller(metadata: &Value) -> String {
    let Some(owner) = list(metadata, "ownerReferences").iter().find(|owner| owner["controller"] == true) else {
        return "<none>".to_owned();
    };
    let kind = text(owner, "kind").to_lowercase();
    match text(owner, "apiVersion").split_once('/') {
        Some((group, _)) => format!("{kind}.{group}/{}", text(owner, "name")),
        None => format!("{kind}/{}", text(owner, "name")),
    }
}
