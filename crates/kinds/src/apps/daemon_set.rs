//! DaemonSets.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::defaulting::{child, child_or_new, default, default_absent};
use crate::field::{ErrorList, GoValue, Path};
use crate::int_or_percent::{amount, at_most_all, int_or_percent};
use crate::kind::{Kind, STANDARD_VERBS, Scope, Subresource};
use crate::label_selector::is_empty_selector;
use crate::object::{Object, given, number, text};
use crate::printing::{
    AGE, NAME, Printer, age_of, containers, integer, labels_of, name_of, shown_selector, string, wide,
};
use crate::strategy::{Generation, StatusRule, Strategy};
use crate::validation::Validation;
use crate::{label_selector, pod_spec, workload};

pub(crate) static KIND: Kind = Kind {
    group: "apps",
    kind: "DaemonSet",
    plural: "daemonsets",
    singular: "daemonset",
    scope: Scope::Namespaced,
    short_names: &["ds"],
    categories: &["all"],
    verbs: STANDARD_VERBS,
    subresources: &[Subresource::status("DaemonSet")],
    storage_prefix: "daemonsets",
    annotated_fields: &[TEMPLATE_GENERATION],
    defaults,
    strategy: Strategy {
        status: StatusRule::Owned,
        generation: Generation::Spec,
        on_create,
        on_update,
        warnings: workload::template_warnings,
        ..Strategy::PLAIN
    },
    blank: |object| set_template_generation(object, 0),
    validation: Validation { rules, change_rules: workload::selector_is_immutable, status_rules, ..Validation::PLAIN },
    printer: Printer {
        columns: &[
            NAME,
            integer("Desired"),
            integer("Current"),
            integer("Ready"),
            integer("Up-to-date"),
            integer("Available"),
            string("Node Selector"),
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

/// Where DaemonSets keep the count that older clients read.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

fn defaults(object: &mut Object) {
    if let Some(metadata) = child(object, "metadata")
        && let Some(annotations) = child_or_new(metadata, "annotations")
    {
        default(annotations, TEMPLATE_GENERATION, "0");
    }
    let Some(spec) = child(object, "spec") else { return };
    if let Some(strategy) = child_or_new(spec, "updateStrategy") {
        default(strategy, "type", "RollingUpdate");
        if text(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = child_or_new(strategy, "rollingUpdate")
        {
            default_absent(rolling, "maxUnavailable", 1);
            default_absent(rolling, "maxSurge", 0);
        }
    }
    default(spec, "revisionHistoryLimit", workload::REVISION_HISTORY_LIMIT);
    pod_spec::template_defaults(spec.get_mut("template"));
}

fn set_template_generation(object: &mut Object, generation: i64) {
    let Some(Value::Object(metadata)) = object.get_mut("metadata") else { return };
    let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(Object::new()));
    if let Value::Object(annotations) = annotations {
        annotations.insert(TEMPLATE_GENERATION.into(), generation.to_string().into());
    }
}

fn template_generation(object: &Value) -> i64 {
    object["metadata"]["annotations"][TEMPLATE_GENERATION].as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn on_create(object: &mut Object, _now: Timestamp) {
    let given = object.get("metadata").map_or(0, |metadata| template_generation(&json!({ "metadata": metadata })));
    set_template_generation(object, given.max(1));
}

fn on_update(object: &mut Object, old: &Value, subresource: &str, _now: Timestamp) {
    let changed =
        subresource.is_empty() && object.get("spec").map(|spec| &spec["template"]) != Some(&old["spec"]["template"]);
    set_template_generation(object, template_generation(old) + i64::from(changed));
}

fn rules(errors: &mut ErrorList, object: &Value, _old: Option<&Value>) {
    let spec = &object["spec"];
    let path = Path::root("spec");
    label_selector::rules(errors, path.child("selector"), &spec["selector"]);
    workload::selected_template_rules(errors, path, spec);
    if given(spec, "selector") && is_empty_selector(&spec["selector"]) {
        let shown = label_selector::shown(&spec["selector"]);
        errors.invalid(path.child("selector"), shown, "empty selector is invalid for daemonset");
    }
    let template_path = path.child("template");
    pod_spec::template_rules(errors, template_path, &spec["template"]);
    workload::always_restarts(errors, template_path, &spec["template"], "DaemonSet");
    workload::non_negative(errors, path, spec, &["minReadySeconds", "revisionHistoryLimit"]);
    let strategy_path = path.child("updateStrategy");
    let (strategy, rolling) = (&spec["updateStrategy"], &spec["updateStrategy"]["rollingUpdate"]);
    match text(strategy, "type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let path = strategy_path.child("rollingUpdate");
            for field in ["maxUnavailable", "maxSurge"] {
                int_or_percent(errors, path.child(field), &rolling[field]);
                at_most_all(errors, path.child(field), &rolling[field]);
            }
            match (amount(&rolling["maxUnavailable"]) != 0, amount(&rolling["maxSurge"]) != 0) {
                (true, true) => errors.invalid(
                    path.child("maxSurge"),
                    &rolling["maxSurge"],
                    "may not be set when maxUnavailable is non-zero",
                ),
                (false, false) => errors.required(path.child("maxUnavailable"), "cannot be 0 when maxSurge is 0"),
                _ => {}
            }
        }
        _ => {
            let shown = GoValue("io.k8s.api.apps.v1.DaemonSetUpdateStrategy", strategy);
            errors.not_supported(strategy_path, shown, &["RollingUpdate", "OnDelete"]);
        }
    }
}

fn status_rules(errors: &mut ErrorList, new: &Value, _old: &Value) {
    const COUNTS: [&str; 9] = [
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "observedGeneration",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "collisionCount",
    ];
    workload::non_negative(errors, Path::root("status"), &new["status"], &COUNTS);
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    const COUNTS: [&str; 5] = [
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    ];
    let (spec, status) = (&object["spec"], &object["status"]);
    let template = &spec["template"]["spec"];
    let (names, images) = containers(template);
    let mut cells = vec![name_of(object)];
    cells.extend(COUNTS.map(|count| Value::from(number(status, count))));
    cells.extend([labels_of(&template["nodeSelector"]), age_of(object, now), names, images]);
    cells.push(shown_selector(&spec["selector"]));
    cells
}
