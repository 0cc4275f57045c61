//! Nodes that are told by the size of the cluster how long they may keep what they read, when they report next.

use std::sync::Arc;

use bayplan_controllers::{Kind, NodeTtlController};
use bayplan_testkit::Rng;
use serde_json::{Value, json};

use super::{Edit, Life, anything, name, nobody};
use crate::server::Server;

const NODES: &str = "nodes";
const ANNOTATION: &str = "node.alpha.kubernetes.io/ttl";

pub(super) const LIFE: Life = Life {
    name: "ttl",
    kinds: &[Kind::Node],
    controller: |cache| Arc::new(NodeTtlController::new(cache)),
    stages: &[a_few_nodes, the_cluster_grows, somebody_writes_over_it, the_cluster_shrinks],
    report: heartbeats,
    others: nobody,
    edit,
    assert_always: anything,
    assert_kept,
};

fn node(number: usize) -> Value {
    json!({"metadata": {"name": format!("n{number:03}")}})
}

fn a_few_nodes(server: &Server) {
    (0..4).for_each(|number| server.put(NODES, node(number)));
}

/// Past the edge of a hundred.
fn the_cluster_grows(server: &Server) {
    (4..103).for_each(|number| server.put(NODES, node(number)));
}

fn somebody_writes_over_it(server: &Server) {
    for (name, annotations) in [("n001", json!({ANNOTATION: "7"})), ("n002", json!({"mine": "kept"}))] {
        server.edit(NODES, name, |node| node["metadata"]["annotations"] = annotations);
    }
}

/// Past the edge of ninety, under which it has to fall.
fn the_cluster_shrinks(server: &Server) {
    (8..103).for_each(|number| server.remove(NODES, name(&node(number))));
}

/// Every kubelet writes its status.
fn heartbeats(server: &Server) {
    for each in server.objects(NODES) {
        server.edit(NODES, name(&each), |node| {
            node["status"]["heartbeat"] = json!(node["status"]["heartbeat"].as_i64().unwrap_or(0) + 1);
        });
    }
}

fn edit(rng: &mut Rng) -> Edit {
    let number = rng.below(8);
    match rng.below(4) {
        0 => Box::new(move |server| server.remove(NODES, name(&node(number)))),
        1 => Box::new(move |server| {
            let annotations = json!({ANNOTATION: number.to_string()});
            server.edit(NODES, name(&node(number)), |node| node["metadata"]["annotations"] = annotations);
        }),
        2 => Box::new(move |server| {
            server.edit(NODES, name(&node(number)), |node| node["metadata"]["annotations"] = json!({}));
        }),
        _ => Box::new(move |server| {
            if server.find(NODES, name(&node(number))).is_none() {
                server.put(NODES, node(number));
            }
        }),
    }
}

fn assert_kept(server: &Server, when: &str) {
    let nodes = server.objects(NODES);
    let expected = if nodes.len() > 100 { "15" } else { "0" };
    for node in &nodes {
        assert_eq!(node["metadata"]["annotations"][ANNOTATION], expected, "{when}: {}", name(node));
    }
}
