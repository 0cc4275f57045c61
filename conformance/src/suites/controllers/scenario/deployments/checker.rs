//! Compares a state with the recorded one, except for what races inside upstream decide.
//!
//! - Paths named `unstable` are accepted as they are.
//! - Conditions, pods and events are sets.
//! - After a template change, condition Progressing has the reason that the ReplicaSet was created or that it is
//!   progressing, depending on how many status updates were coalesced.
//! - Where several pods changed at once (`timingDependentEvents`), and where the event correlator has combined them, a
//!   rollout may take other steps: the net change counts. From the first such step on, the generation of a ReplicaSet
//!   is compared by how it grows.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Step;
use crate::difference::{Difference, compare};

const COMBINED: &str = "(combined from similar events): ";

/// The sizes and generations of ReplicaSets, by name.
#[derive(Clone, Debug, Default)]
struct Sets(BTreeMap<String, (i64, i64)>);

impl Sets {
    fn of(state: &Value) -> Sets {
        let sets = state["replicaSets"].as_array().into_iter().flatten();
        let number = |value: &Value| value.as_i64().unwrap_or_default();
        let entry = |set: &Value| {
            let name = set["metadata"]["name"].as_str()?.to_owned();
            Some((name, (number(&set["spec"]["replicas"]), number(&set["metadata"]["generation"]))))
        };
        Sets(sets.filter_map(entry).collect())
    }
}

/// Compares the states of one scenario, step by step.
#[derive(Debug, Default)]
pub(super) struct Checker {
    expected: Sets,
    actual: Sets,
    /// Whether the number of steps a ReplicaSet was resized in has become a matter of timing.
    timing: bool,
    /// Whether the ReplicaSets of the last step were unstable, so that what grew since then is not known.
    unsure: bool,
}

impl Checker {
    /// Compares the state after a step with the recorded one; `scalings` are the notes of `ScalingReplicaSet` events.
    pub(super) fn check(&mut self, step: &Step, actual: &Value, scalings: &[String]) -> Result<(), Difference> {
        let unstable = step.unstable.iter().any(|path| path.starts_with("replicaSets["));
        self.timing |= step.timing_dependent_events || unstable;
        let now = (Sets::of(&step.expect), Sets::of(actual));
        let mut expected = self.comparable(&step.expect, &self.expected, step);
        let mut actual = self.comparable(actual, &self.actual, step);
        if step.timing_dependent_events || has_combined(&expected) || has_combined(&actual) {
            for state in [&mut expected, &mut actual] {
                forget_scalings(state);
            }
            if !unstable && !self.unsure {
                expected["netScaling"] = json!(net_change(&self.expected, &now.0));
                actual["netScaling"] = json!(net_scaling(scalings));
            }
        }
        (self.expected, self.actual, self.unsure) = (now.0, now.1, unstable);
        align(&expected, &mut actual);
        for path in &step.unstable {
            accept(path, &mut expected, &mut actual);
        }
        for state in [&mut expected, &mut actual] {
            for list in ["pods", "newEvents"] {
                if let Some(items) = state[list].as_array_mut() {
                    items.sort_by_key(Value::to_string);
                }
            }
        }
        compare(&expected, &actual)
    }

    fn comparable(&self, state: &Value, before: &Sets, step: &Step) -> Value {
        let mut state = state.clone();
        for deployment in state["deployments"].as_array_mut().into_iter().flatten() {
            coalesce_progress(deployment);
        }
        for set in state["replicaSets"].as_array_mut().into_iter().flatten() {
            if self.timing {
                let known = set["metadata"]["name"].as_str().and_then(|name| before.0.get(name));
                let unknown = step.timing_dependent_events || self.unsure;
                relate_generation(set, known.map(|(_, generation)| *generation), unknown);
            }
        }
        state
    }
}

/// Replaces both reasons for a new ReplicaSet's progress by one.
fn coalesce_progress(deployment: &mut Value) {
    let conditions = deployment.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        let message = condition["message"].as_str().unwrap_or_default();
        if condition["reason"] == "NewReplicaSetCreated"
            && let Some(set) = message.strip_prefix("Created new replica set ")
        {
            condition["message"] = json!(format!("ReplicaSet {set} is progressing."));
            condition["reason"] = json!("ReplicaSetUpdated");
        }
    }
}

