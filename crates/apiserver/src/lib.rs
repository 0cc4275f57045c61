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

pub mod resources;
