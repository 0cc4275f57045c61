//! StorageObjectInUseProtection: volumes and claims stay while somebody uses them.

use serde_json::Value;

use crate::defaulting::list_or_new;
use crate::kind::Kind;

/// Upstream protects VolumeAttributesClasses too; the controller that would let them go is not here.
const FINALIZERS: [(&str, &str); 2] =
    [("persistentvolumeclaims", "kubernetes.io/pvc-protection"), ("persistentvolumes", "kubernetes.io/pv-protection")];

/// Gives a new volume or claim the finalizer that its controller takes away when nobody uses it any more.
pub fn protect_in_use(kind: &Kind, object: &mut Value) {
    let found = FINALIZERS.iter().find(|(plural, _)| kind.group.is_empty() && kind.plural == *plural);
    let Some((_, finalizer)) = found else { return };
    if let Some(Value::Object(metadata)) = object.get_mut("metadata")
        && let Some(finalizers) = list_or_new(metadata, "finalizers")
        && !finalizers.iter().any(|known| known == finalizer)
    {
        finalizers.push((*finalizer).into());
    }
}
