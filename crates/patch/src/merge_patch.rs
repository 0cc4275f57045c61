//! JSON merge patch (RFC 7386).

use serde_json::Value;

use crate::{Fault, body};

/// Why a patch has no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not a JSON object.
    #[error("error decoding patch: {0}")]
    Undecodable(#[from] body::Error),
}

impl Error {
    /// Whose fault it is.
    pub fn fault(&self) -> Fault {
        match self {
            Error::Undecodable(_) => Fault::Undecodable,
        }
    }
}

/// Applies the patch in the body to the object.
pub fn apply(mut object: Value, body: &[u8]) -> Result<Value, Error> {
    json_patch::merge(&mut object, &body::object(body)?);
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn maps_merge_lists_are_replaced_and_null_deletes() {
        let object = json!({"a": {"b": 1, "c": 2}, "l": [1, 2]});
        let result = apply(object, br#"{"a": {"b": null, "d": {"e": null}}, "l": [3]}"#).unwrap();
        assert_eq!(result, json!({"a": {"c": 2, "d": {}}, "l": [3]}));
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for (body, error) in [
            ("{", "error decoding patch: unexpected end of JSON input"),
            ("[]", "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"),
        ] {
            assert_eq!(apply(json!({}), body.as_bytes()).unwrap_err().to_string(), error);
        }
    }
}
