//! ReplicationControllers.

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::defaulting::{child, default};
use crate::field::{ErrorList, Path};
use crate::kind::{Kind, SCALE, STANDARD_VERBS, Scope, Subresource};
use crate::label_selector::selector_of;
use crate::object::{Object, given, number};
use crate::printing::{AGE, NAME, Printer, age_of, containers, integer, labels_of, name_of, wide};
use crate::selectable_fields::{SelectableFields, text_at};
use crate::strategy::{Dependents, Generation, StatusRule, Strategy};
use crate::validation::Validation;
use crate::{pod_spec, workload};

pub(crate) static KIND: Kind = Kind {
    kind: "ReplicationController",
    plural: "replicationcontrollers",
    singular: "replicationcontroller",
    scope: Scope::Namespaced,
    short_names: &["rc"],
    categories: &["all"],
    verbs: STANDARD_VERBS,
    subresources: &[SCALE, Subresource::status("ReplicationController")],
    storage_prefix: "controllers",
    defaults,
    strategy: Strategy {
        dependents: Dependents::Orphaned,
        status: StatusRule::Owned,
        generation: Generation::Spec,
        selectable: SelectableFields { names: &["status.replicas"], value, ..SelectableFields::NONE },
        warnings: workload::named_template_warnings,
        ..Strategy::PLAIN
    },
    validation: Validation { rules, status_rules, ..Validation::PLAIN },
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

fn value(controller: &Value, field: &str) -> String {
    match field {
        "status.replicas" => number(&controller["status"], "replicas").to_string(),
        _ => text_at(controller, field),
    }
}

fn defaults(object: &mut Object) {
    let Some(spec) = child(object, "spec") else { return };
    default(spec, "replicas", 1);
    pod_spec::template_defaults(spec.get_mut("template"));
    let Some(labels) = workload::template_labels(spec) else { return };
    let empty = |value: Option<&Value>| value.and_then(Value::as_object).is_none_or(Map::is_empty);
    if empty(spec.get("selector")) {
        spec.insert("selector".into(), labels.clone());
    }
    workload::label_like_template(object, labels);
}

fn rules(errors: &mut ErrorList, object: &Value, _old: Option<&Value>) {
    let spec = &object["spec"];
    let path = Path::root("spec");
    workload::non_negative(errors, path, spec, &["replicas", "minReadySeconds"]);
    if spec["selector"].as_object().is_none_or(serde_json::Map::is_empty) {
        errors.required(path.child("selector"), "");
    }
    if !given(spec, "template") {
        errors.required(path.child("template"), "");
        return;
    }
    let labels = serde_json::json!({ "matchLabels": spec["selector"] });
    if let Some(selector) = selector_of(&labels) {
        workload::template_rules(errors, path, spec, &selector, "ReplicationController");
    }
}

fn status_rules(errors: &mut ErrorList, new: &Value, _old: &Value) {
    const COUNTS: [&str; 5] =
        ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"];
    let (path, status) = (Path::root("status"), &new["status"]);
    workload::non_negative(errors, path, status, &COUNTS);
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
        labels_of(&spec["selector"]),
    ]
}
