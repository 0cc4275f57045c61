//! Constraints that the pod may give up, and nodes that may be uncordoned.

pub(super) mod cordon;
pub(super) mod node_affinity;
pub(super) mod pod_affinity;
pub(super) mod ports;
pub(super) mod spread;

use serde_json::Value;

use super::obstacles::Obstacles;
use super::trial::{Draft, Trial};
use super::{Change, ChangeKind, cost, json_ops};

/// Most changes of each constraint: they differ in what is given up.
const RELAXATIONS_MAX: usize = 3;

/// The removal of the scheduling gates, when nothing else is in the way.
pub(super) fn gates_alone(trial: &mut Trial<'_>) -> Vec<Change> {
    if !trial.is_gated() {
        return Vec::new();
    }
    let gates = trial.json().pointer("/spec/schedulingGates").and_then(Value::as_array).into_iter().flatten();
    let names: Vec<&str> = gates.filter_map(|gate| gate["name"].as_str()).collect();
    let plural = if names.len() > 1 { "gates" } else { "gate" };
    let summary = format!("remove the scheduling {plural} {}", names.join(", "));
    // Every draft of a gated pod removes the gates.
    trial.prove(Draft::new(ChangeKind::RelaxConstraint, 0, summary)).into_iter().collect()
}

/// Changes that give up a constraint each.
pub(super) fn changes(trial: &mut Trial<'_>, obstacles: &Obstacles) -> Vec<Change> {
    let mut found: Vec<Change> = node_name(trial).into_iter().collect();
    found.extend(cordon::changes(trial, obstacles));
    found.extend(node_affinity::changes(trial, obstacles));
    found.extend(pod_affinity::changes(trial, obstacles));
    found.extend(spread::changes(trial, obstacles));
    found.extend(ports::changes(trial, obstacles));
    found
}

/// A pod that names its node goes nowhere else.
fn node_name(trial: &mut Trial<'_>) -> Option<Change> {
    let name = trial.json().pointer("/spec/nodeName").and_then(Value::as_str).filter(|name| !name.is_empty())?;
    trial.prove(relaxation(
        cost::CONSTRAINT,
        format!("drop spec.nodeName {name}"),
        vec![json_ops::remove(&["spec", "nodeName"])],
    ))
}

/// A draft that patches the pod.
fn relaxation(cost: u64, summary: String, operations: Vec<Value>) -> Draft {
    Draft::of_pod(ChangeKind::RelaxConstraint, cost, summary, operations)
}
