//! Label selectors: their rules, and what they select.

use std::collections::BTreeMap;

use bayplan_model::label_selector::{LabelSelector, Selector};
use serde::Deserialize;
use serde_json::Value;

use crate::field::{ErrorList, GoValue, Path};
use crate::object::{list, text};
use crate::{metadata, names};

/// Checks a label selector, which may be absent.
pub(crate) fn rules(errors: &mut ErrorList, path: Path<'_>, selector: &Value) {
    metadata::labels(errors, path.child("matchLabels"), &selector["matchLabels"]);
    let path = path.child("matchExpressions");
    for (index, expression) in list(selector, "matchExpressions").iter().enumerate() {
        let path = path.index(index);
        let values = list(expression, "values");
        match text(expression, "operator") {
            "In" | "NotIn" if values.is_empty() => {
                errors.required(path.child("values"), "must be specified when `operator` is 'In' or 'NotIn'");
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => errors
                .forbidden(path.child("values"), "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            operator => errors.invalid(path.child("operator"), operator, "not a valid selector operator"),
        }
        let key = text(expression, "key");
        errors.all_invalid(path.child("key"), key, names::qualified_name(key));
        self::values(errors, path.child("values"), values);
    }
}

pub(crate) fn values(errors: &mut ErrorList, path: Path<'_>, values: &[Value]) {
    for (index, value) in values.iter().enumerate() {
        let value = value.as_str().unwrap_or("");
        errors.all_invalid(path.index(index), value, names::label_value(value));
    }
}

/// The selector, if it is a valid one.
pub(crate) fn selector_of(value: &Value) -> Option<Selector> {
    let selector = Option::<LabelSelector>::deserialize(value).ok()?;
    Selector::of(selector.as_ref()).ok()
}

/// Whether a selector selects an object with these labels.
pub(crate) fn selects(selector: &Selector, labels: &Value) -> bool {
    let labels: BTreeMap<String, String> = labels
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.clone(), value.as_str().unwrap_or("").to_owned()))
        .collect();
    selector.matches(&labels)
}

/// A selector as messages show it, its fields in Go's order.
pub(crate) fn shown(selector: &Value) -> GoValue<'_> {
    GoValue("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector", selector)
}

pub(crate) fn is_empty_selector(selector: &Value) -> bool {
    let empty = |name: &str| match &selector[name] {
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => true,
    };
    empty("matchLabels") && empty("matchExpressions")
}
