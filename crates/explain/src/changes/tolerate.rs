//! Tolerations of the taints that keep the pod away, fewest first.

use std::collections::BTreeMap;

use bayplan_model::node::Node;
use bayplan_model::taint::{Taint, Tolerations};
use serde_json::{Value, json};

use super::obstacles::Obstacles;
use super::trial::{Draft, Trial};
use super::{CHANGES_OF_KIND_MAX, Change, ChangeKind, cost, json_ops};

/// The taint of a cordon.
pub(super) const CORDON_TAINT: &str = "node.kubernetes.io/unschedulable";
/// Taints that say how a node is, not whom it is for.
const HEALTH_PREFIX: &str = "node.kubernetes.io/";

/// The taints that the pod would have to tolerate, as (key, value, effect).
type Taints = Vec<(String, String, String)>;

/// The taints of nodes that only taints keep the pod away from, fewest first.
fn sets(trial: &Trial<'_>, obstacles: &Obstacles) -> Vec<Taints> {
    let mut sets: BTreeMap<Taints, usize> = BTreeMap::new();
    for refused in obstacles.refused_only_by(&["TaintToleration", "NodeUnschedulable"]) {
        let Some(node) = refused.info(trial.state) else { continue };
        *sets.entry(untolerated(node.node(), &trial.pod.spec.tolerations)).or_default() += 1;
    }
    let mut sets: Vec<(Taints, usize)> = sets.into_iter().filter(|(taints, _)| !taints.is_empty()).collect();
    sets.sort_by_key(|(taints, nodes)| (cost_of(taints), std::cmp::Reverse(*nodes)));
    sets.into_iter().map(|(taints, _)| taints).collect()
}

/// Drafts that let the pod tolerate all taints of some node, smallest first.
pub(super) fn drafts(trial: &Trial<'_>, obstacles: &Obstacles) -> Vec<Draft> {
    sets(trial, obstacles).iter().map(|taints| draft(trial, taints)).collect()
}

/// Changes that let the pod tolerate all taints of some node.
pub(super) fn changes(trial: &mut Trial<'_>, obstacles: &Obstacles) -> Vec<Change> {
    let mut found = Vec::new();
    let mut proven: Vec<Taints> = Vec::new();
    for taints in sets(trial, obstacles) {
        let is_more_than_enough = proven.iter().any(|fewer| fewer.iter().all(|taint| taints.contains(taint)));
        if is_more_than_enough || found.len() == CHANGES_OF_KIND_MAX {
            continue;
        }
        if let Some(change) = trial.prove(draft(trial, &taints)) {
            found.push(change);
            proven.push(taints);
        }
    }
    found
}

/// The taints of a node that keep the pod away, the one that a cordon stands for included.
fn untolerated(node: &Node, tolerations: &Tolerations) -> Taints {
    let cordon = Taint { key: CORDON_TAINT.into(), value: String::new(), effect: "NoSchedule".into() };
    let taints = node.spec.taints.iter().chain(node.spec.unschedulable.then_some(&cordon));
    let keep_away = taints.filter(|taint| taint.repels() && !tolerations.bear(taint));
    let mut all: Taints =
        keep_away.map(|taint| (taint.key.clone(), taint.value.clone(), taint.effect.clone())).collect();
    all.sort();
    all.dedup();
    all
}

fn cost_of(taints: &Taints) -> u64 {
    let one = |key: &String| if key.starts_with(HEALTH_PREFIX) { cost::SICK_NODE } else { cost::TOLERATION };
    taints.iter().map(|(key, _, _)| one(key)).sum()
}

fn draft(trial: &Trial<'_>, taints: &Taints) -> Draft {
    let names: Vec<String> = taints
        .iter()
        .map(|(key, value, effect)| match value.is_empty() {
            true => format!("{key}:{effect}"),
            false => format!("{key}={value}:{effect}"),
        })
        .collect();
    let tolerations: Vec<Value> = taints
        .iter()
        .map(|(key, value, effect)| match value.is_empty() {
            true => json!({"key": key, "operator": "Exists", "effect": effect}),
            false => json!({"key": key, "operator": "Equal", "value": value, "effect": effect}),
        })
        .collect();
    let path = ["spec", "tolerations"];
    let operations = match trial.json().pointer("/spec/tolerations") {
        Some(Value::Array(_)) => {
            tolerations.into_iter().map(|toleration| json_ops::append(trial.json(), &path, toleration)).collect()
        }
        _ => vec![json_ops::set(trial.json(), &path, tolerations.into())],
    };
    let plural = if names.len() > 1 { "taints" } else { "taint" };
    let mut summary = format!("tolerate the {plural} {}", names.join(", "));
    if taints.iter().any(|(key, _, _)| key.starts_with(HEALTH_PREFIX)) {
        summary.push_str("; the node is cordoned or not healthy, so the pod may not start there");
    }
    Draft::of_pod(ChangeKind::Tolerate, cost_of(taints), summary, operations)
}
