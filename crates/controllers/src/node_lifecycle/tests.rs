//! What becomes of nodes that fall silent, in virtual time.

use serde_json::Value;

use super::*;
use crate::script::{Script, Step, now, refused};

fn at(second: i64) -> String {
    timestamp::seconds(now() + SignedDuration::from_secs(second))
}

fn set(cache: &Cache, kind: Kind, object: Value) -> AnyDelta {
    cache.set(kind, object.to_string().as_bytes()).unwrap()
}

fn node(name: &str, taints: Value, conditions: Value) -> Value {
    json!({
        "metadata": {"name": name, "uid": name, "resourceVersion": "5", "creationTimestamp": at(0)},
        "spec": {"taints": taints}, "status": {"conditions": conditions},
    })
}

fn ready(status: &str, heartbeat: i64) -> Value {
    json!({
        "type": "Ready", "status": status, "lastHeartbeatTime": at(heartbeat), "lastTransitionTime": at(0),
        "reason": "KubeletReady", "message": "posting",
    })
}

fn lease(name: &str, second: i64) -> Value {
    let renewed = timestamp::micros(now() + SignedDuration::from_secs(second));
    json!({"metadata": {"name": name, "namespace": NODE_LEASES}, "spec": {"renewTime": renewed}})
}

fn condition(condition_type: &str, reason: &str, message: &str, second: i64) -> Value {
    json!({
        "type": condition_type, "status": "Unknown", "lastHeartbeatTime": at(0), "lastTransitionTime": at(second),
        "reason": reason, "message": message,
    })
}

/// The write that says that a node is silent; only its `Ready` was ever posted.
fn unresponsive(second: i64) -> Value {
    let never = |kind| condition(kind, "NodeStatusNeverUpdated", "Kubelet never posted node status.", second);
    let stopped = condition("Ready", "NodeStatusUnknown", "Kubelet stopped posting node status.", second);
    let conditions = json!([stopped, never("MemoryPressure"), never("DiskPressure"), never("PIDPressure")]);
    json!({"metadata": {"resourceVersion": "5"}, "status": {"conditions": conditions}})
}

