//! Reads fields of JSON objects; what is missing or of another type reads as empty.

use serde_json::{Map, Value};

/// A JSON object.
pub(crate) type Object = Map<String, Value>;

/// Anything with named fields.
pub(crate) trait Fields {
    fn field(&self, name: &str) -> Option<&Value>;
}

impl Fields for Value {
    fn field(&self, name: &str) -> Option<&Value> {
        self.get(name)
    }
}

impl Fields for Object {
    fn field(&self, name: &str) -> Option<&Value> {
        self.get(name)
    }
}

impl<T: Fields> Fields for &T {
    fn field(&self, name: &str) -> Option<&Value> {
        (**self).field(name)
    }
}

/// The elements of a list field.
pub(crate) fn list<'v>(object: &'v impl Fields, name: &str) -> &'v [Value] {
    object.field(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The text in a field, empty when there is none.
pub(crate) fn text<'v>(object: &'v impl Fields, name: &str) -> &'v str {
    object.field(name).and_then(Value::as_str).unwrap_or("")
}

/// The whole number in a field, 0 when there is none.
pub(crate) fn number(object: &impl Fields, name: &str) -> i64 {
    object.field(name).and_then(Value::as_i64).unwrap_or(0)
}

/// Whether a field is there and not null.
pub(crate) fn given(object: &impl Fields, name: &str) -> bool {
    object.field(name).is_some_and(|value| !value.is_null())
}

/// Sets a field, or removes it when there is no value.
pub(crate) fn put(object: &mut Object, name: &str, value: Option<&Value>) {
    match value {
        Some(value) => {
            object.insert(name.to_owned(), value.clone());
        }
        None => {
            object.remove(name);
        }
    }
}
