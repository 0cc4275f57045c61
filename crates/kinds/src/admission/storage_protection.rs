//! StorageObjectInUseProtection: volumes, claims and VolumeAttributesClasses stay while somebody uses them.

use serde_json::Value;

use crate::defaulting::list_or_new;
use crate::kind::Kind;

const FINALIZERS: [(&str, &str, &str); 3] = [
    ("", "persistentvolumeclaims", "kubernetes.io/pvc-protection"),
    ("", "persistentvolumes", "kubernetes.io/pv-protection"),
    ("storage.k8s.io", "volumeattributesclasses", "kubernetes.io/vac-protection"),
];

/// Gives a new object of these the finalizer that its controller takes away when nobody uses it any more.
pub fn protect_in_use(kind: &Kind, object: &mut Value) {
    let found = FINALIZERS.iter().find(|(group, plural, _)| kind.group == *group && kind.plural == *plural);
    let Some((_, _, finalizer)) = found else { return };
    if let Some(Value::Object(metadata)) = object.get_mut("metadata")
        && let Some(finalizers) = list_or_new(metadata, "finalizers")
        && !finalizers.iter().any(|known| known == finalizer)
    {
        finalizers.push((*finalizer).into());
    }
}
