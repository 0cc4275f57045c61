//! The page: a cluster, its decisions and its pending pods in a browser, answered by the scheduler's own core.
//!
//! ```text
//!   browser ─▶ server (limits, blocking pool) ─▶ access (host, token, origin) ─▶ request ─┬─▶ assets
//!                                                                                         └─▶ answers ─▶ ClusterView
//!   informers or a file ─▶ ClusterView (State, decisions, version) ─▶ whoever waits for a change
//!   decision log ─────────────▲
//! ```
//!
//! Everything but `server` is without IO. Nothing here writes to a cluster: a change that is tried is made to the state
//! in memory, decided, and undone.

mod access;
mod answers;
mod assets;
mod cluster_view;
mod decisions;
mod logged;
mod query;
mod request;
pub mod server;
mod standalone;

pub use cluster_view::{Change, ClusterView};
pub use standalone::{Standalone, standalone};
