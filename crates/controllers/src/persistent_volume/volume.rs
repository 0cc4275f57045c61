//! Reconciles a volume; upstream's `syncVolume`.

use bayplan_model::status::Status;
use bayplan_model::storage::{
    BOUND_BY_CONTROLLER_ANNOTATION, PROVISIONED_BY_ANNOTATION, PersistentVolume, PersistentVolumeClaim,
};

use super::PersistentVolumeController;
use super::bind::{fail_volume, of_claim, of_volume, set_volume_phase, unbind_volume};
use super::matching;
use crate::controller::Context;
use crate::error::{Error, not_found};
use crate::requests::{self, PERSISTENT_VOLUME_CLAIMS};

impl PersistentVolumeController {
    pub(super) async fn sync_volume(&self, volume: &PersistentVolume, context: Context<'_>) -> Result<(), Error> {
        // Without a UID it is reserved by name only: the claim may not even exist.
        let Some(to) = volume.spec.claim_ref.as_ref().filter(|to| !to.uid.is_empty()) else {
            set_volume_phase(volume, "Available", "", context.api).await?;
            return Ok(());
        };
        let Some(claim) = self.claim_of(&to.namespace, &to.name, &to.uid, context).await? else {
            return self.release(volume, context).await;
        };
        if claim.spec.volume_name.is_empty() {
            if !matching::has_mode(&claim, volume) {
                let (claim_key, name) = (claim.metadata.key(), &volume.metadata.name);
                let note = format!(
                    "Cannot bind PersistentVolume to requested PersistentVolumeClaim {claim_key:?} \
                     due to incompatible volumeMode."
                );
                context.warning(of_volume(volume), "VolumeMismatch", note);
                let note = format!(
                    "Cannot bind PersistentVolume {name:?} to requested PersistentVolumeClaim \
                     due to incompatible volumeMode."
                );
                context.warning(of_claim(&claim), "VolumeMismatch", note);
            }
            return Ok(()); // The claim's own turn completes the binding.
        }
        if claim.spec.volume_name == volume.metadata.name {
            set_volume_phase(volume, "Bound", "", context.api).await?;
            return Ok(());
        }
        let made = volume.metadata.annotations.contains_key(PROVISIONED_BY_ANNOTATION);
        if made && volume.spec.persistent_volume_reclaim_policy == "Delete" {
            return self.release(volume, context).await;
        }
        let by_us = volume.metadata.annotations.contains_key(BOUND_BY_CONTROLLER_ANNOTATION);
        // A volume that a user reserved and that is free again is left alone.
        if by_us || volume.status.phase != "Available" {
            unbind_volume(volume, context.api).await?;
        }
        Ok(())
    }

    /// The claim a volume is bound to, read live when the cache lacks it: a claim wrongly taken for deleted loses its
    /// data.
    async fn claim_of(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
        context: Context<'_>,
    ) -> Result<Option<PersistentVolumeClaim>, Error> {
        let known = self.cache.volume_claims().get(namespace, name);
        if let Some(known) = known.filter(|claim| claim.metadata.uid == uid) {
            return Ok(Some((*known).clone()));
        }
        let live: Result<PersistentVolumeClaim, Status> =
            requests::get(context.api, &PERSISTENT_VOLUME_CLAIMS, namespace, name).await;
        match live {
            Ok(claim) => Ok(Some(claim).filter(|claim| claim.metadata.uid == uid)),
            Err(status) if not_found(&status) => Ok(None),
            Err(status) => Err(status.into()),
        }
    }

    /// Its claim was deleted: reclaims the volume by its policy.
    async fn release(&self, volume: &PersistentVolume, context: Context<'_>) -> Result<(), Error> {
        let volume = match volume.status.phase.as_str() {
            "Released" | "Failed" => volume.clone(),
            _ => set_volume_phase(volume, "Released", "", context.api).await?,
        };
        match volume.spec.persistent_volume_reclaim_policy.as_str() {
            "Retain" => {}
            "Recycle" => {
                let message = "No recycler plugin found for the volume!";
                fail_volume(&volume, "VolumeFailedRecycle", message, context).await?;
            }
            "Delete" => delete(&volume, context).await?,
            _ => {
                let message = "Volume has an unrecognized reclaim policy";
                fail_volume(&volume, "VolumeUnknownReclaimPolicy", message, context).await?;
            }
        }
        Ok(())
    }
}

/// An external provisioner deletes the volumes it created; a volume without one cannot be deleted here.
async fn delete(volume: &PersistentVolume, context: Context<'_>) -> Result<(), Status> {
    let provisioner = volume.metadata.annotations.get(PROVISIONED_BY_ANNOTATION);
    let external = provisioner.is_some_and(|provisioner| !provisioner.starts_with("kubernetes.io/"));
    if external || volume.spec.csi.is_some() {
        return Ok(());
    }
    let name = &volume.metadata.name;
    let message =
        format!("error getting deleter volume plugin for volume {name:?}: no deletable volume plugin matched");
    fail_volume(volume, "VolumeFailedDelete", &message, context).await
}
