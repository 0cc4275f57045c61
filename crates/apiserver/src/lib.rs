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
mod discovery;
mod encode;
mod negotiation;
mod openapi;
mod registry;
mod request;
mod reviews;
mod selection;
mod server;
mod serviceaccounts;
mod status_errors;
mod subresources;
mod user;
mod watch;
mod watch_cache;

use bayplan_kinds::codec;

pub use admission::AdmissionPlugins;
pub use authn::{StaticTokens, StaticTokensError};
pub use bootstrap::BootstrapOptions;
pub use registry::{Clock, ServiceRange, ServiceRangeError};
pub use request::Verb;
pub use server::{ApiServer, Config, InProcess, ResponseBody, StartError};
pub use serviceaccounts::KeyError;
pub use user::User;
