//! Whether a live answer is the recorded one, by the rules of the recordings.

use serde_json::{Map, Value};

use super::placeholders::Bindings;

/// What of the recordings counts in this run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rules {
    /// Compare `metadata.managedFields`.
    pub(super) managed_fields: bool,
}

/// Path, recorded and live value of the first difference.
pub(super) type Found = (String, String, String);

/// The build fields of `/version`.
const BUILD: [&str; 7] = ["gitVersion", "gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform"];
/// The groups that are served later, and left out of discovery until then.
const LATER: [&str; 2] = ["admissionregistration.k8s.io", "apiextensions.k8s.io"];

/// The first line of a text; what follows is a Go value diff.
fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// True for a path whose answer, or whose subject, is a group that is served later.
pub(super) fn is_later(path: &str) -> bool {
    LATER.iter().any(|group| path.strip_prefix("/apis/").is_some_and(|rest| rest.split('/').next() == Some(group)))
}

/// The answer without what does not count.
pub(super) fn counted(rules: Rules, path: &str, value: &Value) -> Value {
    let mut value = pruned(rules, value);
    if path == "/version"
        && let Value::Object(version) = &mut value
    {
        version.retain(|key, _| !BUILD.contains(&key.as_str()));
    }
    without_later_groups(&mut value);
    value
}

fn without_later_groups(value: &mut Value) {
    let is_later = |name: Option<&str>| name.is_some_and(|name| LATER.contains(&name));
    match value["kind"].as_str() {
        Some("APIGroupList") => {
            if let Some(groups) = value["groups"].as_array_mut() {
                groups.retain(|group| !is_later(group["name"].as_str()));
            }
        }
        Some("APIGroupDiscoveryList") => {
            if let Some(groups) = value["items"].as_array_mut() {
                groups.retain(|group| !is_later(group["metadata"]["name"].as_str()));
            }
        }
        _ => {}
    }
    for list in ["paths", "items"] {
        // Null stays null and absent stays absent: only lists are touched.
        if let Some(Value::Array(paths)) = value.as_object_mut().and_then(|object| object.get_mut(list)) {
            paths.retain(|path| !path.as_str().is_some_and(self::is_later));
        }
    }
}

fn pruned(rules: Rules, value: &Value) -> Value {
    match value {
        Value::Object(map) => map.iter().filter_map(|(key, value)| member(rules, key, value)).collect(),
        Value::Array(list) => list.iter().map(|value| pruned(rules, value)).collect(),
        other => other.clone(),
    }
}

fn member(rules: Rules, key: &str, value: &Value) -> Option<(String, Value)> {
    let value = match (key, value) {
        ("managedFields", _) if !rules.managed_fields => return None,
        ("managedFields", Value::Array(entries)) => {
            let mut entries = entries.clone();
            entries.sort_by_key(|entry| {
                ["operation", "manager", "apiVersion", "subresource"]
                    .map(|key| entry[key].as_str().unwrap_or_default().to_owned())
            });
            Value::Array(entries)
        }
        ("columnDefinitions", Value::Array(columns)) => columns.iter().map(without_description).collect(),
        (_, value) => pruned(rules, value),
    };
    Some((key.to_owned(), value))
}

/// Descriptions of columns are prose.
fn without_description(column: &Value) -> Value {
    let Value::Object(column) = column else { return column.clone() };
    column.iter().filter(|(key, _)| *key != "description").map(|(key, value)| (key.clone(), value.clone())).collect()
}

impl Bindings {
    /// Compares two answers that were prepared by [`counted`].
    pub(super) fn compare(&mut self, expected: &Value, actual: &Value, path: &str) -> Result<(), Found> {
        let differ = || Err((path.to_owned(), short(expected), short(actual)));
        match (expected, actual) {
            (Value::Object(left), Value::Object(right)) => self.compare_objects(left, right, path),
            (Value::Array(left), Value::Array(right)) => {
                if left.len() != right.len() {
                    return differ();
                }
                for (index, (left, right)) in left.iter().zip(right).enumerate() {
                    self.compare(left, right, &format!("{path}/{index}"))?;
                }
                Ok(())
            }
            (Value::String(left), Value::String(right)) if self.matches(left, right) => Ok(()),
            (Value::String(left), Value::Number(right)) if left.starts_with("$NODEPORT") => {
                if self.matches(left, &right.to_string()) { Ok(()) } else { differ() }
            }
            _ if expected == actual => Ok(()),
            _ => differ(),
        }
    }

    fn compare_objects(
        &mut self,
        left: &Map<String, Value>,
        right: &Map<String, Value>,
        path: &str,
    ) -> Result<(), Found> {
        for key in left.keys().chain(right.keys().filter(|key| !left.contains_key(*key))) {
            let at = format!("{path}/{key}");
            match (left.get(key), right.get(key)) {
                (Some(Value::Array(left)), Some(Value::Array(right))) if key == "causes" => {
                    self.compare_sets(left, right, &at)?;
                }
                (Some(Value::String(left)), Some(Value::String(right))) if key == "message" => {
                    if !self.same_message(left, right) {
                        return Err((at, left.clone(), right.clone()));
                    }
                }
                (Some(left), Some(right)) => self.compare(left, right, &at)?,
                (left, right) => {
                    let shown = |value: Option<&Value>| value.map_or("absent".to_owned(), short);
                    return Err((at, shown(left), shown(right)));
                }
            }
        }
        Ok(())
    }

