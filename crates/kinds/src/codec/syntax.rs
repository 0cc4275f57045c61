//! Upstream's words for JSON that does not parse.

use serde_json::Value;
use serde_json::error::Category;

/// The Go type in which upstream looks for `apiVersion` and `kind`.
pub(crate) const TYPE_META: &str =
    r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;

/// Says why a body is not a JSON object.
pub(crate) fn explain(body: &[u8], error: &serde_json::Error) -> String {
    match serde_json::from_slice::<Value>(body) {
        // It is JSON, only not an object.
        Ok(value) => format!("json: cannot unmarshal {} into Go value of type {TYPE_META}", json_kind(&value)),
        Err(parse) => match parse.classify() {
            Category::Eof => "unexpected end of JSON input".to_owned(),
            Category::Syntax => foreign_character(body, &parse),
            _ => error.to_string(),
        },
    }
}

pub(crate) fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Names the character at which the parser stopped, and what it expected there.
fn foreign_character(body: &[u8], error: &serde_json::Error) -> String {
    let text = error.to_string();
    let offset = offset_of(body, error.line(), error.column());
    let Some(found) = body.get(offset).copied() else { return "unexpected end of JSON input".to_owned() };
    let found = match found {
        b'\'' => r"'\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        byte if byte.is_ascii_graphic() || byte == b' ' => format!("'{}'", char::from(byte)),
        b'\n' => r"'\n'".to_owned(),
        b'\t' => r"'\t'".to_owned(),
        b'\r' => r"'\r'".to_owned(),
        byte => format!("'\\x{byte:02x}'"),
    };
    let place = if text.starts_with("key must be a string") || text.starts_with("trailing comma") {
        "looking for beginning of object key string"
    } else if text.starts_with("expected `:`") {
        "after object key"
    } else if text.contains("or `}`") {
        "after object key:value pair"
    } else if text.contains("or `]`") {
        "after array element"
    } else if text.starts_with("trailing characters") {
        "after top-level value"
    } else if text.starts_with("control character") {
        "in string literal"
    } else if text.starts_with("invalid escape") {
        "in string escape code"
    } else if text.starts_with("invalid number") {
        "in numeric literal"
    } else if text.starts_with("recursion limit exceeded") {
        return "exceeded max depth".to_owned();
    } else {
        "looking for beginning of value"
    };
    format!("invalid character {found} {place}")
}

fn offset_of(body: &[u8], line: usize, column: usize) -> usize {
    let mut start = 0;
    for _ in 1..line {
        match body[start..].iter().position(|b| *b == b'\n') {
            Some(end) => start += end + 1,
            None => break,
        }
    }
    start + column.saturating_sub(1)
}