/// A controller that knows two ready nodes, one of them with a ready pod.
fn world() -> (Arc<Cache>, NodeLifecycleController) {
    let cache = Arc::new(Cache::default());
    let controller = NodeLifecycleController::new(cache.clone(), NodeLifecycleConfig::default());
    for name in ["dead", "live"] {
        set(&cache, Kind::Node, node(name, json!([]), json!([ready("True", 0)])));
        set(&cache, Kind::Lease, lease(name, 0));
    }
    let pod = json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {"nodeName": "dead"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    controller.observe(&set(&cache, Kind::Pod, pod));
    (cache, controller)
}

#[test]
fn a_silent_node_becomes_unknown_its_pods_not_ready_and_it_waits_for_its_taint() {
    let (cache, controller) = world();
    let script = Script::new("first look", []);
    script.play_at(0, &controller, MONITOR).unwrap();
    assert_eq!(script.events(), ["RegisteredNode", "RegisteredNode"]);
    set(&cache, Kind::Lease, lease("live", 40));
    Script::new("within the grace period", []).play_at(50, &controller, MONITOR).unwrap();

    let not_ready = json!({"type": "Ready", "status": "False", "lastTransitionTime": at(51)});
    let pod = json!({"metadata": {"uid": "u"}, "status": {"conditions": [not_ready]}});
    let steps: [Step; 2] = [
        ("STRATEGIC-PATCH nodes/dead/status", unresponsive(51), Ok(json!({}))),
        ("STRATEGIC-PATCH ns/pods/p/status", pod, Ok(json!({}))),
    ];
    let script = Script::new("beyond it", steps);
    script.play_at(51, &controller, MONITOR).unwrap();
    assert_eq!(script.events(), ["NodeNotReady", "NodeNotReady"]);

    // The watch brings back what was written; it is no sign of life.
    let unknown = condition("Ready", "NodeStatusUnknown", "Kubelet stopped posting node status.", 51);
    let change = set(&cache, Kind::Node, node("dead", json!([]), json!([unknown])));
    assert_eq!(controller.observe(&change), [Wakeup::now("node/dead")]);
    let added =
        |effect: &str| json!([{"key": "node.kubernetes.io/unreachable", "effect": effect, "timeAdded": at(56)}]);
    let patch = |effect: &str| json!({"metadata": {"resourceVersion": "5"}, "spec": {"taints": added(effect)}});
    let step: Step = ("MERGE-PATCH nodes/dead", patch("NoSchedule"), Ok(json!({})));
    Script::new("no new pods", [step]).play_at(56, &controller, "node/dead").unwrap();

    let next = Script::new("seen as unreachable", []).play_at(56, &controller, MONITOR).unwrap();
    let Requeue::Keys { keys, .. } = next else { panic!("{next:?}") };
    assert_eq!(keys, [Wakeup::after(MONITOR, Duration::from_secs(5)), Wakeup::now(TAINT_PASS)]);
    let step: Step = ("MERGE-PATCH nodes/dead", patch("NoExecute"), Ok(json!({})));
    Script::new("its turn", [step]).play_at(56, &controller, TAINT_PASS).unwrap();
    Script::new("once", []).play_at(76, &controller, TAINT_PASS).unwrap();
}

#[test]
fn a_node_that_comes_back_loses_its_taints() {
    let (cache, controller) = world();
    Script::new("first look", []).play_at(0, &controller, MONITOR).unwrap();
    let taint = |key: &str, effect: &str| json!({"key": format!("node.kubernetes.io/{key}"), "effect": effect});
    let mine = json!({"key": "mine", "effect": "NoExecute"});
    let taints = json!([taint("unreachable", "NoExecute"), mine, taint("unreachable", "NoSchedule")]);
    set(&cache, Kind::Node, node("dead", taints, json!([ready("True", 70)])));
    let patch =
        json!({"metadata": {"resourceVersion": "5"}, "spec": {"taints": [mine, taint("unreachable", "NoSchedule")]}});
    let step: Step = ("MERGE-PATCH nodes/dead", patch, Ok(json!({})));
    set(&cache, Kind::Lease, lease("live", 69));
    Script::new("it is back", [step]).play_at(70, &controller, MONITOR).unwrap();
}

#[test]
fn a_write_that_lost_is_judged_again_on_the_newest_state() {
    let (cache, controller) = world();
    Script::new("first look", []).play_at(0, &controller, MONITOR).unwrap();
    set(&cache, Kind::Lease, lease("live", 60));
    let alive = node("dead", json!([]), json!([ready("True", 60)]));
    let steps: [Step; 2] = [
        ("STRATEGIC-PATCH nodes/dead/status", unresponsive(60), refused(409)),
        ("GET nodes/dead", Value::Null, Ok(alive)),
    ];
    Script::new("it spoke at the last moment", steps).play_at(60, &controller, MONITOR).unwrap();
}

#[test]
fn conditions_and_cordons_ask_for_taints_and_foreign_taints_stay() {
    let pressure = |kind: &str| json!({"type": kind, "status": "True"});
    let taint = |key: &str| Taint::new(&format!("node.kubernetes.io/{key}"), "NoSchedule");
    let cases = [
        (json!([]), json!([pressure("Ready")]), false, vec![], vec![]),
        (json!([]), json!([{"type": "Ready", "status": "False"}]), false, vec![taint("not-ready")], vec![]),
        (json!([]), json!([{"type": "Ready", "status": "Unknown"}]), false, vec![taint("unreachable")], vec![]),
        (
            json!([taint("not-ready"), {"key": "mine", "effect": "NoSchedule"}]),
            json!([
                pressure("Ready"),
                pressure("MemoryPressure"),
                pressure("DiskPressure"),
                pressure("PIDPressure"),
                pressure("NetworkUnavailable")
            ]),
            true,
            ["memory-pressure", "disk-pressure", "pid-pressure", "network-unavailable", "unschedulable"]
                .map(taint)
                .into(),
            vec![taint("not-ready")],
        ),
        (json!([taint("unschedulable")]), json!([pressure("Ready")]), false, vec![], vec![taint("unschedulable")]),
    ];
    for (taints, conditions, unschedulable, add, remove) in cases {
        let mut node = node("n", taints, conditions);
        node["spec"]["unschedulable"] = unschedulable.into();
        let node: Node = serde_json::from_value(node).unwrap();
        assert_eq!(taints::by_condition(&node), (add, remove), "{node:?}");
    }
}
