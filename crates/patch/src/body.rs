//! Request bodies that hold a patch, read with Go's words for what is wrong with them.

use serde_json::Value;

/// Why a body is not a patch.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It ends too early.
    #[error("unexpected end of JSON input")]
    Truncated,
    /// It is not JSON.
    #[error("{0}")]
    NotJson(#[source] serde_json::Error),
    /// It is JSON of another kind.
    #[error("json: cannot unmarshal {found} into Go {place} of type {wanted}")]
    Type {
        /// What it is.
        found: &'static str,
        /// `value`, or the struct field.
        place: &'static str,
        /// What it should be.
        wanted: &'static str,
    },
}

/// Reads a body that must be a JSON object: a merge patch or a strategic merge patch.
pub fn object(body: &[u8]) -> Result<Value, Error> {
    match json(body)? {
        object @ Value::Object(_) => Ok(object),
        other => Err(wrong(&other, "value", "map[string]interface {}")),
    }
}

/// Reads a body that must be a list of JSON patch operations.
pub(crate) fn operations(body: &[u8]) -> Result<Vec<Value>, Error> {
    let operations = match json(body)? {
        Value::Array(operations) => operations,
        other => return Err(wrong(&other, "value", "[]handlers.jsonPatchOp")),
    };
    for operation in &operations {
        let Value::Object(fields) = operation else {
            return Err(wrong(operation, "value", "handlers.jsonPatchOp"));
        };
        for (field, place) in [
            ("op", "struct field jsonPatchOp.op"),
            ("path", "struct field jsonPatchOp.path"),
            ("from", "struct field jsonPatchOp.from"),
        ] {
            if let Some(value) = fields.get(field).filter(|value| !value.is_string()) {
                return Err(wrong(value, place, "string"));
            }
        }
    }
    Ok(operations)
}

fn json(body: &[u8]) -> Result<Value, Error> {
    serde_json::from_slice(body).map_err(|error| if error.is_eof() { Error::Truncated } else { Error::NotJson(error) })
}

fn wrong(value: &Value, place: &'static str, wanted: &'static str) -> Error {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    Error::Type { found, place, wanted }
}
