//! Compares the headroom form of NodeResourcesFit and NodeResourcesBalancedAllocation with their plain form, over
//! random nodes and pods.

use bayplan_model::pod::Pod;
use bayplan_testkit::Rng;
use jiff::Timestamp;
use serde_json::{from_value, json};

use super::*;
use crate::cluster::{Cluster, Headroom, PodInfo};
use crate::plugins::node_resources_balanced_allocation::NodeResourcesBalancedAllocation;

fn pod(uid: usize, cpu: u64, memory: u64, storage: u64) -> Arc<PodInfo> {
    let mut requests = json!({});
    for (name, amount) in
        [("cpu", format!("{cpu}m")), ("memory", memory.to_string()), ("ephemeral-storage", storage.to_string())]
    {
        if !amount.starts_with('0') {
            requests[name] = amount.into();
        }
    }
    let pod: Pod = from_value(json!({
        "metadata": {"name": "p", "namespace": "n", "uid": uid.to_string()},
        "spec": {
            "nodeName": format!("node-{}", uid % 12),
            "containers": [{"name": "c", "resources": {"requests": requests}}],
        },
    }))
    .unwrap();
    Arc::new(PodInfo::new(Arc::new(pod)))
}

/// Both forms of a plugin, over all nodes.
fn compare<P: Plugin>(plugin: P, cluster: &Cluster, asking: &PodInfo) {
    let plugin = AnyPlugin::new(plugin);
    let cx = &Cycle { pod: asking, cluster, now: Timestamp::UNIX_EPOCH };
    let mut state = plugin.start();
    state.pre_filter(cx);
    if state.pre_score(cx, &[]).code == Code::Skip {
        return;
    }
    let form = state.headroom_plugin().expect("cpu, memory and storage are all that is asked for");
    let nodes: Vec<&NodeInfo> = cluster.nodes().collect();
    let headrooms: Vec<Headroom> = nodes.iter().map(|node| Headroom::of(node)).collect();
    let mut sums = vec![Some(7); nodes.len()];
    form.score(&headrooms, 3, &mut sums);
    let plain: Vec<_> = nodes.iter().map(|node| Some(7 + 3 * state.score(cx, node).unwrap())).collect();
    assert_eq!(sums, plain);
    form.filter(&headrooms, &mut sums);
    let plain: Vec<_> = nodes.iter().map(|node| state.filter(cx, node).is_success()).collect();
    assert_eq!(sums.iter().map(Option::is_some).collect::<Vec<_>>(), plain);
}

#[test]
fn headroom_gives_the_same_answers_as_the_node() {
    let mut rng = Rng::new(3);
    let mut below = |n: u64| rng.next_u64() % n;
    let strategy = |kind: &str| {
        json!({"scoringStrategy": {"type": kind, "resources": [
            {"name": "memory", "weight": 3}, {"name": "cpu", "weight": 2},
        ]}})
    };
    let mut ratio = strategy("RequestedToCapacityRatio");
    let point = |utilization, score| json!({"utilization": utilization, "score": score});
    ratio["scoringStrategy"]["requestedToCapacityRatio"] = json!({"shape": [point(0, 8), point(60, 1), point(90, 10)]});
    let configured = [Value::Null, strategy("LeastAllocated"), strategy("MostAllocated"), ratio];
    for _ in 0..200 {
        let mut cluster = Cluster::new();
        for node in 0..12 {
            // Some have nothing of a resource, one has more than fits into the shorter arithmetic.
            let cpu = [0, 4, 8, 64][below(4) as usize];
            let memory = [0, 1 << 33, 1 << 36, i64::MAX as u64 / 50][below(4) as usize];
            let storage = [0, 1u64 << 34][below(2) as usize];
            let capacity = json!({
                "cpu": cpu.to_string(), "memory": memory.to_string(), "ephemeral-storage": storage.to_string(),
                "pods": below(5).to_string(),
            });
            let object = json!({"metadata": {"name": format!("node-{node}")}, "status": {"allocatable": capacity}});
            cluster.set_node(Arc::new(from_value(object).unwrap()));
        }
        for uid in 0..below(40) {
            cluster.set_pod(pod(uid as usize, below(3000), below(1 << 33), below(1 << 32)));
        }
        let asking = pod(100, below(2) * below(5000), below(2) * below(1 << 34), below(2) * below(1 << 33));
        for args in &configured {
            compare(NodeResourcesFit::new(args).unwrap(), &cluster, &asking);
        }
        compare(NodeResourcesBalancedAllocation::new(&Value::Null).unwrap(), &cluster, &asking);
    }
}
