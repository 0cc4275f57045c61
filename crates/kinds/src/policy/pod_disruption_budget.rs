//! PodDisruptionBudgets.

use jiff::Timestamp;
use serde_json::Value;

use crate::field::{ErrorList, Json, Path};
use crate::int_or_percent::{at_most_all, int_or_percent};
use crate::kind::{Kind, STANDARD_VERBS, Scope, Subresource};
use crate::label_selector;
use crate::object::{given, number, text};
use crate::printing::{AGE, NAME, Printer, age_of, integer, name_of, string};
use crate::strategy::{Generation, StatusRule, Strategy};
use crate::validation::{MetadataCheck, Validation};

pub(crate) static KIND: Kind = Kind {
    group: "policy",
    kind: "PodDisruptionBudget",
    plural: "poddisruptionbudgets",
    singular: "poddisruptionbudget",
    scope: Scope::Namespaced,
    short_names: &["pdb"],
    verbs: STANDARD_VERBS,
    subresources: &[Subresource::status("PodDisruptionBudget")],
    storage_prefix: "poddisruptionbudgets",
    strategy: Strategy {
        allow_unconditional_update: false,
        status: StatusRule::Owned,
        generation: Generation::Spec,
        ..Strategy::PLAIN
    },
    validation: Validation { metadata: MetadataCheck::Last, any_finalizer: true, rules, ..Validation::PLAIN },
    printer: Printer {
        columns: &[NAME, string("Min Available"), string("Max Unavailable"), integer("Allowed Disruptions"), AGE],
        cells,
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};

fn rules(errors: &mut ErrorList, object: &Value, _old: Option<&Value>) {
    let spec = &object["spec"];
    let path = Path::root("spec");
    if given(spec, "minAvailable") && given(spec, "maxUnavailable") {
        let shown = || {
            format!(
                "{{\"MinAvailable\":{},\"Selector\":{},\"MaxUnavailable\":{},\"UnhealthyPodEvictionPolicy\":{}}}",
                spec["minAvailable"], spec["selector"], spec["maxUnavailable"], spec["unhealthyPodEvictionPolicy"],
            )
        };
        errors.invalid(path, Json(shown), "minAvailable and maxUnavailable cannot be both set");
    }
    for field in ["minAvailable", "maxUnavailable"] {
        if given(spec, field) {
            int_or_percent(errors, path.child(field), &spec[field]);
            at_most_all(errors, path.child(field), &spec[field]);
        }
    }
    let policy = text(spec, "unhealthyPodEvictionPolicy");
    if given(spec, "unhealthyPodEvictionPolicy") && !matches!(policy, "AlwaysAllow" | "IfHealthyBudget") {
        errors.not_supported(path.child("unhealthyPodEvictionPolicy"), policy, &["AlwaysAllow", "IfHealthyBudget"]);
    }
    label_selector::rules(errors, path.child("selector"), &spec["selector"]);
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let bound = |name: &str| match &object["spec"][name] {
        Value::Null => "N/A".to_owned(),
        Value::String(percent) => percent.clone(),
        count => count.to_string(),
    };
    vec![
        name_of(object),
        bound("minAvailable").into(),
        bound("maxUnavailable").into(),
        number(&object["status"], "disruptionsAllowed").into(),
        age_of(object, now),
    ]
}
