//! Nodes that fall silent, and pods that have to leave them.

use std::sync::Arc;

use bayplan_controllers::{
    Cache, Context, DaemonSetController, Kind, NodeLifecycleConfig, NodeLifecycleController, PodGcController,
    TaintEvictionController,
};
use bayplan_model::status::Status;
use serde_json::{Value, json};

use super::{Case, NamedCase, cache, conditions, meta, observed, owner, sync};

/// Long before the time of the reconcile.
const LONG_AGO: &str = "2026-01-01T00:00:00Z";

pub(super) fn cases() -> Vec<NamedCase> {
    vec![
        ("nodes that fall silent", Box::new(|n| silent(n, 1))),
        ("nodes that fall silent, each in its zone", Box::new(|n| silent(n, n))),
        ("pods of a node that falls silent", Box::new(silent_with_pods)),
        ("conditions and taints of a node", Box::new(conditions_of_a_node)),
        ("pods of a tainted node", Box::new(|n| tainted(n, 1, 1))),
        ("taints of a node", Box::new(|n| tainted(1, n, 1))),
        ("tolerations of a pod on a tainted node", Box::new(|n| tainted(1, 1, n))),
        ("conditions of a pod that is evicted", Box::new(evicted)),
        ("pods of nodes that are gone", Box::new(|n| garbage(n, "Running"))),
        ("nodes of a DaemonSet", Box::new(|n| daemons(n, n))),
        ("nodes of a DaemonSet without pods", Box::new(|n| daemons(n, 0))),
        ("pods that ended", Box::new(|n| garbage(n, "Succeeded"))),
    ]
}

fn node(name: &str, zone: usize, taints: &Value, condition_count: usize) -> Value {
    let ready = json!({"type": "Ready", "status": "True", "lastHeartbeatTime": LONG_AGO});
    let more = conditions(condition_count);
    json!({
        "metadata": {
            "name": name, "uid": name, "resourceVersion": "5", "creationTimestamp": LONG_AGO,
            "labels": {"topology.kubernetes.io/zone": format!("z{zone}")},
        },
        "spec": {"taints": taints},
        "status": {"conditions": more.as_array().unwrap().iter().chain([&ready]).collect::<Vec<_>>()},
    })
}

fn pod(n: usize, node: &str, phase: &str, tolerations: &Value) -> (Kind, Value) {
    let pod = json!({
        "metadata": meta("ns", &format!("p{n}"), json!([])),
        "spec": {"nodeName": node, "tolerations": tolerations},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": "True"}]},
    });
    (Kind::Pod, pod)
}

fn lifecycle(objects: impl IntoIterator<Item = (Kind, Value)>) -> NodeLifecycleController {
    let cache = Arc::new(Cache::default());
    let controller = NodeLifecycleController::new(cache.clone(), NodeLifecycleConfig::default());
    observed(&controller, &cache, objects);
    controller
}

/// A DaemonSet on so many nodes, of which some have its pod.
fn daemons(nodes: usize, pods: usize) -> Case {
    let mut objects: Vec<(Kind, Value)> =
        (0..nodes).map(|n| (Kind::Node, node(&format!("n{n}"), 0, &json!([]), 0))).collect();
    objects.extend((0..pods).map(|n| {
        let (kind, mut pod) = pod(n, &format!("n{n}"), "Running", &json!([]));
        pod["metadata"]["ownerReferences"] = json!([owner("DaemonSet", "ds")]);
        (kind, pod)
    }));
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}});
    let mut metadata = meta("ns", "ds", json!([]));
    metadata["uid"] = json!("ds");
    let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%", "maxSurge": 0}});
    let spec = json!({
        "selector": {"matchLabels": {"app": "web"}}, "template": template, "updateStrategy": rolling,
    });
    objects.push((Kind::DaemonSet, json!({"metadata": metadata, "spec": spec})));
    let revision = json!({
        "metadata": meta("ns", "ds-1", json!([owner("DaemonSet", "ds")])), "revision": 1,
        "data": bayplan_controllers::revisions::data(&template),
    });
    objects.push((Kind::ControllerRevision, revision));
    let cache = Arc::new(Cache::default());
    let controller = DaemonSetController::new(cache.clone());
    observed(&controller, &cache, objects);
    Case::of(controller, "ns/ds")
}

