//! The values upstream fills in on decoding.

use serde_json::Value;

use crate::resources::Resource;

/// Fills in the defaults of a kind.
pub fn apply(resource: &'static Resource, object: &mut Value) {
    let _ = (resource, object);
}
