//! PriorityClasses.

use serde_json::Value;

use crate::defaulting::default_absent;
use crate::field::{ErrorList, Path};
use crate::kind::{Kind, STANDARD_VERBS};
use crate::object::{given, number, text};
use crate::printing::{AGE, NAME, Printer, age_of, boolean, integer, name_of, string};
use crate::strategy::{Generation, Strategy};
use crate::validation::Validation;

pub(crate) static KIND: Kind = Kind {
    group: "scheduling.k8s.io",
    kind: "PriorityClass",
    plural: "priorityclasses",
    singular: "priorityclass",
    short_names: &["pc"],
    verbs: STANDARD_VERBS,
    storage_prefix: "priorityclasses",
    defaults: |object| default_absent(object, "preemptionPolicy", "PreemptLowerPriority"),
    strategy: Strategy { generation: Generation::Fixed, ..Strategy::PLAIN },
    validation: Validation { create_rules: rules, change_rules, ..Validation::PLAIN },
    printer: Printer {
        columns: &[NAME, integer("Value"), boolean("Global-Default"), AGE, string("PreemptionPolicy")],
        cells: |object, now| {
            vec![
                name_of(object),
                number(object, "value").into(),
                (object["globalDefault"] == true).into(),
                age_of(object, now),
                text(object, "preemptionPolicy").into(),
            ]
        },
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};

/// Priorities above this belong to the system.
const USER_PRIORITY_MAX: i64 = 1_000_000_000;

fn rules(errors: &mut ErrorList, object: &Value) {
    let name = text(&object["metadata"], "name");
    let path = Path::root("metadata");
    let value = number(object, "value");
    if name.starts_with("system-") {
        let known = matches!(
            (name, value),
            ("system-cluster-critical", 2_000_000_000) | ("system-node-critical", 2_000_001_000)
        );
        if !known {
            errors.forbidden(
                path.child("name"),
                &format!(
                    "priority class names with 'system-' prefix are reserved for system use only. \
                     error: {name} is not a known system priority class"
                ),
            );
        }
    } else if value > USER_PRIORITY_MAX {
        errors.forbidden(
            Path::root("value"),
            &format!("maximum allowed value of a user defined priority is {USER_PRIORITY_MAX}"),
        );
    }
    let policy = text(object, "preemptionPolicy");
    if given(object, "preemptionPolicy") {
        errors.one_of(Path::root("preemptionPolicy"), policy, &["PreemptLowerPriority", "Never"]);
    }
}

fn change_rules(errors: &mut ErrorList, new: &Value, old: &Value) {
    if number(new, "value") != number(old, "value") {
        errors.forbidden(Path::root("value"), "may not be changed in an update.");
    }
    errors.immutable(Path::root("preemptionPolicy"), &new["preemptionPolicy"], &old["preemptionPolicy"]);
}
