//! What the recorder made before the first scenario.

use bayplan_model::api::{Request, Verb, encode};
use serde_json::{Value, json};

use super::super::cluster::Cluster;

/// Creates the namespace and the objects of the cluster.
pub(super) async fn create(cluster: &Cluster) -> Result<(), String> {
    let class = |name: &str, value: i64| {
        json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value,
        })
    };
    let storage = |name: &str, expands: bool| {
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": "csi.example.com", "allowVolumeExpansion": expands,
        })
    };
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": cluster.namespace}});
    let fixtures = [
        ("namespaces", namespace),
        ("priorityclasses", class("high", 1000)),
        ("priorityclasses", class("low", 10)),
        ("storageclasses", storage("expandable", true)),
        ("storageclasses", storage("fixed", false)),
        ("nodes", node()),
    ];
    for (plural, object) in fixtures {
        let request = Request::collection(&cluster.resource(plural)?, "", Verb::Create(encode(&object)));
        cluster.call(request).await.map_err(|status| format!("{plural}: {status}"))?;
    }
    Ok(())
}

/// The node of endpoints' pods, on which no DaemonSet runs.
fn node() -> Value {
    let resources = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "epsnode", "labels": {"node-role.kubernetes.io/control-plane": ""}},
        "spec": {"taints": [{"key": "eps", "value": "only", "effect": "NoExecute"}]},
        "status": {
            "allocatable": resources, "capacity": resources,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}
