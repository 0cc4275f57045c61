//! Events of the core group; `events.k8s.io` serves the same objects under other field names.

use jiff::Timestamp;
use serde_json::Value;

use crate::field::{ErrorList, Path};
use crate::kind::{Kind, STANDARD_VERBS, Scope};
use crate::object::{given, number, text};
use crate::printing::{Printer, age, name_of, named, or, string, wide};
use crate::selectable_fields::{SelectableFields, text_at};
use crate::strategy::Strategy;
use crate::validation::Validation;

pub(crate) static KIND: Kind = Kind {
    kind: "Event",
    plural: "events",
    singular: "event",
    scope: Scope::Namespaced,
    short_names: &["ev"],
    verbs: STANDARD_VERBS,
    storage_prefix: "events",
    strategy: Strategy {
        allow_create_on_update: true,
        selectable: SelectableFields { names: SELECTABLE, value, ..SelectableFields::NONE },
        ..Strategy::PLAIN
    },
    validation: Validation {
        any_finalizer: true,
        create_rules: |errors, event| namespace_rule(errors, event, "involvedObject"),
        ..Validation::PLAIN
    },
    printer: PRINTER,
    ..Kind::PLAIN
};

pub(crate) const SELECTABLE: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

/// The value of a selectable field, of an event of either group.
pub(crate) fn value(object: &Value, field: &str) -> String {
    let first = |values: [&Value; 2]| values.iter().find_map(|value| value.as_str()).unwrap_or("").to_owned();
    match field {
        "reportingComponent" => first([&object["reportingComponent"], &object["reportingController"]]),
        "source" => {
            let source = first([&object["source"]["component"], &object["deprecatedSource"]["component"]]);
            if source.is_empty() {
                first([&object["reportingComponent"], &object["reportingController"]])
            } else {
                source
            }
        }
        _ => match field.strip_prefix("involvedObject.") {
            Some(name) => first([&object["involvedObject"][name], &object["regarding"][name]]),
            None => text_at(object, field),
        },
    }
}

/// An event must be in the namespace of the object it is about, or for cluster-scoped objects in `default` or
/// `kube-system`.
pub(crate) fn namespace_rule(errors: &mut ErrorList, event: &Value, about: &str) {
    let (own, other) = (text(&event["metadata"], "namespace"), text(&event[about], "namespace"));
    let fits = if other.is_empty() { matches!(own, "default" | "kube-system") } else { own == other };
    if !fits {
        let path = Path::root("involvedObject");
        errors.invalid(path.child("namespace"), other, "does not match event.namespace");
    }
}

pub(crate) const PRINTER: Printer = Printer {
    columns: &[
        string("Last Seen"),
        string("Type"),
        string("Reason"),
        string("Object"),
        wide("Subobject"),
        wide("Source"),
        string("Message"),
        wide("First Seen"),
        wide("Count"),
        named(wide("Name")),
    ],
    cells,
    ..Printer::PLAIN
};

/// The cells of an event of either group.
fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let either = |first: &str, second: &str| {
        let chosen = if given(object, first) { first } else { second };
        object.get(chosen).cloned().unwrap_or(Value::Null)
    };
    let regarding = either("involvedObject", "regarding");
    let source = either("source", "deprecatedSource");
    let (first_time, last_time) =
        (either("firstTimestamp", "deprecatedFirstTimestamp"), either("lastTimestamp", "deprecatedLastTimestamp"));
    let first = age::since(if first_time.is_null() { &object["eventTime"] } else { &first_time }, now);
    let mut last = if last_time.is_null() { first.clone() } else { age::since(&last_time, now) };
    let mut count = either("count", "deprecatedCount").as_i64().unwrap_or(0);
    if given(object, "series") {
        last = age::since(&object["series"]["lastObservedTime"], now);
        count = number(&object["series"], "count");
    } else if count == 0 {
        count = 1;
    }
    let kind = text(&regarding, "kind").to_lowercase();
    let target = match text(&regarding, "name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let controller = either("reportingComponent", "reportingController");
    let component = or(text(&source, "component"), controller.as_str().unwrap_or("")).to_owned();
    let instance = or(text(&source, "host"), text(object, "reportingInstance"));
    let source = if instance.is_empty() { component } else { format!("{component}, {instance}") };
    let message = either("message", "note");
    vec![
        last.into(),
        text(object, "type").into(),
        text(object, "reason").into(),
        target.into(),
        text(&regarding, "fieldPath").into(),
        source.into(),
        message.as_str().unwrap_or("").trim().into(),
        first.into(),
        count.into(),
        name_of(object),
    ]
}
