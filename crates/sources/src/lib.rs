//! Where a cluster's state can come from besides an API server: our snapshot, YAML and JSON dumps, bundles, etcd files.
//!
//! ```text
//!   bytes ─detect─▶ reader of that form ─▶ ClusterObjects (objects as they were written, what was listed, notes)
//! ```
//!
//! Invariant: nothing here opens a file, reads a clock or knows HTTP. The caller lends a reader; every limit on what it
//! may hold has a name.

mod archive;
mod attempts;
mod cluster_objects;
mod collector;
pub mod decision_log;
mod detect;
mod document;
mod etcd;
mod json;
mod json_or_yaml;
mod limits;
mod manifests;
mod notes;
mod reader;
mod resources;
mod snapshot;
#[cfg(test)]
mod tests;
mod yaml;

pub use attempts::FailedAttempts;
pub use cluster_objects::{ClusterObjects, Origin, OriginKind, SourceObject};
pub use manifests::{ManifestError, manifests};
pub use reader::{Given, SourceReader};
pub use resources::{RESOURCES, Resource, resource_of};
pub use snapshot::{Redaction, prune, write_snapshot};
