//! What objects count for in a ResourceQuota. Admission and the quota controller measure with the same scales.
//!
//! ```text
//!   object ──Measured::read──▶ scopes it is in, usage at a time ──▶ masked to what the quota limits
//! ```
//!
//! Pods, services and the two kinds of claims are measured; of all others only the number counts.

mod device_claim;
mod pod;
mod scope;
mod service;
mod volume_claim;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

pub use self::device_claim::DeviceClaimMeasure;
pub use self::pod::PodMeasure;
pub use self::scope::{Scope, scopes};
pub use self::service::ServiceMeasure;
pub use self::volume_claim::VolumeClaimMeasure;
use crate::meta::ObjectMeta;
use crate::quantity::{Format, Quantity};
use crate::view::has_meta;

has_meta!(PodMeasure, ServiceMeasure, VolumeClaimMeasure, DeviceClaimMeasure);

/// Amounts by the resource names of quotas: `requests.cpu`, `count/jobs.batch`.
pub type Usage = BTreeMap<String, Quantity>;

/// Resources of core that may be counted by their bare name.
const BARE: [&str; 7] =
    ["configmaps", "persistentvolumeclaims", "pods", "replicationcontrollers", "resourcequotas", "secrets", "services"];

/// The kinds of objects that are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Pods.
    Pod,
    /// Services.
    Service,
    /// PersistentVolumeClaims.
    VolumeClaim,
    /// ResourceClaims.
    DeviceClaim,
    /// Everything else.
    Other,
}

impl Counted {
    /// How objects of a resource are counted.
    pub fn of(group: &str, plural: &str) -> Self {
        match (group, plural) {
            ("", "pods") => Counted::Pod,
            ("", "services") => Counted::Service,
            ("", "persistentvolumeclaims") => Counted::VolumeClaim,
            ("resource.k8s.io", "resourceclaims") => Counted::DeviceClaim,
            _ => Counted::Other,
        }
    }
}

/// `count/jobs.batch`, or `count/pods` in core.
pub fn count_name(group: &str, plural: &str) -> String {
    match group {
        "" => format!("count/{plural}"),
        group => format!("count/{plural}.{group}"),
    }
}

/// Whether objects of this resource are what a quota means by a name.
pub fn is_counted_by(group: &str, plural: &str, name: &str) -> bool {
    if name == count_name(group, plural) {
        return true;
    }
    match Counted::of(group, plural) {
        Counted::Pod => pod::is_counted_by(name),
        Counted::Service => service::NAMES.contains(&name),
        Counted::VolumeClaim => volume_claim::is_counted_by(name),
        Counted::DeviceClaim => name.ends_with(device_claim::SUFFIX),
        Counted::Other => group.is_empty() && BARE.contains(&plural) && name == plural,
    }
}

/// An object as quotas see it.
#[derive(Clone, Debug, PartialEq)]
pub enum Measured {
    /// A pod.
    Pod(Box<PodMeasure>),
    /// A service.
    Service(Box<ServiceMeasure>),
    /// A PersistentVolumeClaim.
    VolumeClaim(Box<VolumeClaimMeasure>),
    /// A ResourceClaim.
    DeviceClaim(Box<DeviceClaimMeasure>),
    /// An object that counts by its number alone.
    Other {
        /// The names under which it counts.
        names: Vec<String>,
    },
}

impl Measured {
    /// Measures an object of a resource.
    pub fn read(group: &str, plural: &str, object: &Value) -> Result<Self, serde_json::Error> {
        Ok(match Counted::of(group, plural) {
            Counted::Pod => Measured::Pod(Box::new(PodMeasure::deserialize(object)?)),
            Counted::Service => Measured::Service(Box::new(ServiceMeasure::deserialize(object)?)),
            Counted::VolumeClaim => Measured::VolumeClaim(Box::new(VolumeClaimMeasure::deserialize(object)?)),
            Counted::DeviceClaim => Measured::DeviceClaim(Box::new(DeviceClaimMeasure::deserialize(object)?)),
            Counted::Other => Measured::Other { names: count_names(group, plural) },
        })
    }

