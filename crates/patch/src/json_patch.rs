//! JSON patch (RFC 6902).
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects, reason = "clients choose the numbers"))]

use json_patch::PatchOperation;
use serde_json::Value;

use crate::{Fault, body};

/// Most operations of one patch, as upstream.
pub const OPERATIONS_MAX: usize = 10_000;

/// Most bytes that the `copy` operations of one patch may add, as upstream: copies of copies grow exponentially.
pub const COPIED_BYTES_MAX: usize = 3 * 1024 * 1024;

/// The deepest nesting of a patched object: what the JSON decoder accepts, so that the object can be read again.
pub const DEPTH_MAX: usize = 128;

/// Most steps of one patch: elements of lists that its operations shift, and values that they look through. Ten
/// thousand removals from the front of a list of 1,600 elements take as many, which is a tenth of a second. Without it
/// ten thousand short operations on a list of a million elements would take minutes, as they do upstream.
pub const STEPS_MAX: usize = 16_000_000;

/// Why a patch has no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not a JSON patch.
    #[error("error decoding patch: {0}")]
    Undecodable(#[from] body::Error),
    /// It has too many operations.
    #[error("The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {operations}")]
    TooManyOperations {
        /// How many it has.
        operations: usize,
    },
    /// Its copies are too large.
    #[error(
        "Unable to complete the copy, the accumulated size increase of copy is {copied}, \
         exceeding the limit {COPIED_BYTES_MAX}"
    )]
    TooMuchCopied {
        /// Bytes copied so far.
        copied: usize,
    },
    /// Its operations take too many steps together.
    #[error(
        "Unable to complete the patch, its operations shift or look through more than {STEPS_MAX} values; \
         replace the list as a whole"
    )]
    TooManySteps,
    /// The object would become too deep.
    #[error("an object may have at most {DEPTH_MAX} levels")]
    TooDeep,
    /// An operation is incomplete or unknown.
    #[error("{0}")]
    BadOperation(#[source] serde_json::Error),
    /// An operation does not fit the object.
    #[error("{0}")]
    Inapplicable(#[source] json_patch::PatchError),
}

impl Error {
    /// Whose fault it is.
    pub fn fault(&self) -> Fault {
        match self {
            Error::Undecodable(_) => Fault::Undecodable,
            Error::TooManyOperations { .. } => Fault::TooLarge,
            Error::TooManySteps => Fault::TooCostly,
            Error::TooMuchCopied { .. } | Error::TooDeep | Error::BadOperation(_) | Error::Inapplicable(_) => {
                Fault::Inapplicable
            }
        }
    }
}

/// Applies the patch in the body to the object.
pub fn apply(mut object: Value, body: &[u8]) -> Result<Value, Error> {
    let operations = body::operations(body)?;
    if operations.len() > OPERATIONS_MAX {
        return Err(Error::TooManyOperations { operations: operations.len() });
    }
    let mut copied: usize = 0;
    let mut steps = Steps { left: STEPS_MAX };
    for operation in operations {
        let operation: PatchOperation = serde_json::from_value(operation).map_err(Error::BadOperation)?;
        if let PatchOperation::Copy(copy) = &operation {
            let more = object.pointer(copy.from.as_str()).map_or(0, |value| value.to_string().len());
            copied = copied.saturating_add(more);
            if copied > COPIED_BYTES_MAX {
                return Err(Error::TooMuchCopied { copied });
            }
        }
        let placed = match &operation {
            PatchOperation::Add(add) => Some((&add.path, &add.value)),
            PatchOperation::Replace(replace) => Some((&replace.path, &replace.value)),
            PatchOperation::Copy(copy) => object.pointer(copy.from.as_str()).map(|value| (&copy.path, value)),
            PatchOperation::Move(moved) => object.pointer(moved.from.as_str()).map(|value| (&moved.path, value)),
            PatchOperation::Remove(_) | PatchOperation::Test(_) => None,
        };
        if let Some((path, value)) = placed
            && !steps.fits(value, DEPTH_MAX.saturating_sub(path.count()))?
        {
            return Err(Error::TooDeep);
        }
        steps.shift(&object, &operation)?;
        // Changed in place: a failed patch drops the object, so nothing has to be undone.
        json_patch::patch_unsafe(&mut object, &[operation]).map_err(Error::Inapplicable)?;
    }
    Ok(object)
}

/// What one patch may still do.
struct Steps {
    left: usize,
}

impl Steps {
    fn take(&mut self, steps: usize) -> Result<(), Error> {
        self.left = self.left.checked_sub(steps).ok_or(Error::TooManySteps)?;
        Ok(())
    }

    /// Takes the elements that an operation shifts: those of a list behind the place where it adds or removes one.
    fn shift(&mut self, object: &Value, operation: &PatchOperation) -> Result<(), Error> {
        let (first, second) = match operation {
            PatchOperation::Add(add) => (Some(add.path.as_str()), None),
            PatchOperation::Remove(remove) => (Some(remove.path.as_str()), None),
            PatchOperation::Copy(copy) => (Some(copy.path.as_str()), None),
            PatchOperation::Move(moved) => (Some(moved.from.as_str()), Some(moved.path.as_str())),
            PatchOperation::Replace(_) | PatchOperation::Test(_) => (None, None),
        };
        for path in first.into_iter().chain(second) {
            let Some((list, index)) = path.rsplit_once('/') else { continue };
            let (Some(Value::Array(list)), Ok(index)) = (object.pointer(list), index.parse::<usize>()) else {
                continue;
            };
            self.take(list.len().saturating_sub(index))?;
        }
        Ok(())
    }

    /// Whether a value has at most that many levels.
    fn fits(&mut self, value: &Value, levels: usize) -> Result<bool, Error> {
        self.take(1)?;
        let Some(below) = levels.checked_sub(1) else { return Ok(false) };
        let mut fits = |values: &mut dyn Iterator<Item = &Value>| {
            for value in values {
                if !self.fits(value, below)? {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        match value {
            Value::Array(list) => fits(&mut list.iter()),
            Value::Object(map) => fits(&mut map.values()),
            _ => Ok(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn operations_apply_in_order() {
        let body = br#"[{"op":"test","path":"/a","value":1},{"op":"replace","path":"/a","value":2},
            {"op":"add","path":"/b/-","value":3},{"op":"remove","path":"/c"},{"op":"copy","from":"/a","path":"/d"}]"#;
        let result = apply(json!({"a": 1, "b": [], "c": null}), body).unwrap();
        assert_eq!(result, json!({"a": 2, "b": [3], "d": 2}));
    }

    #[test]
    fn what_cannot_be_read_differs_from_what_cannot_be_applied() {
        for (body, error) in [
            ("[", "error decoding patch: unexpected end of JSON input"),
            ("{}", "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"),
            (
                r#"[{"op":1}]"#,
                "error decoding patch: json: cannot unmarshal number into Go struct field \
                 jsonPatchOp.op of type string",
            ),
        ] {
            let refusal = apply(json!({}), body.as_bytes()).unwrap_err();
            assert_eq!((refusal.fault(), refusal.to_string().as_str()), (Fault::Undecodable, error));
        }
        for body in [
            r#"[{"op":"remove","path":"/a"}]"#,
            r#"[{"op":"test","path":"","value":1}]"#,
            r#"[{"op":"jump","path":"/a"}]"#,
            r#"[{"op":"add","path":"/a"}]"#,
        ] {
            assert_eq!(apply(json!({}), body.as_bytes()).unwrap_err().fault(), Fault::Inapplicable, "{body}");
        }
    }

    #[test]
    fn too_many_operations_are_refused() {
        let operations = vec![json!({"op": "add", "path": "/a", "value": 1}); OPERATIONS_MAX + 1];
        let error = apply(json!({}), &serde_json::to_vec(&operations).unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "The allowed maximum operations in a JSON patch is 10000, got 10001");
    }

    #[test]
    fn copies_cannot_grow_without_bound() {
        let double = json!({"op": "copy", "from": "/list", "path": "/list/-"});
        let body = serde_json::to_vec(&vec![double; 60]).unwrap();
        let error = apply(json!({"list": ["x".repeat(1000)]}), &body).unwrap_err();
        assert!(matches!(error, Error::TooMuchCopied { .. }), "{error}");
    }

    #[test]
    fn short_operations_on_a_long_list_are_bounded_together() {
        let list = |length: usize| json!({"list": vec![json!(0); length], "other": {}});
        for operation in [
            json!({"op": "move", "from": "/list/0", "path": "/list/-"}),
            json!({"op": "move", "from": "/list", "path": "/list"}),
            json!({"op": "replace", "path": "/list/0", "value": 1}),
        ] {
            let body = serde_json::to_vec(&vec![operation; OPERATIONS_MAX]).unwrap();
            assert!(apply(list(500), &body).is_ok());
        }
        for operation in [
            json!({"op": "move", "from": "/list/0", "path": "/list/-"}),
            json!({"op": "move", "from": "/list", "path": "/list"}),
            json!({"op": "add", "path": "/list/0", "value": 1}),
        ] {
            let body = serde_json::to_vec(&vec![operation; OPERATIONS_MAX]).unwrap();
            let error = apply(list(20_000), &body).unwrap_err();
            assert_eq!(error.fault(), Fault::TooCostly, "{error}");
        }
        let shorten = json!({"op": "remove", "path": "/list/0"});
        let body = serde_json::to_vec(&vec![shorten; 1_500]).unwrap();
        assert_eq!(apply(list(1_500), &body).unwrap(), list(0));
    }

    #[test]
    fn objects_cannot_become_too_deep_to_be_read() {
        let deeper = json!({"op": "copy", "from": "", "path": "/a"});
        let deep = |times: usize| apply(json!({}), &serde_json::to_vec(&vec![deeper.clone(); times]).unwrap());
        let text = deep(DEPTH_MAX - 2).unwrap().to_string();
        assert!(serde_json::from_str::<Value>(&text).is_ok());
        assert!(matches!(deep(DEPTH_MAX + 1).unwrap_err(), Error::TooDeep));
    }
}
