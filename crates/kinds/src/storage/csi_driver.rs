//! CSIDrivers.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::defaulting::{child_or_new, default};
use crate::field::{ErrorList, Path};
use crate::kind::{Kind, STANDARD_VERBS};
use crate::object::{Object, given, list, text};
use crate::printing::{AGE, NAME, Printer, age_of, boolean, name_of, or, string};
use crate::strategy::{Generation, Strategy};
use crate::validation::Validation;

pub(crate) static KIND: Kind = Kind {
    group: "storage.k8s.io",
    kind: "CSIDriver",
    plural: "csidrivers",
    singular: "csidriver",
    verbs: STANDARD_VERBS,
    storage_prefix: "csidrivers",
    defaults,
    strategy: Strategy {
        allow_unconditional_update: false,
        returns_object_on_delete: true,
        generation: Generation::SpecOnUpdate,
        ..Strategy::PLAIN
    },
    validation: Validation { change_rules, ..Validation::PLAIN },
    printer: Printer {
        columns: &[
            NAME,
            boolean("AttachRequired"),
            boolean("PodInfoOnMount"),
            boolean("StorageCapacity"),
            string("TokenRequests"),
            boolean("RequiresRepublish"),
            string("Modes"),
            AGE,
        ],
        cells,
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};

fn defaults(object: &mut Object) {
    let Some(spec) = child_or_new(object, "spec") else { return };
    default(spec, "attachRequired", true);
    default(spec, "podInfoOnMount", false);
    default(spec, "storageCapacity", false);
    default(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    if spec.get("volumeLifecycleModes").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        spec.insert("volumeLifecycleModes".into(), json!(["Persistent"]));
    }
    default(spec, "requiresRepublish", false);
    default(spec, "seLinuxMount", false);
}

/// Attachment and lifecycle modes of a driver are immutable.
fn change_rules(errors: &mut ErrorList, new: &Value, old: &Value) {
    let path = Path::root("spec");
    for (field, shown) in [("attachRequired", "attachedRequired"), ("volumeLifecycleModes", "volumeLifecycleModes")] {
        errors.immutable(path.child(shown), &new["spec"][field], &old["spec"][field]);
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &object["spec"];
    let modes: Vec<&str> = list(spec, "volumeLifecycleModes").iter().filter_map(Value::as_str).collect();
    let tokens = if given(spec, "tokenRequests") {
        list(spec, "tokenRequests").iter().map(|request| text(request, "audience")).collect::<Vec<_>>().join(",")
    } else {
        "<unset>".to_owned()
    };
    vec![
        name_of(object),
        (spec["attachRequired"] != false).into(),
        (spec["podInfoOnMount"] == true).into(),
        (spec["storageCapacity"] == true).into(),
        tokens.into(),
        (spec["requiresRepublish"] == true).into(),
        or(&modes.join(","), "<none>").into(),
        age_of(object, now),
    ]
}
