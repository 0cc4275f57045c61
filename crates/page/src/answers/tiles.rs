//! Nodes in columns: a number per node is a few bytes, where an object per node is hundreds.

use std::collections::BTreeMap;

use bayplan_explain::why::NodeAnswer;
use bayplan_model::node::{LABEL_ZONE, LABEL_ZONE_BETA};
use bayplan_scheduler::{Cluster, NodeInfo};
use rustc_hash::FxHashMap;
use serde::Serialize;

/// The labels by which clouds and provisioners name pools of nodes, the most telling first.
const POOL_LABELS: [&str; 6] = [
    "karpenter.sh/nodepool",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "node.kubernetes.io/pool",
    "node.kubernetes.io/instance-type",
];
/// Set in `flags` of a cordoned node.
const CORDONED: u8 = 1;
/// Set in `flags` of a node that is not ready.
const NOT_READY: u8 = 2;

/// All nodes by name, one column for each thing that the map shows.
#[derive(Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeColumns {
    names: Vec<String>,
    zones: Vec<String>,
    /// For each node an index into `zones`.
    zone: Vec<usize>,
    pools: Vec<String>,
    /// For each node an index into `pools`.
    pool: Vec<usize>,
    cpu: Vec<i64>,
    cpu_used: Vec<i64>,
    memory: Vec<i64>,
    memory_used: Vec<i64>,
    pods: Vec<usize>,
    pods_max: Vec<i64>,
    flags: Vec<u8>,
}

impl NodeColumns {
    pub(crate) fn of(cluster: &Cluster) -> Self {
        let mut nodes: Vec<&NodeInfo> = cluster.nodes().collect();
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        let (zones, zone) = indexed(nodes.iter().map(|node| zone_of(node)));
        let (pools, pool) = indexed(nodes.iter().map(|node| pool_of(node)));
        let mut columns = NodeColumns { zones, zone, pools, pool, ..NodeColumns::default() };
        for node in nodes {
            columns.names.push(node.name.to_string());
            columns.cpu.push(node.allocatable.milli_cpu);
            columns.cpu_used.push(node.requested.milli_cpu);
            columns.memory.push(node.allocatable.memory);
            columns.memory_used.push(node.requested.memory);
            columns.pods.push(node.pods().len());
            columns.pods_max.push(node.allocatable.pods);
            columns.flags.push(flags_of(node));
        }
        columns
    }
}

fn zone_of(node: &NodeInfo) -> &str {
    node.label(LABEL_ZONE).or_else(|| node.label(LABEL_ZONE_BETA)).unwrap_or("no zone")
}

fn pool_of(node: &NodeInfo) -> &str {
    POOL_LABELS.iter().find_map(|label| node.label(label)).unwrap_or("no pool")
}

fn flags_of(node: &NodeInfo) -> u8 {
    let node = node.node();
    let is_unready = node.status.conditions.iter().any(|each| each.kind == "Ready" && each.status != "True");
    (if node.spec.unschedulable { CORDONED } else { 0 }) | (if is_unready { NOT_READY } else { 0 })
}

/// The different texts in order, and for each text its index among them.
fn indexed<'t>(texts: impl Iterator<Item = &'t str> + Clone) -> (Vec<String>, Vec<usize>) {
    let mut different: BTreeMap<&str, usize> = texts.clone().map(|text| (text, 0)).collect();
    for (index, place) in different.values_mut().enumerate() {
        *place = index;
    }
    let indexes = texts.map(|text| different[text]).collect();
    (different.into_keys().map(str::to_owned).collect(), indexes)
}

/// What every node answers for one pod, in the order of [`NodeColumns`].
#[derive(Debug, Default, PartialEq, Serialize)]
pub(crate) struct Tiles {
    /// The filters that refuse nodes.
    filters: Vec<String>,
    /// The reasons they give.
    reasons: Vec<String>,
    /// For each node an index into `filters`; -1 when it takes the pod, -2 when it was not asked.
    filter: Vec<i32>,
    /// For each node an index into `reasons`, or -1.
    reason: Vec<i32>,
    /// For each node its total score, or -1.
    total: Vec<i64>,
}

