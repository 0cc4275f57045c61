//! Entries of the node selector and requirements of node affinity that may be given up.

use std::collections::BTreeMap;

use bayplan_model::affinity::NodeSelectorRequirement;
use serde_json::Value;

use super::{RELAXATIONS_MAX, relaxation};
use crate::changes::node_demands::{NodeDemands, Unmet, UnmetTerm};
use crate::changes::obstacles::Obstacles;
use crate::changes::trial::{Draft, Trial};
use crate::changes::{Change, cost, json_ops};

const REQUIRED: [&str; 4] = ["spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"];

/// What is given up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct GivenUp {
    /// Entries of the node selector, by index.
    selector: Vec<usize>,
    affinity: GivenUpAffinity,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum GivenUpAffinity {
    Nothing,
    /// Requirements of one term; others of it stay.
    Requirements(UnmetTerm),
    All,
}

impl GivenUp {
    /// What has to go so that a node matches: of the terms, the one that loses least.
    fn for_node(unmet: Unmet) -> Self {
        let affinity = match unmet.terms {
            None => GivenUpAffinity::Nothing,
            Some(terms) => {
                let lost = |term: &UnmetTerm| term.labels.len() + term.fields.len();
                // A term without requirements matches nothing.
                let ways = terms.into_iter().filter(|term| lost(term) < term.requirements);
                ways.min_by_key(lost).map_or(GivenUpAffinity::All, GivenUpAffinity::Requirements)
            }
        };
        GivenUp { selector: unmet.selector, affinity }
    }

    fn cost(&self) -> u64 {
        let affinity = match &self.affinity {
            GivenUpAffinity::Nothing => 0,
            GivenUpAffinity::Requirements(term) => term.labels.len() + term.fields.len(),
            GivenUpAffinity::All => 2,
        };
        cost::CONSTRAINT.saturating_mul((self.selector.len() + affinity) as u64)
    }
}

/// Changes that give up requirements on the node.
pub(in crate::changes) fn changes(trial: &mut Trial<'_>, obstacles: &Obstacles) -> Vec<Change> {
    drafts(trial, obstacles).into_iter().filter_map(|draft| trial.prove(draft)).collect()
}

/// Drafts that give up requirements on the node, smallest first.
pub(in crate::changes) fn drafts(trial: &Trial<'_>, obstacles: &Obstacles) -> Vec<Draft> {
    let demands = NodeDemands::of(&trial.pod);
    let mut ways: BTreeMap<GivenUp, usize> = BTreeMap::new();
    for refused in obstacles.refused_only_by(&["NodeAffinity"]) {
        let Some(node) = refused.info(trial.state) else { continue };
        *ways.entry(GivenUp::for_node(demands.unmet(node.node()))).or_default() += 1;
    }
    if obstacles.is_refused_as_a_whole && demands.has_affinity() {
        // PreFilter finds terms that contradict each other.
        ways.insert(GivenUp { selector: Vec::new(), affinity: GivenUpAffinity::All }, 0);
    }
    // Nothing to give up: the configuration's own affinity refuses the node.
    let mut ways: Vec<(GivenUp, usize)> = ways.into_iter().filter(|(way, _)| way.cost() > 0).collect();
    ways.sort_by_key(|(way, nodes)| (way.cost(), std::cmp::Reverse(*nodes)));
    ways.truncate(RELAXATIONS_MAX);
    ways.into_iter().map(|(way, _)| draft(&demands, &way)).collect()
}

fn draft(demands: &NodeDemands, way: &GivenUp) -> Draft {
    let mut operations: Vec<Value> = Vec::new();
    let mut words: Vec<String> = Vec::new();
    if !way.selector.is_empty() {
        let all = way.selector.len() == demands.selector.len();
        let entries: Vec<&(String, String)> = way.selector.iter().map(|at| &demands.selector[*at]).collect();
        let shown: Vec<String> = entries.iter().map(|(key, value)| format!("{key}={value}")).collect();
        words.push(format!("the node selector {}", shown.join(", ")));
        match all {
            true => operations.push(json_ops::remove(&["spec", "nodeSelector"])),
            false => {
                operations.extend(entries.iter().map(|(key, _)| json_ops::remove(&["spec", "nodeSelector", key])));
            }
        }
    }
    match &way.affinity {
        GivenUpAffinity::Nothing => {}
        GivenUpAffinity::All => {
            words.push("the required node affinity".to_owned());
            operations.push(json_ops::remove(&REQUIRED));
        }
        GivenUpAffinity::Requirements(term) => {
            let index = term.term.to_string();
            let of_term = |list: &'static str, at: &usize| {
                let at = at.to_string();
                json_ops::remove(&[&REQUIRED[..], &["nodeSelectorTerms", &index, list, &at]].concat())
            };
            // From the end, so that the indexes before it stay.
            operations.extend(term.labels.iter().rev().map(|at| of_term("matchExpressions", at)));
            operations.extend(term.fields.iter().rev().map(|at| of_term("matchFields", at)));
            let labels = term.labels.iter().filter_map(|at| demands.requirement(term.term, *at)).map(shown);
            let fields = (!term.fields.is_empty()).then(|| "the name of the node".to_owned());
            let lost: Vec<String> = labels.chain(fields).collect();
            words.push(format!("{} from the required node affinity", lost.join(", ")));
        }
    }
    relaxation(way.cost(), format!("drop {}", words.join(", and ")), operations)
}

fn shown(requirement: &NodeSelectorRequirement) -> String {
    let NodeSelectorRequirement { key, operator, values, .. } = requirement;
    match values.is_empty() {
        true => format!("{key} {operator}"),
        false => format!("{key} {operator} {}", values.join(",")),
    }
}
