//! Tells whoever enlarged a claim that an external controller has to make its volume larger: no volume is enlarged by
//! the control plane itself any more.

#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::sync::Arc;

use bayplan_model::delta::Delta;
use bayplan_model::quantity::Quantity;
use bayplan_model::storage::{PersistentVolume, PersistentVolumeClaim};
use futures::future::BoxFuture;
use serde_json::json;

use crate::cache::{AnyDelta, Cache, Kind};
use crate::controller::{Context, Controller, Requeue, Wakeup, split_key};
use crate::error::Error;
use crate::node::patch_status;
use crate::requests::{self, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES};
use crate::workload::event_reference;

/// The annotation of a volume that was enlarged before its file system is.
const PRE_RESIZE: &str = "volume.alpha.kubernetes.io/pre-resize-capacity";
/// The annotation that says who enlarges a claim's volume.
const RESIZER: &str = "volume.kubernetes.io/storage-resizer";

const STORAGE: &str = "storage";
const EXPANDING: &str = "ExternalExpanding";

/// The volume expander.
pub struct VolumeExpansionController {
    cache: Arc<Cache>,
}

/// The former plugin of a volume, and the CSI driver that is in its place.
fn migrated(volume: &PersistentVolume) -> Option<(&'static str, &'static str)> {
    let spec = &volume.spec;
    let plugins = [
        (spec.aws_elastic_block_store.is_some(), "kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
        (spec.gce_persistent_disk.is_some(), "kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
        (spec.cinder.is_some(), "kubernetes.io/cinder", "cinder.csi.openstack.org"),
        (spec.azure_disk.is_some(), "kubernetes.io/azure-disk", "disk.csi.azure.com"),
        (spec.azure_file.is_some(), "kubernetes.io/azure-file", "file.csi.azure.com"),
        (spec.vsphere_volume.is_some(), "kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com"),
        (spec.portworx_volume.is_some(), "kubernetes.io/portworx-volume", "pxd.portworx.com"),
    ];
    plugins.into_iter().find(|(is_one, ..)| *is_one).map(|(_, plugin, driver)| (plugin, driver))
}

fn requested(claim: &PersistentVolumeClaim) -> Option<Quantity> {
    claim.spec.resources.requests.get(STORAGE).cloned()
}

fn capacity(claim: &PersistentVolumeClaim) -> Option<Quantity> {
    claim.status.capacity.get(STORAGE).cloned()
}

/// Whether a quantity is above another; an absent one is zero.
fn exceeds(one: Option<Quantity>, other: Option<Quantity>) -> bool {
    let mut difference = one.unwrap_or_default();
    difference.sub(&other.unwrap_or_default());
    difference.sign().cmp(&0) == Ordering::Greater
}

impl VolumeExpansionController {
    /// A controller over this cache.
    pub fn new(cache: Arc<Cache>) -> Self {
        VolumeExpansionController { cache }
    }

    async fn reconcile(&self, key: &str, context: Context<'_>) -> Result<Requeue, Error> {
        let (namespace, name) = split_key(key);
        let Some(claim) = self.cache.volume_claims().get(namespace, name) else { return Ok(Requeue::OnChange) };
        let volume_name = &claim.spec.volume_name;
        let volume: PersistentVolume = requests::get(context.api, &PERSISTENT_VOLUMES, "", volume_name)
            .await
            .map_err(|why| Error::Step { doing: format!("failed to get PV {volume_name:?}"), why })?;
        let bound = volume.spec.claim_ref.as_ref();
        if !bound.is_some_and(|bound| bound.namespace == namespace && bound.uid == claim.metadata.uid) {
            return Err(Error::Invalid(format!("persistent Volume is not bound to PVC being updated : {key}")));
        }
        let enlarged = exceeds(requested(&claim), capacity(&claim));
        if !enlarged && !volume.metadata.annotations.contains_key(PRE_RESIZE) {
            return Ok(Requeue::OnChange);
        }
        let regarding = || event_reference("v1", "PersistentVolumeClaim", &claim.metadata);
        let Some((plugin, driver)) = migrated(&volume) else {
            let note = "waiting for an external controller to expand this PVC".to_owned();
            // Whether somebody will is known of CSI volumes alone.
            match volume.spec.csi.is_some() {
                true => context.normal(regarding(), EXPANDING, note),
                false => context.warning(regarding(), EXPANDING, note),
            }
            return Ok(Requeue::OnChange);
        };
        let note = format!("CSI migration enabled for {plugin}; waiting for external resizer to expand the pvc");
        context.normal(regarding(), EXPANDING, note);
        if claim.metadata.annotations.get(RESIZER).is_none_or(|resizer| resizer != driver) {
            let meta = &claim.metadata;
            let metadata = json!({
                "uid": meta.uid, "resourceVersion": meta.resource_version, "annotations": {RESIZER: driver},
            });
            let patch = json!({"metadata": metadata});
            if let Err(why) = patch_status(context.api, &PERSISTENT_VOLUME_CLAIMS, meta, patch).await {
                let doing = format!("error setting resizer annotation to pvc {key}, with error");
                context.warning(regarding(), EXPANDING, format!("{doing} {why}"));
                return Err(why.into());
            }
        }
        Ok(Requeue::OnChange)
    }
}

impl Controller for VolumeExpansionController {
    fn name(&self) -> &'static str {
        "persistentvolume-expander-controller"
    }

    fn component(&self) -> &'static str {
        "volume_expand"
    }

    fn watches(&self) -> &'static [Kind] {
        &[Kind::VolumeClaim]
    }

    fn workers(&self) -> usize {
        10
    }

    fn observe(&self, delta: &AnyDelta) -> Vec<Wakeup> {
        let AnyDelta::VolumeClaim(delta) = delta else { return Vec::new() };
        let claim = match delta {
            Delta::Added(claim) | Delta::Deleted(claim) => claim,
            Delta::Updated { old, new } => {
                let grew = exceeds(requested(new), requested(old)) || exceeds(capacity(new), capacity(old));
                if !grew {
                    return Vec::new();
                }
                new
            }
        };
        let bound = claim.status.phase == "Bound";
        bound.then(|| Wakeup::now(claim.metadata.key())).into_iter().collect()
    }

    fn sync<'a>(&'a self, key: &'a str, context: Context<'a>) -> BoxFuture<'a, Result<Requeue, Error>> {
        Box::pin(self.reconcile(key, context))
    }
}
