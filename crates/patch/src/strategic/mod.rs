//! Strategic merge patch: a merge patch that follows the types' merge keys and strategies.
//!
//! ```text
//!   maps   merge field by field; null deletes; $patch: replace | delete; $retainKeys
//!   lists  strategy merge:  maps by merge key, scalars as a set;  then put in order
//!                           $patch in an element, $setElementOrder/<list>, $deleteFromPrimitiveList/<list>
//!          otherwise:       replaced as a whole (tolerations, taints, args, …)
//! ```
//!
//! Order of a merged list: `$setElementOrder`, before the order of the patch, before the order of the object.
//! Directives in a part of the patch that has no counterpart in the object are dropped with what they stand in; parts
//! that are taken over whole (replaced lists, new elements of merged lists) keep theirs, as upstream does.

mod budget;
mod go_value;
mod list;
mod lookup;

use std::collections::BTreeSet;

use bayplan_model::{
    quoted::Quoted,
    schema::{Definition, PatchStrategy, Type},
};
use serde_json::{Map, Value};

use crate::Fault;
use budget::Budget;
use go_value::{Printed, type_name};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_PRIMITIVE_LIST: &str = "$deleteFromPrimitiveList";
const SET_ELEMENT_ORDER: &str = "$setElementOrder";

/// Why a patch has no result; the texts are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The patch or the object is not a JSON object.
    #[error("invalid JSON document")]
    NotAnObject,
    /// `$patch` with an unknown directive.
    #[error("unknown patch type: {directive} in map: {map}")]
    UnknownDirective {
        /// The directive's value.
        directive: String,
        /// The map that contains it.
        map: String,
    },
    /// `$patch: merge` in a list.
    #[error("merging lists cannot yet be specified in the patch")]
    MergeDirectiveInList,
    /// An element without its merge key.
    #[error("map: {map} does not contain declared merge key: {key}")]
    NoMergeKey {
        /// The element.
        map: String,
        /// The key.
        key: String,
    },
    /// A list of maps without a merge key.
    #[error("cannot merge lists without merge key for {0}")]
    ListWithoutMergeKey(&'static str),
    /// `$retainKeys` that is no list, or does not list a field of the patch.
    #[error("invalid patch format of retainKeys")]
    RetainKeys,
    /// `$deleteFromPrimitiveList` without the name of a list.
    #[error("invalid patch format of primitive list")]
    PrimitiveList,
    /// `$setElementOrder` without the name of a list.
    #[error("invalid patch format of setElementOrder list")]
    SetElementOrder,
    /// The patch's list and its `$setElementOrder` disagree.
    #[error("The order in patch list:\n{patch}\n doesn't match $setElementOrder list:\n{order}\n")]
    OrderMismatch {
        /// The patch's list.
        patch: String,
        /// The order it should have.
        order: String,
    },
    /// A value of the wrong kind where a directive needs a list or a map.
    #[error("expected a {expected}, but received a {received}")]
    BadType {
        /// Go's name of the wanted type.
        expected: &'static str,
        /// Go's name of the given type.
        received: &'static str,
    },
    /// A field the type does not have.
    #[error("unable to find api field in struct {} for the json field {}", .structure, Quoted(.field))]
    UnknownField {
        /// The struct.
        structure: &'static str,
        /// The field.
        field: String,
    },
    /// A map where the type has a scalar.
    #[error("merging an object in json but data type is not struct, instead is: {0}")]
    NotAStruct(&'static str),
    /// A list where the type has none; names what the list stands in.
    #[error("expected slice or array type, but got: {0}")]
    NotAList(&'static str),
    /// A list of lists in the type.
    #[error("unexpected slice of slice")]
    ListOfListsType,
    /// A list of lists in the data.
    #[error("lists of lists are not supported")]
    ListOfLists,
    /// A list of this and that.
    #[error("list element types are not identical: {0}")]
    MixedList(String),
    /// The patch goes over the same lists again and again.
    #[error("the patch merges its lists more than {} times: name each element once", budget::PASSES_MAX)]
    TooManyPasses,
    /// Nothing to put in order.
    #[error("no elements in any of the given slices")]
    NoElements,
}

impl Error {
    /// Whose fault it is.
    pub fn fault(&self) -> Fault {
        match self {
            Error::NotAnObject | Error::RetainKeys | Error::PrimitiveList | Error::SetElementOrder => {
                Fault::Undecodable
            }
            Error::ListOfLists => Fault::Inapplicable,
            Error::TooManyPasses => Fault::TooCostly,
            _ => Fault::Unclassified,
        }
    }
}

/// Applies a strategic merge patch to an object of the definition's type.
pub fn apply(original: Value, patch: &Value, definition: &'static Definition) -> Result<Value, Error> {
    match (original, patch) {
        (Value::Object(original), Value::Object(patch)) => {
            let mut budget = Budget::new(&original, patch);
            merge_map(original, patch.clone(), &definition.shape, &mut budget).map(Value::Object)
        }
        _ => Err(Error::NotAnObject),
    }
}

fn merge_map(
    mut original: Map<String, Value>,
    mut patch: Map<String, Value>,
    ty: &Type,
    budget: &mut Budget,
) -> Result<Map<String, Value>, Error> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                Ok(patch)
            }
            Some("delete") => Ok(Map::new()),
            _ => Err(unknown_directive(&patch)),
        };
    }
    retain_keys(&mut original, &mut patch)?;
    list::merge_ordered(&mut original, &mut patch, ty, budget)?;

    // Sorted, so that deletions from a list ('$…') come before additions to it, whatever order the map keeps.
    let mut fields: Vec<(String, Value)> = patch.into_iter().collect();
    fields.sort_by(|(a, _), (b, _)| a.cmp(b));
    for (field, value) in fields {
        if field.starts_with(DELETE_FROM_PRIMITIVE_LIST) {
            let list = name_after(&field, DELETE_FROM_PRIMITIVE_LIST).ok_or(Error::PrimitiveList)?;
            // Upstream falls back to the directive itself when no name follows its slash.
            delete_from_list(&mut original, if list.is_empty() { &field } else { list }, value, ty, budget)?;
        } else {
            merge_field(&mut original, field, value, ty, budget)?;
        }
    }
    Ok(original)
}

