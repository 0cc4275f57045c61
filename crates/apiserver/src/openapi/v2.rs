//! The OpenAPI v2 document: all group versions in one, with the definitions of the schema facts.

use std::collections::BTreeSet;

use bayplan_kinds::served;
use bayplan_model::schema::Schema;
use serde_json::{Map, Value, json};

use super::operations::{self, Operation};

/// The whole document.
pub(super) fn document() -> Value {
    let operations: Vec<Operation> = served().flat_map(operations::of).collect();
    let mut paths: Map<String, Value> = Map::new();
    for operation in &operations {
        let path = paths.entry(operation.path.clone()).or_insert_with(|| json!({}));
        path[operation.method] = describe(operation);
    }
    let definitions: Map<String, Value> = reachable(operations.iter().flat_map(Operation::definitions))
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), Schema::openapi_definitions().get(name)?.clone())))
        .collect();
    json!({"swagger": "2.0", "info": super::info(), "paths": paths, "definitions": definitions})
}

fn describe(operation: &Operation) -> Value {
    let mut parameters: Vec<Value> = operation
        .path_parameters()
        .map(|name| json!({"name": name, "in": "path", "type": "string", "required": true, "uniqueItems": true}))
        .collect();
    let mut consumes: &[&str] = &["*/*"];
    if let Some((types, name)) = operation.body {
        let required = operation.method != "delete";
        parameters.push(json!({"name": "body", "in": "body", "required": required, "schema": reference(name)}));
        consumes = types;
    }
    parameters.extend(
        operation
            .query
            .iter()
            .map(|(name, kind)| json!({"name": name, "in": "query", "type": kind, "uniqueItems": true})),
    );
    let answer = operation.answer.map_or_else(|| json!({"type": "string"}), reference);
    json!({
        "operationId": operation.id,
        "consumes": consumes,
        "produces": operation.produces,
        "parameters": parameters,
        "responses": {"200": {"description": "OK", "schema": answer}},
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": operation.group_version_kind(),
    })
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/definitions/{name}")})
}

/// Every definition that these refer to, directly or through others.
pub(super) fn reachable(names: impl Iterator<Item = &'static str>) -> BTreeSet<&'static str> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&'static str> = names.collect();
    while let Some(name) = open.pop() {
        if let Some((name, value)) = Schema::openapi_definitions().get_key_value(name)
            && found.insert(name.as_str())
        {
            references(value, &mut open);
        }
    }
    found
}

fn references(value: &'static Value, found: &mut Vec<&'static str>) {
    match value {
        Value::Object(map) => {
            if let Some(name) = map.get("$ref").and_then(Value::as_str).and_then(|r| r.strip_prefix("#/definitions/")) {
                found.push(name);
            }
            map.values().for_each(|value| references(value, found));
        }
        Value::Array(list) => list.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}
