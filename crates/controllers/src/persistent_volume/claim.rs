//! Reconciles a claim; upstream's `syncClaim`.

use std::collections::BTreeMap;

use bayplan_model::storage::{
    BETA_STORAGE_PROVISIONER_ANNOTATION, BIND_COMPLETED_ANNOTATION, BOUND_BY_CONTROLLER_ANNOTATION,
    PersistentVolumeClaim, SELECTED_NODE_ANNOTATION, STORAGE_PROVISIONER_ANNOTATION, StorageClass,
    WAIT_FOR_FIRST_CONSUMER,
};
use serde_json::json;

use super::PersistentVolumeController;
use super::bind::{bind, change_claim, lose_claim, of_claim, set_claim_phase};
use super::matching;
use crate::controller::Context;
use crate::error::Error;

impl PersistentVolumeController {
    pub(super) async fn sync_claim(&self, claim: &PersistentVolumeClaim, context: Context<'_>) -> Result<(), Error> {
        if claim.metadata.annotations.contains_key(BIND_COMPLETED_ANNOTATION) {
            self.sync_bound(claim, context).await
        } else if claim.spec.volume_name.is_empty() {
            self.sync_searching(claim, context).await
        } else {
            self.sync_choosing(claim, context).await
        }
    }

    /// A claim that was bound once stays bound or becomes `Lost`.
    async fn sync_bound(&self, claim: &PersistentVolumeClaim, context: Context<'_>) -> Result<(), Error> {
        let gone = "Data on the volume is lost!";
        if claim.spec.volume_name.is_empty() {
            let message = format!("Bound claim has lost reference to PersistentVolume. {gone}");
            return Ok(lose_claim(claim, "ClaimLost", &message, context).await?);
        }
        let volume = self.cache.volumes().get("", &claim.spec.volume_name);
        let Some(volume) = volume else {
            let message = format!("Bound claim has lost its PersistentVolume. {gone}");
            return Ok(lose_claim(claim, "ClaimLost", &message, context).await?);
        };
        if volume.spec.claim_ref.as_ref().is_none_or(|to| to.uid == claim.metadata.uid) {
            return bind(&volume, claim, context).await;
        }
        let message = "Two claims are bound to the same volume, this one is bound incorrectly";
        Ok(lose_claim(claim, "ClaimMisbound", message, context).await?)
    }

    /// A claim that takes any matching volume.
    async fn sync_searching(&self, claim: &PersistentVolumeClaim, context: Context<'_>) -> Result<(), Error> {
        let class = self.cache.storage_classes().get("", claim.class());
        let by_pod =
            class.as_ref().is_some_and(|class| class.volume_binding_mode.as_deref() == Some(WAIT_FOR_FIRST_CONSUMER));
        let waits = by_pod && !claim.metadata.annotations.contains_key(SELECTED_NODE_ANNOTATION);
        let found = matching::find(claim, self.cache.volumes().all(), waits);
        if let Some(volume) = found {
            return bind(&volume, claim, context).await;
        }
        if waits {
            self.record_waiting(claim, context);
        } else if !claim.class().is_empty() {
            self.provision(claim, class.as_deref(), context).await?;
            return Ok(());
        } else {
            let note = "no persistent volumes available for this claim and no storage class is set";
            context.normal(of_claim(claim), "FailedBinding", note.into());
        }
        set_claim_phase(claim, "Pending", None, context.api).await?;
        Ok(())
    }

    fn record_waiting(&self, claim: &PersistentVolumeClaim, context: Context<'_>) {
        let meta = &claim.metadata;
        let mut pods: Vec<String> = {
            let pods = self.cache.pods();
            let uses = pods
                .namespace(&meta.namespace)
                .filter(|pod| !pod.is_terminal() && pod.claim_names().any(|name| name == meta.name));
            uses.map(|pod| pod.metadata.name.clone()).collect()
        };
        pods.sort();
        let (reason, note) = match pods.as_slice() {
            [] => ("WaitForFirstConsumer", "waiting for first consumer to be created before binding".into()),
            [pod] => ("WaitForPodScheduled", format!("waiting for pod {pod} to be scheduled")),
            pods => ("WaitForPodScheduled", format!("waiting for pod {} to be scheduled", pods.join(","))),
        };
        context.normal(of_claim(claim), reason, note);
    }

    /// Asks the provisioner of the claim's class for a volume, which is created outside of this controller.
    async fn provision(
        &self,
        claim: &PersistentVolumeClaim,
        class: Option<&StorageClass>,
        context: Context<'_>,
    ) -> Result<(), Error> {
        let Some(class) = class else {
            let error = format!("storageclass.storage.k8s.io {:?} not found", claim.class());
            context.warning(of_claim(claim), "ProvisioningFailed", error.clone());
            return Err(Error::Invalid(error));
        };
        let provisioner = class.provisioner.as_str();
        if provisioner.starts_with("kubernetes.io/") {
            let error = format!("no volume plugin matched name: {provisioner}");
            context.warning(of_claim(claim), "ProvisioningFailed", error.clone());
            return Err(Error::Invalid(error));
        }
        let asked = [BETA_STORAGE_PROVISIONER_ANNOTATION, STORAGE_PROVISIONER_ANNOTATION];
        let says = |name: &&str| claim.metadata.annotations.get(name).is_some_and(|value| value == provisioner);
        let claim = if asked.iter().all(says) {
            claim.clone()
        } else {
            let annotations: BTreeMap<&str, &str> = asked.iter().map(|name| (*name, provisioner)).collect();
            change_claim(claim, json!({"metadata": {"annotations": annotations}}), context.api).await?
        };
        let note = format!(
            "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the \
             system administrator. If volume creation is delayed, please verify that the provisioner is running and \
             correctly registered."
        );
        context.normal(of_claim(&claim), "ExternalProvisioning", note);
        set_claim_phase(&claim, "Pending", None, context.api).await?;
        Ok(())
    }

    /// A claim that names its volume.
    async fn sync_choosing(&self, claim: &PersistentVolumeClaim, context: Context<'_>) -> Result<(), Error> {
        let volume = self.cache.volumes().get("", &claim.spec.volume_name);
        let name = &claim.spec.volume_name;
        if let Some(volume) = volume {
            let why = match &volume.spec.claim_ref {
                None => matching::mismatch(claim, &volume)
                    .map(|why| ("VolumeMismatch", format!("Cannot bind to requested volume {name:?}: {why}"))),
                Some(_) if volume.is_reserved_for(claim) => None,
                Some(to) if claim.metadata.annotations.contains_key(BOUND_BY_CONTROLLER_ANNOTATION) => {
                    let (key, other) = (claim.metadata.key(), format!("{}/{}", to.namespace, to.name));
                    return Err(Error::Invalid(format!(
                        "invalid binding of claim {key:?} to volume {name:?}: volume already claimed by {other:?}"
                    )));
                }
                Some(_) => Some(("FailedBinding", format!("volume {name:?} already bound to a different claim."))),
            };
            match why {
                None => return bind(&volume, claim, context).await,
                Some((reason, note)) => context.warning(of_claim(claim), reason, note),
            }
        }
        set_claim_phase(claim, "Pending", None, context.api).await?;
        Ok(())
    }
}
