//! One more node like those of a pool that is there.

use std::collections::BTreeMap;

use bayplan_model::node::{LABEL_HOSTNAME, LABEL_ZONE, Node};
use bayplan_scheduler::NodeInfo;
use bayplan_scheduler::inspect::{Attempt, Search};
use serde::Deserialize;
use serde_json::Value;

use super::obstacles::Obstacles;
use super::trial::{Draft, Trial, resource_of_kind};
use super::{Change, ChangeKind, cost};
use crate::pool_of;

/// Most pools that are looked at.
const POOLS_MAX: usize = 256;
/// Most changes of this kind: each is another pool.
const NODES_ADDED_MAX: usize = 4;
/// Most pools that are tried in a whole decision.
const POOLS_TRIED_MAX: usize = 12;
/// Taints of a node's own state, which a new node does not have.
const HEALTH_PREFIX: &str = "node.kubernetes.io/";

/// What nodes of one pool have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pool {
    /// The pool's name, or the node that stands for those like it.
    name: Option<String>,
    zone: String,
    /// Allocatable and taints, where no label names the pool.
    like: String,
}

/// A new node and what comes with it.
struct NewNode {
    template: String,
    pool: Option<String>,
    objects: Vec<Value>,
}

/// Changes that add a node each.
pub(super) fn changes(trial: &mut Trial<'_>, obstacles: &Obstacles) -> Vec<Change> {
    if obstacles.is_refused_as_a_whole || obstacles.nodes.is_empty() {
        return Vec::new();
    }
    let new: Vec<NewNode> = pools(trial).into_iter().filter_map(|(pool, node)| new_node(trial, pool, &node)).collect();
    let mut found: Vec<Change> = Vec::new();
    let mut pools_found: Vec<Option<String>> = Vec::new();
    for new in promising(trial, new).into_iter().take(POOLS_TRIED_MAX) {
        // The zones of one pool are alike: one is enough.
        if found.len() == NODES_ADDED_MAX || (new.pool.is_some() && pools_found.contains(&new.pool)) {
            continue;
        }
        let pool = new.pool.clone();
        if let Some(change) = trial.prove(draft(new)) {
            found.push(change);
            pools_found.push(pool);
        }
    }
    found
}

/// The pools, each with the node that stands for it: the first by name that is not cordoned.
fn pools(trial: &Trial<'_>) -> Vec<(Pool, String)> {
    let mut pools: BTreeMap<Pool, (bool, String)> = BTreeMap::new();
    for info in trial.state.cluster().nodes() {
        let node = info.node();
        let name = pool_of(node).map(str::to_owned);
        let like = match name {
            Some(_) => String::new(),
            None => format!("{:?} {:?}", node.status.allocatable, node.spec.taints),
        };
        let pool = Pool { name, zone: node.metadata.labels.get(LABEL_ZONE).cloned().unwrap_or_default(), like };
        let candidate = (node.spec.unschedulable, node.metadata.name.clone());
        let is_new = !pools.contains_key(&pool);
        if is_new && pools.len() == POOLS_MAX {
            continue;
        }
        let best = pools.entry(pool).or_insert_with(|| candidate.clone());
        if candidate < *best {
            *best = candidate;
        }
    }
    pools.into_iter().map(|(pool, (_, node))| (pool, node)).collect()
}

/// A copy of a node without its pods, images and cordon, and with its drivers and devices.
fn new_node(trial: &Trial<'_>, pool: Pool, template: &str) -> Option<NewNode> {
    let written = |kind: &str, name: &str| -> Option<Value> {
        serde_json::from_str(trial.state.written(resource_of_kind(kind)?, "", name)?.get()).ok()
    };
    let mut node = written("Node", template)?;
    let name = (1..).map(|n| format!("{template}-new-{n}")).find(|name| trial.state.cluster().node(name).is_none())?;
    fresh_metadata(&mut node, &name);
    if node.pointer(&super::json_ops::pointer(&["metadata", "labels", LABEL_HOSTNAME])).is_some() {
        node["metadata"]["labels"][LABEL_HOSTNAME] = name.as_str().into();
    }
    if let Some(spec) = node.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("unschedulable");
        spec.remove("providerID");
        if let Some(taints) = spec.get_mut("taints").and_then(Value::as_array_mut) {
            taints.retain(|taint| !taint["key"].as_str().is_some_and(|key| key.starts_with(HEALTH_PREFIX)));
        }
    }
    if let Some(status) = node.get_mut("status").and_then(Value::as_object_mut) {
        status
            .retain(|field, _| matches!(field.as_str(), "allocatable" | "capacity" | "declaredFeatures" | "features"));
    }
    let mut objects = vec![node];
    if let Some(mut drivers) = written("CSINode", template) {
        fresh_metadata(&mut drivers, &name);
        objects.push(drivers);
    }
    objects.extend(device_slices(trial, template, &name));
    Some(NewNode { template: template.to_owned(), pool: pool.name, objects })
}

/// Keeps what a new object of this name would be given.
fn fresh_metadata(object: &mut Value, name: &str) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|field, _| matches!(field.as_str(), "labels" | "annotations" | "name"));
        metadata.insert("name".to_owned(), name.into());
    }
}

/// Copies of the slices of devices that are on the node itself.
fn device_slices(trial: &Trial<'_>, template: &str, name: &str) -> Vec<Value> {
    let slices = trial.state.cluster().objects.resource_slices.iter();
    let on_node = slices.filter(|slice| slice.spec.node_name.as_deref() == Some(template));
    let resource = resource_of_kind("ResourceSlice");
    let copies = on_node.enumerate().filter_map(|(at, slice)| {
        let written = trial.state.written(resource?, "", &slice.metadata.name)?;
        let mut copy: Value = serde_json::from_str(written.get()).ok()?;
        fresh_metadata(&mut copy, &format!("{name}-{at}"));
        copy["spec"]["nodeName"] = name.into();
        if copy["spec"]["pool"]["name"] == template {
            copy["spec"]["pool"]["name"] = name.into();
        }
        Some(copy)
    });
    copies.collect()
}

/// The new nodes that no filter refuses as things are, first; others only where devices decide, which come with them.
fn promising(trial: &mut Trial<'_>, new: Vec<NewNode>) -> Vec<NewNode> {
    if !trial.count_decision() {
        return Vec::new();
    }
    let mut attempt =
        Attempt::new(trial.profile, trial.state.cluster(), trial.state.nominator(), &trial.pod, trial.now());
    if attempt.find(Search::ALL).is_err() {
        return Vec::new();
    }
    let may_fit = |new: &NewNode| {
        let Some(Ok(node)) = new.objects.first().map(Node::deserialize) else { return false };
        let refusals = attempt.refusals(&NodeInfo::of(node.into()));
        refusals.iter().all(|status| status.plugin == "DynamicResources" && new.objects.len() > 1)
    };
    new.into_iter().filter(may_fit).collect()
}

fn draft(new: NewNode) -> Draft {
    let like = match &new.pool {
        Some(pool) => format!("like {} (pool {pool})", new.template),
        None => format!("like {}", new.template),
    };
    let mut draft = Draft::new(ChangeKind::AddNode, cost::NODE, format!("add a node {like}"));
    draft.adds = new.objects;
    draft
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_copy_keeps_only_what_a_new_object_would_have() {
        let mut object = json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "7", "labels": {"x": "y"}}});
        fresh_metadata(&mut object, "b");
        assert_eq!(object, json!({"metadata": {"name": "b", "labels": {"x": "y"}}}));
    }
}