fn merge_field(
    original: &mut Map<String, Value>,
    field: String,
    value: Value,
    ty: &Type,
    budget: &mut Budget,
) -> Result<(), Error> {
    if value.is_null() {
        original.remove(&field);
        return Ok(());
    }
    let merged = match (original.remove(&field), value) {
        (Some(Value::Object(old)), Value::Object(new)) => {
            let member = lookup::member(ty, &field)?;
            match member.strategy {
                PatchStrategy::Replace => Some(Value::Object(new)),
                _ => Some(Value::Object(merge_map(old, new, member.ty, budget)?)),
            }
        }
        (Some(Value::Array(old)), Value::Array(new)) => {
            let member = lookup::list(ty, &field)?;
            Some(Value::Array(list::merge(old, new, &member, budget)?))
        }
        (_, mut new) => {
            discard_nulls(&mut new);
            without_directives(new)
        }
    };
    if let Some(merged) = merged {
        original.insert(field, merged);
    }
    Ok(())
}

fn delete_from_list(
    original: &mut Map<String, Value>,
    field: &str,
    value: Value,
    ty: &Type,
    budget: &mut Budget,
) -> Result<(), Error> {
    match (original.get_mut(field), value) {
        (_, Value::Null) => {
            original.remove(field);
        }
        (Some(Value::Array(old)), Value::Array(gone)) => {
            let member = lookup::list(ty, field)?;
            *old = list::delete(std::mem::take(old), gone, &member, budget)?;
        }
        // Upstream merges a map that is given as a deletion list.
        (Some(Value::Object(_)), new @ Value::Object(_)) => merge_field(original, field.into(), new, ty, budget)?,
        // A scalar replaces a scalar of its own kind; nothing happens where the kinds differ.
        (Some(old), new) if type_name(old) == type_name(&new) => *old = new,
        _ => {}
    }
    Ok(())
}

/// Drops from the object what `$retainKeys` does not list.
fn retain_keys(original: &mut Map<String, Value>, patch: &mut Map<String, Value>) -> Result<(), Error> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let Value::Array(keys) = keys else { return Err(Error::RetainKeys) };
    let keys: BTreeSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    let listed = |field: &str| keys.contains(field);
    let parallel = |field: &str| field.starts_with(DELETE_FROM_PRIMITIVE_LIST) || field.starts_with(SET_ELEMENT_ORDER);
    if patch.iter().any(|(field, value)| !value.is_null() && !parallel(field) && !listed(field)) {
        return Err(Error::RetainKeys);
    }
    original.retain(|field, _| listed(field));
    Ok(())
}

/// The list's name in `<directive>/<list>`.
fn name_after<'a>(field: &'a str, directive: &str) -> Option<&'a str> {
    field.strip_prefix(directive)?.strip_prefix('/')
}

/// A patch as Go's `%v` prints it, for messages that quote it.
pub fn printed(patch: &Value) -> String {
    Printed::Value(patch).to_string()
}

fn unknown_directive(map: &Map<String, Value>) -> Error {
    Error::UnknownDirective {
        directive: map.get(DIRECTIVE).map(go_value::as_string).unwrap_or_default(),
        map: Printed::Map(map).to_string(),
    }
}

fn no_merge_key(map: &Map<String, Value>, key: &str) -> Error {
    Error::NoMergeKey { map: Printed::Map(map).to_string(), key: key.into() }
}

/// Deletes null fields, at any depth; null elements of lists stay.
fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(discard_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

/// The value without any map that has a `$patch`, at any depth; `None` when it is such a map itself.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(DIRECTIVE) => None,
        Value::Object(map) => {
            let kept = map.into_iter().filter_map(|(field, value)| Some((field, without_directives(value)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(list) => Some(Value::Array(list.into_iter().filter_map(without_directives).collect())),
        scalar => Some(scalar),
    }
}

#[cfg(test)]
mod tests;
