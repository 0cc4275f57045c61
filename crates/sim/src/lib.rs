//! The world Bayplan is tried in: simulated nodes that behave as kubelets do towards an API server.
//!
//! ```text
//!   watch events ─▶ fleet ─▶ kubelet (one per node) ─▶ pod (one per bound pod) ─▶ Effect = api::Request + ticket
//!   answers ───────▶   │
//!   time ──────────▶   └─ one timer heap for all: no task per node, none per pod
//! ```
//!
//! Invariant: nothing in this crate reads a clock, owns randomness or does IO; the same fleet runs against a real API
//! server and under virtual time.

mod admission;
mod annotations;
mod fleet;
mod identity;
mod kubelet;
mod lease;
mod manifest;
mod node_view;
mod pod;
mod pod_addresses;
mod pod_events;
mod pod_status;
mod resize;
mod template;

pub use fleet::{CreatedNode, Error, Fleet, FleetConfig};
pub use identity::{NODES_MAX, NodeNames};
pub use kubelet::{Effect, Event, Ticket};
pub use manifest::{ManifestError, NodeManifest};
pub use node_view::NodeView;
pub use pod::PodView;
pub use template::{NodeTemplate, SIMULATED};
