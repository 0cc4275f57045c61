//! ReplicaSets.

use jiff::Timestamp;
use serde_json::Value;

use crate::defaulting::{child, default};
use crate::field::{ErrorList, Path};
use crate::kind::{Kind, SCALE, STANDARD_VERBS, Scope, Subresource};
use crate::object::{Object, number};
use crate::printing::{AGE, NAME, Printer, age_of, containers, integer, name_of, shown_selector, wide};
use crate::strategy::{Generation, StatusRule, Strategy};
use crate::validation::Validation;
use crate::{pod_spec, workload};

pub(crate) static KIND: Kind = Kind {
    group: "apps",
    kind: "ReplicaSet",
    plural: "replicasets",
    singular: "replicaset",
    scope: Scope::Namespaced,
    short_names: &["rs"],
    categories: &["all"],
    verbs: STANDARD_VERBS,
    subresources: &[SCALE, Subresource::status("ReplicaSet")],
    storage_prefix: "replicasets",
    defaults,
    strategy: Strategy {
        status: StatusRule::Owned,
        generation: Generation::Spec,
        warnings: workload::named_template_warnings,
        ..Strategy::PLAIN
    },
    blank: workload::no_replicas,
    validation: Validation { rules, change_rules: workload::selector_is_immutable, status_rules, ..Validation::PLAIN },
    printer: Printer {
        columns: &[
            NAME,
            integer("Desired"),
            integer("Current"),
            integer("Ready"),
            AGE,
            wide("Containers"),
            wide("Images"),
            wide("Selector"),
        ],
        cells,
        ..Printer::PLAIN
    },
    ..Kind::PLAIN
};

fn defaults(object: &mut Object) {
    let Some(spec) = child(object, "spec") else { return };
    default(spec, "replicas", 1);
    pod_spec::template_defaults(spec.get_mut("template"));
}

fn rules(errors: &mut ErrorList, object: &Value, _old: Option<&Value>) {
    let spec = &object["spec"];
    let path = Path::root("spec");
    workload::non_negative(errors, path, spec, &["replicas", "minReadySeconds"]);
    workload::selector_and_template_rules(errors, path, spec);
}

fn status_rules(errors: &mut ErrorList, new: &Value, _old: &Value) {
    let status = &new["status"];
    let path = Path::root("status");
    workload::non_negative(
        errors,
        path,
        status,
        &[
            "replicas",
            "fullyLabeledReplicas",
            "readyReplicas",
            "availableReplicas",
            "observedGeneration",
            "terminatingReplicas",
        ],
    );
    workload::status_counts(
        errors,
        path,
        status,
        &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
        "readyReplicas",
    );
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let (names, images) = containers(&spec["template"]["spec"]);
    vec![
        name_of(object),
        number(spec, "replicas").into(),
        number(status, "replicas").into(),
        number(status, "readyReplicas").into(),
        age_of(object, now),
        names,
        images,
        shown_selector(&spec["selector"]),
    ]
}
