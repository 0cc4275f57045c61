//! The definitions as OpenAPI v2 shows them.

use serde_json::{Map, Value, json};

use super::text::{self, DefinitionLines, FieldLine};

const API_MACHINERY: &str = "io.k8s.apimachinery.pkg";

/// Every definition that OpenAPI names, as JSON.
pub(super) fn definitions(text: &'static str) -> Map<String, Value> {
    let all = text::definitions(text);
    let shown = all.iter().filter(|definition| !definition.attributes.has("inlined"));
    shown.map(|lines| (lines.name.to_owned(), definition(lines, &all))).collect()
}

fn definition(lines: &DefinitionLines, all: &[DefinitionLines]) -> Value {
    if let Some(openapi) = lines.attributes.get("openapi") {
        return serde_json::from_str(openapi).expect("the generated text holds JSON here");
    }
    let mut properties = Map::new();
    add_properties(&mut properties, lines, all);
    let mut definition = Map::from_iter([("type".into(), "object".into()), ("properties".into(), properties.into())]);
    let required: Vec<&str> = lines.attributes.list("required").collect();
    if !required.is_empty() {
        definition.insert("required".into(), required.into());
    }
    if let Some(map_type) = lines.attributes.get("map") {
        definition.insert("x-kubernetes-map-type".into(), map_type.into());
    }
    if let Some(unions) = lines.attributes.get("unions") {
        let unions = serde_json::from_str(unions).expect("the generated text holds JSON here");
        definition.insert("x-kubernetes-unions".into(), unions);
    }
    let kinds: Vec<Value> = lines.attributes.list("kinds").map(group_version_kind).collect();
    if !kinds.is_empty() {
        definition.insert("x-kubernetes-group-version-kind".into(), kinds.into());
    }
    Value::Object(definition)
}

fn group_version_kind(kind: &str) -> Value {
    let parts: Vec<&str> = kind.split('/').collect();
    json!({ "group": parts[0], "version": parts[1], "kind": parts[2] })
}

/// Adds the fields of a definition, and those of the messages it inlines.
fn add_properties(properties: &mut Map<String, Value>, lines: &DefinitionLines, all: &[DefinitionLines]) {
    for line in &lines.fields {
        if !line.is_inlined() {
            properties.insert(line.name.to_owned(), property(line));
        } else if let Ok(at) = all.binary_search_by(|definition| definition.name.cmp(&line.ty[1..])) {
            add_properties(properties, &all[at], all);
        }
    }
}

fn property(line: &FieldLine) -> Value {
    let values: Vec<&str> = line.values().collect();
    let mut property = ty(line.ty.split('=').next().unwrap_or(line.ty), &values);
    for (name, attribute) in [
        ("list", "x-kubernetes-list-type"),
        ("map", "x-kubernetes-map-type"),
        ("strategy", "x-kubernetes-patch-strategy"),
        ("key", "x-kubernetes-patch-merge-key"),
    ] {
        if let Some(value) = line.attributes.get(name) {
            property[attribute] = value.into();
        }
    }
    let keys: Vec<&str> = line.attributes.list("keys").collect();
    if !keys.is_empty() {
        property["x-kubernetes-list-map-keys"] = keys.into();
    }
    property
}

fn ty(text: &str, values: &[&str]) -> Value {
    let reference = |name: &str| json!({ "$ref": format!("#/definitions/{name}") });
    if let Some(element) = text.strip_prefix("[]") {
        return json!({ "type": "array", "items": ty(element, values) });
    }
    if let Some(element) = text.strip_prefix("{}") {
        return json!({ "type": "object", "additionalProperties": ty(element, values) });
    }
    if let Some(name) = text.strip_prefix('@').or_else(|| text.strip_prefix("raw:")) {
        return reference(name);
    }
    match text {
        "string" if !values.is_empty() => json!({ "type": "string", "enum": values }),
        "string" => json!({ "type": "string" }),
        "bytes" => json!({ "type": "string", "format": "byte" }),
        "bool" => json!({ "type": "boolean" }),
        "int32" | "int64" => json!({ "type": "integer", "format": text }),
        "double" => json!({ "type": "number", "format": text }),
        "quantity" => reference(&format!("{API_MACHINERY}.api.resource.Quantity")),
        "intorstring" => reference(&format!("{API_MACHINERY}.util.intstr.IntOrString")),
        "time" => reference(&format!("{API_MACHINERY}.apis.meta.v1.Time")),
        "microtime" => reference(&format!("{API_MACHINERY}.apis.meta.v1.MicroTime")),
        "fields" => reference(&format!("{API_MACHINERY}.apis.meta.v1.FieldsV1")),
        _ => reference(&format!("{API_MACHINERY}.runtime.RawExtension")),
    }
}
