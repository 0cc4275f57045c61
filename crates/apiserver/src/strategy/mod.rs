//! What each kind does before it is stored: which fields a write may set, generations, selectable fields.

use jiff::Timestamp;
use serde_json::Value;

use crate::resources::Resource;

/// The behaviour of one kind.
pub trait Strategy: Send + Sync {
    /// Resets what a create may not set and fills what the server owns.
    fn prepare_for_create(&self, object: &mut Value, now: Timestamp);
    /// Restores what an update through the object (`subresource` empty) or a subresource may not set; bumps the
    /// generation.
    fn prepare_for_update(&self, object: &mut Value, old: &Value, subresource: &str, now: Timestamp);
    /// What to warn the client of.
    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String>;
    /// PUT to a missing name creates.
    fn allow_create_on_update(&self) -> bool;
    /// PUT without a resource version overwrites.
    fn allow_unconditional_update(&self) -> bool;
    /// Deletions give grace (pods only).
    fn graceful_deletion(&self) -> bool;
    /// Deletions answer with the object instead of a `Status`.
    fn returns_object_on_delete(&self) -> bool;
    /// Deletions bump `metadata.generation`: kinds that count generations at all.
    fn counts_generations(&self) -> bool;
    /// The selectable fields beyond `metadata.name` and `metadata.namespace`.
    fn selectable_fields(&self) -> &'static [&'static str];
    /// The value of a selectable field, empty when unset; `None` for fields that cannot be selected.
    fn field_value(&self, object: &Value, field: &str) -> Option<String>;
}

/// The strategy of a resource.
pub fn of(resource: &'static Resource) -> &'static dyn Strategy {
    let _ = resource;
    &Plain
}

struct Plain;

impl Strategy for Plain {
    fn prepare_for_create(&self, _object: &mut Value, _now: Timestamp) {}
    fn prepare_for_update(&self, _object: &mut Value, _old: &Value, _subresource: &str, _now: Timestamp) {}
    fn warnings(&self, _object: &Value, _old: Option<&Value>) -> Vec<String> {
        Vec::new()
    }
    fn allow_create_on_update(&self) -> bool {
        false
    }
    fn allow_unconditional_update(&self) -> bool {
        true
    }
    fn graceful_deletion(&self) -> bool {
        false
    }
    fn returns_object_on_delete(&self) -> bool {
        false
    }
    fn counts_generations(&self) -> bool {
        false
    }
    fn selectable_fields(&self) -> &'static [&'static str] {
        &[]
    }
    fn field_value(&self, _object: &Value, _field: &str) -> Option<String> {
        None
    }
}
