//! Dumps of clusters, large and small.

use serde_json::{Value, json};

/// A pod of one container. Without a node it is pending.
pub(crate) fn pod(name: &str, cpu: &str, memory: &str, node: Option<&str>) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": name}},
        "spec": {
            "schedulerName": "default-scheduler",
            "containers": [{"name": "main", "image": "app", "resources": {"requests": {"cpu": cpu, "memory": memory}}}],
        },
        "status": {"phase": "Pending"},
    });
    if let Some(node) = node {
        pod["spec"]["nodeName"] = node.into();
        pod["status"] = json!({"phase": "Running", "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T10:00:00Z"}]});
    }
    pod
}

/// A List of so many nodes in three zones and four pools, two pods on each, and 300 pending pods of four templates.
pub(crate) fn large(nodes: usize) -> Value {
    let pools = ["general", "compute", "memory", "gpu"];
    let node = |index: usize| {
        let pool = pools[index % 37 % 4];
        let mut node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name(index), "labels": {
                "kubernetes.io/hostname": name(index), "topology.kubernetes.io/zone": format!("zone-{}", index % 3),
                "karpenter.sh/nodepool": pool}},
            "spec": {},
            "status": {"allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}]},
        });
        if pool == "gpu" {
            node["spec"]["taints"] = json!([{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]);
        }
        if index % 211 == 7 {
            node["spec"]["unschedulable"] = true.into();
        }
        node
    };
    let mut items: Vec<Value> = (0..nodes).map(node).collect();
    for index in 0..nodes * 2 {
        let on = index / 2;
        let cpu = format!("{}m", 1000 + (on * 7919 % 61) * 100);
        items.push(pod(&format!("web-{index:06}"), &cpu, &format!("{}Gi", 2 + on % 23), Some(&name(on))));
    }
    for index in 0..300 {
        let mut waiting = match index % 7 {
            0..=2 => pod(&format!("training-{index:03}"), "15", "40Gi", None),
            3 | 4 => pod(&format!("cache-{index:03}"), "1", "2Gi", None),
            5 => pod(&format!("huge-{index:03}"), "40", "1Gi", None),
            _ => pod(&format!("gated-{index:03}"), "1", "1Gi", None),
        };
        waiting["metadata"]["labels"] = json!({"app": waiting["metadata"]["name"].as_str().unwrap().split('-').next()});
        match index % 7 {
            3 | 4 => waiting["spec"]["nodeSelector"] = json!({"disk": "ssd"}),
            6 => waiting["spec"]["schedulingGates"] = json!([{"name": "example.com/quota"}]),
            _ => {}
        }
        items.push(waiting);
    }
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

fn name(index: usize) -> String {
    format!("node-{index:05}")
}
