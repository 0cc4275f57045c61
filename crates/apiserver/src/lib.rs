//! A Kubernetes-compatible API server.
//!
//! ```text
//!   bytes ─▶ server (TLS, HTTP) ─▶ request (path → RequestInfo) ─▶ authn ─▶ authz ─┬─▶ registry: decode, default,
//!                                                                                 │   admission, strategy, validation
//!                                                                                 │     ─▶ store ─▶ watch_cache
//!                                                                                 └─▶ discovery, openapi, health
//!         ◀─ negotiation (object, list, Table, PartialObjectMetadata) ◀─ encode; watch ◀─ watch_cache
//! ```
//!
//! The table of `bayplan-kinds` drives all of it: a new kind is one file there and one line of the table. Every failure
//! is a `metav1.Status` (`status_errors`).

mod admission;
mod authn;
pub mod authz;
mod big_work;
mod bootstrap;
pub mod certificates;
mod chance;
mod discovery;
mod encode;
mod encryption;
mod kubelets;
mod measured_store;
mod negotiation;
mod openapi;
mod registry;
mod request;
mod resource_metrics;
mod reviews;
mod selection;
mod server;
mod serviceaccounts;
mod status_errors;
mod subresources;
mod user;
mod warnings;
mod watch;
mod watch_cache;
mod websocket;

use bayplan_kinds::codec;

pub use admission::AdmissionPlugins;
pub use authn::{RequestHeaders, StaticTokens, StaticTokensError};
pub use authz::AuthorizationMode;
pub use bootstrap::BootstrapOptions;
pub use encryption::{EncryptionConfigError, StoredCodec};
pub use registry::{Clock, ServiceRange, ServiceRangeError};
pub use request::Verb;
pub use server::{ApiServer, Config, InProcess, ResponseBody, StartError};
pub use serviceaccounts::{
    KeyError, LegacyTokenKey, ServiceAccountOptions, check_signing_key, check_verification_keys,
};
pub use user::User;

/// True for the name of an API version, `apps/v1` for example, that the server has.
pub fn serves(group_version: &str) -> bool {
    bayplan_kinds::served().any(|kind| kind.api_version() == group_version)
}
