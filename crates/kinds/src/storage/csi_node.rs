//! CSINodes.

use serde_json::Value;

use crate::field::{ErrorList, Path};
use crate::kind::{Kind, STANDARD_VERBS};
use crate::object::{list, text};
use crate::printing::{AGE, NAME, Printer, age_of, integer, name_of};
use crate::strategy::Strategy;
use crate::validation::Validation;

pub(crate) static KIND: Kind = Kind {
    group: "storage.k8s.io",
    kind: "CSINode",
    plural: "csinodes",
    singular: "csinode",
    verbs: STANDARD_VERBS,
    storage_prefix: "csinodes",
    strategy: Strategy { allow_unconditional_update: false, returns_object_on_delete: true, ..Strategy::PLAIN },
    validation: Validation { rules, ..Validation::PLAIN },
    printer: Printer {
        columns: &[NAME, integer("Drivers"), AGE],
        cells: |object, now| vec![name_of(object), list(&object["spec"], "drivers").len().into(), age_of(object, now)],
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};

/// Every driver needs a name, and the name under which it knows the node.
fn rules(errors: &mut ErrorList, node: &Value, _old: Option<&Value>) {
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
