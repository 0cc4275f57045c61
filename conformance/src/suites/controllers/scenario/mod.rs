//! Scenarios: actions of a user and a kubelet, and the state to which the controllers bring the cluster after each.
//!
//! ```text
//!   action ─▶ cluster (API server, control loops, virtual time) ─settle─▶ snapshot ─▶ checker ◀─ recorded state
//! ```

mod cluster;
mod deployments;
mod pod_metrics;
mod under_way;
mod workloads;

use serde_json::Value;

use super::{Mismatch, Outcome};

/// Replays one scenario. The second group of controllers names those that a scenario is about.
pub(super) fn check(case: &Value) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(|error| Mismatch::Unreadable(error.to_string()))?;
    match case.get("controllers") {
        Some(_) => runtime.block_on(workloads::replay(case)),
        None => runtime.block_on(deployments::replay(case)),
    }
}
