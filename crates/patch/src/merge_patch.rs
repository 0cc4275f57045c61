//! JSON merge patch (RFC 7386).

use serde_json::Value;

/// Why a patch has no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not JSON: the request is wrong (400).
    #[error("error decoding patch: {0}")]
    Undecodable(#[source] serde_json::Error),
}

/// Applies the patch in the body to the object.
pub fn apply(mut object: Value, body: &[u8]) -> Result<Value, Error> {
    let patch: Value = serde_json::from_slice(body).map_err(Error::Undecodable)?;
    json_patch::merge(&mut object, &patch);
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
    fn what_is_not_json_is_refused() {
        assert!(matches!(apply(json!({}), b"{"), Err(Error::Undecodable(_))));
    }
}
