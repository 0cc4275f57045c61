//! A Kubernetes-compatible API server.
//!
//! ```text
//!   bytes ─▶ server (TLS, HTTP) ─▶ request (path → RequestInfo) ─▶ authn ─▶ authz ─▶ codec (JSON/YAML/protobuf → Value)
//!        ─▶ registry (verb): defaults ─▶ admission ─▶ strategy ─▶ validation ─▶ store
//!        ◀─ negotiation (object, list, Table, PartialObjectMetadata, watch stream) ◀─ encoded objects
//! ```
//!
//! The table in [`resources`] drives all of it: a new kind is a row there plus its strategy.
//! Every answer that is not a success is a `metav1.Status`.

pub mod admission;
pub mod authn;
pub mod authz;
pub mod bootstrap;
pub mod cache;
pub mod certificates;
pub mod discovery;
pub mod encode;
pub mod negotiation;
pub mod openapi;
pub mod registry;
pub mod request;
pub mod reviews;
pub mod selection;
pub mod server;
pub mod serviceaccounts;
pub mod status_errors;
mod subresources;
pub mod user;
mod watch;

pub use bayplan_kinds::{codec, defaults, resources, strategy, tables, validation};
pub use server::{ApiServer, Config, InProcess};
