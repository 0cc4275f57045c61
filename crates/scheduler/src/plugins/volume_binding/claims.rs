//! The PersistentVolumeClaims of a pod: checked, and sorted by what has to be done about them.

use std::sync::Arc;

use bayplan_model::pod::Pod;
use bayplan_model::storage::{PersistentVolume, PersistentVolumeClaim, WAIT_FOR_FIRST_CONSUMER};

use crate::cluster::Cluster;
use crate::plugins::node_volume_limits::not_owner;

/// The PersistentVolumeClaims of a pod, by what has to be done about them.
#[derive(Default)]
pub(super) struct PodVolumeClaims {
    /// Fully bound.
    pub(super) bound: Vec<Arc<PersistentVolumeClaim>>,
    /// Unbound, of a class with WaitForFirstConsumer; smallest request first.
    pub(super) to_bind: Vec<Arc<PersistentVolumeClaim>>,
    /// Some claim is unbound although its class binds immediately.
    pub(super) has_immediate: bool,
}

/// Checks that all claims exist, are not lost or being deleted, and belong to the pod where they were made for one.
pub(super) fn check(cluster: &Cluster, pod: &Pod) -> Result<(), String> {
    for (_, name, is_ephemeral) in pod.claim_names() {
        let stored = cluster.objects.persistent_volume_claims.get(&pod.metadata.namespace, &name);
        let claim = stored.ok_or_else(|| match is_ephemeral {
            true => format!("waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}"),
            false => format!("persistentvolumeclaim {name:?} not found"),
        })?;
        if claim.status.phase == "Lost" {
            let volume = &claim.spec.volume_name;
            return Err(format!("persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"));
        }
        if claim.metadata.deletion_timestamp.is_some() {
            return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
        }
        if is_ephemeral && !claim.is_for(pod) {
            return Err(not_owner(pod, &name));
        }
    }
    Ok(())
}

/// Whether the claim is bound only once a pod uses it; false for claims of unknown classes.
fn waits_for_pod(cluster: &Cluster, claim: &PersistentVolumeClaim) -> Result<bool, String> {
    let Some(class) = cluster.objects.storage_classes.get("", claim.class()) else { return Ok(false) };
    match class.volume_binding_mode.as_deref() {
        Some(mode) => Ok(mode == WAIT_FOR_FIRST_CONSUMER),
        None => Err(format!("VolumeBindingMode not set for StorageClass {:?}", class.metadata.name)),
    }
}

impl PodVolumeClaims {
    /// Sorts the claims of a pod; assumed claims count as they were assumed.
    pub(super) fn of(cluster: &Cluster, pod: &Pod) -> Result<Self, String> {
        let mut claims = PodVolumeClaims::default();
        for (_, name, _) in pod.claim_names() {
            let key = format!("{}/{name}", pod.metadata.namespace);
            let claim = cluster
                .persistent_volume_claim(&pod.metadata.namespace, &name)
                .ok_or_else(|| format!("error getting PVC {key:?}: could not find v1.PersistentVolumeClaim {key:?}"))?;
            if claim.is_fully_bound() {
                claims.bound.push(claim.clone());
            } else if waits_for_pod(cluster, claim)? && claim.spec.volume_name.is_empty() {
                claims.to_bind.push(claim.clone());
            } else {
                claims.has_immediate = true;
            }
        }
        claims.to_bind.sort_by_key(|claim| claim.requested_storage());
        Ok(claims)
    }
}

/// Whether a volume satisfies a claim, wherever it is. One that is reserved for the claim need not be available.
pub(super) fn serves(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> bool {
    fn mode(mode: &Option<String>) -> &str {
        mode.as_deref().unwrap_or("Filesystem")
    }
    fn class(class: &Option<String>) -> &str {
        class.as_deref().unwrap_or_default()
    }
    let (wanted, given) = (&claim.spec, &volume.spec);
    if (given.claim_ref.is_some() && !volume.is_reserved_for(claim))
        || volume.capacity() < claim.requested_storage()
        || mode(&wanted.volume_mode) != mode(&given.volume_mode)
        || class(&wanted.volume_attributes_class_name) != class(&given.volume_attributes_class_name)
        || volume.metadata.deletion_timestamp.is_some()
    {
        return false;
    }
    // A selector that cannot be read selects nothing.
    let selects =
        wanted.selector.as_ref().is_none_or(|s| s.selector().is_ok_and(|s| s.matches(&volume.metadata.labels)));
    volume.is_reserved_for(claim)
        || (volume.status.phase == "Available"
            && selects
            && wanted.access_modes.iter().all(|mode| given.access_modes.contains(mode)))
}
