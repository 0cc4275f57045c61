//! Claims on devices: what is asked for, and what was allocated.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::affinity::NodeSelector;
use crate::meta::ObjectMeta;
use crate::quantity::Quantity;
use crate::resource_slice::DeviceSelector;
use crate::taint::Toleration;
use crate::view::{has_meta, views};

has_meta!(ResourceClaim);

views! {
    /// A ResourceClaim.
    struct ResourceClaim {
        /// Name, owner and the like.
        metadata: ObjectMeta,
        /// What is wanted.
        spec: ResourceClaimSpec,
        /// What is known.
        status: ResourceClaimStatus,
    }

    /// What a claim wants.
    struct ResourceClaimSpec {
        /// Devices.
        devices: DeviceClaim,
    }

    /// The devices a claim wants.
    struct DeviceClaim {
        /// Each is satisfied on its own.
        requests: Vec<DeviceRequest>,
        /// What must hold between their devices.
        constraints: Vec<DeviceConstraint>,
        /// Settings for drivers, with the `requests` they are for.
        config: Vec<Value>,
    }

    /// A request: exactly one of its alternatives is set.
    struct DeviceRequest {
        /// Unique in the claim.
        name: String,
        /// Devices of one kind.
        exactly: Option<DeviceSubRequest>,
        /// The first of these that can be satisfied.
        first_available: Vec<DeviceSubRequest>,
    }

    /// A request for devices of one kind.
    struct DeviceSubRequest {
        /// Unique in its request; empty outside a list of alternatives.
        name: String,
        /// The class of the devices.
        device_class_name: String,
        /// All of these must hold too.
        selectors: Vec<DeviceSelector>,
        /// `ExactCount` or `All`.
        allocation_mode: String,
        /// How many, with `ExactCount`.
        count: i64,
        /// Looks at devices without taking them.
        admin_access: Option<bool>,
        /// Device taints it bears.
        tolerations: Vec<DeviceToleration>,
        /// How much of shared devices.
        capacity: Option<CapacityRequirements>,
    }

    /// How much of shared devices is wanted.
    struct CapacityRequirements {
        /// By name of the capacity.
        requests: BTreeMap<String, Quantity>,
    }

    /// What must hold between the devices of some requests.
    struct DeviceConstraint {
        /// The requests; all when empty.
        requests: Vec<String>,
        /// They have the same value of this attribute.
        match_attribute: Option<String>,
        /// They have different values of this attribute.
        distinct_attribute: Option<String>,
    }

    /// What is known of a claim.
    struct ResourceClaimStatus {
        /// What it was given.
        allocation: Option<AllocationResult>,
        /// Who may use it.
        reserved_for: Vec<ConsumerReference>,
        /// What drivers say of the devices.
        devices: Vec<AllocatedDeviceStatus>,
    }

    /// Who may use a claim.
    struct ConsumerReference {
        /// API group; empty for core.
        api_group: String,
        /// `pods` usually.
        resource: String,
        name: String,
        /// Its UID.
        uid: String,
    }

    /// What a driver says of an allocated device.
    struct AllocatedDeviceStatus {
        /// The driver.
        driver: String,
        /// The pool.
        pool: String,
        /// The device.
        device: String,
        /// Tells shares of a device apart.
        #[serde(rename = "shareID")]
        share_id: Option<String>,
        conditions: Vec<DeviceCondition>,
    }

    /// One condition of a device.
    struct DeviceCondition {
        /// What is observed.
        #[serde(rename = "type")]
        kind: String,
        /// `True`, `False` or `Unknown`.
        status: String,
        /// Why, for a program.
        reason: String,
        /// Why, for a person.
        message: String,
    }

    /// What a claim was given, and where it can be used.
    struct AllocationResult {
        /// The devices.
        devices: DeviceAllocationResult,
        /// The nodes that can reach them; all when absent.
        node_selector: Option<NodeSelector>,
        /// When it was allocated.
        allocation_timestamp: Option<Timestamp>,
    }

    /// The devices a claim was given.
    struct DeviceAllocationResult {
        /// One entry for each.
        results: Vec<DeviceResult>,
    }
}

/// A toleration of device taints; it matches as a pod's toleration does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Hash)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceToleration {
    /// The taint's key; empty matches all keys with `Exists`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// `Equal` (the default) or `Exists`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub operator: String,
    /// The taint's value.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// The taint's effect; empty matches all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub effect: String,
    /// How long `NoExecute` is borne.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

impl DeviceToleration {
    /// The same rule for a taint of any kind.
    pub fn as_toleration(&self) -> Toleration {
        Toleration {
            key: self.key.clone(),
            operator: self.operator.clone(),
            value: self.value.clone(),
            effect: self.effect.clone(),
            ..Toleration::default()
        }
    }
}

/// A device a claim was given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Hash)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceResult {
    /// The request it is for, `request` or `request/alternative`.
    pub request: String,
    /// The driver.
    pub driver: String,
    /// The pool.
    pub pool: String,
    /// The device.
    pub device: String,
    /// The device is looked at, not taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_access: Option<bool>,
    /// The request's tolerations.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<DeviceToleration>,
    /// What must come true before pods that use it are bound.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub binding_conditions: Vec<String>,
    /// What means that this will not happen.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub binding_failure_conditions: Vec<String>,
    /// Tells shares of the device apart.
    #[serde(rename = "shareID", skip_serializing_if = "Option::is_none")]
    pub share_id: Option<String>,
    /// How much of it, for a shared device.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub consumed_capacity: BTreeMap<String, Quantity>,
}

impl ResourceClaim {
    /// True when this pod may use the claim already.
    pub fn is_reserved_for(&self, pod: &crate::pod::Pod) -> bool {
        self.status.reserved_for.iter().any(|consumer| consumer.uid == pod.metadata.uid)
    }

    /// True when the claim was made for this pod.
    pub fn is_for(&self, pod: &crate::pod::Pod) -> bool {
        self.metadata.controller().is_some_and(|owner| owner.uid == pod.metadata.uid)
    }
}
