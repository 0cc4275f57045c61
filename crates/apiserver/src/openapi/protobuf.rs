//! The v2 document as protobuf: the part of gnostic's `openapi.v2` messages that a Kubernetes document uses.
//!
//! kubectl before 1.27 validates with this form only.

use serde_json::Value;

/// Encodes a v2 document.
pub(super) fn encode(document: &Value) -> Vec<u8> {
    let mut info = Message::default();
    info.text(1, &document["info"]["title"]);
    info.text(2, &document["info"]["version"]);

    let mut paths = Message::default();
    for (path, item) in entries(&document["paths"]) {
        paths.named(2, path, path_item(item));
    }
    let mut definitions = Message::default();
    for (name, definition) in entries(&document["definitions"]) {
        definitions.named(1, name, schema(definition));
    }
    let mut message = Message::default();
    message.text(1, &document["swagger"]);
    message.message(2, &info);
    message.message(8, &paths);
    message.message(9, &definitions);
    message.0
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn elements(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn path_item(item: &Value) -> Message {
    let mut message = Message::default();
    let fields = [("get", 2), ("put", 3), ("post", 4), ("delete", 5), ("options", 6), ("head", 7), ("patch", 8)];
    for (method, field) in fields {
        if let Some(value) = item.get(method) {
            message.message(field, &operation(value));
        }
    }
    message
}

fn operation(value: &Value) -> Message {
    let mut message = Message::default();
    message.text(5, &value["operationId"]);
    elements(&value["produces"]).for_each(|produced| message.text(6, produced));
    elements(&value["consumes"]).for_each(|consumed| message.text(7, consumed));
    elements(&value["parameters"]).for_each(|given| message.message(8, &parameter(given)));
    let mut responses = Message::default();
    for (code, response) in entries(&value["responses"]) {
        let mut described = Message::default();
        described.text(1, &response["description"]);
        described.message(2, &within(1, &schema(&response["schema"])));
        responses.named(1, code, within(1, &described));
    }
    message.message(9, &responses);
    extensions(&mut message, 13, value);
    message
}

/// `ParametersItem { Parameter { BodyParameter | NonBodyParameter { Query… | Path… } } }`.
fn parameter(value: &Value) -> Message {
    let mut inner = Message::default();
    let wrapped = match value["in"].as_str() {
        Some("body") => {
            inner.text(2, &value["name"]);
            inner.text(3, &value["in"]);
            inner.flag(4, &value["required"]);
            inner.message(5, &schema(&value["schema"]));
            within(1, &inner)
        }
        location => {
            inner.flag(1, &value["required"]);
            inner.text(2, &value["in"]);
            inner.text(4, &value["name"]);
            let (kind, unique, field) = if location == Some("path") { (5, 19, 4) } else { (6, 20, 3) };
            inner.text(kind, &value["type"]);
            inner.flag(unique, &value["uniqueItems"]);
            within(2, &within(field, &inner))
        }
    };
    within(1, &wrapped)
}

fn schema(value: &Value) -> Message {
    let mut message = Message::default();
    message.text(1, &value["$ref"]);
    message.text(2, &value["format"]);
    message.text(4, &value["description"]);
    if let Some(default) = value.get("default") {
        message.message(5, &any(default));
    }
    elements(&value["required"]).for_each(|name| message.text(19, name));
    elements(&value["enum"]).for_each(|allowed| message.message(20, &any(allowed)));
    match &value["additionalProperties"] {
        Value::Null => {}
        Value::Bool(allowed) => {
            let mut item = Message::default();
            item.flag(2, &Value::Bool(*allowed));
            message.message(21, &item);
        }
        element => message.message(21, &within(1, &schema(element))),
    }
    if let Some(kind) = value.get("type") {
        let mut item = Message::default();
        item.text(1, kind);
        message.message(22, &item);
    }
    if let Some(items) = value.get("items") {
        message.message(23, &within(1, &schema(items)));
    }
    elements(&value["allOf"]).for_each(|part| message.message(24, &schema(part)));
    if value["properties"].is_object() {
        let mut properties = Message::default();
        for (name, property) in entries(&value["properties"]) {
            properties.named(1, name, schema(property));
        }
        message.message(25, &properties);
    }
    extensions(&mut message, 31, value);
    message
}

fn extensions(message: &mut Message, field: u32, value: &Value) {
    for (name, extension) in entries(value).filter(|(name, _)| name.starts_with("x-")) {
        message.named(field, name, any(extension));
    }
}

/// Free-form values are sent as YAML text, and JSON is YAML.
fn any(value: &Value) -> Message {
    let mut message = Message::default();
    message.bytes(2, value.to_string().as_bytes());
    message
}

fn within(field: u32, inner: &Message) -> Message {
    let mut message = Message::default();
    message.message(field, inner);
    message
}

/// A protobuf message under construction.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        const LENGTH_DELIMITED: u64 = 2;
        self.varint(u64::from(field) << 3 | LENGTH_DELIMITED);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u32, message: &Message) {
        self.bytes(field, &message.0);
    }

    /// An entry of gnostic's maps: `{ name = 1, value = 2 }`.
    fn named(&mut self, field: u32, name: &str, value: Message) {
        let mut entry = Message::default();
        entry.bytes(1, name.as_bytes());
        entry.message(2, &value);
        self.message(field, &entry);
    }

    fn text(&mut self, field: u32, value: &Value) {
        if let Some(text) = value.as_str().filter(|text| !text.is_empty()) {
            self.bytes(field, text.as_bytes());
        }
    }

    fn flag(&mut self, field: u32, value: &Value) {
        if value == &Value::Bool(true) {
            self.varint(u64::from(field) << 3);
            self.varint(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn messages_are_encoded_byte_by_byte() {
        let mut message = Message::default();
        message.text(1, &json!("2.0"));
        message.flag(4, &json!(true));
        message.flag(5, &json!(false));
        message.bytes(20, &[7; 200]);
        let mut expected = b"\x0a\x032.0\x20\x01\xa2\x01\xc8\x01".to_vec();
        expected.extend([7; 200]);
        assert_eq!(message.0, expected);
    }

    #[test]
    fn a_schema_keeps_type_reference_and_extension() {
        let message = schema(&json!({"type": "object", "$ref": "#/d", "x-a": [1]}));
        assert_eq!(message.0, b"\x0a\x03#/d\xb2\x01\x08\x0a\x06object\xfa\x01\x0c\x0a\x03x-a\x12\x05\x12\x03[1]");
    }
}
