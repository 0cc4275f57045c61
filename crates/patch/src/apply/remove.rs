//! Takes the fields of a set out of an object.

use serde_json::{Map, Value};

use super::element;
use super::fields::{Fields, children, is_member};
use super::shape::{Kind, Shape};

/// The value without the members of a set; null when nothing is left of a list or map.
pub(crate) fn remove(value: Value, set: &Fields, shape: Shape) -> Value {
    if matches!(shape.kind, Kind::Text | Kind::Number | Kind::Boolean | Kind::Scalar) {
        return value;
    }
    match (shape.kind, value) {
        (_, Value::Array(_) | Value::Object(_)) if shape.atomic => Value::Null,
        (Kind::Struct(_) | Kind::Map(_) | Kind::Any, Value::Object(fields)) => {
            let left = fields.into_iter().filter_map(|(name, value)| {
                let Some(node) = set.get(&element::field(&name)) else { return Some((name, value)) };
                if is_member(node) {
                    return None;
                }
                let value = match shape.child(&name) {
                    Some(shape) => remove(value, children(node), shape),
                    None => value,
                };
                Some((name, value))
            });
            let left: Map<String, Value> = left.collect();
            if left.is_empty() { Value::Null } else { Value::Object(left) }
        }
        (Kind::List { element, keys }, Value::Array(items)) => {
            let left = items.into_iter().filter_map(|item| {
                let key = element::of_item(&item, element, keys).ok();
                let Some(node) = key.and_then(|key| set.get(&key)) else { return Some(item) };
                (!is_member(node)).then(|| remove(item, children(node), element::item_shape(element)))
            });
            let left: Vec<Value> = left.collect();
            if left.is_empty() { Value::Null } else { Value::Array(left) }
        }
        (Kind::Any, value) if !value.is_array() && !value.is_object() => value,
        _ => Value::Null,
    }
}
