//! Consumable capacity: how much of a shared device a request takes, and whether that much is left (KEP-5075).

use bayplan_model::quantity::{Format, Quantity};
use bayplan_model::resource_claim::CapacityRequirements;
use bayplan_model::resource_slice::{CapacityRequestPolicy, Device, DeviceCapacity};

pub(super) use crate::cluster::devices::DeviceAmounts as Amounts;

/// What a request consumes of a device; none when the device lacks the capacity or its policy forbids the amount.
pub(super) fn consumption(device: &Device, request: Option<&CapacityRequirements>) -> Option<Amounts> {
    let wanted = request.map(|request| &request.requests);
    if wanted.is_some_and(|wanted| wanted.keys().any(|name| !device.capacity.contains_key(name))) {
        return None;
    }
    let take = |(name, capacity): (&String, &DeviceCapacity)| {
        let amount = rounded(wanted.and_then(|wanted| wanted.get(name)), capacity);
        let allowed = capacity.request_policy.as_ref().is_none_or(|policy| permits(policy, &amount));
        allowed.then(|| (name.clone(), amount))
    };
    device.capacity.iter().map(take).collect()
}

/// Whether the capacity of a device suffices for one more consumption.
pub(super) fn fits<'t>(device: &Device, wanted: &Amounts, taken: impl Iterator<Item = &'t Amounts> + Clone) -> bool {
    device.capacity.iter().all(|(name, capacity)| {
        let mut total = wanted.get(name).cloned().unwrap_or(Quantity::ZERO);
        taken.clone().filter_map(|taken| taken.get(name)).for_each(|amount| total.add(amount));
        total <= capacity.value
    })
}

/// The amount that a request consumes: rounded up as the policy says; the default, or all, when it names no amount.
fn rounded(request: Option<&Quantity>, capacity: &DeviceCapacity) -> Quantity {
    let policy = capacity.request_policy.as_ref();
    let Some(request) = request else {
        return policy.and_then(|policy| policy.default.as_ref()).unwrap_or(&capacity.value).clone();
    };
    let Some(policy) = policy else { return request.clone() };
    if let Some((range, min)) = policy.valid_range.as_ref().and_then(|range| Some((range, range.min.as_ref()?))) {
        if request < min {
            return min.clone();
        }
        return match range.step.as_ref().map(Quantity::value).filter(|step| *step > 0) {
            None => request.clone(),
            Some(step) => {
                let above = request.value().saturating_sub(min.value());
                let steps = above / step + i64::from(above % step != 0);
                Quantity::new(min.value().saturating_add(step.saturating_mul(steps)), Format::BinarySI)
            }
        };
    }
    policy.valid_values.iter().filter(|value| *value >= request).min().unwrap_or(request).clone()
}

fn permits(policy: &CapacityRequestPolicy, amount: &Quantity) -> bool {
    if policy.default.as_ref() == Some(amount) {
        return true;
    }
    if let Some(range) = &policy.valid_range {
        let above = range.min.as_ref().map_or(0, |min| amount.value().saturating_sub(min.value()));
        let step = range.step.as_ref().map(Quantity::value).filter(|step| *step > 0);
        return range.max.as_ref().is_none_or(|max| amount <= max) && step.is_none_or(|step| above % step == 0);
    }
    policy.valid_values.is_empty() || policy.valid_values.contains(amount)
}
