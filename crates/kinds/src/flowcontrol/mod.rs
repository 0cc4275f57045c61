//! `flowcontrol.apiserver.k8s.io`: who is served first when the server is busy.

pub mod bootstrap;
mod conditions;
pub(crate) mod flow_schema;
pub(crate) mod priority_level_configuration;
#[cfg(test)]
mod tests;
