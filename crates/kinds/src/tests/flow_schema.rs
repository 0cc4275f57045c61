//! FlowSchemas, as an example of a new kind: this file and one line of the table are all it takes.

use jiff::Timestamp;
use serde_json::Value;

use crate::defaulting::{child, default_nonzero};
use crate::field::{ErrorList, Path};
use crate::kind::{Kind, STANDARD_VERBS, Subresource};
use crate::object::{Object, number, text};
use crate::printing::{AGE, NAME, Printer, age_of, integer, name_of, or, string};
use crate::strategy::{Generation, StatusRule, Strategy};
use crate::validation::Validation;

pub(crate) static KIND: Kind = Kind {
    group: "flowcontrol.apiserver.k8s.io",
    kind: "FlowSchema",
    plural: "flowschemas",
    singular: "flowschema",
    verbs: STANDARD_VERBS,
    subresources: &[Subresource::status("FlowSchema")],
    storage_prefix: "flowschemas",
    defaults,
    strategy: Strategy { status: StatusRule::Owned, generation: Generation::Spec, ..Strategy::PLAIN },
    validation: Validation { rules, ..Validation::PLAIN },
    printer: Printer {
        columns: &[NAME, string("PriorityLevel"), integer("MatchingPrecedence"), string("DistinguisherMethod"), AGE],
        cells,
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};

const PRECEDENCE_MAX: i64 = 10_000;

fn defaults(object: &mut Object) {
    if let Some(spec) = child(object, "spec") {
        default_nonzero(spec, "matchingPrecedence", 1000);
    }
}

fn rules(errors: &mut ErrorList, object: &Value, _old: Option<&Value>) {
    let spec = &object["spec"];
    let path = Path::root("spec");
    let precedence = number(spec, "matchingPrecedence");
    if !(1..=PRECEDENCE_MAX).contains(&precedence) {
        errors.invalid(path.child("matchingPrecedence"), precedence, "must be between 1 and 10000");
    }
    if text(&spec["priorityLevelConfiguration"], "name").is_empty() {
        let level = path.child("priorityLevelConfiguration");
        errors.required(level.child("name"), "must reference a priority level");
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &object["spec"];
    vec![
        name_of(object),
        text(&spec["priorityLevelConfiguration"], "name").into(),
        number(spec, "matchingPrecedence").into(),
        or(text(&spec["distinguisherMethod"], "type"), "<none>").into(),
        age_of(object, now),
    ]
}
