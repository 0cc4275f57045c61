//! What each kind does before it is stored: which fields a write may set, generations, selectable fields.
//!
//! Most kinds differ only in data, so a strategy is a row of [`rows`]; what is special about a kind is a hook in its own
//! file.

mod job;
mod pod;
mod rows;
mod selectable;
mod service;
mod storage;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use serde_json::{Map, Value};

pub(crate) use pod::quality_of_service;
pub use selectable::check_field_label;

use crate::codec::{self, Kind};
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
    of_kind(Kind::of(resource))
}

/// The strategy of a kind.
pub fn of_kind(kind: Kind<'_>) -> &'static dyn Strategy {
    rows::ROWS.iter().find(|row| row.kind == kind.kind && row.group == kind.group).unwrap_or(&rows::PLAIN)
}

/// What a change must touch to count as a new generation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Generation {
    /// The kind does not count generations.
    Uncounted,
    /// Counted from 1, but updates do not add.
    Fixed,
    /// `spec`.
    Spec,
    /// `spec` or annotations.
    SpecAndAnnotations,
    /// Everything but metadata, and labels.
    ContentAndLabels,
    /// `spec`, but not counted from the start.
    SpecOnUpdate,
}

/// What happens to `status`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StatusRule {
    /// The kind has none, or it is an ordinary field.
    None,
    /// Creates empty it; only the status subresource writes it.
    Owned,
    /// Creates keep it; only the status subresource writes it afterwards.
    KeptOnCreate,
}

/// What is special about a kind's creates, updates and warnings.
type OnCreate = fn(&mut Map<String, Value>, Timestamp);
type OnUpdate = fn(&mut Map<String, Value>, &Value, &str, Timestamp);
type Warn = fn(&Value, Option<&Value>) -> Vec<String>;

/// A strategy as data.
struct Row {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    status: StatusRule,
    generation: Generation,
    create_on_update: bool,
    unconditional_update: bool,
    graceful: bool,
    returns_object: bool,
    selectable: &'static [&'static str],
    on_create: Option<OnCreate>,
    on_update: Option<OnUpdate>,
    warn: Option<Warn>,
}

impl Row {
    fn kind(&self) -> Kind<'static> {
        Kind { group: self.group, version: self.version, kind: self.kind }
    }

    /// True when the change counts as a new generation.
    fn changed(&self, object: &Map<String, Value>, old: &Value) -> bool {
        let differs = |name: &str| object.get(name).unwrap_or(&Value::Null) != &old[name];
        let metadata_differs = |name: &str| object.get("metadata").map(|m| &m[name]) != Some(&old["metadata"][name]);
        match self.generation {
            Generation::Uncounted | Generation::Fixed => false,
            Generation::Spec | Generation::SpecOnUpdate => differs("spec"),
            Generation::SpecAndAnnotations => differs("spec") || metadata_differs("annotations"),
            Generation::ContentAndLabels => {
                metadata_differs("labels") || object.keys().any(|name| name != "metadata" && differs(name)) || {
                    let old = old.as_object();
                    old.is_some_and(|old| old.keys().any(|name| !object.contains_key(name)))
                }
            }
        }
    }
}

impl Strategy for Row {
    fn prepare_for_create(&self, object: &mut Value, now: Timestamp) {
        let Value::Object(object) = object else { return };
        if self.status == StatusRule::Owned {
            object.insert("status".into(), codec::empty_status(self.kind()));
        }
        if !matches!(self.generation, Generation::Uncounted | Generation::SpecOnUpdate) {
            set_generation(object, 1);
        }
        if let Some(on_create) = self.on_create {
            on_create(object, now);
        }
    }

    fn prepare_for_update(&self, object: &mut Value, old: &Value, subresource: &str, now: Timestamp) {
        let Value::Object(object) = object else { return };
        match (subresource, self.status) {
            ("status", StatusRule::Owned | StatusRule::KeptOnCreate) => restore(object, old, "spec"),
            (_, StatusRule::Owned | StatusRule::KeptOnCreate) => restore(object, old, "status"),
            (_, StatusRule::None) => {}
        }
        if let Some(on_update) = self.on_update {
            on_update(object, old, subresource, now);
        }
        if subresource != "status" && self.changed(object, old) {
            set_generation(object, old["metadata"]["generation"].as_i64().unwrap_or(0) + 1);
        }
    }

    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        self.warn.map_or_else(Vec::new, |warn| warn(object, old))
    }

    fn allow_create_on_update(&self) -> bool {
        self.create_on_update
    }

    fn allow_unconditional_update(&self) -> bool {
        self.unconditional_update
    }

    fn graceful_deletion(&self) -> bool {
        self.graceful
    }

    fn returns_object_on_delete(&self) -> bool {
        self.returns_object
    }

    fn counts_generations(&self) -> bool {
        !matches!(self.generation, Generation::Uncounted)
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        self.selectable
    }

    fn field_value(&self, object: &Value, field: &str) -> Option<String> {
        let known = matches!(field, "metadata.name" | "metadata.namespace") || self.selectable.contains(&field);
        known.then(|| selectable::value(self.kind, object, field))
    }
}

fn set_generation(object: &mut Map<String, Value>, generation: i64) {
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.insert("generation".into(), generation.into());
    }
}

/// Gives a field the value it had.
fn restore(object: &mut Map<String, Value>, old: &Value, name: &str) {
    match old.get(name) {
        Some(value) => {
            object.insert(name.to_owned(), value.clone());
        }
        None => {
            object.remove(name);
        }
    }
}

/// Gives a field of the metadata the value it had.
fn restore_metadata(object: &mut Map<String, Value>, old: &Value, name: &str) {
    let Some(Value::Object(metadata)) = object.get_mut("metadata") else { return };
    match old["metadata"].get(name) {
        Some(value) => {
            metadata.insert(name.to_owned(), value.clone());
        }
        None => {
            metadata.remove(name);
        }
    }
}
