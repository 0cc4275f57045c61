//! JSON patches, merge patches and strategic merge patches on objects.
//!
//! Input: `json`, `merge` or `strategic` and for the last a plural; a newline; the object; a newline; the patch.

use bayplan_kinds::served;
use bayplan_model::schema::Schema;
use bayplan_patch::{body, json_patch as operations, merge_patch, strategic};
use serde_json::Value;

use crate::{bounded, first_line};

/// Bytes allocated for each byte of object and patch. An operation of 30 bytes may copy the object it is about, up to
/// [`operations::COPIED_BYTES_MAX`] in all, which is the rest of the allowance.
const FACTOR: u64 = 16384;

pub(crate) fn run(data: &[u8]) {
    let (line, rest) = first_line(data);
    let (object, patch) = first_line(rest);
    let Ok(object @ Value::Object(_)) = serde_json::from_str(object) else { return };
    let mut words = line.split(' ');
    bounded::work(rest.len(), FACTOR, "a patch", || match (words.next(), words.next()) {
        (Some("merge"), _) => merge(object, patch),
        (Some("strategic"), plural) => merge_strategically(object, patch, plural.unwrap_or("pods")),
        _ => operate(object, patch),
    });
}

fn operate(object: Value, patch: &[u8]) {
    let input = patch.len() + object.to_string().len();
    let patched = match operations::apply(object.clone(), patch) {
        Ok(patched) => patched,
        Err(error) => return bounded::text(input, "a JSON patch", &error.to_string()),
    };
    // It can be written and read: depth is bounded.
    let text = patched.to_string();
    assert_eq!(serde_json::from_str::<Value>(&text).ok().as_ref(), Some(&patched));
    assert!(text.len() <= operations::COPIED_BYTES_MAX + 2 * input, "{} bytes out of {input}", text.len());
    if text.len() <= 4 * input {
        let inverse = serde_json::to_vec(&json_patch::diff(&patched, &object)).expect("operations are plain data");
        match operations::apply(patched, &inverse) {
            Ok(restored) => assert_eq!(restored, object, "the inverse leads elsewhere"),
            Err(error) => panic!("the inverse is refused: {error}"),
        }
    }
}

fn merge(object: Value, patch: &[u8]) {
    let input = patch.len() + object.to_string().len();
    let patched = match merge_patch::apply(object, patch) {
        Ok(patched) => patched,
        Err(error) => return bounded::text(input, "a merge patch", &error.to_string()),
    };
    assert!(patched.to_string().len() <= 2 * input + 16, "a merge is no larger than its parts");
    let again = merge_patch::apply(patched.clone(), patch).expect("the same patch was applied before");
    assert_eq!(again, patched, "merging twice is not merging once");
    // A JSON merge patch that says all of the object leaves it as it is, if nothing in it is null.
    if !has_null(&patched) {
        let whole = patched.to_string().into_bytes();
        assert_eq!(merge_patch::apply(patched.clone(), &whole).expect("it is an object"), patched);
    }
}

fn merge_strategically(object: Value, patch: &[u8], plural: &str) {
    let input = patch.len() + object.to_string().len();
    let Some(kind) = served().find(|kind| kind.plural == plural) else { return };
    let kind = kind.group_version_kind();
    let Some(definition) = Schema::get().definition(kind.group, kind.version, kind.kind) else { return };
    let nothing = Value::Object(serde_json::Map::new());
    assert_eq!(strategic::apply(object.clone(), &nothing, definition).as_ref(), Ok(&object), "an empty patch");
    let patch = match body::object(patch) {
        Ok(patch) => patch,
        Err(error) => return bounded::text(input, "the body of a patch", &error.to_string()),
    };
    let patched = match strategic::apply(object, &patch, definition) {
        Ok(patched) => patched,
        Err(error) => return bounded::text(input, "a strategic merge patch", &error.to_string()),
    };
    let text = patched.to_string();
    assert!(text.len() <= 2 * input + 16, "a merge is no larger than its parts");
    assert_eq!(serde_json::from_str::<Value>(&text).ok().as_ref(), Some(&patched));
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.iter().any(has_null),
        Value::Object(map) => map.values().any(has_null),
        _ => false,
    }
}
