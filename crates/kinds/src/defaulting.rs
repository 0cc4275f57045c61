//! Sets fields that are missing.

use bayplan_model::quantity::Quantity;
use serde_json::Value;

use crate::object::Object;

/// Sets a field that is absent, null, or empty text.
pub(crate) fn default(object: &mut Object, name: &str, value: impl Into<Value>) {
    let missing = match object.get(name) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(_) => false,
    };
    if missing {
        object.insert(name.to_owned(), value.into());
    }
}

/// Sets an optional field that is absent or null; empty text and zero are values.
pub(crate) fn default_absent(object: &mut Object, name: &str, value: impl Into<Value>) {
    if object.get(name).is_none_or(Value::is_null) {
        object.insert(name.to_owned(), value.into());
    }
}

/// Sets a number that is absent or zero.
pub(crate) fn default_nonzero(object: &mut Object, name: &str, value: i64) {
    if object.get(name).and_then(Value::as_i64).unwrap_or(0) == 0 {
        object.insert(name.to_owned(), value.into());
    }
}

/// The object in a field, if there is one.
pub(crate) fn child<'o>(object: &'o mut Object, name: &str) -> Option<&'o mut Object> {
    object.get_mut(name).and_then(Value::as_object_mut)
}

/// The object in a field, created when missing.
pub(crate) fn child_or_new<'o>(object: &'o mut Object, name: &str) -> Option<&'o mut Object> {
    let value = object.entry(name).or_insert(Value::Null);
    if value.is_null() {
        *value = Value::Object(Object::new());
    }
    value.as_object_mut()
}

/// The list in a field, created when missing.
pub(crate) fn list_or_new<'o>(object: &'o mut Object, name: &str) -> Option<&'o mut Vec<Value>> {
    let value = object.entry(name).or_insert(Value::Null);
    if value.is_null() {
        *value = Value::Array(Vec::new());
    }
    value.as_array_mut()
}

/// The objects of a list field.
pub(crate) fn children<'o>(object: &'o mut Object, name: &str) -> impl Iterator<Item = &'o mut Object> {
    object.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Rounds every quantity of a resource list up to thousandths, the API's finest grain.
pub(crate) fn round_resource_list(object: &mut Object, name: &str) {
    const MILLI: i32 = -3;
    let Some(list) = child(object, name) else { return };
    for quantity in list.values_mut() {
        // Only canonical text with one of these suffixes (or an exponent) can be finer than thousandths.
        let Value::String(text) = quantity else { continue };
        if !text.ends_with(['u', 'n']) && !text.contains('e') {
            continue;
        }
        if let Ok(mut exact) = text.parse::<Quantity>() {
            exact.round_up(MILLI);
            *text = exact.to_string();
        }
    }
}

/// Rounds the lists of a `ResourceRequirements`.
pub(crate) fn round_requirements(resources: Option<&mut Object>) {
    if let Some(resources) = resources {
        round_resource_list(resources, "limits");
        round_resource_list(resources, "requests");
    }
}
