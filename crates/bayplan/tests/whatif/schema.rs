//! The JSON against its schema, with a checker of the words that the schema uses.

use serde_json::Value;

use crate::shell;

fn schema() -> Value {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/whatif.schema.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Where a value breaks a schema; none where it does not.
fn broken(root: &Value, schema: &Value, value: &Value, path: &str) -> Option<String> {
    if let Some(target) = schema["$ref"].as_str() {
        return broken(root, root.pointer(target.strip_prefix('#').unwrap()).unwrap(), value, path);
    }
    let is_type = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_u64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        other => {
            assert!(schema.get("const").is_some(), "{path}: the checker does not know the type {other:?}");
            true
        }
    };
    if !is_type || schema.get("const").is_some_and(|one| one != value) {
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

fn answer(command: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let output = shell(command, folder.path());
    let errors = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{command}: {error} {errors}"))
}

fn check(answer: &Value) -> Option<String> {
    let root = schema();
    broken(&root, &root["$defs"][answer["kind"].as_str().unwrap()], answer, "")
}

#[test]
fn every_answer_keeps_to_the_schema() {
    for question in [
        "whatif --from cluster.yaml -f web.yaml",
        "whatif --from cluster.yaml --scale deploy/db=4 --add 1=general --drain n1 -f web.yaml --replicas 6",
        "whatif --from cluster.yaml --delete deploy/db",
        "simulate --from cluster.yaml --arrivals arrivals.jsonl --config spread= --config packed=packed.yaml",
    ] {
        assert_eq!(check(&answer(&format!("bayplan {question} --ties name -o json"))), None, "{question}");
    }
}

#[test]
fn the_checker_sees_what_is_wrong() {
    let good = answer("bayplan whatif --from cluster.yaml -f web.yaml --ties name -o json");
    let alter = |change: fn(&mut Value)| {
        let mut altered = good.clone();
        change(&mut altered);
        check(&altered).unwrap_or_default()
    };
    assert_eq!(alter(|answer| answer["extra"] = 1.into()), ".extra is not in the schema");
    assert_eq!(alter(|answer| drop(answer.as_object_mut().unwrap().remove("after"))), ": after is missing");
    assert!(alter(|answer| answer["placed"][0]["node"] = 2.into()).starts_with(".placed[0].node"));
    assert!(alter(|answer| answer["before"]["utilisation"]["cpu"] = "all".into()).starts_with(".before.utilisation"));
}
