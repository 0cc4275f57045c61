//! Where two JSON values first differ.

use std::fmt;

use serde_json::Value;

/// Longest piece of a value shown in a report, in characters: a line should stay readable.
const SHOWN_MAX: usize = 300;

/// The first place where an answer differs from the recorded one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Path from the top, for example `.spec.containers[0].name`.
    pub path: String,
    /// What upstream answered.
    pub expected: String,
    /// What we answer.
    pub actual: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "." } else { &self.path };
        write!(formatter, "{path}: expected {}, got {}", self.expected, self.actual)
    }
}

/// Compares an answer with the recorded one; numbers are equal by value, objects whatever their order.
pub fn compare(expected: &Value, actual: &Value) -> Result<(), Difference> {
    compare_at(&mut String::new(), expected, actual)
}

fn compare_at(path: &mut String, expected: &Value, actual: &Value) -> Result<(), Difference> {
    let length = path.len();
    match (expected, actual) {
        (Value::Object(left), Value::Object(right)) => {
            let mut keys: Vec<&String> = left.keys().chain(right.keys()).collect();
            keys.sort();
            keys.dedup();
            for key in keys {
                path.push('.');
                path.push_str(key);
                match (left.get(key), right.get(key)) {
                    (Some(left), Some(right)) => compare_at(path, left, right)?,
                    (left, right) => return Err(difference(path, left, right)),
                }
                path.truncate(length);
            }
            Ok(())
        }
        (Value::Array(left), Value::Array(right)) => {
            for at in 0..left.len().max(right.len()) {
                path.push_str(&format!("[{at}]"));
                match (left.get(at), right.get(at)) {
                    (Some(left), Some(right)) => compare_at(path, left, right)?,
                    (left, right) => return Err(difference(path, left, right)),
                }
                path.truncate(length);
            }
            Ok(())
        }
        (Value::Number(left), Value::Number(right)) if left.as_f64() == right.as_f64() => {
            // Two integers may be the same float and still differ.
            match (left.as_i64(), right.as_i64()) {
                (Some(a), Some(b)) if a != b => Err(difference(path, Some(expected), Some(actual))),
                _ => Ok(()),
            }
        }
        _ if expected == actual => Ok(()),
        _ => Err(difference(path, Some(expected), Some(actual))),
    }
}

/// A difference between two values, or between one and none.
pub(crate) fn difference(path: &str, expected: Option<&Value>, actual: Option<&Value>) -> Difference {
    Difference { path: path.into(), expected: shown(expected), actual: shown(actual) }
}

fn shown(value: Option<&Value>) -> String {
    let text = value.map_or_else(|| "nothing".into(), Value::to_string);
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_first_difference_is_named_by_its_path() {
        for (expected, actual, shown) in [
            (json!({"a": [1, {"b": 2}]}), json!({"a": [1, {"b": 3}]}), ".a[1].b: expected 2, got 3"),
            (json!({"a": 1}), json!({"a": 1, "b": null}), ".b: expected nothing, got null"),
            (json!([1, 2]), json!([1]), "[1]: expected 2, got nothing"),
            (json!("x"), json!(1), ".: expected \"x\", got 1"),
            (
                json!(9007199254740993i64),
                json!(9007199254740992i64),
                ".: expected 9007199254740993, got 9007199254740992",
            ),
        ] {
            assert_eq!(compare(&expected, &actual).unwrap_err().to_string(), shown);
        }
    }

    #[test]
    fn numbers_are_equal_by_value_but_null_is_not_absence() {
        assert_eq!(compare(&json!({"a": 1.0, "b": {}}), &json!({"b": {}, "a": 1})), Ok(()));
        assert!(compare(&json!({"a": null}), &json!({})).is_err());
    }
}
