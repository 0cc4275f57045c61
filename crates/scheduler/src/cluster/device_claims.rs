//! ResourceClaims: allocations that the API server knows, and allocations in flight to it.
//!
//! An allocation in flight counts until its claim arrives with an allocation, is deleted, or the allocation is taken
//! back.

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_model::decision_log::DeviceOwner;
use bayplan_model::keyed::KeyedMap;
use bayplan_model::resource_claim::{AllocationResult, DeviceResult, ResourceClaim};
use bayplan_model::resource_slice::DeviceClass;

use super::Cluster;

/// The annotation of a claim for the extended resources of its pod.
pub(crate) const EXTENDED_RESOURCE_CLAIM_ANNOTATION: &str = "resource.kubernetes.io/extended-resource-claim";
/// The prefix of the implicit extended resource of every DeviceClass.
pub(crate) const DEVICE_CLASS_PREFIX: &str = "deviceclass.resource.kubernetes.io/";

/// The claim of an allocation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ClaimKey {
    /// A claim, by namespace, name and UID.
    Claim(String, String, String),
    /// The claim that will be made for the extended resources of a pod, by the pod's namespace and UID.
    ExtendedResources(String, String),
}

impl ClaimKey {
    /// The key of an existing claim.
    pub fn of(claim: &ResourceClaim) -> Self {
        let meta = &claim.metadata;
        ClaimKey::Claim(meta.namespace.clone(), meta.name.clone(), meta.uid.clone())
    }
}

impl From<&ClaimKey> for DeviceOwner {
    fn from(key: &ClaimKey) -> Self {
        let (namespace, name, uid, pod_uid) = match key.clone() {
            ClaimKey::Claim(namespace, name, uid) => (namespace, name, uid, String::new()),
            ClaimKey::ExtendedResources(namespace, pod) => (namespace, String::new(), String::new(), pod),
        };
        DeviceOwner { namespace, name, uid, pod_uid }
    }
}

impl From<&DeviceOwner> for ClaimKey {
    fn from(owner: &DeviceOwner) -> Self {
        let DeviceOwner { namespace, name, uid, pod_uid } = owner.clone();
        match pod_uid.is_empty() {
            true => ClaimKey::Claim(namespace, name, uid),
            false => ClaimKey::ExtendedResources(namespace, pod_uid),
        }
    }
}

/// ResourceClaims and DeviceClasses, indexed; and allocations in flight.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeviceClaims {
    /// Allocations that the API server does not know yet.
    in_flight: KeyedMap<ClaimKey, Arc<AllocationResult>>,
    /// Claims for extended resources, by the pod's UID, then by namespace and name.
    extended: KeyedMap<String, BTreeMap<(String, String), Arc<ResourceClaim>>>,
    /// Classes by their extended resource, then by name.
    classes: KeyedMap<String, BTreeMap<String, Arc<DeviceClass>>>,
}

/// The UID of the pod whose extended resources a claim is for.
fn extended_owner(claim: &ResourceClaim) -> Option<&str> {
    let meta = &claim.metadata;
    let is_extended = meta.annotations.get(EXTENDED_RESOURCE_CLAIM_ANNOTATION).is_some_and(|value| value == "true");
    meta.controller().filter(|_| is_extended).map(|owner| owner.uid.as_str())
}

fn is_allocated(claim: &ResourceClaim) -> bool {
    claim.status.allocation.is_some()
}

impl DeviceClaims {
    fn of_pod(&self, namespace: &str, pod_uid: &str) -> Option<&Arc<ResourceClaim>> {
        let claims = self.extended.get(pod_uid)?;
        claims.iter().find(|((of, _), _)| of == namespace).map(|(_, claim)| claim)
    }

    pub(super) fn class_changed(&mut self, old: Option<&DeviceClass>, new: Option<&Arc<DeviceClass>>) {
        if let Some((old, resource)) = old.and_then(|old| Some((old, old.spec.extended_resource_name.as_deref()?)))
            && let Some(classes) = self.classes.get_mut(resource)
        {
            classes.remove(&old.metadata.name);
            if classes.is_empty() {
                self.classes.remove(resource);
            }
        }
        if let Some((new, resource)) = new.and_then(|new| Some((new, new.spec.extended_resource_name.clone()?))) {
            self.classes.entry(resource).or_default().insert(new.metadata.name.clone(), new.clone());
        }
    }