    /// Lists of causes come out of maps upstream: their order says nothing.
    fn compare_sets(&mut self, expected: &[Value], actual: &[Value], path: &str) -> Result<(), Found> {
        let mut rest: Vec<&Value> = actual.iter().collect();
        for cause in expected {
            let position = rest.iter().position(|candidate| {
                let mut attempt = self.clone();
                let is_equal = attempt.compare(cause, candidate, path).is_ok();
                if is_equal {
                    *self = attempt;
                }
                is_equal
            });
            match position {
                Some(at) => drop(rest.remove(at)),
                None => return Err((path.to_owned(), short(cause), short(&Value::from(actual.to_vec())))),
            }
        }
        match rest.first() {
            None => Ok(()),
            Some(more) => Err((path.to_owned(), "no further one".to_owned(), short(more))),
        }
    }

    /// Compares the texts of `Warning` headers in any order.
    pub(super) fn compare_warnings(&mut self, expected: &[String], actual: &[String]) -> Result<(), Found> {
        let mut rest: Vec<&String> = actual.iter().collect();
        let listed = |texts: &[String]| if texts.is_empty() { "none".to_owned() } else { texts.join(" | ") };
        for warning in expected {
            match rest.iter().position(|candidate| self.same_message(warning, candidate)) {
                Some(at) => drop(rest.remove(at)),
                None => return Err(("warnings".to_owned(), warning.clone(), listed(actual))),
            }
        }
        match rest.first() {
            None => Ok(()),
            Some(more) => Err(("warnings".to_owned(), listed(expected), (*more).clone())),
        }
    }

    /// Messages are equal in their first line; the pieces of `prefix: [a, b, c]` may come in any order.
    fn same_message(&mut self, expected: &str, actual: &str) -> bool {
        let (left, right) = (first_line(expected), first_line(actual));
        if self.matches(left, right) {
            return true;
        }
        let (Some((prefix, expected)), Some((actual_prefix, actual))) = (pieces(left), pieces(right)) else {
            return false;
        };
        if expected.len() != actual.len() || !self.matches(prefix, actual_prefix) {
            return false;
        }
        let mut rest = actual;
        expected.iter().all(|piece| match rest.iter().position(|candidate| self.matches(piece, candidate)) {
            Some(at) => {
                rest.swap_remove(at);
                true
            }
            None => false,
        })
    }
}

/// The prefix and the pieces of a message `prefix: [a, b, c]`; a diff may cut off the closing bracket.
fn pieces(message: &str) -> Option<(&str, Vec<&str>)> {
    let (prefix, list) = message.split_once(": [")?;
    Some((prefix, list.strip_suffix(']').unwrap_or(list).split(", ").collect()))
}

/// A value as a report shows it.
fn short(value: &Value) -> String {
    const SHOWN: usize = 400;
    let text = value.to_string();
    if text.len() <= SHOWN {
        return text;
    }
    text.chars().take(SHOWN).chain("…".chars()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const RULES: Rules = Rules { managed_fields: true };

    fn equal(expected: Value, actual: Value) -> bool {
        let (expected, actual) = (counted(RULES, "/x", &expected), counted(RULES, "/x", &actual));
        Bindings::default().compare(&expected, &actual, "").is_ok()
    }

    #[test]
    fn only_what_the_recordings_leave_open_is_left_open() {
        let cases = [
            (json!({"causes": [{"a": 1}, {"a": 2}]}), json!({"causes": [{"a": 2}, {"a": 1}]}), true),
            (json!({"causes": [{"a": 1}]}), json!({"causes": [{"a": 1}, {"a": 1}]}), false),
            (json!({"items": [1, 2]}), json!({"items": [2, 1]}), false),
            (json!({"message": "x: [a, b]"}), json!({"message": "x: [b, a]"}), true),
            (json!({"message": "x: [a, b]"}), json!({"message": "y: [b, a]"}), false),
            (json!({"message": "x: [a, a]"}), json!({"message": "x: [a, b]"}), false),
            (json!({"message": "a, b"}), json!({"message": "b, a"}), false),
            (json!({"message": "a\n  b"}), json!({"message": "a\n c"}), true),
            (json!({"data": "a\n  b"}), json!({"data": "a\n c"}), false),
            (json!({"a": null}), json!({}), false),
            (json!({"uid": "$UID1", "b": "$UID2"}), json!({"uid": "x", "b": "x"}), false),
            (json!({"a": "$TIME"}), json!({"a": "yesterday"}), false),
            (json!({"a": "$TIME"}), json!({"a": "2026-01-01T00:00:00Z"}), true),
            (
                json!({"columnDefinitions": [{"name": "a", "description": "x"}]}),
                json!({"columnDefinitions": [{"name": "a", "description": ""}]}),
                true,
            ),
            (
                json!({"managedFields": [{"manager": "a"}, {"manager": "b"}]}),
                json!({"managedFields": [{"manager": "b"}, {"manager": "a"}]}),
                true,
            ),
            (json!({"managedFields": [{"manager": "a"}]}), json!({"managedFields": [{"manager": "b"}]}), false),
        ];
        for (expected, actual, outcome) in cases {
            assert_eq!(equal(expected.clone(), actual.clone()), outcome, "{expected} {actual}");
        }
    }

    #[test]
    fn warnings_are_equal_in_any_order_but_all_of_them() {
        let texts = |list: &[&str]| -> Vec<String> { list.iter().map(|&text| text.to_owned()).collect() };
        for (expected, actual, outcome) in
            [(&["a", "b"][..], &["b", "a"][..], true), (&["a"], &["a", "a"], false), (&["a"], &[], false)]
        {
            let result = Bindings::default().compare_warnings(&texts(expected), &texts(actual));
            assert_eq!(result.is_ok(), outcome, "{expected:?} {actual:?}");
        }
    }
}
