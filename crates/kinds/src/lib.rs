//! The API's kinds: what each is called, how it is read, filled in, checked, prepared for storage and printed.
//!
//! ```text
//!   Scheme::built_in() ─by resource or kind─▶ &Kind
//!   bytes ─codec─▶ object ─default─▶ ─prepare_for_create─▶ ─validate_create─▶ stored by the caller
//!                                                           object ─columns, row─▶ what kubectl prints
//! ```
//!
//! A kind is one file, `<group>/<kind>.rs`, and one line in `table`. The modules beside the groups are what kinds
//! share: pod specs, workloads, metadata, selectors, names, printing.
//!
//! Invariant: nothing here does IO, reads a clock or knows HTTP, so files and stores can be read without a server.

mod addresses;
pub mod admission;
mod apiregistration;
mod apps;
mod authentication;
mod authorization;
mod autoscaling;
mod batch;
mod certificates;
pub mod codec;
mod coordination;
mod core;
mod defaulting;
mod discovery;
mod events;
mod field;
mod flowcontrol;
mod group_version_kind;
mod int_or_percent;
mod ip_rules;
mod kind;
mod label_selector;
mod metadata;
mod names;
mod networking;
mod node;
mod node_labels;
mod object;
mod ownership;
mod pod_spec;
mod policy;
mod printing;
mod rbac;
mod resource;
mod scheduling;
mod scheme;
mod selectable_fields;
mod storage;
pub mod stored_value;
mod strategy;
mod table;
#[cfg(test)]
mod tests;
mod validation;
mod verb;
mod workload;

pub use core::service::service_address_errors;
pub use field::{Circumstances, FieldError};
pub use flowcontrol::bootstrap as flow_control;
pub use group_version_kind::GroupVersionKind;
pub use kind::{Kind, Scope, Subresource};
pub use printing::{Column, Row, plain_columns, plain_row};
pub use scheme::{Scheme, find, served};
pub use strategy::{Dependents, Strategy};
pub use verb::Verb;
