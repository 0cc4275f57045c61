//! The constraints of a claim (`matchAttribute`, `distinctAttribute`) while its devices are chosen.

use std::collections::BTreeMap;

use bayplan_model::resource_claim::DeviceConstraint;
use bayplan_model::resource_slice::{Device, DeviceAttribute};

/// A constraint with the devices chosen so far.
pub(super) enum ConstraintState<'c> {
    /// All devices have the same value.
    Match { of: &'c DeviceConstraint, name: &'c str, value: Option<DeviceAttribute>, count: usize },
    /// All devices have different values; like upstream, only the last value of each request is remembered.
    Distinct { of: &'c DeviceConstraint, name: &'c str, values: BTreeMap<String, DeviceAttribute> },
}

fn is_set(value: &DeviceAttribute) -> bool {
    *value != DeviceAttribute::default()
}

impl<'c> ConstraintState<'c> {
    /// None for a constraint of unknown type.
    pub(super) fn new(of: &'c DeviceConstraint) -> Option<Self> {
        if let Some(name) = &of.match_attribute {
            return Some(ConstraintState::Match { of, name, value: None, count: 0 });
        }
        let name = of.distinct_attribute.as_deref()?;
        Some(ConstraintState::Distinct { of, name, values: BTreeMap::new() })
    }

    fn applies(&self, request: &str, full_name: &str) -> bool {
        let (ConstraintState::Match { of, .. } | ConstraintState::Distinct { of, .. }) = self;
        of.requests.is_empty() || of.requests.iter().any(|name| name == request || name == full_name)
    }

    /// Adds a device, unless that would break the constraint. `full_name` names the alternative of the request.
    pub(super) fn add(&mut self, request: &str, full_name: &str, driver: &str, device: &Device) -> bool {
        if !self.applies(request, full_name) {
            return true;
        }
        match self {
            ConstraintState::Match { name, value, count, .. } => {
                let Some(attribute) = device.attribute(name, driver) else { return false };
                if *count == 0 {
                    *value = Some(attribute.clone());
                } else if !is_set(attribute) || value.as_ref() != Some(attribute) {
                    return false;
                }
                *count += 1;
                true
            }
            ConstraintState::Distinct { name, values, .. } => {
                let Some(attribute) = device.attribute(name, driver) else { return false };
                if !values.is_empty() && (!is_set(attribute) || values.values().any(|value| value == attribute)) {
                    return false;
                }
                values.insert(request.to_owned(), attribute.clone());
                true
            }
        }
    }

    /// Removes a device that was added.
    pub(super) fn remove(&mut self, request: &str, full_name: &str) {
        if !self.applies(request, full_name) {
            return;
        }
        match self {
            ConstraintState::Match { count, .. } => *count -= 1,
            ConstraintState::Distinct { values, .. } => drop(values.remove(request)),
        }
    }
}
