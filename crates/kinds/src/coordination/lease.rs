//! Leases.

use jiff::Timestamp;
use serde_json::Value;

use crate::field::{ErrorList, Path};
use crate::kind::{Kind, STANDARD_VERBS, Scope};
use crate::object::{Object, number, text};
use crate::printing::{AGE, NAME, Printer, age_of, name_of, string};
use crate::strategy::Strategy;
use crate::validation::Validation;

pub(crate) static KIND: Kind = Kind {
    group: "coordination.k8s.io",
    kind: "Lease",
    plural: "leases",
    singular: "lease",
    scope: Scope::Namespaced,
    verbs: STANDARD_VERBS,
    storage_prefix: "leases",
    strategy: Strategy {
        allow_create_on_update: true,
        allow_unconditional_update: false,
        on_create,
        on_update,
        ..Strategy::PLAIN
    },
    validation: Validation { any_finalizer: true, rules, ..Validation::PLAIN },
    printer: Printer {
        columns: &[NAME, string("Holder"), AGE],
        cells: |object, now| vec![name_of(object), text(&object["spec"], "holderIdentity").into(), age_of(object, now)],
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};

/// The feature gate CoordinatedLeaderElection is off: its fields are dropped unless the stored object has them.
fn on_create(object: &mut Object, _now: Timestamp) {
    if let Some(Value::Object(spec)) = object.get_mut("spec") {
        spec.remove("strategy");
        spec.remove("preferredHolder");
    }
}

fn on_update(object: &mut Object, old: &Value, _subresource: &str, _now: Timestamp) {
    let Some(Value::Object(spec)) = object.get_mut("spec") else { return };
    for field in ["strategy", "preferredHolder"] {
        if old["spec"].get(field).is_none() {
            spec.remove(field);
        }
    }
}

fn rules(errors: &mut ErrorList, object: &Value, _old: Option<&Value>) {
    let spec = &object["spec"];
    let path = Path::root("spec");
    if let Some(duration) = spec["leaseDurationSeconds"].as_i64()
        && duration <= 0
    {
        errors.invalid(path.child("leaseDurationSeconds"), duration, "must be greater than 0");
    }
    errors.non_negative(path.child("leaseTransitions"), number(spec, "leaseTransitions"));
}
