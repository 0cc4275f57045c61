//! Checks an applied object against the schema, with upstream's words for what does not fit.

use std::collections::BTreeSet;

use serde_json::Value;

use super::element;
use super::shape::{Kind, Shape};

/// How many faults are named; one body can have very many.
const FAULTS_MAX: usize = 20;

/// What does not fit the schema; `None` when all does.
pub(crate) fn faults(object: &Value, shape: Shape) -> Option<String> {
    let mut faults = Vec::new();
    check(object, shape, &mut String::new(), &mut faults);
    match faults.as_slice() {
        [] => None,
        [fault] => Some(fault.clone()),
        faults => {
            let lines: Vec<String> = faults.iter().map(|fault| format!("\n  {fault}")).collect();
            Some(format!("errors:{}", lines.concat()))
        }
    }
}

fn check(value: &Value, shape: Shape, path: &mut String, faults: &mut Vec<String>) {
    if value.is_null() || faults.len() >= FAULTS_MAX {
        return;
    }
    let mut fault = |what: String| {
        let at = if path.is_empty() { String::new() } else { format!("{path}: ") };
        faults.push(format!("{at}{what}"));
    };
    match (shape.kind, value) {
        (Kind::Text, Value::String(_)) | (Kind::Number, Value::Number(_)) | (Kind::Boolean, Value::Bool(_)) => {}
        (Kind::Text, other) => fault(format!("expected string, got &value.valueUnstructured{{Value:{other}}}")),
        (Kind::Number, other) => fault(format!("expected numeric (int or float), got {}", go_type(other))),
        (Kind::Boolean, other) => fault(format!("expected boolean, got {}", shown(other))),
        (Kind::Scalar, Value::Array(_) | Value::Object(_)) => {
            fault(format!("expected any scalar, got {}", shown(value)));
        }
        (Kind::Scalar | Kind::Any, _) => {}
        (Kind::Struct(_) | Kind::Map(_), Value::Object(fields)) => {
            let length = path.len();
            for (name, value) in fields {
                path.push('.');
                path.push_str(name);
                match shape.child(name) {
                    Some(shape) => check(value, shape, path, faults),
                    None => {
                        faults.push(format!("{path}: field not declared in schema"));
                        path.truncate(length);
                        return;
                    }
                }
                path.truncate(length);
            }
        }
        (Kind::Struct(_) | Kind::Map(_), other) => fault(format!("expected map, got {}", shown(other))),
        (Kind::List { .. }, Value::Array(items)) => check_items(items, shape, path, faults),
        (Kind::List { .. }, other) => fault(format!("expected list, got {}", shown(other))),
    }
}

fn check_items(items: &[Value], shape: Shape, path: &mut String, faults: &mut Vec<String>) {
    let Kind::List { element, keys } = shape.kind else { return };
    let mut seen = BTreeSet::new();
    let length = path.len();
    for (index, item) in items.iter().enumerate() {
        let at = if shape.atomic {
            format!("[{index}]")
        } else {
            let key = match element::of_item(item, element, keys) {
                Ok(key) => key,
                Err(error) => {
                    faults.push(format!("{path}: element {index}: {error}"));
                    return;
                }
            };
            let at = element::Shown(std::slice::from_ref(&key)).to_string();
            if !seen.insert(key) {
                faults.push(format!("{path}: duplicate entries for key {at}"));
            }
            at
        };
        path.push_str(&at);
        check(item, element::item_shape(element), path, faults);
        path.truncate(length);
    }
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::Array(_) => "[]interface {}",
        _ => "map[string]interface {}",
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use bayplan_model::schema::Schema;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_does_not_fit_is_named_by_its_path() {
        let pod = Shape::of_definition(Schema::get().definition("", "v1", "Pod").unwrap());
        for (object, fault) in [
            (json!({"spec": {"containers": [{"name": "c", "image": "x"}]}}), None),
            (json!({"bogus": 1}), Some(".bogus: field not declared in schema")),
            (
                json!({"spec": {"containers": [{"name": "c", "bogus": 1}]}}),
                Some(".spec.containers[name=\"c\"].bogus: field not declared in schema"),
            ),
            (
                json!({"spec": {"containers": [{"name": "c"}, {"name": "c"}]}}),
                Some(".spec.containers: duplicate entries for key [name=\"c\"]"),
            ),
            (json!({"spec": {"hostNetwork": "x"}}), Some(".spec.hostNetwork: expected boolean, got x")),
            (json!({"spec": {"priority": "x"}}), Some(".spec.priority: expected numeric (int or float), got string")),
            (
                json!({"spec": {"tolerations": [{"x": 1}]}}),
                Some(".spec.tolerations[0].x: field not declared in schema"),
            ),
            (json!({"spec": {"containers": {}}}), Some(".spec.containers: expected list, got {}")),
            (json!({"spec": null}), None),
        ] {
            assert_eq!(faults(&object, pod).as_deref(), fault, "{object}");
        }
    }
}
