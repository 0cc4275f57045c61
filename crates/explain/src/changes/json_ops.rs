//! Operations of JSON patches, made for an object as it is written: what is absent is added with its parents.

use serde_json::{Map, Value, json};

/// A path into an object, as the segments of a JSON pointer.
pub(super) type Path<'p> = &'p [&'p str];

/// The JSON pointer of a path.
pub(super) fn pointer(path: Path<'_>) -> String {
    path.iter().map(|segment| format!("/{}", segment.replace('~', "~0").replace('/', "~1"))).collect()
}

/// The operation that sets a value, whether or not it and its parents are there.
pub(super) fn set(object: &Value, path: Path<'_>, value: Value) -> Value {
    if object.pointer(&pointer(path)).is_some() {
        return json!({"op": "replace", "path": pointer(path), "value": value});
    }
    let mut known = path.len().saturating_sub(1);
    while known > 0 && object.pointer(&pointer(&path[..known])).is_none_or(Value::is_null) {
        known -= 1;
    }
    let missing = path.get(known + 1..).unwrap_or_default();
    let nested = missing.iter().rev().fold(value, |value, segment| {
        let mut parent = Map::new();
        parent.insert((*segment).to_owned(), value);
        Value::Object(parent)
    });
    json!({"op": "add", "path": pointer(path.get(..=known).unwrap_or(path)), "value": nested})
}

/// The operation that appends to a list, which may be absent.
pub(super) fn append(object: &Value, path: Path<'_>, value: Value) -> Value {
    match object.pointer(&pointer(path)) {
        Some(Value::Array(_)) => json!({"op": "add", "path": format!("{}/-", pointer(path)), "value": value}),
        _ => set(object, path, json!([value])),
    }
}

/// The operation that removes what is at a path.
pub(super) fn remove(path: Path<'_>) -> Value {
    json!({"op": "remove", "path": pointer(path)})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_absent_is_added_with_its_parents() {
        let cases = [
            (json!({"a": {"b": 1}}), vec!["a", "b"], json!({"a": {"b": 9}})),
            (json!({"a": {}}), vec!["a", "b"], json!({"a": {"b": 9}})),
            (json!({}), vec!["a", "b", "c/d"], json!({"a": {"b": {"c/d": 9}}})),
            (json!({"a": null}), vec!["a", "b"], json!({"a": {"b": 9}})),
            (json!({"l": [{}]}), vec!["l", "0", "x~y"], json!({"l": [{"x~y": 9}]})),
        ];
        for (object, path, expected) in cases {
            let patch = json!([set(&object, &path, json!(9))]).to_string();
            assert_eq!(bayplan_patch::json_patch::apply(object, patch.as_bytes()).unwrap(), expected, "{patch}");
        }
        for (object, expected) in [(json!({}), json!({"l": [9]})), (json!({"l": [1]}), json!({"l": [1, 9]}))] {
            let patch = json!([append(&object, &["l"], json!(9))]).to_string();
            assert_eq!(bayplan_patch::json_patch::apply(object, patch.as_bytes()).unwrap(), expected, "{patch}");
        }
    }
}
