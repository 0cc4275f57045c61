//! The parts of `metadata` the server owns.

use std::collections::BTreeSet;

use jiff::Timestamp;
use rand::RngExt;
use serde_json::{Map, Value, json};

use crate::chance;

/// The longest prefix of a generated name: with the suffix it fits a DNS label.
const MAX_GENERATED_PREFIX: usize = 58;
const SUFFIX_LENGTH: usize = 5;
/// No vowels, so that no words appear; no digits that look like letters.
const SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The metadata of an object, created if missing.
pub(crate) fn of(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = json!({});
    }
    let metadata = &mut object["metadata"];
    if !metadata.is_object() {
        *metadata = json!({});
    }
    metadata.as_object_mut().expect("made an object right above")
}

/// A string of the metadata, empty if missing.
pub(crate) fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"][key].as_str().unwrap_or_default()
}

/// A `metav1.Time`: RFC 3339 in UTC, to the second.
pub(crate) fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A name with the prefix of `metadata.generateName` and a random suffix.
pub(crate) fn generate_name(prefix: &str) -> String {
    let mut name: String = prefix.chars().take(MAX_GENERATED_PREFIX).collect();
    let mut rng = chance::rng();
    for _ in 0..SUFFIX_LENGTH {
        name.push(SUFFIX_ALPHABET[rng.random_range(0..SUFFIX_ALPHABET.len())] as char);
    }
    name
}

/// Removes the fields that a client may not set on create.
pub(crate) fn wipe_system_fields(object: &mut Value) {
    let metadata = of(object);
    for key in ["creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        metadata.remove(key);
    }
}

/// Sets the uid and creation time of a new object.
pub(crate) fn fill_system_fields(object: &mut Value, now: Timestamp) {
    let metadata = of(object);
    metadata.insert("uid".to_owned(), Value::String(chance::uuid().to_string()));
    metadata.insert("creationTimestamp".to_owned(), Value::String(time(now)));
}

/// Restores the fields that an update may neither change nor drop.
pub(crate) fn restore_system_fields(object: &mut Value, old: &Value) {
    let metadata = of(object);
    metadata.remove("selfLink");
    let old = &old["metadata"];
    match old.get("generation") {
        Some(generation) => metadata.insert("generation".to_owned(), generation.clone()),
        None => metadata.remove("generation"),
    };
    if metadata.get("uid").and_then(Value::as_str).unwrap_or_default().is_empty() {
        metadata.insert("uid".to_owned(), old["uid"].clone());
    }
    metadata.insert("creationTimestamp".to_owned(), old["creationTimestamp"].clone());
    if let Some(deletion) = old.get("deletionTimestamp").filter(|d| !d.is_null()) {
        metadata.insert("deletionTimestamp".to_owned(), deletion.clone());
        if let Some(grace) = old.get("deletionGracePeriodSeconds") {
            metadata.insert("deletionGracePeriodSeconds".to_owned(), grace.clone());
        }
    }
}

/// Drops repeated owner references; answers upstream's warning if there were any.
pub(crate) fn deduplicate_owners(object: &mut Value) -> Option<String> {
    let owners = object["metadata"].get_mut("ownerReferences")?.as_array_mut()?;
    let mut duplicates = Vec::new();
    let mut seen = BTreeSet::new();
    owners.retain(|owner| {
        // Objects are canonical by now: equal text, equal owner.
        let first = seen.insert(owner.to_string());
        if !first {
            duplicates.push(owner["uid"].as_str().unwrap_or_default().to_owned());
        }
        first
    });
    (!duplicates.is_empty()).then(|| {
        format!(
            ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and \
             may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            duplicates.join(", ")
        )
    })
}

/// The finalizers in the metadata.
pub(crate) fn finalizers(object: &Value) -> Vec<String> {
    object["metadata"]["finalizers"]
        .as_array()
        .map(|list| list.iter().filter_map(|f| f.as_str().map(str::to_owned)).collect())
        .unwrap_or_default()
}

/// Replaces the finalizers; an empty list is omitted.
pub(crate) fn set_finalizers(object: &mut Value, finalizers: Vec<String>) {
    let metadata = of(object);
    if finalizers.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".to_owned(), json!(finalizers));
    }
}

/// True if the object has a deletion timestamp.
pub(crate) fn deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// Adds one to the generation, if the kind has one.
pub(crate) fn bump_generation(object: &mut Value) {
    let metadata = of(object);
    if let Some(generation) = metadata.get("generation").and_then(Value::as_i64)
        && generation > 0
    {
        metadata.insert("generation".to_owned(), json!(generation.saturating_add(1)));
    }
}

/// The resource version in a body; `None` if empty or zero.
pub(crate) fn resource_version(object: &Value) -> Option<&str> {
    object["metadata"]["resourceVersion"].as_str().filter(|v| !v.is_empty() && *v != "0")
}