impl Tiles {
    /// Puts the answers of all nodes, sorted by name, in columns.
    pub(crate) fn of(answers: &[NodeAnswer]) -> Self {
        let mut tiles = Tiles::default();
        let (mut filters, mut reasons) = (FxHashMap::default(), FxHashMap::default());
        for answer in answers {
            let (filter, reason) = match answer.code {
                None => (-1, -1),
                Some("Skip") => (-2, -1),
                Some(_) => {
                    let plugin = if answer.plugin.is_empty() { "PreFilter" } else { answer.plugin };
                    let reason = answer.reasons.join(", ");
                    (
                        interned(&mut filters, &mut tiles.filters, plugin),
                        interned(&mut reasons, &mut tiles.reasons, &reason),
                    )
                }
            };
            tiles.filter.push(filter);
            tiles.reason.push(reason);
            tiles.total.push(answer.total.unwrap_or(-1));
        }
        tiles
    }
}

/// The index of a text, which is added when it is new.
fn interned(known: &mut FxHashMap<String, i32>, texts: &mut Vec<String>, text: &str) -> i32 {
    if let Some(index) = known.get(text) {
        return *index;
    }
    let index = i32::try_from(texts.len()).unwrap_or(i32::MAX);
    texts.push(text.to_owned());
    known.insert(text.to_owned(), index);
    index
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bayplan_testkit::node;
    use serde_json::json;

    use super::*;

    #[test]
    fn nodes_are_columns_by_name_with_their_zones_and_pools() {
        let mut cluster = Cluster::new();
        for (name, zone) in [("b", "west"), ("a", "east"), ("c", "west")] {
            let mut json = node(name).json();
            json["metadata"]["labels"] =
                json!({"topology.kubernetes.io/zone": zone, "karpenter.sh/nodepool": "general"});
            json["status"]["allocatable"] = json!({"cpu": "4", "memory": "1Ki", "pods": "7"});
            json["spec"]["unschedulable"] = (name == "c").into();
            cluster.set_node(Arc::new(serde_json::from_value(json).unwrap()));
        }
        let columns = serde_json::to_value(NodeColumns::of(&cluster)).unwrap();
        assert_eq!(
            columns,
            json!({"names": ["a", "b", "c"], "zones": ["east", "west"], "zone": [0, 1, 1], "pools": ["general"],
                "pool": [0, 0, 0], "cpu": [4000, 4000, 4000], "cpuUsed": [0, 0, 0], "memory": [1024, 1024, 1024],
                "memoryUsed": [0, 0, 0], "pods": [0, 0, 0], "podsMax": [7, 7, 7], "flags": [0, 0, 1]})
        );
    }

    #[test]
    fn answers_are_columns_of_indexes() {
        let refused = |plugin, reason: &str| NodeAnswer {
            code: Some("Unschedulable"),
            plugin,
            reasons: vec![reason.into()],
            ..NodeAnswer::default()
        };
        let answers = [
            refused("NodeResourcesFit", "Insufficient cpu"),
            NodeAnswer { total: Some(70), ..NodeAnswer::default() },
            refused("NodeResourcesFit", "Insufficient memory"),
            NodeAnswer { code: Some("Skip"), ..NodeAnswer::default() },
            refused("", "left out"),
        ];
        assert_eq!(
            serde_json::to_value(Tiles::of(&answers)).unwrap(),
            json!({"filters": ["NodeResourcesFit", "PreFilter"],
                "reasons": ["Insufficient cpu", "Insufficient memory", "left out"],
                "filter": [0, -1, 0, -2, 1], "reason": [0, -1, 1, -1, 2], "total": [-1, 70, -1, -1, -1]})
        );
    }
}
