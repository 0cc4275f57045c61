//! The PersistentVolume binder: binds claims to volumes and keeps the phases of both.
//!
//! ```text
//!   claim, unbound ─▶ a free volume of its class? ─▶ bind (volume, its phase, claim, its phase)
//!                        └ none ─▶ wait for its first consumer, or ask the provisioner of its class
//!   claim, bound ───▶ its volume is gone, or another's ─▶ Lost
//!   volume ─────────▶ its claim is gone ─▶ Released ─▶ reclaim
//! ```
//!
//! A claim that waits for its first consumer is bound by the scheduler's choice: it reserves a volume (`claimRef`) or
//! names a node (`volume.kubernetes.io/selected-node`), and this controller does the rest.

mod bind;
mod claim;
mod matching;
mod volume;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use bayplan_model::delta::Delta;
use bayplan_model::storage::{PersistentVolume, PersistentVolumeClaim};
use futures::future::BoxFuture;

use crate::cache::{AnyDelta, Cache, Kind};
use crate::controller::{Context, Controller, Requeue, Wakeup, split_key};
use crate::error::Error;

/// The PersistentVolume binder.
pub struct PersistentVolumeController {
    cache: Arc<Cache>,
}

impl PersistentVolumeController {
    /// A controller over this cache.
    pub fn new(cache: Arc<Cache>) -> Self {
        PersistentVolumeController { cache }
    }

    async fn reconcile(&self, key: &str, context: Context<'_>) -> Result<Requeue, Error> {
        let (kind, rest) = split_key(key);
        match kind {
            "claim" => {
                let (namespace, name) = split_key(rest);
                let claim = self.cache.volume_claims().get(namespace, name);
                if let Some(claim) = claim {
                    self.sync_claim(&claim, context).await?;
                }
            }
            "volume" => {
                let volume = self.cache.volumes().get("", rest);
                if let Some(volume) = volume {
                    self.sync_volume(&volume, context).await?;
                }
            }
            _ => {}
        }
        Ok(Requeue::OnChange)
    }

    /// The keys of the unbound claims that may have a volume now.
    fn unbound(&self, wanted: impl Fn(&PersistentVolumeClaim) -> bool) -> Vec<Wakeup> {
        let claims = self.cache.volume_claims();
        let unbound = claims.all().filter(|claim| !claim.is_fully_bound() && wanted(claim));
        unbound.map(|claim| claim_key(&claim.metadata.namespace, &claim.metadata.name)).collect()
    }

    fn observe_volume(&self, delta: &Delta<Arc<PersistentVolume>>) -> Vec<Wakeup> {
        let (volume, gone) = match delta {
            Delta::Added(volume) | Delta::Updated { new: volume, .. } => (volume, false),
            Delta::Deleted(volume) => (volume, true),
        };
        let mut keys: Vec<Wakeup> = (!gone).then(|| volume_key(&volume.metadata.name)).into_iter().collect();
        match &volume.spec.claim_ref {
            Some(to) => keys.push(claim_key(&to.namespace, &to.name)),
            None if !gone && matching::is_free(volume) => {
                keys.extend(self.unbound(|claim| {
                    claim.class() == volume.class() || claim.spec.volume_name == volume.metadata.name
                }));
            }
            None => {}
        }
        keys
    }

    fn observe_claim(&self, delta: &Delta<Arc<PersistentVolumeClaim>>) -> Vec<Wakeup> {
        let (claim, gone) = match delta {
            Delta::Added(claim) | Delta::Updated { new: claim, .. } => (claim, false),
            Delta::Deleted(claim) => (claim, true),
        };
        let meta = &claim.metadata;
        let mut keys: Vec<Wakeup> = (!gone).then(|| claim_key(&meta.namespace, &meta.name)).into_iter().collect();
        if !claim.spec.volume_name.is_empty() {
            keys.push(volume_key(&claim.spec.volume_name));
        }
        keys
    }
}

fn claim_key(namespace: &str, name: &str) -> Wakeup {
    Wakeup::now(format!("claim/{namespace}/{name}"))
}

fn volume_key(name: &str) -> Wakeup {
    Wakeup::now(format!("volume/{name}"))
}

impl Controller for PersistentVolumeController {
    fn name(&self) -> &'static str {
        "persistentvolume-binder-controller"
    }

    fn component(&self) -> &'static str {
        "persistentvolume-controller"
    }

    fn watches(&self) -> &'static [Kind] {
        &[Kind::Volume, Kind::VolumeClaim, Kind::StorageClass, Kind::Pod]
    }

    /// One: two claims reconciled at the same time could both get the same volume.
    fn workers(&self) -> usize {
        1
    }

    fn observe(&self, delta: &AnyDelta) -> Vec<Wakeup> {
        match delta {
            AnyDelta::Volume(delta) => self.observe_volume(delta),
            AnyDelta::VolumeClaim(delta) => self.observe_claim(delta),
            AnyDelta::StorageClass(Delta::Added(class)) => self.unbound(|claim| claim.class() == class.metadata.name),
            _ => Vec::new(),
        }
    }

    fn sync<'a>(&'a self, key: &'a str, context: Context<'a>) -> BoxFuture<'a, Result<Requeue, Error>> {
        Box::pin(self.reconcile(key, context))
    }
}
