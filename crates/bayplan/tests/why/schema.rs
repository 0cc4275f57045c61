//! The JSON against its schema, with a checker of the words that the schema uses.

use serde_json::Value;

use crate::shell;

fn schema() -> Value {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/explanation.schema.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

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
    let wrong = || Some(format!("{path}: {value} is not {schema}"));
    let is_type = match schema["type"].as_str() {
        None => true,
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("boolean") => value.is_boolean(),
        Some(other) => panic!("the checker does not know the type {other}"),
    };
    let listed = schema.get("enum").is_none_or(|list| list.as_array().unwrap().contains(value));
    if !is_type || !listed || schema.get("const").is_some_and(|one| one != value) {
        return wrong();
    }
    let required = schema["required"].as_array().into_iter().flatten().map(|name| name.as_str().unwrap());
    if let Some(name) = required.into_iter().find(|name| value.get(name).is_none()) {
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
        Value::Bool(false) | Value::Null => Some(format!("{path} is not in the schema")),
        own => broken(root, own, part, &path),
    })
}

fn check(value: &Value) -> Option<String> {
    let root = schema();
    // The kind decides, so that what is wrong is told where it is.
    let kind = value["kind"].as_str().unwrap_or_default();
    let own = root["$defs"].get(kind).unwrap_or(&root);
    broken(&root, own, value, "").or_else(|| broken(&root, &root, value, ""))
}

#[test]
fn every_answer_keeps_to_the_schema() {
    let folder = tempfile::tempdir().unwrap();
    let mut kinds = std::collections::BTreeSet::new();
    for question in [
        "pod/web-5f-a",
        "pod/urgent",
        "pod/urgent --per-node",
        "pod/small",
        "pod/small --per-node --ties name",
        "pod/small --node n-3",
        "pod/busy-1 --per-node",
        "pod/gated",
        "pod/picky --no-preemption",
        "stateful -n storage",
        "deployment/web",
        "-A",
        "-A --per-node",
        "node/n-2",
        "node/n-3",
        "-f new-pod.yaml --as-written",
    ] {
        let output = shell(&format!("bayplan why {question} --from cluster.yaml -o json"), folder.path());
        let errors = String::from_utf8_lossy(&output.stderr);
        let answer: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{question}: {e} {errors}"));
        kinds.insert(answer["kind"].as_str().unwrap().to_owned());
        assert_eq!(check(&answer), None, "{question}");
    }
    assert_eq!(kinds.len(), 3);
}

#[test]
fn the_checker_sees_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let output = shell("bayplan why pod/urgent --from cluster.yaml -o json", folder.path());
    let good: Value = serde_json::from_slice(&output.stdout).unwrap();
    let alter = |change: fn(&mut Value)| {
        let mut altered = good.clone();
        change(&mut altered);
        check(&altered).unwrap_or_default()
    };
    assert_eq!(alter(|answer| answer["verdict"] = "Perhaps".into()).split(':').next(), Some(".verdict"));
    assert_eq!(alter(|answer| answer["extra"] = 1.into()), ".extra is not in the schema");
    assert_eq!(alter(|answer| drop(answer.as_object_mut().unwrap().remove("nodes"))), ": nodes is missing");
    assert!(alter(|answer| answer["rejections"][0]["nodes"] = "2".into()).starts_with(".rejections[0].nodes"));
}
