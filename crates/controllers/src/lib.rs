//! Control loops as pure reconcilers: Deployment → ReplicaSet → Pod, owner references, namespaces, service accounts.
//!
//! ```text
//!   watch ──decode──▶ cache::Cache ──Delta──▶ Controller::observe ──Wakeup──▶ work queue
//!                          ▲                                                      │ key
//!                          └────────── reads ── Controller::sync(key, now) ◀──────┘
//!                                                      │
//!                                                      └──▶ Api::call, Recorder::record
//! ```
//!
//! A reconciler is an `async fn` over [`bayplan_model::api::Api`]: it may be dropped after any single call, and the
//! next one starts from what the cluster says. Between two calls it holds no lock.
//!
//! Invariant: nothing here reads a clock, owns randomness, needs an async runtime or does IO.

pub mod cache;
pub mod claim;
pub mod consistency;
pub mod controller;
pub mod deployment;
pub mod discovery;
pub mod disruption;
pub mod ephemeral_volume;
pub mod error;
pub mod expectations;
pub mod garbage_collector;
pub mod namespace;
pub mod node;
pub mod node_lifecycle;
pub mod persistent_volume;
pub mod pod;
pub mod pod_control;
pub mod pod_gc;
mod pods_by_node;
pub mod process;
pub mod replicaset;
pub mod requests;
pub mod resource_claim;
#[cfg(test)]
mod script;
pub mod service_account;
pub mod storage_protection;
pub mod taint_eviction;
pub mod workload;

pub use controller::{Context, Controller, Next, Wakeup};
pub use error::Error;
