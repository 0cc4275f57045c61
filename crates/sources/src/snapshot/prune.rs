//! Takes out of an object what a snapshot does not hold.

use serde_json::Value;

use super::fields::{Field, Fields, Meaning, fields_of};

/// Annotations that decisions, completion or controllers read, by the prefix of their keys.
const ANNOTATIONS: &[&str] = &[
    "pv.kubernetes.io/",
    "volume.kubernetes.io/",
    "volume.beta.kubernetes.io/",
    "storage.alpha.kubernetes.io/",
    "storageclass.kubernetes.io/",
    "storageclass.beta.kubernetes.io/",
    "resource.kubernetes.io/",
    "deployment.kubernetes.io/",
    "controller.kubernetes.io/",
    "batch.kubernetes.io/",
];

/// Whether an annotation enters a snapshot.
pub(super) fn keeps_annotation(key: &str) -> bool {
    ANNOTATIONS.iter().any(|prefix| key.starts_with(prefix))
}

/// Prunes an object of a kind; none for kinds that no snapshot holds.
pub fn prune(kind: &str, object: &mut Value) -> Option<()> {
    prune_fields(object, fields_of(kind)?);
    Some(())
}

fn prune_fields(value: &mut Value, fields: &Fields) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(|element| prune_fields(element, fields)),
        Value::Object(object) => {
            object.retain(|name, _| fields.contains_key(name));
            for (name, below) in object.iter_mut() {
                match fields.get(name) {
                    Some(Field::Part(fields)) => prune_fields(below, fields),
                    Some(Field::Whole(Meaning::Annotations)) => prune_annotations(below),
                    _ => {}
                }
            }
            object.retain(|_, value| !value.is_null());
        }
        // A text where fields are expected would be somebody's mistake; it is none of the fields.
        other => *other = Value::Null,
    }
}

fn prune_annotations(annotations: &mut Value) {
    if let Value::Object(annotations) = annotations {
        annotations.retain(|key, _| keeps_annotation(key));
    }
}
