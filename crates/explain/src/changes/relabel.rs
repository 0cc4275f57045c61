//! Labels of a node that would satisfy the pod's node selector and node affinity.

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_model::affinity::NodeSelectorRequirement;

use super::node_demands::{NodeDemands, UnmetTerm};
use super::obstacles::Obstacles;
use super::trial::{Draft, Trial, resource_of_kind};
use super::{Change, ChangeKind, cost, json_ops};

/// Most changes of this kind: they differ in the labels.
const RELABELS_MAX: usize = 3;

/// Labels that state what a node is: another value would be a lie.
const FACTS: [&str; 10] = [
    "kubernetes.io/hostname",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
];

/// Labels with their new values; none removes one.
type Labels = BTreeMap<String, Option<String>>;

/// Changes that relabel one node each.
pub(super) fn changes(trial: &mut Trial<'_>, obstacles: &Obstacles) -> Vec<Change> {
    let demands = NodeDemands::of(&trial.pod);
    let mut sets: BTreeMap<Labels, Arc<str>> = BTreeMap::new();
    for refused in obstacles.refused_only_by(&["NodeAffinity"]) {
        let Some(node) = refused.info(trial.state) else { continue };
        let unmet = demands.unmet(node.node());
        let selector = unmet.selector.iter().map(|at| demands.selector[*at].clone());
        let mut labels: Labels = selector.map(|(key, value)| (key, Some(value))).collect();
        if let Some(terms) = &unmet.terms {
            let ways = terms.iter().filter_map(|term| satisfying(&demands, term));
            let Some(fewest) = ways.min_by_key(Labels::len) else { continue };
            labels.extend(fewest);
        }
        if labels.is_empty() || labels.keys().any(|key| FACTS.contains(&key.as_str())) {
            continue;
        }
        let first = sets.entry(labels).or_insert_with(|| refused.name.clone());
        if refused.name < *first {
            *first = refused.name.clone();
        }
    }
    let mut sets: Vec<(Labels, Arc<str>)> = sets.into_iter().collect();
    sets.sort_by_key(|(labels, _)| labels.len());
    sets.truncate(RELABELS_MAX);
    sets.into_iter().filter_map(|(labels, node)| trial.prove(draft(trial, &node, &labels)?)).collect()
}

/// The labels that satisfy a term; none when labels cannot.
fn satisfying(demands: &NodeDemands, term: &UnmetTerm) -> Option<Labels> {
    if term.requirements == 0 || !term.fields.is_empty() {
        return None;
    }
    term.labels.iter().map(|at| label_for(demands.requirement(term.term, *at)?)).collect()
}

/// The label that meets a requirement which a node does not meet.
fn label_for(requirement: &NodeSelectorRequirement) -> Option<(String, Option<String>)> {
    let first = requirement.values.first();
    let beside = |by: i64| first?.parse::<i64>().ok()?.checked_add(by).map(|number| number.to_string());
    let value = match requirement.operator.as_str() {
        "In" => Some(first?.clone()),
        "Exists" => Some("true".to_owned()),
        "Gt" => Some(beside(1)?),
        "Lt" => Some(beside(-1)?),
        "NotIn" | "DoesNotExist" => None,
        _ => return None,
    };
    Some((requirement.key.clone(), value))
}

fn draft(trial: &Trial<'_>, node: &str, labels: &Labels) -> Option<Draft> {
    let written = trial.state.written(resource_of_kind("Node")?, "", node)?;
    let json = serde_json::from_str(written.get()).ok()?;
    let mut operations = Vec::new();
    let mut words = Vec::new();
    let mut made = false;
    for (key, value) in labels {
        let path = ["metadata", "labels", key];
        match value {
            None => operations.push(json_ops::remove(&path)),
            // The first label of a node without any brings the map along.
            Some(value) if made => {
                operations.push(serde_json::json!({"op": "add", "path": json_ops::pointer(&path), "value": value}));
            }
            Some(value) => {
                operations.push(json_ops::set(&json, &path, value.as_str().into()));
                made = json.pointer("/metadata/labels").is_none();
            }
        }
        words.push(match value {
            None => format!("without {key}"),
            Some(value) => format!("{key}={value}"),
        });
    }
    let summary = format!("label node {node} {}", words.join(", "));
    let draft = Draft::new(ChangeKind::Relabel, cost::LABEL.saturating_mul(labels.len() as u64), summary);
    Some(draft.patching("Node", "", node, operations))
}
