//! What proven changes cost on a large cluster. Measured by hand, in a release build: CONTRIBUTING.md has the command.

#![allow(clippy::unwrap_used)]

mod stranger;

use std::time::Instant;

use bayplan_explain::{ChangeOptions, Subject, changes};
use bayplan_testkit::{node, pod};
use serde_json::{Value, json};

const NODES: usize = 5_000;
const PODS: usize = 150_000;

/// A cluster of four pools in three zones that is nearly full, with cordoned, tainted and labelled parts.
fn large_cluster() -> Vec<Value> {
    let mut objects = Vec::new();
    for n in 0..NODES {
        let name = format!("n-{n:05}");
        let mut node = node(&name)
            .zone(["a", "b", "c"][n % 3])
            .label("pool", ["small", "medium", "large", "gpu"][n % 4])
            .label("disk", if n % 5 == 0 { "ssd" } else { "hdd" })
            .allocatable("cpu", "16")
            .allocatable("memory", "64Gi");
        match n % 20 {
            3 => node = node.taint("dedicated", ["db", "ml", "web"][n % 3], "NoSchedule"),
            7 => node = node.taint("dedicated", "ops", "NoSchedule").taint("spot", "", "NoExecute"),
            9 if n % 40 == 9 => node = node.unschedulable(),
            _ => {}
        }
        objects.push(node.json());
    }
    for p in 0..PODS {
        let n = p % NODES;
        let app = format!("app-{}", p % 300);
        let placed = pod(&format!("p-{p}"))
            .label("app", &app)
            .priority(((p / NODES) % 5) as i32 * 100)
            .request("cpu", if n % 20 == 3 || n % 20 == 7 || n % 40 == 9 { "400m" } else { "520m" })
            .request("memory", "1Gi")
            .on_node(&format!("n-{n:05}"));
        objects.push(placed.json());
    }
    for class in [100, 250, 1000] {
        objects.push(json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": format!("class-{class}")}, "value": class}));
    }
    objects
}

#[test]
#[ignore = "a measurement: 5,000 nodes and 150,000 pods"]
fn twenty_proven_changes_on_a_large_cluster() {
    let profile = stranger::profile(&Value::Null);
    let mut state = stranger::state(&large_cluster());
    let zone = json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "app-1"}}}]});
    let cases = [
        ("a pod that is too large for what is left", pod("x").request("cpu", "1").json()),
        ("the same with a node selector", pod("x").request("cpu", "500m").node_selector("disk", "nvme").json()),
        ("the same with spreading", pod("x").label("app", "app-1").request("cpu", "1").spec(zone).json()),
        ("a pod that is too large for any node", pod("x").request("cpu", "20").request("memory", "70Gi").json()),
    ];
    for (sentence, subject) in cases {
        let start = Instant::now();
        let (feasible, _) = stranger::decide(&profile, &state, &subject);
        let decision = start.elapsed();
        assert_eq!(feasible.len(), 0, "{sentence}");
        let start = Instant::now();
        let found = changes(&mut state, &profile, Subject::as_written(&subject), &ChangeOptions::at(stranger::NOW));
        println!("{sentence}: {} changes in {:?}; one decision {decision:?}", found.len(), start.elapsed());
        for change in &found {
            println!("    {:?} {}: {}", change.kind, change.node, change.summary);
        }
    }
}