    /// Updates the indexes; allocations in flight that the change ends are returned.
    pub(super) fn claim_changed(
        &mut self,
        old: Option<&ResourceClaim>,
        new: Option<&Arc<ResourceClaim>>,
    ) -> Vec<Arc<AllocationResult>> {
        let key = |claim: &ResourceClaim| (claim.metadata.namespace.clone(), claim.metadata.name.clone());
        let mut owners = Vec::new();
        if let Some((old, owner)) = old.and_then(|old| Some((old, extended_owner(old)?)))
            && let Some(claims) = self.extended.get_mut(owner)
        {
            claims.remove(&key(old));
            if claims.is_empty() {
                self.extended.remove(owner);
            }
            owners.push(ClaimKey::ExtendedResources(old.metadata.namespace.clone(), owner.to_owned()));
        }
        if let Some((new, owner)) = new.and_then(|new| Some((new, extended_owner(new)?))) {
            self.extended.entry(owner.to_owned()).or_default().insert(key(new), new.clone());
            owners.push(ClaimKey::ExtendedResources(new.metadata.namespace.clone(), owner.to_owned()));
        }
        if self.in_flight.is_empty() {
            return Vec::new();
        }
        owners.retain(|key| match key {
            ClaimKey::ExtendedResources(namespace, uid) => self.of_pod(namespace, uid).is_some_and(|c| is_allocated(c)),
            ClaimKey::Claim(..) => true,
        });
        let waits = |uid: &str| new.is_some_and(|new| new.metadata.uid == uid && !is_allocated(new));
        let versions = old.into_iter().chain(new.map(|new| &**new));
        owners.extend(versions.filter(|claim| !waits(&claim.metadata.uid)).map(ClaimKey::of));
        owners.iter().filter_map(|key| self.in_flight.remove(key)).collect()
    }
}

impl Cluster {
    /// Counts the devices of an allocation in flight as in use, unless the claim is allocated or gone.
    pub fn allocate_claim(&mut self, key: ClaimKey, allocation: Arc<AllocationResult>) {
        self.end_allocation(&key);
        if self.is_pending(&key) {
            self.objects.devices.count(&allocation.devices.results, true);
            self.objects.claims.in_flight.insert(key, allocation);
        }
    }

    /// Takes back an allocation in flight.
    pub fn deallocate_claim(&mut self, key: &ClaimKey) {
        if self.objects.claims.in_flight.contains_key(key) {
            self.end_allocation(key);
            self.released.devices.push(key.into());
        }
    }

    pub(super) fn end_allocation(&mut self, key: &ClaimKey) {
        if let Some(allocation) = self.objects.claims.in_flight.remove(key) {
            self.objects.devices.count(&allocation.devices.results, false);
        }
    }

    /// True while an allocation for the claim is in flight.
    pub fn is_in_flight(&self, claim: &ResourceClaim) -> bool {
        let in_flight = &self.objects.claims.in_flight;
        !in_flight.is_empty() && in_flight.contains_key(&ClaimKey::of(claim))
    }

    /// The allocations in flight, in no order.
    pub(crate) fn allocations_in_flight(&self) -> impl Iterator<Item = (&ClaimKey, &Arc<AllocationResult>)> {
        self.objects.claims.in_flight.iter()
    }

    /// The claims whose allocation is in flight, as they will be.
    pub fn claims_in_flight(&self) -> impl Iterator<Item = ResourceClaim> {
        self.objects.claims.in_flight.iter().filter_map(|(key, allocation)| {
            let ClaimKey::Claim(namespace, name, _) = key else { return None };
            let mut claim = ResourceClaim::clone(self.objects.resource_claims.get(namespace, name)?);
            claim.status.allocation = Some(AllocationResult::clone(allocation));
            Some(claim)
        })
    }

    /// Every device in use, by allocations in flight and known ones.
    pub fn taken_devices(&self) -> impl Iterator<Item = &DeviceResult> {
        let known = self.objects.resource_claims.iter().filter_map(|claim| claim.status.allocation.as_ref());
        let in_flight = self.objects.claims.in_flight.values().map(|allocation| &**allocation);
        known.chain(in_flight).flat_map(|allocation| &allocation.devices.results)
    }

    /// True for a claim that exists and is not allocated.
    fn is_pending(&self, key: &ClaimKey) -> bool {
        match key {
            ClaimKey::Claim(namespace, name, uid) => {
                let claim = self.objects.resource_claims.get(namespace, name);
                claim.is_some_and(|claim| claim.metadata.uid == *uid && !is_allocated(claim))
            }
            ClaimKey::ExtendedResources(namespace, pod) => {
                self.extended_resource_claim(namespace, pod).is_none_or(|claim| !is_allocated(claim))
            }
        }
    }

    /// The claim for the extended resources of a pod.
    pub fn extended_resource_claim(&self, namespace: &str, pod_uid: &str) -> Option<&Arc<ResourceClaim>> {
        self.objects.claims.of_pod(namespace, pod_uid)
    }

    /// The DeviceClass of an extended resource; the newest when there are several.
    pub fn class_of_extended_resource(&self, resource: &str) -> Option<&Arc<DeviceClass>> {
        if let Some(class) = resource.strip_prefix(DEVICE_CLASS_PREFIX) {
            return self.objects.device_classes.get("", class);
        }
        // Classes are sorted by name, so of equally old ones the smallest name wins.
        self.objects.claims.classes.get(resource)?.values().reduce(|best, class| {
            if class.metadata.creation_timestamp > best.metadata.creation_timestamp { class } else { best }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::Object;

    #[test]
    fn devices_are_free_again_after_an_allocation_is_seen_and_removed() {
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
            cluster.taken_devices().count()
        };
        assert_eq!(see(&mut cluster, &free), 0);
        cluster.allocate_claim(ClaimKey::of(&free), Arc::new(allocated.status.allocation.clone().unwrap()));
        assert_eq!(see(&mut cluster, &free), 1, "in flight");
        assert_eq!(see(&mut cluster, &allocated), 1, "seen");
        assert_eq!(see(&mut cluster, &free), 0, "taken back");
    }
}
