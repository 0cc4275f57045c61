//! HorizontalPodAutoscalers of both versions; they are stored as `autoscaling/v2`.

mod annotations;
mod cells;
mod conversion;
mod rules;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::defaulting::{child, child_or_new, default, default_absent};
use crate::kind::{Kind, STANDARD_VERBS, Scope, Subresource};
use crate::object::Object;
use crate::printing::{AGE, Column, NAME, Printer, string};
use crate::strategy::{StatusRule, Strategy};
use crate::validation::Validation;

pub(crate) static V2: Kind = Kind {
    version: "v2",
    defaults: defaults_v2,
    strategy: Strategy { status: StatusRule::Owned, ..Strategy::PLAIN },
    validation: Validation { rules: rules::spec, status_rules: rules::status, ..Validation::PLAIN },
    printer: Printer { columns: COLUMNS, cells: cells::cells, ..Printer::PLAIN },
    ..BOTH
};

pub(crate) static V1: Kind = Kind {
    defaults: defaults_v1,
    strategy: Strategy {
        status: StatusRule::Owned,
        on_create: |object, _| annotations::drop(object, annotations::OF_STATUS),
        on_update: on_update_v1,
        ..Strategy::PLAIN
    },
    from_storage: conversion::to_v1,
    to_storage,
    // The rules are those of the second version, and so are the paths that errors name.
    validation: Validation {
        rules: |errors, new, old| rules::spec(errors, &as_v2(new), old.map(as_v2).as_ref()),
        status_rules: rules::status,
        ..Validation::PLAIN
    },
    printer: Printer { columns: COLUMNS, cells: |object, now| cells::cells(&as_v2(object), now), ..Printer::PLAIN },
    ..BOTH
};

/// What both versions share.
const BOTH: Kind = Kind {
    group: "autoscaling",
    kind: "HorizontalPodAutoscaler",
    plural: "horizontalpodautoscalers",
    singular: "horizontalpodautoscaler",
    scope: Scope::Namespaced,
    short_names: &["hpa"],
    categories: &["all"],
    verbs: STANDARD_VERBS,
    subresources: &[Subresource::status("HorizontalPodAutoscaler")],
    storage_prefix: "horizontalpodautoscalers",
    annotated_fields: annotations::ALL,
    ..Kind::PLAIN
};

const COLUMNS: &[Column] =
    &[NAME, string("Reference"), string("Targets"), string("MinPods"), string("MaxPods"), string("Replicas"), AGE];

fn defaults_v1(object: &mut Object) {
    if let Some(spec) = child(object, "spec") {
        default(spec, "minReplicas", 1);
    }
}

fn defaults_v2(object: &mut Object) {
    // They belong to the first version, and this one has a field for each.
    annotations::drop(object, annotations::ALL);
    let Some(spec) = child(object, "spec") else { return };
    default(spec, "minReplicas", 1);
    if spec.get("metrics").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        spec.insert("metrics".into(), json!([conversion::cpu_utilization(conversion::DEFAULT_CPU_UTILIZATION)]));
    }
    if let Some(behavior) = child(spec, "behavior") {
        let percent = json!({ "type": "Percent", "value": 100, "periodSeconds": 15 });
        let pods = json!({ "type": "Pods", "value": 4, "periodSeconds": 15 });
        if let Some(up) = child_or_new(behavior, "scaleUp") {
            default(up, "stabilizationWindowSeconds", 0);
            default_absent(up, "selectPolicy", "Max");
            default(up, "policies", vec![pods, percent.clone()]);
        }
        if let Some(down) = child_or_new(behavior, "scaleDown") {
            default_absent(down, "selectPolicy", "Max");
            default(down, "policies", vec![percent]);
        }
    }
}

/// What the first version keeps in annotations belongs to the spec or to the status, and changes with it alone.
fn on_update_v1(object: &mut Object, old: &Value, subresource: &str, _now: Timestamp) {
    let kept = if subresource == "status" { annotations::OF_SPEC } else { annotations::OF_STATUS };
    if old["metadata"].get("annotations").is_none() && object["metadata"].get("annotations").is_none() {
        return;
    }
    let Some(metadata) = child(object, "metadata") else { return };
    let Some(annotations) = child_or_new(metadata, "annotations") else { return };
    for name in kept {
        crate::object::put(annotations, name, old["metadata"]["annotations"].get(*name));
    }
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}

/// The stored form: as if it had been written through the second version.
fn to_storage(object: &mut Object) {
    conversion::to_v2(object);
    defaults_v2(object);
}

fn as_v2(object: &Value) -> Value {
    let mut object = object.clone();
    if let Value::Object(object) = &mut object {
        conversion::to_v2(object);
    }
    object
}
