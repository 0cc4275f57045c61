//! Assumed volumes and claims: versions that the scheduler will write in PreBind. Upstream's `assumecache`.
//!
//! An assumed version replaces the stored object as long as the stored version is the one it was made from. Any newer
//! version ends the assumption.

use std::sync::Arc;

use bayplan_model::decision_log::Undone;
use bayplan_model::keyed::KeyedMap;
use bayplan_model::meta::ObjectMeta;
use bayplan_model::storage::{PersistentVolume, PersistentVolumeClaim};

use super::{ClaimKey, Cluster, Object, Objects};

/// Assumed versions of volumes by name, and of claims by `namespace/name`.
#[derive(Clone, Debug, Default)]
pub(super) struct AssumedVolumes {
    volumes: KeyedMap<String, Arc<PersistentVolume>>,
    claims: KeyedMap<String, Arc<PersistentVolumeClaim>>,
    /// Outdated versions are removed when there are twice as many entries as the last sweep left.
    left_by_sweep: usize,
}

/// Why a version cannot be assumed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum AssumeError {
    /// The object is gone.
    #[error("could not find {kind} {name:?}")]
    Missing {
        /// The object's kind.
        kind: &'static str,
        /// The object's `namespace/name`.
        name: String,
    },
    /// The object has changed since it was read.
    #[error("{name:?} is out of sync (stored: {stored}, assume: {assumed})")]
    OutOfSync {
        /// The object's `namespace/name`.
        name: String,
        /// The stored `resourceVersion`.
        stored: String,
        /// The `resourceVersion` of the assumed version.
        assumed: String,
    },
}

impl AssumedVolumes {
    /// The assumed version of a stored volume, or the stored one.
    pub(super) fn as_assumed<'a>(&'a self, stored: &'a Arc<PersistentVolume>) -> &'a Arc<PersistentVolume> {
        let assumed = self.volumes.get(&stored.metadata.name);
        assumed.filter(|assumed| is_current(&stored.metadata, &assumed.metadata)).unwrap_or(stored)
    }

    fn sweep(&mut self, objects: &Objects) {
        if self.volumes.len() + self.claims.len() < 2 * self.left_by_sweep.max(64) {
            return;
        }
        self.volumes.retain(|_, assumed| {
            let stored = objects.persistent_volumes.get("", &assumed.metadata.name);
            stored.is_some_and(|stored| is_current(&stored.metadata, &assumed.metadata))
        });
        self.claims.retain(|_, assumed| {
            let meta = &assumed.metadata;
            let stored = objects.persistent_volume_claims.get(&meta.namespace, &meta.name);
            stored.is_some_and(|stored| is_current(&stored.metadata, meta))
        });
        self.left_by_sweep = self.volumes.len() + self.claims.len();
    }
}

impl Objects {
    fn sweep_assumed(&mut self) {
        let mut assumed = std::mem::take(&mut self.assumed_volumes);
        assumed.sweep(self);
        self.assumed_volumes = assumed;
    }
}

fn is_current(stored: &ObjectMeta, assumed: &ObjectMeta) -> bool {
    stored.resource_version == assumed.resource_version && stored.uid == assumed.uid
}

fn check(kind: &'static str, stored: Option<&ObjectMeta>, assumed: &ObjectMeta) -> Result<(), AssumeError> {
    match stored {
        None => Err(AssumeError::Missing { kind, name: assumed.key() }),
        Some(stored) if !is_current(stored, assumed) => Err(AssumeError::OutOfSync {
            name: assumed.key(),
            stored: stored.resource_version.clone(),
            assumed: assumed.resource_version.clone(),
        }),
        Some(_) => Ok(()),
    }
}

impl Cluster {
    /// A volume by name; the assumed version if there is one.
    pub fn persistent_volume(&self, name: &str) -> Option<&Arc<PersistentVolume>> {
        self.objects.storage.volume(name).map(|known| &known.volume)
    }

    /// All volumes; the assumed versions where there are any.
    pub fn persistent_volumes(&self) -> impl Iterator<Item = &Arc<PersistentVolume>> {
        self.objects.persistent_volumes.iter().map(|stored| self.objects.assumed_volumes.as_assumed(stored))
    }

    /// A claim by name; the assumed version if there is one.
    pub fn persistent_volume_claim(&self, namespace: &str, name: &str) -> Option<&Arc<PersistentVolumeClaim>> {
        let stored = self.objects.persistent_volume_claims.get(namespace, name)?;
        let claims = &self.objects.assumed_volumes.claims;
        if claims.is_empty() {
            return Some(stored);
        }
        let assumed = claims.get(&stored.metadata.key());
        Some(assumed.filter(|assumed| is_current(&stored.metadata, &assumed.metadata)).unwrap_or(stored))
    }

