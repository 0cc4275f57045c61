//! What a kind does before an object is stored: which fields a write may set, generations, warnings.

use jiff::Timestamp;
use serde_json::Value;

use crate::codec;
use crate::group_version_kind::GroupVersionKind;
use crate::object::{Object, put};
use crate::pod_spec;
use crate::selectable_fields::SelectableFields;

/// What a change must touch to count as a new generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generation {
    /// The kind does not count generations.
    Uncounted,
    /// Always 1.
    Fixed,
    /// `spec`.
    Spec,
    /// `template`, of kinds that have it in place of a spec.
    Template,
    /// `spec` or annotations.
    SpecAndAnnotations,
    /// Everything but metadata, and labels.
    ContentAndLabels,
    /// `spec`; new objects have no generation yet.
    SpecOnUpdate,
}

/// What happens to the dependents of an object that is deleted, unless its delete says. Upstream:
/// `GarbageCollectionPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dependents {
    /// The garbage collector deletes them.
    Deleted,
    /// They stay, as they did before there was a garbage collector.
    Orphaned,
    /// There are none, and a delete cannot ask for anything.
    Unsupported,
}

/// What happens to `status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatusRule {
    /// The kind has none, or it is an ordinary field.
    None,
    /// Creates reset it; only the status subresource writes it.
    Owned,
    /// Creates keep it; only the status subresource writes it afterwards.
    KeptOnCreate,
}

/// What a kind does to an object before it is stored.
#[derive(Debug)]
pub struct Strategy {
    /// PUT to a missing name creates.
    pub allow_create_on_update: bool,
    /// PUT without a resource version overwrites.
    pub allow_unconditional_update: bool,
    /// Deletions grant a grace period (pods only).
    pub graceful_deletion: bool,
    /// Deletions answer with the object instead of a `Status`.
    pub returns_object_on_delete: bool,
    /// What happens to the dependents of a deleted object when its delete does not say.
    pub dependents: Dependents,
    pub(crate) status: StatusRule,
    pub(crate) generation: Generation,
    pub(crate) selectable: SelectableFields,
    /// Runs on a new object, after its status was reset.
    pub(crate) on_create: fn(&mut Object, Timestamp),
    /// Runs on a changed object (new, old, subresource), after spec or status was restored.
    pub(crate) on_update: fn(&mut Object, &Value, &str, Timestamp),
    /// What the client of a new object is warned of before it is prepared, also if it is refused then.
    pub(crate) early_warnings: fn(&Value) -> Vec<String>,
    /// Whether a new object is stored before it has what reads default, so that its first update writes in any case.
    pub(crate) stored_short: fn(&Value) -> bool,
    /// Whether a new object without labels gets those of its template for good: what the server adds to the ones, the
    /// others have, too.
    pub(crate) shares_template_labels: bool,
    pub(crate) warnings: fn(&Value, Option<&Value>) -> Vec<String>,
    /// What the status endpoint warns of, which does not ask the others.
    pub(crate) status_warnings: fn(&Value) -> Vec<String>,
}

impl Strategy {
    pub(crate) const PLAIN: Strategy = Strategy {
        allow_create_on_update: false,
        allow_unconditional_update: true,
        graceful_deletion: false,
        returns_object_on_delete: false,
        dependents: Dependents::Deleted,
        status: StatusRule::None,
        generation: Generation::Uncounted,
        selectable: SelectableFields::NONE,
        on_create: |_, _| {},
        on_update: |_, _, _, _| {},
        early_warnings: |_| Vec::new(),
        stored_short: |_| false,
        shares_template_labels: false,
        warnings: |_, _| Vec::new(),
        status_warnings: |_| Vec::new(),
    };

    /// Whether the kind counts generations; deletions bump them too.
    pub fn counts_generations(&self) -> bool {
        self.generation != Generation::Uncounted
    }

    pub(crate) fn create(&self, kind: GroupVersionKind<'_>, object: &mut Object, now: Timestamp) {
        if self.status == StatusRule::Owned {
            object.insert("status".into(), codec::empty_status(kind));
        }
        if !matches!(self.generation, Generation::Uncounted | Generation::SpecOnUpdate) {
            set_generation(object, 1);
        }
        pod_spec::drop_disabled(object, &Value::Null);
        (self.on_create)(object, now);
    }

    pub(crate) fn update(&self, object: &mut Object, old: &Value, subresource: &str, now: Timestamp) {
        // The server keeps these, whatever the client says.
        for field in ["generation", "creationTimestamp"] {
            if let Some(Value::Object(metadata)) = object.get_mut("metadata")
                && metadata.get(field) != old["metadata"].get(field)
            {
                put(metadata, field, old["metadata"].get(field));
            }
        }
        match (subresource, self.status) {
            ("status", StatusRule::Owned | StatusRule::KeptOnCreate) => restore(object, old, "spec"),
            (_, StatusRule::Owned | StatusRule::KeptOnCreate) => restore(object, old, "status"),
            (_, StatusRule::None) => {}
        }
        if subresource.is_empty() {
            pod_spec::drop_disabled(object, old);
        }
        (self.on_update)(object, old, subresource, now);
        if subresource != "status" && self.changed(object, old) {
            set_generation(object, old["metadata"]["generation"].as_i64().unwrap_or(0) + 1);
        }
    }

    /// True when the change counts as a new generation.
    fn changed(&self, object: &Object, old: &Value) -> bool {
        let differs = |name: &str| object.get(name).unwrap_or(&Value::Null) != &old[name];
        let metadata_differs = |name: &str| object.get("metadata").map(|m| &m[name]) != Some(&old["metadata"][name]);
        match self.generation {
            Generation::Uncounted | Generation::Fixed => false,
            Generation::Spec | Generation::SpecOnUpdate => differs("spec"),
            Generation::Template => differs("template"),
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

fn set_generation(object: &mut Object, generation: i64) {
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.insert("generation".into(), generation.into());
    }
}

/// Gives a field the value it had.
pub(crate) fn restore(object: &mut Object, old: &Value, name: &str) {
    put(object, name, old.get(name));
}

/// Gives a field of the metadata the value it had.
pub(crate) fn restore_metadata(object: &mut Object, old: &Value, name: &str) {
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        put(metadata, name, old["metadata"].get(name));
    }
}

/// An `on_update` of kinds whose status endpoint does not write labels, annotations, finalizers or owners.
pub(crate) fn status_keeps_metadata(object: &mut Object, old: &Value, subresource: &str, _now: Timestamp) {
    if subresource == "status" {
        for field in ["deletionTimestamp", "generation", "labels", "annotations", "finalizers", "ownerReferences"] {
            restore_metadata(object, old, field);
        }
    }
}
