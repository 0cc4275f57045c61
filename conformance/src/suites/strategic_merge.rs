//! Strategic merge patches on raw objects.

use std::collections::BTreeMap;

use bayplan_model::schema::{Definition, Schema};
use bayplan_patch::strategic;
use serde_json::{Value, json};

use super::{Mismatch, Outcome};
use crate::difference::compare;

pub(super) fn check(case: &Value) -> Outcome {
    let definition = definition(case).ok_or_else(|| Mismatch::Unreadable("unknown kind".into()))?;
    let actual = match strategic::apply(case["original"].clone(), &case["patch"], definition) {
        Ok(result) => json!({"result": result}),
        Err(error) => json!({"error": error.to_string()}),
    };
    let mut doubtful = BTreeMap::new();
    collect_doubtful(&case["patch"], &mut doubtful);
    if doubtful.is_empty() {
        return Ok(compare(&case["expect"], &actual)?);
    }
    let (mut expected, mut actual) = (case["expect"].clone(), actual);
    drop_doubtful(&mut expected, &doubtful);
    drop_doubtful(&mut actual, &doubtful);
    Ok(compare(&expected, &actual)?)
}

/// Elements, by the list's name, that a patch both adds to a list and deletes from it. Which comes first depends
/// upstream on Go's random map order (the recordings have it both ways), so whether they are there does not count.
fn collect_doubtful<'a>(patch: &'a Value, doubtful: &mut BTreeMap<&'a str, Vec<&'a Value>>) {
    match patch {
        Value::Object(map) => {
            for (field, value) in map {
                if let Some(list) = field.strip_prefix("$deleteFromPrimitiveList/")
                    && let (Some(gone), Some(added)) = (value.as_array(), map.get(list).and_then(Value::as_array))
                {
                    let both: Vec<&Value> = added.iter().filter(|value| gone.contains(value)).collect();
                    if !both.is_empty() {
                        doubtful.entry(list).or_default().extend(both);
                    }
                }
                collect_doubtful(value, doubtful);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| collect_doubtful(value, doubtful)),
        _ => {}
    }
}

fn drop_doubtful(answer: &mut Value, doubtful: &BTreeMap<&str, Vec<&Value>>) {
    match answer {
        Value::Object(map) => {
            for (field, value) in map {
                if let (Some(elements), Value::Array(list)) = (doubtful.get(field.as_str()), &mut *value) {
                    list.retain(|element| !elements.contains(&element));
                }
                drop_doubtful(value, doubtful);
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|value| drop_doubtful(value, doubtful)),
        _ => {}
    }
}

/// The type of the object; by kind alone where the object does not name its version.
fn definition(case: &Value) -> Option<&'static Definition> {
    let kind = case["kind"].as_str()?;
    let version = case["original"]["apiVersion"].as_str().unwrap_or_default();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let schema = Schema::get();
    let of_kind = |definition: &&Definition| definition.kinds.iter().any(|own| own.kind == kind);
    schema.definition(group, version, kind).or_else(|| schema.definitions().iter().find(of_kind))
}
