//! ValidatingAdmissionPolicies, as an example of a new kind: this file and one line of the table are all it takes.

use jiff::Timestamp;
use serde_json::Value;

use crate::defaulting::{child, default};
use crate::field::{ErrorList, Path};
use crate::kind::{Kind, STANDARD_VERBS, Subresource};
use crate::object::{Object, given, list, text};
use crate::printing::{AGE, NAME, Printer, age_of, integer, name_of, string};
use crate::strategy::{Generation, StatusRule, Strategy};
use crate::validation::Validation;

pub(crate) static KIND: Kind = Kind {
    group: "admissionregistration.k8s.io",
    kind: "ValidatingAdmissionPolicy",
    plural: "validatingadmissionpolicies",
    singular: "validatingadmissionpolicy",
    verbs: STANDARD_VERBS,
    subresources: &[Subresource::status("ValidatingAdmissionPolicy")],
    storage_prefix: "validatingadmissionpolicies",
    defaults,
    strategy: Strategy { status: StatusRule::Owned, generation: Generation::Spec, ..Strategy::PLAIN },
    validation: Validation { rules, ..Validation::PLAIN },
    printer: Printer {
        columns: &[NAME, integer("Validations"), string("FailurePolicy"), AGE],
        cells,
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};

fn defaults(object: &mut Object) {
    if let Some(spec) = child(object, "spec") {
        default(spec, "failurePolicy", "Fail");
    }
}

fn rules(errors: &mut ErrorList, object: &Value, _old: Option<&Value>) {
    let spec = &object["spec"];
    let path = Path::root("spec");
    let policy = text(spec, "failurePolicy");
    if !matches!(policy, "Fail" | "Ignore") {
        errors.not_supported(path.child("failurePolicy"), policy, &["Fail", "Ignore"]);
    }
    if !given(spec, "matchConstraints") {
        errors.required(path.child("matchConstraints"), "");
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &object["spec"];
    vec![
        name_of(object),
        list(spec, "validations").len().into(),
        text(spec, "failurePolicy").into(),
        age_of(object, now),
    ]
}
