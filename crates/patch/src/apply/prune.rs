//! Removes what a manager applied last time and gave up now, unless somebody else owns it.

use std::collections::BTreeMap;

use bayplan_model::schema::Definition;
use serde_json::Value;

use super::Request;
use super::compare::field_set;
use super::fields::{self, Fields, with_named_parents};
use super::managed::{Managers, Owned};
use super::remove::remove;
use super::shape::Shape;

/// An object in one of its versions.
struct Versioned {
    object: Value,
    version: String,
    shape: Shape,
}

impl Versioned {
    /// The same in another version; `None` if the kind does not have it.
    fn convert(&self, version: &str, request: &Request<'_>) -> Option<Versioned> {
        let (object, shape) = if self.version == version {
            (self.object.clone(), self.shape)
        } else {
            let (object, definition): (Value, &'static Definition) =
                request.versions.convert(&self.object, &self.version, version)?;
            (object, Shape::of_definition(definition))
        };
        Some(Versioned { object, version: version.to_owned(), shape })
    }

    fn without(&self, set: &Fields) -> Versioned {
        let object = remove(self.object.clone(), set, self.shape);
        Versioned { object, version: self.version.clone(), shape: self.shape }
    }

    /// The fields of the object, with the structs around them.
    fn set(&self) -> Fields {
        self.with_parents(&field_set(&self.object, self.shape))
    }

    fn with_parents(&self, set: &Fields) -> Fields {
        with_named_parents(set, Some(self.shape))
    }
}

/// The merged object without what the manager gave up since `last`; its new fields are among those of `managers`.
pub(super) fn prune(merged: Value, managers: &Managers, last: &Owned, request: &Request<'_>) -> Value {
    let shape = Shape::of_definition(request.definition);
    let merged = Versioned { object: merged, version: request.api_version.to_owned(), shape };
    if last.fields.is_empty() {
        return merged.object;
    }
    let Some(in_last) = merged.convert(&last.api_version, request) else { return merged.object };
    let pruned = in_last.without(&in_last.with_parents(&last.fields));
    let pruned = with_owned(&in_last, pruned, managers, request);
    let pruned = with_dangling(&in_last, pruned, last, request);
    pruned.convert(request.api_version, request).map_or(merged.object, |pruned| pruned.object)
}

/// Puts back what anybody owns, the manager by its new configuration too.
fn with_owned(merged: &Versioned, pruned: Versioned, managers: &Managers, request: &Request<'_>) -> Versioned {
    let mut owned: BTreeMap<&str, Fields> = BTreeMap::new();
    for manager in managers.values() {
        fields::add(owned.entry(&manager.api_version).or_default(), manager.fields.clone());
    }
    let first = owned.remove_entry(pruned.version.as_str());
    let mut pruned = pruned;
    for (version, owned) in first.into_iter().chain(owned) {
        let (Some(merged), Some(converted)) = (merged.convert(version, request), pruned.convert(version, request))
        else {
            continue;
        };
        let mut gone = merged.set();
        fields::subtract(&mut gone, &converted.set());
        fields::subtract(&mut gone, &merged.with_parents(&owned));
        pruned = merged.without(&gone);
    }
    pruned
}

/// Puts back what the manager did not own: only its own fields go.
fn with_dangling(merged: &Versioned, pruned: Versioned, last: &Owned, request: &Request<'_>) -> Versioned {
    let Some(pruned) = pruned.convert(&last.api_version, request) else {
        return merged.without(&Fields::new());
    };
    let mut gone = merged.set();
    fields::subtract(&mut gone, &pruned.set());
    merged.without(&fields::intersection(&gone, &merged.with_parents(&last.fields)))
}