/// Instead of its generation, by how much it grew and how far behind the status is.
fn relate_generation(set: &mut Value, before: Option<i64>, unknown: bool) {
    let generation = set["metadata"]["generation"].as_i64().unwrap_or_default();
    let observed = set["status"]["observedGeneration"].as_i64().unwrap_or_default();
    set["status"]["observedGeneration"] = json!({"behind": generation - observed});
    set["metadata"]["generation"] = match (unknown, before) {
        (true, _) => Value::Null,
        (false, Some(before)) => json!({"grownBy": generation - before}),
        (false, None) => json!(generation),
    };
}

fn has_combined(state: &Value) -> bool {
    let mut events = state["newEvents"].as_array().into_iter().flatten();
    events.any(|event| {
        let message = event["message"].as_str().unwrap_or_default();
        event["reason"] == "ScalingReplicaSet" && message.starts_with(COMBINED)
    })
}

/// Leaves out in which steps sizes changed.
fn forget_scalings(state: &mut Value) {
    let Some(events) = state["newEvents"].as_array_mut() else { return };
    events.retain(|event| event["reason"] != "ScalingReplicaSet");
}

fn net_change(before: &Sets, after: &Sets) -> BTreeMap<String, i64> {
    let size = |sets: &Sets, name: &str| sets.0.get(name).map_or(0, |(size, _)| *size);
    // A ReplicaSet that was deleted was scaled to 0 first.
    let names = before.0.keys().chain(after.0.keys());
    let changes = names.map(|name| (name.clone(), size(after, name) - size(before, name)));
    changes.filter(|(_, change)| *change != 0).collect()
}

/// What "Scaled up replica set X from A to B" amounts to.
fn net_scaling(scalings: &[String]) -> BTreeMap<String, i64> {
    let mut net: BTreeMap<String, i64> = BTreeMap::new();
    for note in scalings {
        let words: Vec<&str> = note.split(' ').collect();
        if let ["Scaled", _, "replica", "set", name, "from", from, "to", to] = words[..] {
            let size = |text: &str| text.parse::<i64>().unwrap_or_default();
            *net.entry(name.to_owned()).or_default() += size(to) - size(from);
        }
    }
    net.retain(|_, change| *change != 0);
    net
}

/// Puts the elements of the actual lists into the recorded order: objects by name, conditions by type.
fn align(expected: &Value, actual: &mut Value) {
    match (expected, actual) {
        (Value::Object(expected), Value::Object(actual)) => {
            for (field, expected) in expected {
                if let Some(actual) = actual.get_mut(field) {
                    align(expected, actual);
                }
            }
        }
        (Value::Array(expected), Value::Array(actual)) => {
            let identity = |item: &Value| match item.get("metadata") {
                Some(metadata) => metadata["name"].clone(),
                None => item.get("type").cloned().unwrap_or_default(),
            };
            let place = |item: &Value| expected.iter().position(|known| identity(known) == identity(item));
            if expected.iter().any(|item| !identity(item).is_null()) {
                actual.sort_by_key(|item| place(item).unwrap_or(usize::MAX));
            }
            for (expected, actual) in expected.iter().zip(actual) {
                align(expected, actual);
            }
        }
        _ => {}
    }
}

/// Removes what a path (`deployments[0].status.replicas`) names from the comparison.
fn accept(path: &str, expected: &mut Value, actual: &mut Value) {
    let pointer = format!("/{}", path.replace(['.', '['], "/").replace(']', ""));
    let Some((parent, field)) = pointer.rsplit_once('/') else { return };
    for state in [expected, actual] {
        match state.pointer_mut(parent) {
            Some(Value::Object(map)) => drop(map.insert(field.into(), json!("(unstable)"))),
            Some(Value::Array(items)) => {
                if let Some(item) = field.parse::<usize>().ok().and_then(|at| items.get_mut(at)) {
                    *item = json!("(unstable)");
                }
            }
            _ => {}
        }
    }
}
