//! Events as `events.k8s.io` names their fields; they are stored as core events.

use serde_json::{Value, json};

use crate::core::event;
use crate::field::{ErrorList, GoValue, Path};
use crate::kind::{Kind, STANDARD_VERBS, Scope};
use crate::object::{Object, given, number, text};
use crate::selectable_fields::SelectableFields;
use crate::strategy::{Dependents, Strategy};
use crate::validation::Validation;

pub(crate) static KIND: Kind = Kind {
    group: "events.k8s.io",
    kind: "Event",
    plural: "events",
    singular: "event",
    scope: Scope::Namespaced,
    short_names: &["ev"],
    verbs: STANDARD_VERBS,
    storage_prefix: "events",
    strategy: Strategy {
        allow_create_on_update: true,
        dependents: Dependents::Unsupported,
        selectable: SelectableFields {
            names: event::SELECTABLE,
            canonical,
            value: event::value,
            ..SelectableFields::NONE
        },
        ..Strategy::PLAIN
    },
    from_storage,
    to_storage,
    validation: Validation {
        rules: |errors, event, _| event::rules(errors, event, &NAMES),
        create_rules,
        change_rules,
        ..Validation::PLAIN
    },
    printer: event::PRINTER,
    ..Kind::PLAIN
};

/// The fields that the groups name differently: in `events.k8s.io`, in core.
const RENAMED: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("reportingController", "reportingComponent"),
];

/// Moves fields, by their old and new names.
fn rename(event: &mut Object, names: impl Iterator<Item = (&'static str, &'static str)>) {
    let moved: Vec<(&str, Value)> = names.filter_map(|(from, to)| Some((to, event.remove(from)?))).collect();
    event.extend(moved.into_iter().map(|(to, value)| (to.to_owned(), value)));
}

fn from_storage(event: &mut Object) {
    rename(event, RENAMED.iter().map(|(new, core)| (*core, *new)));
    // The two groups differ in which empty fields they omit.
    for key in ["reportingController", "reportingInstance", "reason", "note", "type", "action"] {
        if event.get(key).is_some_and(|value| value == "") {
            event.remove(key);
        }
    }
    for (key, empty) in [
        ("deprecatedFirstTimestamp", Value::Null),
        ("deprecatedLastTimestamp", Value::Null),
        ("regarding", json!({})),
        ("deprecatedSource", json!({})),
    ] {
        event.entry(key).or_insert(empty);
    }
}

fn to_storage(event: &mut Object) {
    rename(event, RENAMED.into_iter());
    for (key, empty) in [
        ("involvedObject", json!({})),
        ("source", json!({})),
        ("firstTimestamp", Value::Null),
        ("lastTimestamp", Value::Null),
        ("eventTime", Value::Null),
        ("reportingComponent", json!("")),
        ("reportingInstance", json!("")),
    ] {
        event.entry(key).or_insert(empty);
    }
}

/// The core name of a field; empty for labels that this group does not know.
fn canonical(label: &str) -> &str {
    match label {
        "regarding.kind" => "involvedObject.kind",
        "regarding.namespace" => "involvedObject.namespace",
        "regarding.name" => "involvedObject.name",
        "regarding.uid" => "involvedObject.uid",
        "regarding.apiVersion" => "involvedObject.apiVersion",
        "regarding.resourceVersion" => "involvedObject.resourceVersion",
        "regarding.fieldPath" => "involvedObject.fieldPath",
        "reportingController" => "reportingComponent",
        "reason" | "type" => label,
        _ => "",
    }
}

const NAMES: event::Names = event::Names { about: "regarding", message: "note", controller: "reportingController" };

/// Immutable fields, and their names in errors, which are those of core. Upstream checks `reason` twice, and reports it
/// twice.
const IMMUTABLE: [(&str, &str); 13] = [
    ("regarding", "involvedObject"),
    ("reason", "reason"),
    ("note", "message"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("reason", "reason"),
    ("type", "type"),
    ("action", "action"),
    ("related", "related"),
    ("reportingController", "reportingController"),
    ("reportingInstance", "reportingInstance"),
];

fn create_rules(errors: &mut ErrorList, object: &Value) {
    series_rules(errors, object);
    if object["eventTime"].is_null() {
        errors.required(Path::root("eventTime"), "");
    }
    let kind = text(object, "type");
    if !matches!(kind, "Normal" | "Warning") {
        errors.invalid(Path::root("type"), "", &format!("has invalid value: {kind}"));
    }
    let source = &object["deprecatedSource"];
    let set = [
        ("firstTimestamp", given(object, "deprecatedFirstTimestamp")),
        ("lastTimestamp", given(object, "deprecatedLastTimestamp")),
        ("count", number(object, "deprecatedCount") != 0),
        ("source", ["component", "host"].iter().any(|field| !text(source, field).is_empty())),
    ];
    for (field, _) in set.iter().filter(|(_, is_set)| *is_set) {
        errors.invalid(Path::root(field), "", "needs to be unset");
    }
}

fn series_rules(errors: &mut ErrorList, event: &Value) {
    let series = &event["series"];
    if series.is_null() {
        return;
    }
    if number(series, "count") < 2 {
        errors.invalid(Path::root("series.count"), "", "should be at least 2");
    }
    if !given(series, "lastObservedTime") {
        errors.required(Path::root("series.lastObservedTime"), "");
    }
}

const CHANGED: &str = "field is immutable";
const REFERENCE: &str = "io.k8s.api.core.v1.ObjectReference";

/// Only the series of an event changes.
fn change_rules(errors: &mut ErrorList, new: &Value, old: &Value) {
    if new["series"] != old["series"] {
        series_rules(errors, new);
    }
    for (field, shown) in IMMUTABLE {
        let path = Path::root(shown);
        match shown {
            _ if new[field] == old[field] => {}
            "involvedObject" | "related" => errors.invalid(path, GoValue(REFERENCE, &new[field]), CHANGED),
            "source" => errors.invalid(path, GoValue("io.k8s.api.core.v1.EventSource", &new[field]), CHANGED),
            _ => errors.invalid(path, &new[field], CHANGED),
        }
    }
    errors.immutable(Path::root("eventTime"), &new["eventTime"], &old["eventTime"]);
}
