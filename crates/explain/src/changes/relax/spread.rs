//! Topology spread constraints that may be wider, or become preferences.

use bayplan_model::affinity::TopologySpreadConstraint;
use serde_json::{Value, json};

use super::relaxation;
use crate::changes::obstacles::Obstacles;
use crate::changes::trial::{Draft, Trial};
use crate::changes::{Change, cost, json_ops};

/// Most constraints that are tried; upstream knows no limit, but few pods have more than two.
const CONSTRAINTS_MAX: usize = 4;

/// Changes that widen one constraint each: the least `maxSkew` that lets the pod in, or a preference instead.
pub(in crate::changes) fn changes(trial: &mut Trial<'_>, obstacles: &Obstacles) -> Vec<Change> {
    if obstacles.refused_only_by(&["PodTopologySpread"]).next().is_none() {
        return Vec::new();
    }
    let pod = trial.pod.clone();
    let constraints = pod.spec.topology_spread_constraints.iter().enumerate();
    let hard: Vec<(usize, &TopologySpreadConstraint)> =
        constraints.filter(|(_, constraint)| constraint.when_unsatisfiable != "ScheduleAnyway").collect();
    let mut found = Vec::new();
    for (at, constraint) in hard.iter().take(CONSTRAINTS_MAX) {
        let key = &constraint.topology_key;
        let summary = format!("spread over {key} only as a preference (ScheduleAnyway)");
        let Some(change) = trial.prove(relaxation(cost::PREFERENCE, summary, vec![prefer(trial, *at)])) else {
            continue;
        };
        found.push(change);
        if let Some(skew) = least_skew(trial, *at, constraint.max_skew) {
            let from = constraint.max_skew;
            let summary = format!("let the spread over {key} differ by {skew} pods (maxSkew {skew} instead of {from})");
            let steps = u64::try_from(i64::from(skew) - i64::from(from)).unwrap_or(0);
            let cost = cost::SKEW.saturating_add(cost::SKEW_STEP.saturating_mul(steps));
            found.extend(trial.prove(relaxation(cost, summary, vec![with_skew(trial, *at, skew)])));
        }
    }
    if found.is_empty() && hard.len() > 1 {
        let cost = cost::PREFERENCE.saturating_mul(hard.len() as u64);
        let operations = hard.iter().map(|(at, _)| prefer(trial, *at)).collect();
        let summary = format!("spread only as a preference in all {} constraints (ScheduleAnyway)", hard.len());
        found.extend(trial.prove(relaxation(cost, summary, operations)));
    }
    found
}

/// The draft in which no constraint is more than a preference.
pub(in crate::changes) fn drafts(trial: &Trial<'_>, obstacles: &Obstacles) -> Vec<Draft> {
    if obstacles.refused_only_by(&["PodTopologySpread"]).next().is_none() {
        return Vec::new();
    }
    let constraints = trial.pod.spec.topology_spread_constraints.iter().enumerate();
    let hard = constraints.filter(|(_, constraint)| constraint.when_unsatisfiable != "ScheduleAnyway");
    let hard: Vec<(usize, &str)> = hard.map(|(at, constraint)| (at, &*constraint.topology_key)).collect();
    if hard.is_empty() {
        return Vec::new();
    }
    let keys: Vec<&str> = hard.iter().map(|(_, key)| *key).collect();
    let summary = format!("spread over {} only as a preference (ScheduleAnyway)", keys.join(", "));
    let operations = hard.iter().map(|(at, _)| prefer(trial, *at)).collect();
    vec![relaxation(cost::PREFERENCE.saturating_mul(hard.len() as u64), summary, operations)]
}

/// The least `maxSkew` with which the pod fits, given that it does not with the one it has.
fn least_skew(trial: &mut Trial<'_>, at: usize, now: i32) -> Option<i32> {
    let fits = |trial: &mut Trial<'_>, skew: i32| {
        let operation = with_skew(trial, at, skew);
        trial.fits(&[operation])
    };
    // In practice one or two more are enough: the steps double from one.
    let (mut too_little, mut step) = (now, 1_i32);
    let mut enough = loop {
        let skew = now.saturating_add(step);
        if fits(trial, skew) {
            break skew;
        }
        if skew == i32::MAX {
            // A node without the label is refused whatever the skew.
            return None;
        }
        too_little = skew;
        step = step.saturating_mul(2);
    };
    while enough - too_little > 1 {
        let middle = too_little + (enough - too_little) / 2;
        match fits(trial, middle) {
            true => enough = middle,
            false => too_little = middle,
        }
    }
    Some(enough)
}

fn with_skew(trial: &Trial<'_>, at: usize, skew: i32) -> Value {
    json_ops::set(trial.json(), &["spec", "topologySpreadConstraints", &at.to_string(), "maxSkew"], json!(skew))
}

fn prefer(trial: &Trial<'_>, at: usize) -> Value {
    let path = ["spec", "topologySpreadConstraints", &at.to_string(), "whenUnsatisfiable"];
    json_ops::set(trial.json(), &path, json!("ScheduleAnyway"))
}
