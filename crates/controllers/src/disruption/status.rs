//! The numbers of a budget's status.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::expected::Expected;
use super::{Budget, BudgetStatus, Condition};
use crate::controller::Context;
use crate::error::Error;
use crate::pod::Pod;
use crate::workload::event_reference;

/// A pod that still exists this long after its eviction was granted counts again; upstream's `DeletionTimeout`.
pub(super) const DISRUPTION_TIMEOUT: Duration = Duration::from_secs(120);

const DISRUPTION_ALLOWED: &str = "DisruptionAllowed";

/// The granted evictions whose pods are not seen to terminate yet.
pub(super) fn disrupted(budget: &Budget, pods: &[Arc<Pod>], context: Context<'_>) -> BTreeMap<String, Timestamp> {
    let mut open = BTreeMap::new();
    for pod in pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
        let Some(granted) = budget.status.disrupted_pods.get(&pod.metadata.name) else { continue };
        if *granted + DISRUPTION_TIMEOUT < context.now {
            let note = format!("Pod was expected by PDB {} to be deleted but it wasn't", budget.metadata.key());
            context.warning(event_reference("v1", "Pod", &pod.metadata), "NotDeleted", note);
        } else {
            open.insert(pod.metadata.name.clone(), *granted);
        }
    }
    open
}

/// The status that follows from the pods.
pub(super) fn calculate(
    budget: &Budget,
    pods: &[Arc<Pod>],
    expected: Expected,
    disrupted: BTreeMap<String, Timestamp>,
    context: Context<'_>,
) -> BudgetStatus {
    let going = |pod: &Pod| pod.metadata.deletion_timestamp.is_some() || disrupted.contains_key(&pod.metadata.name);
    let healthy = pods.iter().filter(|pod| pod.ready && !going(pod)).count();
    let healthy = i32::try_from(healthy).unwrap_or(i32::MAX);
    let spare = healthy.saturating_sub(expected.healthy);
    let allowed = if expected.pods <= 0 { 0 } else { spare.max(0) };
    let (truth, reason) = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let mut status = BudgetStatus {
        observed_generation: budget.metadata.generation,
        disrupted_pods: disrupted,
        disruptions_allowed: allowed,
        current_healthy: healthy,
        desired_healthy: expected.healthy,
        expected_pods: expected.pods,
        conditions: budget.status.conditions.clone(),
    };
    set(&mut status, truth, reason, String::new(), context.second());
    status
}

/// The status of a budget that cannot be computed: no disruption is allowed, and the condition has the reason.
pub(super) fn failed(budget: &Budget, error: &Error, second: Timestamp) -> BudgetStatus {
    let mut status = BudgetStatus { disruptions_allowed: 0, ..budget.status.clone() };
    set(&mut status, "False", "SyncFailed", error.to_string(), second);
    status
}

/// Replaces the condition in its place; the time moves only when the status does.
fn set(status: &mut BudgetStatus, truth: &str, reason: &str, message: String, second: Timestamp) {
    let at = status.conditions.iter().position(|condition| condition.condition_type == DISRUPTION_ALLOWED);
    let old = at.map(|at| &status.conditions[at]).filter(|condition| condition.status == truth);
    let condition = Condition {
        condition_type: DISRUPTION_ALLOWED.into(),
        status: truth.into(),
        observed_generation: status.observed_generation,
        last_transition_time: old.and_then(|condition| condition.last_transition_time).or(Some(second)),
        reason: reason.into(),
        message,
    };
    match at {
        Some(at) => status.conditions[at] = condition,
        None => status.conditions.push(condition),
    }
}
