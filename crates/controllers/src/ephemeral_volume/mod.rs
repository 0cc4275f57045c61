//! Creates the claims of pods' ephemeral volumes: named after the pod and owned by it, so that they are deleted with
//! it.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use bayplan_model::delta::Delta;
use bayplan_model::meta::PartialObjectMetadata;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::cache::{AnyDelta, Cache, Kind};
use crate::controller::{Context, Controller, Requeue, Wakeup, split_key};
use crate::error::Error;
use crate::pod::{EphemeralVolume, Pod};
use crate::requests::{self, PERSISTENT_VOLUME_CLAIMS};
use crate::workload::{controller_reference, event_reference};

/// The ephemeral volume controller.
pub struct EphemeralVolumeController {
    cache: Arc<Cache>,
}

impl EphemeralVolumeController {
    /// A controller over this cache.
    pub fn new(cache: Arc<Cache>) -> Self {
        EphemeralVolumeController { cache }
    }

    async fn reconcile(&self, key: &str, context: Context<'_>) -> Result<Requeue, Error> {
        let (namespace, name) = split_key(key);
        let pod = self.cache.pods().get(namespace, name);
        let Some(pod) = pod.filter(|pod| pod.metadata.deletion_timestamp.is_none()) else {
            return Ok(Requeue::OnChange);
        };
        for volume in &pod.ephemeral_volumes {
            if let Err(error) = self.make(&pod, volume, context).await {
                let why = format!("ephemeral volume {}: {error}", volume.name);
                context.warning(event_reference("v1", "Pod", &pod.metadata), "FailedBinding", why.clone());
                return Err(Error::Invalid(format!("pod {key}, {why}")));
            }
        }
        Ok(Requeue::OnChange)
    }

    async fn make(&self, pod: &Pod, volume: &EphemeralVolume, context: Context<'_>) -> Result<(), Error> {
        let (namespace, name) = (&pod.metadata.namespace, &volume.claim);
        let known = self.cache.volume_claims().get(namespace, name);
        if let Some(claim) = known {
            // A claim of that name with another owner is not used: the pod would see foreign data.
            return match claim.metadata.controller().is_some_and(|owner| owner.uid == pod.metadata.uid) {
                true => Ok(()),
                false => Err(Error::Invalid(format!(
                    "PVC {namespace}/{name} was not created for pod {} (pod is not owner)",
                    pod.metadata.key()
                ))),
            };
        }
        let created = requests::create(context.api, &PERSISTENT_VOLUME_CLAIMS, namespace, &claim(pod, volume)).await;
        let _: PartialObjectMetadata =
            created.map_err(|status| Error::Invalid(format!("create PVC {name}: {status}")))?;
        Ok(())
    }
}

fn claim(pod: &Pod, volume: &EphemeralVolume) -> Value {
    let template = &volume.template;
    let mut metadata = json!({
        "name": volume.claim, "ownerReferences": [controller_reference("v1", "Pod", &pod.metadata)],
    });
    for (field, map) in [("labels", &template.metadata.labels), ("annotations", &template.metadata.annotations)] {
        if !map.is_empty() {
            metadata[field] = json!(map);
        }
    }
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": template.spec})
}

fn key_of(pod: &Pod) -> Option<Wakeup> {
    let due = !pod.ephemeral_volumes.is_empty() && pod.metadata.deletion_timestamp.is_none();
    due.then(|| Wakeup::now(pod.metadata.key()))
}

impl Controller for EphemeralVolumeController {
    fn name(&self) -> &'static str {
        "ephemeral-volume-controller"
    }

    fn component(&self) -> &'static str {
        "ephemeral_volume"
    }

    fn watches(&self) -> &'static [Kind] {
        &[Kind::Pod, Kind::VolumeClaim]
    }

    fn observe(&self, delta: &AnyDelta) -> Vec<Wakeup> {
        match delta {
            // The volumes of a pod never change.
            AnyDelta::Pod(Delta::Added(pod)) => key_of(pod).into_iter().collect(),
            // A pod whose claim was deleted gets another one.
            AnyDelta::VolumeClaim(Delta::Deleted(claim)) => {
                let pods = self.cache.pods();
                let uses = |pod: &&Arc<Pod>| pod.claim_names().any(|name| name == claim.metadata.name);
                pods.namespace(&claim.metadata.namespace).filter(uses).filter_map(|pod| key_of(pod)).collect()
            }
            _ => Vec::new(),
        }
    }

    fn sync<'a>(&'a self, key: &'a str, context: Context<'a>) -> BoxFuture<'a, Result<Requeue, Error>> {
        Box::pin(self.reconcile(key, context))
    }
}