    /// The assumed versions that are current, as objects; in no order.
    pub(crate) fn assumed_volumes(&self) -> impl Iterator<Item = Object> {
        let AssumedVolumes { volumes, claims, .. } = &self.objects.assumed_volumes;
        let volumes = volumes.values().filter(|assumed| {
            let stored = self.objects.persistent_volumes.get("", &assumed.metadata.name);
            stored.is_some_and(|stored| is_current(&stored.metadata, &assumed.metadata))
        });
        let claims = claims.values().filter(|assumed| {
            let meta = &assumed.metadata;
            let stored = self.objects.persistent_volume_claims.get(&meta.namespace, &meta.name);
            stored.is_some_and(|stored| is_current(&stored.metadata, meta))
        });
        let volumes = volumes.cloned().map(Object::PersistentVolume);
        volumes.chain(claims.cloned().map(Object::PersistentVolumeClaim))
    }

    /// Assumes a volume: `volume` is what it will be, with the `resourceVersion` it was read at.
    pub fn assume_volume(&mut self, volume: Arc<PersistentVolume>) -> Result<(), AssumeError> {
        let stored = self.objects.persistent_volumes.get("", &volume.metadata.name);
        check("v1.PersistentVolume", stored.map(|s| &s.metadata), &volume.metadata)?;
        self.objects.sweep_assumed();
        let name = volume.metadata.name.clone();
        self.objects.assumed_volumes.volumes.insert(name.clone(), volume);
        self.objects.index_volume(&name);
        Ok(())
    }

    /// Assumes a claim: `claim` is what it will be, with the `resourceVersion` it was read at.
    pub fn assume_claim(&mut self, claim: Arc<PersistentVolumeClaim>) -> Result<(), AssumeError> {
        let stored = self.objects.persistent_volume_claims.get(&claim.metadata.namespace, &claim.metadata.name);
        check("v1.PersistentVolumeClaim", stored.map(|s| &s.metadata), &claim.metadata)?;
        self.objects.sweep_assumed();
        self.objects.assumed_volumes.claims.insert(claim.metadata.key(), claim);
        Ok(())
    }

    /// Takes back an assumed version, unless another one has replaced it.
    pub fn restore_volume(&mut self, assumed: &Arc<PersistentVolume>) {
        let volumes = &self.objects.assumed_volumes.volumes;
        if volumes.get(&assumed.metadata.name).is_some_and(|known| Arc::ptr_eq(known, assumed)) {
            self.drop_assumed_volume(&assumed.metadata.name);
            self.released.volumes.push(assumed.metadata.name.clone());
        }
    }

    /// Takes back an assumed version, unless another one has replaced it.
    pub fn restore_claim(&mut self, assumed: &Arc<PersistentVolumeClaim>) {
        let claims = &mut self.objects.assumed_volumes.claims;
        let key = assumed.metadata.key();
        if claims.get(&key).is_some_and(|known| Arc::ptr_eq(known, assumed)) {
            claims.remove(&key);
            self.released.claims.push(key);
        }
    }

    fn drop_assumed_volume(&mut self, name: &str) {
        self.objects.assumed_volumes.volumes.remove(name);
        self.objects.index_volume(name);
    }

    /// What was taken back since the last call: assumed volumes and claims, and allocations of devices.
    pub(crate) fn take_released(&mut self) -> Undone {
        std::mem::take(&mut self.released)
    }

    /// Takes back what a record says was taken back.
    pub(crate) fn release(&mut self, released: &Undone) {
        released.volumes.iter().for_each(|name| self.drop_assumed_volume(name));
        for claim in &released.claims {
            self.objects.assumed_volumes.claims.remove(claim);
        }
        released.devices.iter().for_each(|owner| self.end_allocation(&ClaimKey::from(owner)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(version: &str, class: &str) -> Arc<PersistentVolume> {
        let mut volume = PersistentVolume::default();
        volume.metadata.name = "v".into();
        volume.metadata.resource_version = version.into();
        volume.spec.storage_class_name = class.into();
        Arc::new(volume)
    }

    #[test]
    fn an_assumed_version_is_seen_until_the_stored_version_changes_or_it_is_taken_back() {
        let mut cluster = Cluster::new();
        let seen = |cluster: &Cluster| cluster.persistent_volume("v").map(|v| v.spec.storage_class_name.clone());
        assert_eq!(
            cluster.assume_volume(volume("1", "assumed")),
            Err(AssumeError::Missing { kind: "v1.PersistentVolume", name: "v".into() })
        );
        cluster.objects.store(&Object::PersistentVolume(volume("1", "stored")));
        let assumed = volume("1", "assumed");
        cluster.assume_volume(assumed.clone()).unwrap();
        assert_eq!(seen(&cluster).as_deref(), Some("assumed"));
        cluster.restore_volume(&volume("1", "another"));
        assert_eq!(seen(&cluster).as_deref(), Some("assumed"));
        cluster.restore_volume(&assumed);
        assert_eq!(seen(&cluster).as_deref(), Some("stored"));
        cluster.assume_volume(assumed).unwrap();
        cluster.objects.store(&Object::PersistentVolume(volume("2", "newer")));
        assert_eq!(seen(&cluster).as_deref(), Some("newer"));
        assert_eq!(
            cluster.assume_volume(volume("1", "late")).unwrap_err().to_string(),
            r#""v" is out of sync (stored: 2, assume: 1)"#
        );
    }
}
