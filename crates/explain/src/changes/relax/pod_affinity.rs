//! Required terms of pod affinity and anti-affinity that may be given up.

use bayplan_model::affinity::PodAffinityTerm;
use serde_json::Value;

use super::{RELAXATIONS_MAX, relaxation};
use crate::changes::obstacles::Obstacles;
use crate::changes::trial::{Draft, Trial};
use crate::changes::{Change, cost, json_ops};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// Changes that give up one required term each, or all of a list where none alone is enough.
pub(in crate::changes) fn changes(trial: &mut Trial<'_>, obstacles: &Obstacles) -> Vec<Change> {
    if obstacles.refused_only_by(&["InterPodAffinity"]).next().is_none() {
        return Vec::new();
    }
    let pod = trial.pod.clone();
    let affinity = pod.spec.affinity.as_ref();
    let attract = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
    let repel = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    let mut found = Vec::new();
    for (list, terms) in [("podAffinity", attract), ("podAntiAffinity", repel)] {
        let terms = terms.map_or(&[][..], |affinity| &affinity.required);
        let single = terms.iter().enumerate().take(RELAXATIONS_MAX);
        let before = found.len();
        for (at, term) in single {
            found.extend(trial.prove(one(list, at, term, terms.len())));
        }
        if found.len() == before && terms.len() > 1 {
            let summary = format!("drop all {} required terms of {list}", terms.len());
            let cost = cost::CONSTRAINT.saturating_mul(terms.len() as u64);
            found.extend(trial.prove(relaxation(cost, summary, remove_all(list))));
        }
    }
    found
}

/// Drafts that give up one required term each.
pub(in crate::changes) fn drafts(trial: &Trial<'_>, obstacles: &Obstacles) -> Vec<Draft> {
    if obstacles.refused_only_by(&["InterPodAffinity"]).next().is_none() {
        return Vec::new();
    }
    let affinity = trial.pod.spec.affinity.as_ref();
    let attract = affinity.and_then(|affinity| affinity.pod_affinity.as_ref()).map(|affinity| &affinity.required);
    let repel = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref()).map(|affinity| &affinity.required);
    let lists = [("podAffinity", attract), ("podAntiAffinity", repel)].into_iter();
    let all = lists.flat_map(|(list, terms)| {
        let terms = terms.map_or(&[][..], |terms| terms);
        terms.iter().enumerate().map(move |(at, term)| one(list, at, term, terms.len()))
    });
    all.collect()
}

fn one(list: &str, at: usize, term: &PodAffinityTerm, terms: usize) -> Draft {
    let operations = match terms {
        1 => remove_all(list),
        _ => vec![json_ops::remove(&["spec", "affinity", list, REQUIRED, &at.to_string()])],
    };
    let words = if list == "podAffinity" { "to be with other pods" } else { "to be away from other pods" };
    let summary = format!("drop the required {list} by {} ({words})", term.topology_key);
    relaxation(cost::CONSTRAINT, summary, operations)
}

fn remove_all(list: &str) -> Vec<Value> {
    vec![json_ops::remove(&["spec", "affinity", list, REQUIRED])]
}
