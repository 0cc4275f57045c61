//! Who owns a pod's claims: what is to be deleted with them. Upstream's `persistentVolumeClaimRetentionPolicy`.
//!
//! | whenScaled | whenDeleted | owner of the claims |
//! |---|---|---|
//! | Retain | Retain | nobody |
//! | Retain | Delete | the set |
//! | Delete | Retain | the pod, once the set has no place for it |
//! | Delete | Delete | the set, and the pod in its stead once the set has no place for it |

use bayplan_model::meta::{ObjectMeta, OwnerReference};

use super::KIND;
use super::object::StatefulSet;
use crate::workload::{APPS_V1, controller_reference};

/// The pod that has a claim; its UID is empty before the server has given it one.
pub(super) struct Holder<'a> {
    pub(super) meta: &'a ObjectMeta,
    pub(super) ordinal: i64,
}

/// A set and one of its pods, as owners of a claim.
pub(super) struct Owners<'a> {
    pub(super) set: &'a StatefulSet,
    pub(super) pod: Holder<'a>,
}

impl Owners<'_> {
    fn is_set(&self, reference: &OwnerReference) -> bool {
        reference.api_version == APPS_V1 && reference.kind == KIND && reference.name == self.set.metadata.name
    }

    fn is_pod(&self, reference: &OwnerReference) -> bool {
        reference.api_version == "v1" && reference.kind == "Pod" && reference.name == self.pod.meta.name
    }

    /// Whether the claim waits for a pod of this name that is gone.
    pub(super) fn pod_is_stale(&self, claim: &ObjectMeta) -> bool {
        let reference = claim.owner_references.iter().find(|reference| self.is_pod(reference));
        reference.is_some_and(|reference| reference.uid != self.pod.meta.uid)
    }

    fn set_is_stale(&self, claim: &ObjectMeta) -> bool {
        let reference = claim.owner_references.iter().find(|reference| self.is_set(reference));
        reference.is_some_and(|reference| reference.uid != self.set.metadata.uid)
    }

    /// Whether somebody else manages the claim although the set's policy speaks of it.
    pub(super) fn conflict(&self, claim: &ObjectMeta) -> bool {
        if self.set.deletes_claims() == (false, false) {
            return false;
        }
        claim.owner_references.iter().any(|reference| {
            if self.is_set(reference) {
                reference.uid != self.set.metadata.uid
            } else if self.is_pod(reference) {
                reference.uid != self.pod.meta.uid
            } else {
                reference.controller == Some(true)
            }
        })
    }

    fn owned_by(&self, claim: &ObjectMeta, owner: &ObjectMeta) -> bool {
        claim.owner_references.iter().any(|reference| reference.uid == owner.uid)
    }

    /// Whether the set and the pod ought to own their claims.
    fn wanted(&self) -> (bool, bool) {
        let scaled_down = !self.set.has_place_for(self.pod.ordinal);
        match self.set.deletes_claims() {
            (false, with_set) => (with_set, false),
            (true, with_set) => (with_set && !scaled_down, scaled_down),
        }
    }

    /// Whether a claim's owners are as the policy has them. Those of a set or pod that is gone are left alone.
    pub(super) fn are_right(&self, claim: &ObjectMeta) -> bool {
        if self.set_is_stale(claim) || self.pod_is_stale(claim) {
            return true;
        }
        let owned = (self.owned_by(claim, &self.set.metadata), self.owned_by(claim, self.pod.meta));
        if self.conflict(claim) {
            return owned == (false, false);
        }
        let ours =
            |reference: &&OwnerReference| reference.uid == self.set.metadata.uid || reference.uid == self.pod.meta.uid;
        let all_manage = claim.owner_references.iter().filter(ours).all(|reference| reference.controller == Some(true));
        all_manage && owned == self.wanted()
    }

    /// A claim's owners as the policy has them.
    pub(super) fn corrected(&self, claim: &ObjectMeta) -> Vec<OwnerReference> {
        let foreign = |reference: &&OwnerReference| !self.is_set(reference) && !self.is_pod(reference);
        let mut owners: Vec<OwnerReference> = claim.owner_references.iter().filter(foreign).cloned().collect();
        if self.conflict(claim) {
            return owners;
        }
        let (with_set, with_pod) = self.wanted();
        let mut add = |owner: OwnerReference| {
            if owners.iter().all(|known| known.uid != owner.uid) {
                owners.push(owner);
            }
        };
        if with_set {
            add(controller_reference(APPS_V1, KIND, &self.set.metadata));
        }
        if with_pod {
            add(controller_reference("v1", "Pod", self.pod.meta));
        }
        owners
    }
}
