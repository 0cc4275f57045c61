//! Answers against their JSON Schema, with a checker of the words that our schemas use.

use serde_json::Value;

/// The words that the checker knows.
const WORDS: [&str; 13] = [
    "$schema",
    "$defs",
    "title",
    "description",
    "oneOf",
    "$ref",
    "type",
    "required",
    "properties",
    "additionalProperties",
    "items",
    "enum",
    "const",
];

/// A schema of `docs/`.
pub(crate) struct Schema(Value);

impl Schema {
    /// Reads a schema by the name of its file.
    pub(crate) fn of(file: &str) -> Schema {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(file);
        Schema(serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap())
    }

    /// Where an answer breaks the schema; none where it does not.
    pub(crate) fn check(&self, answer: &Value) -> Option<String> {
        let root = &self.0;
        // The kind decides, so that what is wrong is said where it is.
        let own = root["$defs"].get(answer["kind"].as_str().unwrap_or_default()).unwrap_or(root);
        broken(root, own, answer, "").or_else(|| broken(root, root, answer, ""))
    }
}

/// Where a value breaks a schema; none where it does not.
fn broken(root: &Value, schema: &Value, value: &Value, path: &str) -> Option<String> {
    if let Some(target) = schema["$ref"].as_str() {
        return broken(root, root.pointer(target.strip_prefix('#').unwrap()).unwrap(), value, path);
    }
    if schema.as_object().unwrap().is_empty() {
        return None;
    }
    for word in schema.as_object().unwrap().keys() {
        assert!(WORDS.contains(&word.as_str()), "the checker does not know {word}");
    }
    if let Some(all) = schema["oneOf"].as_array() {
        let fit = all.iter().filter(|one| broken(root, one, value, path).is_none()).count();
        return (fit != 1).then(|| format!("{path}: fits {fit} of {}", all.len()));
    }
    let is_type = match schema["type"].as_str() {
        None => true,
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some(other) => panic!("the checker does not know the type {other}"),
    };
    let listed = schema.get("enum").is_none_or(|list| list.as_array().unwrap().contains(value));
    if !is_type || !listed || schema.get("const").is_some_and(|one| one != value) {
        return Some(format!("{path}: {value} is not {schema}"));
    }
    let mut required = schema["required"].as_array().into_iter().flatten().map(|name| name.as_str().unwrap());
    if let Some(name) = required.find(|name| value.get(name).is_none()) {
        return Some(format!("{path}: {name} is missing"));
    }
    let items = value.as_array().into_iter().flatten().enumerate();
    let of_items = items.map(|(at, item)| (&schema["items"], item, format!("{path}[{at}]")));
    let fields = value.as_object().into_iter().flatten().map(|(name, field)| {
        let own = schema["properties"].get(name).unwrap_or(&schema["additionalProperties"]);
        (own, field, format!("{path}.{name}"))
    });
    let mut parts = of_items.chain(fields);
    parts.find_map(|(own, part, path)| match own {
        Value::Bool(true) => None,
        Value::Bool(false) | Value::Null => Some(format!("{path} is not in the schema")),
        own => broken(root, own, part, &path),
    })
}
