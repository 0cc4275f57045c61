//! Devices that are taken: by claims the API server knows to be allocated, and by allocations on their way to it.
//!
//! An allocation in flight is an overlay: it counts until the claim it is for is seen with an allocation of its own,
//! or until it is taken back.

use std::sync::Arc;

use bayplan_model::resource_claim::{AllocationResult, DeviceResult, ResourceClaim};
use bayplan_model::resource_slice::DeviceClass;
use rustc_hash::FxHashMap;

use super::Cluster;

/// The annotation of a claim that stands for the extended resources of its pod.
pub const EXTENDED_RESOURCE_CLAIM_ANNOTATION: &str = "resource.kubernetes.io/extended-resource-claim";
/// Every class can be asked for as an extended resource of this prefix and its name.
pub const DEVICE_CLASS_PREFIX: &str = "deviceclass.resource.kubernetes.io/";

/// Whose allocation it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ClaimKey {
    /// A claim, by namespace, name and UID.
    Claim(String, String, String),
    /// The claim that will be made for the extended resources of a pod, by the pod's namespace and UID.
    ExtendedResources(String, String),
}

impl ClaimKey {
    /// The key of a claim the API server knows.
    pub fn of(claim: &ResourceClaim) -> Self {
        let meta = &claim.metadata;
        ClaimKey::Claim(meta.namespace.clone(), meta.name.clone(), meta.uid.clone())
    }
}

/// Allocations on their way to the API server.
#[derive(Clone, Debug, Default)]
pub struct InFlightClaims(FxHashMap<ClaimKey, Arc<AllocationResult>>);

impl Cluster {
    /// Counts devices as taken for a claim.
    pub fn allocate_claim(&mut self, key: ClaimKey, allocation: Arc<AllocationResult>) {
        let mut in_flight = std::mem::take(&mut self.in_flight_claims);
        in_flight.0.retain(|key, _| self.is_pending(key));
        in_flight.0.insert(key, allocation);
        self.in_flight_claims = in_flight;
    }

    /// Takes an allocation in flight back.
    pub fn deallocate_claim(&mut self, key: &ClaimKey) {
        self.in_flight_claims.0.remove(key);
    }

    /// The API server knows of an allocation: it is no longer in flight, and counts no more when it is taken back there.
    pub(crate) fn settle_claim(&mut self, claim: &ResourceClaim) {
        if claim.status.allocation.is_none() || self.in_flight_claims.0.is_empty() {
            return;
        }
        self.in_flight_claims.0.remove(&ClaimKey::of(claim));
        let meta = &claim.metadata;
        if let Some(owner) =
            meta.controller().filter(|_| meta.annotations.contains_key(EXTENDED_RESOURCE_CLAIM_ANNOTATION))
        {
            let key = ClaimKey::ExtendedResources(meta.namespace.clone(), owner.uid.clone());
            self.in_flight_claims.0.remove(&key);
        }
    }

    /// True while an allocation for the claim is on its way to the API server.
    pub fn is_in_flight(&self, claim: &ResourceClaim) -> bool {
        let key = ClaimKey::of(claim);
        self.in_flight_claims.0.contains_key(&key) && self.is_pending(&key)
    }

    /// Every device that a claim has, in flight or known.
    pub fn taken_devices(&self) -> impl Iterator<Item = &DeviceResult> {
        let known = self.objects.resource_claims.iter().filter_map(|claim| claim.status.allocation.as_ref());
        let in_flight = self.in_flight_claims.0.iter().filter(|(key, _)| self.is_pending(key)).map(|(_, a)| &**a);
        known.chain(in_flight).flat_map(|allocation| &allocation.devices.results)
    }

    /// False once the API server knows of the allocation, or the claim is gone.
    fn is_pending(&self, key: &ClaimKey) -> bool {
        match key {
            ClaimKey::Claim(namespace, name, uid) => {
                let claim = self.objects.resource_claims.get(namespace, name);
                claim.is_some_and(|claim| claim.metadata.uid == *uid && claim.status.allocation.is_none())
            }
            ClaimKey::ExtendedResources(namespace, pod) => {
                let claim = self.extended_resource_claim(namespace, pod);
                claim.is_none_or(|claim| claim.status.allocation.is_none())
            }
        }
    }

    /// The claim that stands for the extended resources of a pod.
    pub fn extended_resource_claim(&self, namespace: &str, pod_uid: &str) -> Option<&Arc<ResourceClaim>> {
        self.objects.resource_claims.in_namespace(namespace).find(|claim| {
            let meta = &claim.metadata;
            meta.annotations.get(EXTENDED_RESOURCE_CLAIM_ANNOTATION).is_some_and(|value| value == "true")
                && meta.controller().is_some_and(|owner| owner.uid == pod_uid)
        })
    }

    /// The class whose devices stand behind an extended resource; the newest when several say so.
    pub fn class_of_extended_resource(&self, resource: &str) -> Option<&Arc<DeviceClass>> {
        if let Some(class) = resource.strip_prefix(DEVICE_CLASS_PREFIX) {
            return self.objects.device_classes.get("", class);
        }
        let named = self.objects.device_classes.iter();
        let named = named.filter(|class| class.spec.extended_resource_name.as_deref() == Some(resource));
        // Classes come by name, so the first of equally old ones has the smallest name.
        named.reduce(
            |best, class| {
                if class.metadata.creation_timestamp > best.metadata.creation_timestamp { class } else { best }
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::Object;

    #[test]
    fn an_allocation_that_was_seen_and_taken_back_leaves_its_devices_free() {
        let claim = |allocation: serde_json::Value| -> Arc<ResourceClaim> {
            let metadata = json!({"name": "c", "namespace": "ns", "uid": "u"});
            Arc::new(
                serde_json::from_value(json!({"metadata": metadata, "status": {"allocation": allocation}})).unwrap(),
            )
        };
        let devices = json!({"devices": {"results": [{"driver": "d", "pool": "p", "device": "x"}]}});
        let (free, allocated) = (claim(serde_json::Value::Null), claim(devices));
        let mut cluster = Cluster::default();
        let see = |cluster: &mut Cluster, claim: &Arc<ResourceClaim>| {
            cluster.objects.store(&Object::ResourceClaim(claim.clone()));
            cluster.settle_claim(claim);
            cluster.taken_devices().count()
        };
        assert_eq!(see(&mut cluster, &free), 0);
        cluster.allocate_claim(ClaimKey::of(&free), Arc::new(allocated.status.allocation.clone().unwrap()));
        assert_eq!(see(&mut cluster, &free), 1, "in flight");
        assert_eq!(see(&mut cluster, &allocated), 1, "seen");
        assert_eq!(see(&mut cluster, &free), 0, "taken back");
    }
}
