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

mod cache;
mod claim;
mod consistency;
mod controller;
pub mod deployment;
pub mod discovery;
mod disruption;
mod ephemeral_volume;
mod error;
mod expectations;
mod garbage_collector;
mod namespace;
mod node;
mod node_lifecycle;
mod persistent_volume;
pub mod pod;
mod pod_control;
mod pod_gc;
mod pods_by_node;
mod process;
pub mod replicaset;
pub mod requests;
mod resource_claim;
#[cfg(test)]
mod script;
mod service_account;
mod storage_protection;
mod taint_eviction;
pub mod workload;

pub use cache::{AnyDelta, Apply, Cache, Kind, Store, Visitor};
pub use claim::Claimant;
pub use controller::{Context, Controller, Requeue, Wakeup, split_key};
pub use deployment::DeploymentController;
pub use disruption::DisruptionController;
pub use ephemeral_volume::EphemeralVolumeController;
pub use error::Error;
pub use garbage_collector::GarbageCollector;
pub use namespace::NamespaceController;
pub use node_lifecycle::{NodeLifecycleConfig, NodeLifecycleController};
pub use persistent_volume::PersistentVolumeController;
pub use pod_gc::{PodGcController, TERMINATED_PODS_MAX};
pub use process::{Job, Process};
pub use replicaset::ReplicaSetController;
pub use resource_claim::ResourceClaimController;
pub use service_account::{RootCaPublisher, ServiceAccountController};
pub use storage_protection::{ClaimProtectionController, VolumeProtectionController};
pub use taint_eviction::TaintEvictionController;
