//! Nodes that may be uncordoned.

use bayplan_model::taint::Taint;
use serde_json::Value;

use super::RELAXATIONS_MAX;
use crate::changes::obstacles::Obstacles;
use crate::changes::tolerate::CORDON_TAINT;
use crate::changes::trial::{Draft, Trial, resource_of_kind};
use crate::changes::{Change, ChangeKind, cost, json_ops};

/// Changes that uncordon a node each.
pub(in crate::changes) fn changes(trial: &mut Trial<'_>, obstacles: &Obstacles) -> Vec<Change> {
    drafts(trial, obstacles).into_iter().filter_map(|draft| trial.prove(draft)).collect()
}

/// Drafts that uncordon a node each, by name.
pub(in crate::changes) fn drafts(trial: &Trial<'_>, obstacles: &Obstacles) -> Vec<Draft> {
    let tolerations = &trial.pod.spec.tolerations;
    let only_cordoned = obstacles.refused_only_by(&["NodeUnschedulable", "TaintToleration"]).filter(|refused| {
        refused.info(trial.state).is_some_and(|info| {
            let spec = &info.node().spec;
            let bears = |taint: &Taint| tolerations.bear(taint);
            spec.unschedulable
                && spec.taints.iter().all(|taint| taint.key == CORDON_TAINT || !taint.repels() || bears(taint))
        })
    });
    let mut names: Vec<_> = only_cordoned.map(|refused| refused.name.clone()).collect();
    names.sort();
    names.truncate(RELAXATIONS_MAX);
    names.into_iter().filter_map(|node| draft(trial, &node)).collect()
}

fn draft(trial: &Trial<'_>, node: &str) -> Option<Draft> {
    let written = trial.state.written(resource_of_kind("Node")?, "", node)?;
    let json: Value = serde_json::from_str(written.get()).ok()?;
    let mut operations = vec![json_ops::remove(&["spec", "unschedulable"])];
    let taints = json.pointer("/spec/taints").and_then(Value::as_array).into_iter().flatten().enumerate();
    let cordons = taints.filter(|(_, taint)| taint["key"] == CORDON_TAINT).map(|(at, _)| at.to_string());
    let cordons: Vec<String> = cordons.collect();
    operations.extend(cordons.iter().rev().map(|at| json_ops::remove(&["spec", "taints", at])));
    let draft = Draft::new(ChangeKind::RelaxConstraint, cost::CORDON, format!("uncordon node {node}"));
    Some(draft.patching("Node", "", node, operations))
}
