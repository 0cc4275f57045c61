//! Objects without what no two runs share: times, versions, identities and made-up names.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

/// What stands for what: each text is replaced by the word that says what it is.
pub(crate) type Names = BTreeMap<String, String>;

/// Keys whose values are different in every run; that they are there is all that can be compared.
const UNSTABLE: [&str; 14] = [
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "lastTransitionTime",
    "lastUpdateTime",
    "lastProbeTime",
    "startTime",
    "eventTime",
    "acquireTime",
    "renewTime",
    "time",
    "pod-template-hash",
    "kubectl.kubernetes.io/restartedAt",
];

/// Lists whose order says only who was faster.
pub(crate) const UNORDERED: [&str; 2] = ["conditions", "managedFields"];

/// The value with its names replaced and its unstable parts blotted out.
pub(crate) fn normal(value: &Value, names: &Names) -> Value {
    match value {
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| {
                let unstable = UNSTABLE.contains(&key.as_str()) && value.is_string();
                let mut value = if unstable { "…".into() } else { normal(value, names) };
                if let (Value::Array(items), true) = (&mut value, UNORDERED.contains(&key.as_str())) {
                    items.sort_by_key(Value::to_string);
                }
                (replaced(key, names), value)
            };
            Value::Object(fields.iter().map(field).collect::<Map<_, _>>())
        }
        Value::Array(items) => items.iter().map(|item| normal(item, names)).collect(),
        Value::String(text) => replaced(text, names).into(),
        other => other.clone(),
    }
}

fn replaced(text: &str, names: &Names) -> String {
    // Longer names first: a pod's name begins with that of its set.
    let mut names: Vec<_> = names.iter().collect();
    names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    names.into_iter().fold(text.to_owned(), |text, (name, word)| text.replace(name, word))
}

/// An event without its name, its times and how often it was repeated.
pub(crate) fn event(event: &Value, names: &Names) -> Value {
    let mut event = event.clone();
    let fields = event.as_object_mut().unwrap();
    for key in ["metadata", "series", "deprecatedFirstTimestamp", "deprecatedLastTimestamp", "deprecatedCount"] {
        fields.remove(key);
    }
    normal(&event, names)
}

/// Each writer of an object and what it wrote, without when.
pub(crate) fn writers(object: &Value) -> Value {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    entries.into_iter().map(|entry| normal(&entry, &Names::new())).collect()
}

/// Where two values differ, a line for each place.
pub(crate) fn differences(ours: &Value, theirs: &Value) -> Vec<String> {
    let mut found = Vec::new();
    differ("", ours, theirs, &mut found);
    found
}

fn differ(path: &str, ours: &Value, theirs: &Value, found: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(left), Value::Object(right)) => {
            let keys: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            for key in keys {
                differ(&format!("{path}.{key}"), &ours[key], &theirs[key], found);
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (index, (ours, theirs)) in left.iter().zip(right).enumerate() {
                differ(&format!("{path}[{index}]"), ours, theirs, found);
            }
        }
        (Value::Array(left), Value::Array(right)) => {
            let only = |these: &[Value], those: &[Value]| -> Value {
                these.iter().filter(|each| !those.contains(each)).cloned().collect()
            };
            let (left, right) = (only(left, right), only(right, left));
            found.push(format!(
                "{path}: {} and {} items\n  ours alone: {left}\n  upstream's alone: {right}",
                ours.as_array().map_or(0, Vec::len),
                theirs.as_array().map_or(0, Vec::len)
            ));
        }
        _ if ours == theirs => {}
        _ => found.push(format!("{path}\n  ours: {ours}\n  upstream's: {theirs}")),
    }
}
