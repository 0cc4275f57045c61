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

mod attach_detach;
mod cache;
mod certificates;
mod claim;
mod cluster_role_aggregation;
mod consistency;
mod controller;
pub mod cron_job;
pub mod daemonset;
pub mod deployment;
pub mod discovery;
mod disruption;
pub mod endpoint_slice;
mod endpoint_slice_mirroring;
pub mod endpoints;
mod ephemeral_volume;
mod error;
mod expectations;
mod garbage_collector;
pub mod horizontal_pod_autoscaler;
pub mod job;
mod namespace;
mod node;
mod node_lifecycle;
mod node_ttl;
mod persistent_volume;
pub mod pod;
mod pod_control;
mod pod_gc;
mod pod_network;
pub mod pod_template_hash;
mod pods_by_node;
mod process;
pub mod replicaset;
pub mod requests;
mod resource_claim;
pub mod resource_quota;
pub mod revisions;
#[cfg(test)]
mod script;
pub mod service;
mod service_account;
mod service_account_token;
mod service_cidr;
pub mod slow_start;
pub mod statefulset;
mod storage_protection;
mod taint_eviction;
mod token_cleaner;
mod ttl_after_finished;
mod volume_expansion;
pub mod workload;

pub use attach_detach::{AttachDetachController, PodVolumes};
pub use cache::{AnyDelta, Apply, Cache, Kind, Store, Visitor};
pub use certificates::{
    CertificateApprovingController, CertificateCleanerController, CertificateSigningController, SignCertificate,
    SigningRequest,
};
pub use claim::Claimant;
pub use cluster_role_aggregation::ClusterRoleAggregationController;
pub use controller::{Context, Controller, Requeue, Wakeup, split_key};
pub use cron_job::CronJobController;
pub use daemonset::DaemonSetController;
pub use deployment::DeploymentController;
pub use disruption::DisruptionController;
pub use endpoint_slice::{EndpointSliceConfig, EndpointSliceController};
pub use endpoint_slice_mirroring::{EndpointSliceMirroringConfig, EndpointSliceMirroringController};
pub use endpoints::EndpointsController;
pub use ephemeral_volume::EphemeralVolumeController;
pub use error::Error;
pub use garbage_collector::GarbageCollector;
pub use horizontal_pod_autoscaler::{AutoscalerConfig, HorizontalPodAutoscalerController};
pub use job::JobController;
pub use namespace::NamespaceController;
pub use node_lifecycle::{NodeLifecycleConfig, NodeLifecycleController};
pub use node_ttl::NodeTtlController;
pub use persistent_volume::PersistentVolumeController;
pub use pod_gc::{PodGcController, TERMINATED_PODS_MAX};
pub use process::{Job, Process};
pub use replicaset::ReplicaSetController;
pub use resource_claim::ResourceClaimController;
pub use resource_quota::ResourceQuotaController;
pub use service_account::{RootCaPublisher, ServiceAccountController};
pub use service_account_token::{ServiceAccountTokenController, TokenSigner};
pub use service_cidr::ServiceCidrController;
pub use statefulset::StatefulSetController;
pub use storage_protection::{
    AttributesClassProtectionController, ClaimProtectionController, VolumeProtectionController,
};
pub use taint_eviction::TaintEvictionController;
pub use token_cleaner::TokenCleanerController;
pub use ttl_after_finished::TtlAfterFinishedController;
pub use volume_expansion::VolumeExpansionController;