    /// What it counts for at a time.
    pub fn usage(&self, now: Timestamp) -> Usage {
        match self {
            Measured::Pod(pod) => pod.usage(now),
            Measured::Service(service) => service.usage(),
            Measured::VolumeClaim(claim) => claim.usage(),
            Measured::DeviceClaim(claim) => claim.usage(),
            Measured::Other { names } => names.iter().map(|name| (name.clone(), number(1))).collect(),
        }
    }

    /// Whether it is in a scope; of one that does not speak of its kind it is not.
    pub fn is_in(&self, scope: &Scope) -> bool {
        match self {
            Measured::Pod(pod) => pod.is_in(scope),
            Measured::VolumeClaim(claim) => claim.is_in(scope),
            Measured::Service(_) | Measured::DeviceClaim(_) | Measured::Other { .. } => false,
        }
    }
}

/// The names under which objects count that are not measured.
pub fn count_names(group: &str, plural: &str) -> Vec<String> {
    let bare = (group.is_empty() && BARE.contains(&plural)).then(|| plural.to_owned());
    bare.into_iter().chain([count_name(group, plural)]).collect()
}

/// What tells an object from others, and no more: measures are kept for every object of a cluster.
fn identity(meta: ObjectMeta) -> ObjectMeta {
    let ObjectMeta { name, namespace, uid, resource_version, .. } = meta;
    ObjectMeta { name, namespace, uid, resource_version, ..ObjectMeta::default() }
}

/// A number of things.
pub fn number(count: usize) -> Quantity {
    Quantity::new(i64::try_from(count).unwrap_or(i64::MAX), Format::DecimalSI)
}

/// Adds amounts to a sum.
pub fn add(sum: &mut Usage, amounts: &Usage) {
    for (name, amount) in amounts {
        match sum.get_mut(name) {
            Some(sum) => sum.add(amount),
            None => drop(sum.insert(name.clone(), amount.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn usage(group: &str, plural: &str, object: Value) -> Vec<String> {
        let measured = Measured::read(group, plural, &object).unwrap();
        measured.usage(Timestamp::UNIX_EPOCH).into_iter().map(|(name, amount)| format!("{name}={amount}")).collect()
    }

    #[test]
    fn objects_count_under_their_names() {
        assert_eq!(usage("batch", "jobs", json!({})), ["count/jobs.batch=1"]);
        assert_eq!(usage("", "secrets", json!({})), ["count/secrets=1", "secrets=1"]);
        assert_eq!(usage("", "events", json!({})), ["count/events=1"]);
    }

    #[test]
    fn devices_count_by_class_and_in_the_worst_case() {
        let requests = json!([
            {"exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}},
            {"exactly": {"deviceClassName": "nic", "allocationMode": "All"}},
            {"firstAvailable": [
                {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1},
                {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 4},
            ]},
        ]);
        let claim = json!({"spec": {"devices": {"requests": requests}}});
        let expected = [
            "count/resourceclaims.resource.k8s.io=1",
            "gpu.deviceclass.resource.k8s.io/devices=6",
            "nic.deviceclass.resource.k8s.io/devices=32",
        ];
        assert_eq!(usage("resource.k8s.io", "resourceclaims", claim), expected);
    }

    #[test]
    fn names_belong_to_the_objects_they_speak_of() {
        for (group, plural, name, counts) in [
            ("", "pods", "requests.example.com/gpu", true),
            ("", "pods", "requests.kubernetes.io/thing", false),
            ("", "pods", "requests.storage", false),
            ("", "pods", "count/pods", true),
            ("", "services", "services.nodeports", true),
            ("", "persistentvolumeclaims", "gold.storageclass.storage.k8s.io/requests.storage", true),
            ("resource.k8s.io", "resourceclaims", "gpu.deviceclass.resource.k8s.io/devices", true),
            ("", "configmaps", "configmaps", true),
            ("apps", "deployments", "count/deployments.apps", true),
            ("apps", "deployments", "deployments", false),
        ] {
            assert_eq!(is_counted_by(group, plural, name), counts, "{plural} {name}");
        }
    }
}
