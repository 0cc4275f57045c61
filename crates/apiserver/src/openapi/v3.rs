//! The OpenAPI v3 document of one group version.

use bayplan_kinds::served;
use bayplan_model::schema::Schema;
use serde_json::{Map, Value, json};

use super::operations::{self, Operation};
use super::v2::reachable;

const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";

/// The document of one group version.
pub(super) fn document(group: &str, version: &str) -> Value {
    let rows = served().filter(|row| row.group == group && row.version == version);
    let operations: Vec<Operation> = rows.flat_map(operations::of).collect();
    let mut paths: Map<String, Value> = Map::new();
    for operation in &operations {
        let path =
            paths.entry(operation.path.clone()).or_insert_with(|| json!({"parameters": path_parameters(operation)}));
        path[operation.method] = describe(operation);
    }
    let schemas: Map<String, Value> = reachable(operations.iter().flat_map(Operation::definitions))
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), definition(name, Schema::openapi_definitions().get(name)?))))
        .collect();
    json!({"openapi": "3.0.0", "info": super::info(), "paths": paths, "components": {"schemas": schemas}})
}

fn path_parameters(operation: &Operation) -> Vec<Value> {
    operation
        .path_parameters()
        .map(|name| {
            let schema = json!({"type": "string", "uniqueItems": true});
            json!({"name": name, "in": "path", "required": true, "schema": schema})
        })
        .collect()
}

fn describe(operation: &Operation) -> Value {
    let query: Vec<Value> = operation
        .query
        .iter()
        .map(|(name, kind)| json!({"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": true}}))
        .collect();
    let answer = json!({"description": "OK", "content": content(operation.produces, operation.answer)});
    let mut description = json!({
        "operationId": operation.id,
        "parameters": query,
        "responses": {"200": answer},
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": operation.group_version_kind(),
    });
    if let Some((types, name)) = operation.body {
        description["requestBody"] = json!({"content": content(types, Some(name))});
    }
    description
}

/// A body of these types: a definition, or text.
fn content(types: &[&str], name: Option<&str>) -> Map<String, Value> {
    let schema = match name {
        Some(name) => json!({"schema": {"$ref": format!("#/components/schemas/{name}")}}),
        None => json!({"schema": {"type": "string"}}),
    };
    types.iter().map(|media_type| ((*media_type).to_owned(), schema.clone())).collect()
}

/// Converts a v2 definition.
fn definition(name: &str, value: &Value) -> Value {
    match name {
        QUANTITY => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
        INT_OR_STRING => json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}),
        _ => converted(value),
    }
}

fn converted(value: &Value) -> Value {
    match value {
        Value::Array(list) => list.iter().map(converted).collect(),
        Value::Object(map) => {
            let mut schema: Map<String, Value> = map
                .iter()
                .filter(|(key, _)| *key != "$ref")
                .map(|(key, value)| (key.clone(), converted(value)))
                .collect();
            if let Some(reference) = map.get("$ref").and_then(Value::as_str) {
                let reference = json!({"$ref": reference.replace("#/definitions/", "#/components/schemas/")});
                if schema.is_empty() {
                    return reference;
                }
                // A v3 reference may have no siblings.
                schema.insert("allOf".into(), json!([reference]));
            }
            Value::Object(schema)
        }
        scalar => scalar.clone(),
    }
}
