//! `resource.k8s.io`: dynamic resource allocation.

mod claim_rules;
mod claim_status;
pub(crate) mod device_class;
mod device_names;
mod lists;
pub(crate) mod resource_claim;
pub(crate) mod resource_claim_template;
pub(crate) mod resource_slice;
mod selectors;
mod slice_rules;
#[cfg(test)]
mod tests;
