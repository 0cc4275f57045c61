//! Finds the volume for a claim; upstream's `FindMatchingVolume`.

use std::sync::Arc;

use bayplan_model::label_selector::Selector;
use bayplan_model::storage::{PersistentVolume, PersistentVolumeClaim};

/// Whether a volume is free.
pub(super) fn is_free(volume: &PersistentVolume) -> bool {
    volume.spec.claim_ref.is_none() && volume.status.phase == "Available"
}

/// The volume reserved for a claim, else the smallest free one that fits, those with the fewest access modes first. A
/// claim that waits for its first consumer takes a reserved one only.
pub(super) fn find<'v>(
    claim: &PersistentVolumeClaim,
    volumes: impl Iterator<Item = &'v Arc<PersistentVolume>>,
    waits: bool,
) -> Option<Arc<PersistentVolume>> {
    let selector = match &claim.spec.selector {
        None => None,
        Some(selector) => Some(Selector::of(Some(selector)).ok()?),
    };
    let mut suitable: Vec<&Arc<PersistentVolume>> = volumes
        .filter(|volume| {
            has_modes(claim, volume)
                && has_mode(claim, volume)
                && volume.metadata.deletion_timestamp.is_none()
                && volume.capacity() >= claim.requested_storage()
        })
        .collect();
    suitable.sort_by(|a, b| {
        let key = |volume: &PersistentVolume| (volume.spec.access_modes.len(), volume.capacity());
        key(a).cmp(&key(b)).then_with(|| a.metadata.name.cmp(&b.metadata.name))
    });
    if let Some(reserved) = suitable.iter().find(|volume| volume.is_reserved_for(claim)) {
        return Some(Arc::clone(reserved));
    }
    let serves = |volume: &PersistentVolume| {
        is_free(volume)
            && volume.class() == claim.class()
            && attributes_class(volume.spec.volume_attributes_class_name.as_deref())
                == attributes_class(claim.spec.volume_attributes_class_name.as_deref())
            && selector.as_ref().is_none_or(|selector| selector.matches(&volume.metadata.labels))
    };
    suitable.into_iter().find(|volume| !waits && serves(volume)).cloned()
}

/// Why a volume that a claim names does not fit, if it does not.
pub(super) fn mismatch(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Option<&'static str> {
    match () {
        () if volume.capacity() < claim.requested_storage() => Some("requested PV is too small"),
        () if claim.class() != volume.class() => Some("storageClassName does not match"),
        () if attributes_class(claim.spec.volume_attributes_class_name.as_deref())
            != attributes_class(volume.spec.volume_attributes_class_name.as_deref()) =>
        {
            Some("volumeAttributesClassName does not match")
        }
        () if !has_mode(claim, volume) => Some("incompatible volumeMode"),
        () if !has_modes(claim, volume) => Some("incompatible accessMode"),
        () => None,
    }
}

/// Whether the volume modes match; `Filesystem` is the default.
pub(super) fn has_mode(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> bool {
    let mode = |mode: &Option<String>| mode.as_deref().unwrap_or("Filesystem").to_owned();
    mode(&claim.spec.volume_mode) == mode(&volume.spec.volume_mode)
}

fn has_modes(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> bool {
    claim.spec.access_modes.iter().all(|mode| volume.spec.access_modes.contains(mode))
}

fn attributes_class(name: Option<&str>) -> &str {
    name.unwrap_or_default()
}
