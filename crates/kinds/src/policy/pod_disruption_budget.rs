//! PodDisruptionBudgets.

use std::collections::BTreeMap;

use bayplan_model::dns_name::form_error;
use jiff::Timestamp;
use serde_json::Value;

use crate::field::{ErrorList, GoValue, Path};
use crate::int_or_percent::{at_most_all, int_or_percent};
use crate::kind::{Kind, STANDARD_VERBS, Scope, Subresource};
use crate::object::{given, list, number, text};
use crate::printing::{AGE, NAME, Printer, age_of, integer, name_of, string};
use crate::strategy::{Generation, StatusRule, Strategy};
use crate::validation::{MetadataCheck, MetadataRecheck, Validation};
use crate::{label_selector, names, workload};

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
    validation: Validation {
        update_metadata: MetadataRecheck::None,
        status_metadata: MetadataRecheck::None,
        metadata: MetadataCheck::Last,
        rules,
        status_rules,
        ..Validation::PLAIN
    },
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
        let shown = GoValue("io.k8s.api.policy.v1.PodDisruptionBudgetSpec", spec);
        errors.invalid(path, shown, "minAvailable and maxUnavailable cannot be both set");
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

fn status_rules(errors: &mut ErrorList, new: &Value, _old: &Value) {
    const COUNTS: [&str; 4] = ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"];
    let (path, status) = (Path::root("status"), &new["status"]);
    condition_rules(errors, path.child("conditions"), list(status, "conditions"));
    workload::non_negative(errors, path, status, &COUNTS);
}

/// Upstream: `metav1validation.ValidateConditions`.
fn condition_rules(errors: &mut ErrorList, path: Path<'_>, conditions: &[Value]) {
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, condition) in conditions.iter().enumerate() {
        let path = path.index(index);
        let (kind, status, reason) = (text(condition, "type"), text(condition, "status"), text(condition, "reason"));
        errors.all_invalid(path.child("type"), kind, names::qualified_name(kind));
        if places.insert(kind, index).is_some() {
            errors.duplicate(path.child("type"), kind);
        }
        if !matches!(status, "True" | "False" | "Unknown") {
            errors.not_supported(path.child("status"), status, &["False", "True", "Unknown"]);
        }
        errors.non_negative(path.child("observedGeneration"), number(condition, "observedGeneration"));
        if !given(condition, "lastTransitionTime") {
            errors.required(path.child("lastTransitionTime"), "must be set");
        }
        match reason {
            "" => errors.required(path.child("reason"), "must be set"),
            reason => reason_rules(errors, path.child("reason"), reason),
        }
        if text(condition, "message").len() > MESSAGE_MAX {
            errors.too_long(path.child("message"), MESSAGE_MAX);
        }
    }
}

const MESSAGE_MAX: usize = 32768;

fn reason_rules(errors: &mut ErrorList, path: Path<'_>, reason: &str) {
    const REASON_MAX: usize = 1024;
    if reason.len() > REASON_MAX {
        errors.too_long(path, REASON_MAX);
    }
    let fits = reason.starts_with(|first: char| first.is_ascii_alphabetic())
        && reason.ends_with(|last: char| last.is_ascii_alphanumeric() || last == '_')
        && reason.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b',' | b':'));
    if !fits {
        let detail = form_error(
            "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric \
             characters or '_,:', and must end with an alphanumeric character or '_'",
            "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?",
            &["my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB"],
        );
        errors.invalid(path, reason, &detail);
    }
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
