//! What a Kubernetes object means to Bayplan.
//!
//! ```text
//!   JSON ──decode──▶ compact views (meta, pod, node, …) ──▶ scheduler, controllers
//!                          │
//!                          └─ their parts: quantity, int_or_string, label_selector, field_selector
//!   pure cores ──api::Request──▶ the shell ──▶ any API server ──▶ Result<Bytes, Status>
//! ```
//!
//! Invariant: nothing in this crate reads a clock, owns randomness or does IO.

pub mod affinity;
pub mod api;
pub mod certificate_request;
pub mod cron;
pub mod csi_migration;
pub mod decision_log;
pub mod delta;
pub mod dns_name;
pub mod field_selector;
pub mod go_duration;
pub mod int_or_string;
pub mod keyed;
pub mod label;
pub mod label_selector;
pub mod meta;
pub mod node;
pub mod pem;
pub mod pod;
pub mod pod_changes;
pub mod quantity;
pub mod quota;
pub mod quoted;
pub mod resource_claim;
pub mod resource_slice;
pub mod resources;
pub mod schema;
pub mod simulated;
pub mod sorted_map;
pub mod status;
pub mod storage;
pub mod taint;
pub mod timestamp;
pub mod token_bucket;
pub mod trace;
mod view;
pub mod work_queue;
pub mod workload;
