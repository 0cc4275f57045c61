//! JSON patch (RFC 6902).

use json_patch::Patch;
use serde_json::Value;

/// Most operations of one patch, as upstream: a patch is evaluated operation by operation, on copies.
pub const OPERATIONS_MAX: usize = 10_000;

/// Why a patch has no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not a JSON patch: the request is wrong (400).
    #[error("error decoding patch: {0}")]
    Undecodable(#[source] serde_json::Error),
    /// It has too many operations (413).
    #[error("The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {operations}")]
    TooManyOperations {
        /// How many it has.
        operations: usize,
    },
    /// An operation does not fit the object (422).
    #[error("{0}")]
    Inapplicable(#[source] json_patch::PatchError),
}

/// Applies the patch in the body to the object.
pub fn apply(mut object: Value, body: &[u8]) -> Result<Value, Error> {
    let patch: Patch = serde_json::from_slice(body).map_err(Error::Undecodable)?;
    if patch.0.len() > OPERATIONS_MAX {
        return Err(Error::TooManyOperations { operations: patch.0.len() });
    }
    json_patch::patch(&mut object, &patch).map_err(Error::Inapplicable)?;
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn operations_apply_in_order() {
        let body = br#"[{"op":"test","path":"/a","value":1},{"op":"replace","path":"/a","value":2},
            {"op":"add","path":"/b/-","value":3},{"op":"remove","path":"/c"}]"#;
        let result = apply(json!({"a": 1, "b": [], "c": null}), body).unwrap();
        assert_eq!(result, json!({"a": 2, "b": [3]}));
    }

    #[test]
    fn what_cannot_be_read_differs_from_what_cannot_be_applied() {
        for body in ["{", "{}", r#"[{"op":"jump","path":"/a"}]"#, r#"[{"op":"add","path":"/a"}]"#] {
            assert!(matches!(apply(json!({}), body.as_bytes()), Err(Error::Undecodable(_))), "{body}");
        }
        for body in [r#"[{"op":"remove","path":"/a"}]"#, r#"[{"op":"test","path":"","value":1}]"#] {
            assert!(matches!(apply(json!({}), body.as_bytes()), Err(Error::Inapplicable(_))), "{body}");
        }
    }

    #[test]
    fn too_many_operations_are_refused() {
        let operations = vec![json!({"op": "add", "path": "/a", "value": 1}); OPERATIONS_MAX + 1];
        let error = apply(json!({}), &serde_json::to_vec(&operations).unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "The allowed maximum operations in a JSON patch is 10000, got 10001");
    }
}
