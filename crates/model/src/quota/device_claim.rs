//! What a ResourceClaim counts for: devices by class, as many as it may get at most.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Usage, number};
use crate::meta::ObjectMeta;
use crate::resource_claim::{DeviceRequest, DeviceSubRequest, ResourceClaim};

/// What follows the class in the name of its devices.
pub(super) const SUFFIX: &str = ".deviceclass.resource.k8s.io/devices";

/// No claim is given more devices; `All` counts for as many.
const DEVICES_MAX: usize = 32;

/// A claim as quotas see it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "ResourceClaim")]
pub struct DeviceClaimMeasure {
    /// Which one it is.
    pub metadata: ObjectMeta,
    /// The devices it may get, by class.
    pub devices: BTreeMap<String, usize>,
}

impl DeviceClaimMeasure {
    /// What it counts for.
    pub fn usage(&self) -> Usage {
        let devices = self.devices.iter().map(|(class, count)| (format!("{class}{SUFFIX}"), number(*count)));
        devices.chain([("count/resourceclaims.resource.k8s.io".to_owned(), number(1))]).collect()
    }
}

fn devices(request: &DeviceSubRequest) -> usize {
    match request.allocation_mode.as_str() {
        "ExactCount" => usize::try_from(request.count).unwrap_or(0),
        "All" => DEVICES_MAX,
        // A mode of a later version is not counted.
        _ => 0,
    }
}

/// The most devices of each class that one of the alternatives takes.
fn of_request(request: &DeviceRequest) -> BTreeMap<String, usize> {
    let mut most: BTreeMap<String, usize> = BTreeMap::new();
    let alternatives = match request.first_available.is_empty() {
        true => request.exactly.as_slice(),
        false => &request.first_available,
    };
    for alternative in alternatives {
        let count = most.entry(alternative.device_class_name.clone()).or_default();
        *count = devices(alternative).max(*count);
    }
    most
}

impl From<ResourceClaim> for DeviceClaimMeasure {
    fn from(claim: ResourceClaim) -> Self {
        let mut devices: BTreeMap<String, usize> = BTreeMap::new();
        for (class, count) in claim.spec.devices.requests.iter().flat_map(of_request) {
            let sum = devices.entry(class).or_default();
            *sum = sum.saturating_add(count);
        }
        DeviceClaimMeasure { metadata: super::identity(claim.metadata), devices }
    }
}
