//! The rules of each kind.

use serde_json::Value;

use crate::resources::Resource;
pub use crate::status_errors::FieldError;

/// What is wrong with a new object.
pub fn create(resource: &'static Resource, object: &Value) -> Vec<FieldError> {
    let _ = (resource, object);
    Vec::new()
}

/// What is wrong with a changed object; `subresource` is empty for the object itself.
pub fn update(resource: &'static Resource, subresource: &str, object: &Value, old: &Value) -> Vec<FieldError> {
    let _ = (resource, subresource, object, old);
    Vec::new()
}
