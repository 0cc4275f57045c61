//! The least priority at which the pod would preempt others, and whom.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::obstacles::{Obstacles, RefusedNode};
use super::reduce_request::free;
use super::trial::{Draft, PreemptionOutcome, Trial, resource_of_kind};
use super::{Change, ChangeKind, cost, json_ops};

/// The highest priority that a user may define, as the API server has it.
const HIGHEST_USER_PRIORITY: i32 = 1_000_000_000;
/// How many priorities are tried, from the lowest that could help.
const PRIORITIES_TRIED_MAX: usize = 8;
/// How many victims a summary names.
const VICTIMS_NAMED_MAX: usize = 3;

/// A PriorityClass of the state.
struct Class {
    name: String,
    value: i32,
}

/// The change that raises the priority, if preemption helps then and does not help now.
pub(super) fn changes(trial: &mut Trial<'_>, obstacles: &Obstacles) -> Option<Change> {
    let now = trial.pod.priority();
    let never = trial.pod.spec.preemption_policy.as_deref() == Some("Never");
    let resolvable: Vec<&RefusedNode> = obstacles.nodes.iter().filter(|node| node.is_resolvable()).collect();
    let lowest = resolvable.iter().filter_map(|node| lowest_that_could_help(trial, node)).min()?;
    let priorities = resolvable.iter().filter_map(|node| node.info(trial.state)).flat_map(|node| node.pods());
    let above = priorities.map(|pod| pod.priority()).filter(|priority| *priority >= now);
    let mut tried: BTreeSet<i32> = above.filter_map(|priority| priority.checked_add(1)).collect();
    if never {
        tried.insert(now);
    } else if lowest <= now && trial.with_draft(&nothing(), |trial, pod| trial.preempt(&pod)).is_some() {
        // It preempts already.
        return None;
    }
    let tried = tried.into_iter().filter(|priority| *priority >= lowest && *priority <= HIGHEST_USER_PRIORITY);
    for priority in tried.take(PRIORITIES_TRIED_MAX) {
        if let Some(change) = prove(trial, priority, None) {
            return with_class(trial, priority).or(Some(change));
        }
    }
    None
}

fn nothing() -> Draft {
    Draft::new(ChangeKind::RaisePriority, 0, String::new())
}

/// The lowest priority at which a node could have enough, by its resources, without the pods of lower priority.
fn lowest_that_could_help(trial: &Trial<'_>, refused: &RefusedNode) -> Option<i32> {
    let node = refused.info(trial.state)?;
    let mut pods: Vec<_> = node.pods().iter().collect();
    pods.sort_by_key(|pod| pod.priority());
    let reasons = refused.refusals.iter().flat_map(|status| &status.reasons);
    let free = free(trial, node);
    let mut lowest = pods.first()?.priority();
    for name in reasons.filter_map(|reason| reason.strip_prefix("Insufficient ")) {
        let mut lacking = trial.pod.usage.requested.get(name).saturating_sub(free.get(name));
        // A pod that is nominated to the node may lose its precedence to a higher priority.
        let nominated = trial.state.nominator().on_node(&node.name);
        nominated.iter().for_each(|other| lacking = lacking.saturating_sub(other.usage.requested.get(name)));
        let mut leaving = pods.iter();
        while lacking > 0 {
            let pod = leaving.next()?;
            lacking = lacking.saturating_sub(pod.usage.requested.get(name));
            lowest = lowest.max(pod.priority());
        }
    }
    lowest.checked_add(1)
}

/// With the least class of the state that is high enough.
fn with_class(trial: &mut Trial<'_>, priority: i32) -> Option<Change> {
    let class = classes(trial).into_iter().filter(|class| class.value >= priority).min_by_key(|class| class.value)?;
    prove(trial, priority, Some(class))
}

fn classes(trial: &Trial<'_>) -> Vec<Class> {
    let Some(resource) = resource_of_kind("PriorityClass") else { return Vec::new() };
    let read = |(_, name, json): (&str, &str, &serde_json::value::RawValue)| {
        let json: Value = serde_json::from_str(json.get()).ok()?;
        let never = json["preemptionPolicy"] == "Never";
        let value = i32::try_from(json["value"].as_i64()?).ok()?;
        (!never).then(|| Class { name: name.to_owned(), value })
    };
    trial.state.all_written(resource).into_iter().filter_map(read).collect()
}

fn draft(trial: &Trial<'_>, priority: i32, class: Option<&Class>) -> Draft {
    let json = trial.json();
    let value = class.map_or(priority, |class| class.value);
    let mut draft = nothing();
    draft.pod.push(json_ops::set(json, &["spec", "priority"], json!(value)));
    let class_path = ["spec", "priorityClassName"];
    match class {
        Some(class) => draft.pod.push(json_ops::set(json, &class_path, json!(class.name))),
        // The API server takes a priority from a class only.
        None if trial.is_completed() || json.pointer("/spec/priorityClassName").is_some() => {
            let name = format!("priority-{priority}");
            draft.pod.push(json_ops::set(json, &class_path, json!(name)));
            draft.adds.push(json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                "metadata": {"name": name}, "value": priority}));
        }
        None => {}
    }
    if trial.pod.spec.preemption_policy.as_deref() == Some("Never") {
        draft.pod.push(json_ops::set(json, &["spec", "preemptionPolicy"], json!("PreemptLowerPriority")));
    }
    draft
}

fn prove(trial: &mut Trial<'_>, priority: i32, class: Option<Class>) -> Option<Change> {
    let now = trial.pod.priority();
    let never = trial.pod.spec.preemption_policy.as_deref() == Some("Never");
    let draft = draft(trial, priority, class.as_ref());
    trial.prove_preemption(draft, |outcome| {
        let mut summary = match (&class, priority == now) {
            (None, true) => "let the pod preempt others (preemptionPolicy)".to_owned(),
            (None, false) => format!("raise the priority from {now} to {priority}"),
            (Some(Class { name, value }), _) if *value == priority => {
                format!("raise the priority from {now} to {value} (class {name})")
            }
            (Some(Class { name, value }), _) => {
                format!("raise the priority from {now} to {value} (class {name}; {priority} is enough)")
            }
        };
        if never && priority != now {
            summary.push_str(" and let the pod preempt others (preemptionPolicy)");
        }
        summary.push_str(&consequences(outcome));
        let cost = cost::PRIORITY.saturating_add(cost::of_pods(outcome.victims.len(), outcome.pdb_violations));
        (cost, summary)
    })
}

fn consequences(outcome: &PreemptionOutcome) -> String {
    let PreemptionOutcome { node, victims, pdb_violations } = outcome;
    let named = victims[..victims.len().min(VICTIMS_NAMED_MAX)].join(", ");
    let more = match victims.len().saturating_sub(VICTIMS_NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let budgets = match pdb_violations {
        0 => "",
        _ => ", against a disruption budget",
    };
    format!("; it would preempt {named}{more} on node {node}{budgets}")
}
