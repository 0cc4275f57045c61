//! `resource.k8s.io`: dynamic resource allocation.

pub(crate) mod device_class;
pub(crate) mod resource_claim;
pub(crate) mod resource_claim_template;
pub(crate) mod resource_slice;
mod selectors;
#[cfg(test)]
mod tests;
