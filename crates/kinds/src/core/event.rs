//! Events of the core group; `events.k8s.io` serves the same objects under other field names.

use jiff::Timestamp;
use serde_json::Value;

use crate::field::{ErrorList, Path};
use crate::kind::{Kind, STANDARD_VERBS, Scope};
use crate::names;
use crate::object::{given, number, text};
use crate::printing::{Printer, age, name_of, named, or, string, wide};
use crate::selectable_fields::{SelectableFields, text_at};
use crate::strategy::{Dependents, Strategy};
use crate::validation::{MetadataCheck, MetadataRecheck, Validation};

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
        dependents: Dependents::Unsupported,
        selectable: SelectableFields { names: SELECTABLE, value, ..SelectableFields::NONE },
        ..Strategy::PLAIN
    },
    validation: Validation {
        update_metadata: MetadataRecheck::None,
        metadata: MetadataCheck::Last,
        rules: |errors, event, _| rules(errors, event, &CORE),
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

/// The fields of an event of a group that its rules look at.
pub(crate) struct Names {
    /// The object that the event is about.
    pub(crate) about: &'static str,
    pub(crate) message: &'static str,
    pub(crate) controller: &'static str,
}

const CORE: Names = Names { about: "involvedObject", message: "message", controller: "reportingComponent" };

/// The longest action, reason and reporting instance, in bytes.
const WORD_MAX: usize = 128;

/// The longest message, in bytes.
const MESSAGE_MAX: usize = 1024;

/// What holds for events of either group. Those with an `eventTime` say who reports what. Upstream:
/// `legacyValidateEvent`.
pub(crate) fn rules(errors: &mut ErrorList, event: &Value, names: &Names) {
    let (own, other) = (text(&event["metadata"], "namespace"), text(&event[names.about], "namespace"));
    let is_new = !event["eventTime"].is_null();
    let fits = match (is_new, other) {
        (false, "") => matches!(own, "" | "default"),
        (false, other) => own == other,
        (true, "") => matches!(own, "default" | "kube-system"),
        (true, _) => true,
    };
    if !fits {
        let path = Path::root("involvedObject");
        errors.invalid(path.child("namespace"), other, "does not match event.namespace");
    }
    if is_new {
        report_rules(errors, event, names);
    }
    errors.all_invalid(Path::root("namespace"), own, names::dns_subdomain(own));
}

fn report_rules(errors: &mut ErrorList, event: &Value, names: &Names) {
    let controller = text(event, names.controller);
    let path = Path::root(names.controller);
    if controller.is_empty() {
        errors.required(path, "");
    }
    errors.all_invalid(path, controller, names::qualified_name(controller));
    for field in ["reportingInstance", "action", "reason"] {
        let value = text(event, field);
        if value.is_empty() {
            errors.required(Path::root(field), "");
        }
        if value.len() > WORD_MAX {
            errors.invalid(Path::root(field), "", &format!("can have at most {WORD_MAX} characters"));
        }
    }
    if text(event, names.message).len() > MESSAGE_MAX {
        errors.invalid(Path::root("message"), "", &format!("can have at most {MESSAGE_MAX} characters"));
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
