//! Bodies that are applied: YAML, of which JSON is a part.

use serde_json::Value;
use serde_saphyr::{DuplicateKeyPolicy, Error};

use super::syntax::json_kind;

/// Reads a body; the second value is what a strict parser says of it.
pub(super) fn read(body: &[u8]) -> Result<(Value, Option<String>), String> {
    let text = std::str::from_utf8(body).map_err(|error| format!("error converting YAML to JSON: yaml: {error}"))?;
    let (value, complaint) = match serde_saphyr::from_str::<Value>(text) {
        Ok(value) => (value, None),
        Err(error) => {
            // Repeated keys are no error to a lenient parser: the last one counts.
            let lenient = serde_saphyr::options! { duplicate_keys: DuplicateKeyPolicy::LastWins };
            let value = serde_saphyr::from_str_with_options::<Value>(text, lenient).map_err(|_| not_yaml(&error))?;
            (value, Some(repeated(&error)))
        }
    };
    match value {
        Value::Object(_) => Ok((value, complaint)),
        Value::Null => Ok((Value::Object(serde_json::Map::new()), complaint)),
        other => Err(format!(
            "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value of type \
             map[string]interface {{}}",
            json_kind(&other)
        )),
    }
}

fn not_yaml(error: &Error) -> String {
    let first = error.to_string();
    format!("error converting YAML to JSON: yaml: {}", first.lines().next().unwrap_or_default())
}

/// Go's words for a repeated key.
fn repeated(error: &Error) -> String {
    let line = error.location().map_or(0, |location| location.line());
    let key = match error.without_snippet() {
        Error::DuplicateMappingKey { key: Some(key), .. } => key.as_str(),
        _ => "",
    };
    format!("error converting YAML to JSON: yaml: unmarshal errors:\n  line {line}: key {key:?} already set in map")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn yaml_and_json_are_read_and_repeated_keys_noted() {
        for (body, value, complaint) in [
            ("a: 1\nb: {c: yes}\n", json!({"a": 1, "b": {"c": true}}), None),
            (r#"{"a":"x","b":[1,null]}"#, json!({"a": "x", "b": [1, null]}), None),
            ("", json!({}), None),
            ("a: 1\nb: 2\na: 3\n", json!({"a": 3, "b": 2}), Some("line 3: key \"a\" already set in map")),
        ] {
            let (read, said) = read(body.as_bytes()).unwrap();
            assert_eq!(read, value, "{body}");
            assert_eq!(said.as_deref().and_then(|said| said.lines().nth(1)).map(str::trim), complaint, "{body}");
        }
    }

    #[test]
    fn what_is_no_map_is_refused() {
        assert!(
            read(b"[1]").unwrap_err().ends_with("cannot unmarshal array into Go value of type map[string]interface {}")
        );
        assert!(read(b"a: [").unwrap_err().starts_with("error converting YAML to JSON: yaml: "));
        assert!(read(b"\xff").is_err());
    }
}
