//! Events: the old API checks little, `events.k8s.io` much more.

use serde_json::Value;

use super::errors::Errors;
use super::path::Path;
use super::{names, text};

/// The longest action, reason and reporting instance, in bytes.
const WORD_MAX: usize = 128;
/// The longest note, in bytes.
const NOTE_MAX: usize = 1024;
/// Fields that never change, as both versions call them; errors use the second, the older name. Upstream looks at the
/// reason twice, and says so twice.
const IMMUTABLE: [(&str, &str); 9] = [
    ("regarding", "involvedObject"),
    ("reason", "reason"),
    ("reason", "reason"),
    ("note", "message"),
    ("type", "type"),
    ("action", "action"),
    ("related", "related"),
    ("reportingController", "reportingController"),
    ("reportingInstance", "reportingInstance"),
];

/// An event lives in the namespace of what it is about; what lives in none is in `default` or `kube-system`.
pub(super) fn namespace(errors: &mut Errors, event: &Value, about: &str) {
    let (own, other) = (text(&event["metadata"], "namespace"), text(&event[about], "namespace"));
    let fits = if other.is_empty() { matches!(own, "default" | "kube-system") } else { own == other };
    if !fits {
        let path = Path::root("involvedObject");
        errors.invalid(path.child("namespace"), other, "does not match event.namespace");
    }
}

/// A new event of `events.k8s.io`.
pub(super) fn create(errors: &mut Errors, event: &Value) {
    namespace(errors, event, "regarding");
    if event["eventTime"].is_null() {
        errors.required(Path::root("eventTime"), "");
    }
    let controller = text(event, "reportingController");
    if controller.is_empty() {
        errors.required(Path::root("reportingController"), "");
    }
    errors.all_invalid(Path::root("reportingController"), controller, names::qualified_name(controller));
    for field in ["reportingInstance", "action", "reason"] {
        let value = text(event, field);
        if value.is_empty() {
            errors.required(Path::root(field), "");
        }
        if value.len() > WORD_MAX {
            errors.invalid(Path::root(field), "", &format!("can have at most {WORD_MAX} characters"));
        }
    }
    if text(event, "note").len() > NOTE_MAX {
        errors.invalid(Path::root("message"), "", &format!("can have at most {NOTE_MAX} characters"));
    }
    let kind = text(event, "type");
    if !matches!(kind, "Normal" | "Warning") {
        errors.invalid(Path::root("type"), "", &format!("has invalid value: {kind}"));
    }
}

/// Of an event of `events.k8s.io` only the series changes.
pub(super) fn change(errors: &mut Errors, new: &Value, old: &Value) {
    for (field, shown) in IMMUTABLE {
        errors.immutable(Path::root(shown), &new[field], &old[field]);
    }
}
