//! The part of admission that only looks at objects. The API server's plugins look up the other objects it needs
//! (classes, limit ranges, quotas) and turn a refusal into a 403.

pub mod limit_range;
mod node_taint;
pub mod pod_resources;
pub mod pod_security;
pub mod priority;
pub mod resource_quota;
pub mod runtime_class;
mod storage_protection;
mod tolerations;

pub use node_taint::taint_until_ready;
pub use storage_protection::protect_in_use;
pub use tolerations::add_default_tolerations;
