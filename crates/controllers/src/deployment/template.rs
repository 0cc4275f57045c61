//! Compares pod templates by meaning: an absent field equals an empty one.

use serde_json::Value;

/// The label that distinguishes the pods of one ReplicaSet from those of the others.
pub const POD_TEMPLATE_HASH: &str = "pod-template-hash";

/// Maps and plain structs, for which empty and absent mean the same. Any other empty object (`emptyDir: {}`,
/// `securityContext: {}`) has a meaning.
const EMPTY_IS_ABSENT: &[&str] = &[
    "metadata",
    "labels",
    "annotations",
    "nodeSelector",
    "matchLabels",
    "resources",
    "limits",
    "requests",
    "overhead",
];

/// Whether a field is as good as absent.
fn is_absent(field: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty() && EMPTY_IS_ABSENT.contains(&field),
        _ => false,
    }
}

/// The fields of an object that are not as good as absent, in order. The template's own hash label counts as absent.
fn fields(value: &Value) -> Vec<(&str, &Value)> {
    let Value::Object(map) = value else { return Vec::new() };
    let mut fields: Vec<(&str, &Value)> = map.iter().map(|(key, value)| (key.as_str(), value)).collect();
    fields.retain(|(key, value)| *key != POD_TEMPLATE_HASH && !is_absent(key, value));
    fields.sort_unstable_by_key(|(key, _)| *key);
    fields
}

/// Whether two templates mean the same pods, whatever hash they carry.
pub fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(_), Value::Object(_)) => {
            let (a, b) = (fields(a), fields(b));
            // `labels` may hold nothing but the hash: then it must equal an absent one.
            let mut a = a.into_iter().filter(|(_, value)| !only_hash(value)).peekable();
            let mut b = b.into_iter().filter(|(_, value)| !only_hash(value)).peekable();
            loop {
                match (a.next(), b.next()) {
                    (None, None) => return true,
                    (Some((ka, va)), Some((kb, vb))) if ka == kb && same(va, vb) => {}
                    _ => return false,
                }
            }
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        _ => a == b,
    }
}

fn only_hash(value: &Value) -> bool {
    value.as_object().is_some_and(|map| map.len() == 1 && map.contains_key(POD_TEMPLATE_HASH))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn templates_are_compared_by_meaning() {
        let base = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}});
        let cases = [
            (json!({"metadata": {"labels": {"a": "b", "pod-template-hash": "x"}}}), true),
            (json!({"metadata": {"labels": {"a": "b"}, "annotations": {}}}), true),
            (json!({"metadata": {"labels": {"a": "b"}, "creationTimestamp": null}}), true),
            (json!({"metadata": {"labels": {"a": "c"}}}), false),
            (json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "d"}]}}), false),
            (
                json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "resources": {}}]}}),
                true,
            ),
            (
                json!({
                    "metadata": {"labels": {"a": "b"}},
                    "spec": {"containers": [{"name": "c"}], "securityContext": {}},
                }),
                false,
            ),
        ];
        for (mut other, equal) in cases {
            if other.get("spec").is_none() {
                other["spec"] = base["spec"].clone();
            }
            assert_eq!(same(&base, &other), equal, "{other}");
        }
    }
}