/// Looks at first, when they are new, and again long after their grace period.
fn watched(controller: NodeLifecycleController) -> Case {
    let run = move |context: Context<'_>| {
        sync(&controller, "monitor", context);
        let later = Context { now: context.now + jiff::SignedDuration::from_hours(1), ..context };
        for _ in 0..2 {
            sync(&controller, "monitor", later);
        }
        sync(&controller, "taint-pass", later);
    };
    Case { run: Box::new(run), answer: Box::new(|_| Ok(json!({}))) }
}

fn silent(count: usize, zones: usize) -> Case {
    let node = |n: usize| (Kind::Node, node(&format!("n{n}"), n % zones, &json!([]), 0));
    watched(lifecycle((0..count).map(node)))
}

fn silent_with_pods(count: usize) -> Case {
    let nodes = ["n", "other"].map(|name| (Kind::Node, node(name, 0, &json!([]), 0)));
    watched(lifecycle(nodes.into_iter().chain((0..count).map(|n| pod(n, "n", "Running", &json!([]))))))
}

fn taints(count: usize) -> Value {
    (0..count).map(|n| json!({"key": format!("k{n}"), "effect": "NoExecute"})).collect()
}

fn conditions_of_a_node(count: usize) -> Case {
    let node = node("n", 0, &taints(count), count);
    Case::of(lifecycle([(Kind::Node, node)]), "node/n")
}

fn tainted(pod_count: usize, taint_count: usize, toleration_count: usize) -> Case {
    let tolerations = (0..toleration_count)
        .map(|n| json!({"key": format!("other{n}"), "operator": "Exists", "tolerationSeconds": 5}))
        .chain([json!({"operator": "Exists", "tolerationSeconds": 60})])
        .collect();
    let node = (Kind::Node, node("n", 0, &taints(taint_count), 0));
    let cache = Arc::new(Cache::default());
    let controller = TaintEvictionController::new(cache.clone());
    let pods = (0..pod_count).map(|n| pod(n, "n", "Running", &tolerations));
    observed(&controller, &cache, pods.chain([node]));
    Case::of_all(controller, vec!["node/n", "pod/ns/p0"])
}

/// It tolerates nothing, and its object has many conditions.
fn evicted(count: usize) -> Case {
    let live = json!({"metadata": {"uid": "ns-p0"}, "status": {"conditions": conditions(count)}});
    let cache = Arc::new(Cache::default());
    let controller = TaintEvictionController::new(cache.clone());
    let node = (Kind::Node, node("n", 0, &taints(1), 0));
    observed(&controller, &cache, [pod(0, "n", "Running", &json!([])), node]);
    Case::of_all(controller, vec!["node/n", "evict/ns/p0"]).answered(move |_| Ok(live.clone()))
}

/// Each pod is on a node of its own, and no node is there.
fn garbage(count: usize, phase: &'static str) -> Case {
    let cache = cache((0..count).map(|n| pod(n, &format!("gone{n}"), phase, &json!([]))));
    let controller = PodGcController::new(cache, 10);
    let run = move |context: Context<'_>| {
        sync(&controller, "", context);
        let later = Context { now: context.now + jiff::SignedDuration::from_hours(1), ..context };
        sync(&controller, "", later);
    };
    let answer = |request: &bayplan_model::api::Request| match &*request.resource.plural {
        "nodes" => Err(Status::failure(404, "NotFound", "gone")),
        _ => Ok(json!({})),
    };
    Case { run: Box::new(run), answer: Box::new(answer) }
}
