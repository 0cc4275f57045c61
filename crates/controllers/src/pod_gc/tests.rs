//! What the collector removes, and when.

use serde_json::Value;

use super::*;
use crate::script::{Script, Step, refused};

fn cache(pods: &[Value], nodes: &[Value]) -> Arc<Cache> {
    let cache = Arc::new(Cache::default());
    for (kind, objects) in [(Kind::Pod, pods), (Kind::Node, nodes)] {
        for object in objects {
            cache.set(kind, object.to_string().as_bytes()).unwrap();
        }
    }
    cache
}

fn pod(name: &str, node: &str, phase: &str, deleted: bool) -> Value {
    let mut pod = json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": name, "generation": 2,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"nodeName": node}, "status": {"phase": phase},
    });
    if deleted {
        pod["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z".into();
    }
    pod
}

fn delete(line: &'static str) -> Step {
    (line, json!({"gracePeriodSeconds": 0}), Ok(json!({})))
}

fn fail(line: &'static str, uid: &str, mut status: Value) -> Step {
    status["phase"] = "Failed".into();
    (line, json!({"metadata": {"uid": uid}, "status": status}), Ok(json!({})))
}

#[test]
fn the_oldest_of_too_many_ended_pods_go_and_evicted_ones_before_them() {
    let mut evicted = pod("evicted", "n", "Failed", false);
    evicted["status"]["reason"] = "Evicted".into();
    evicted["metadata"]["creationTimestamp"] = "2026-02-01T00:00:00Z".into();
    let mut newer = pod("newer", "n", "Succeeded", false);
    newer["metadata"]["creationTimestamp"] = "2026-01-03T00:00:00Z".into();
    let pods = [evicted, newer, pod("older", "n", "Failed", false), pod("running", "n", "Running", false)];
    let node = json!({"metadata": {"name": "n"}});
    for (max, steps) in [
        (0, vec![]),
        (3, vec![]),
        (2, vec![delete("DELETE ns/pods/evicted")]),
        (1, vec![delete("DELETE ns/pods/evicted"), delete("DELETE ns/pods/older")]),
    ] {
        let collector = PodGcController::new(cache(&pods, std::slice::from_ref(&node)), max);
        let next = Script::new("ended", steps).play(&collector, LOOK).unwrap();
        assert_eq!(next, Requeue::After(PERIOD));
    }
}

#[test]
fn pods_of_a_missing_node_go_after_a_quarantine_and_a_live_look() {
    let cache = cache(&[pod("p", "gone", "Running", false)], &[]);
    let collector = PodGcController::new(cache, 0);
    let look = |answer| -> Step { ("GET nodes/gone", Value::Null, answer) };
    Script::new("first seen", []).play_at(0, &collector, LOOK).unwrap();
    Script::new("in quarantine", []).play_at(39, &collector, LOOK).unwrap();
    let there = look(Ok(json!({"metadata": {"name": "gone"}})));
    Script::new("the cache is behind", [there]).play_at(40, &collector, LOOK).unwrap();
    Script::new("in quarantine again", []).play_at(60, &collector, LOOK).unwrap();
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
        "message": "PodGC: node no longer exists", "lastTransitionTime": "2026-05-28T20:28:20Z",
        "observedGeneration": 2,
    });
    let failed = fail("STRATEGIC-PATCH ns/pods/p/status", "p", json!({"conditions": [condition]}));
    let steps = [look(refused(404)), failed, delete("DELETE ns/pods/p")];
    Script::new("it is gone", steps).play_at(100, &collector, LOOK).unwrap();
}

#[test]
fn deleted_pods_that_nobody_will_stop_are_removed() {
    let taint = json!({"key": OUT_OF_SERVICE, "effect": "NoExecute"});
    let node = |name: &str, ready: &str| {
        json!({
            "metadata": {"name": name}, "spec": {"taints": [taint]},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        })
    };
    let pods = [
        pod("unscheduled", "", "Pending", true),
        pod("waiting", "", "Pending", false),
        pod("on-dead", "dead", "Running", true),
        pod("on-live", "live", "Running", true),
    ];
    let collector = PodGcController::new(cache(&pods, &[node("dead", "Unknown"), node("live", "True")]), 0);
    let steps = [
        fail("STRATEGIC-PATCH ns/pods/on-dead/status", "on-dead", json!({})),
        delete("DELETE ns/pods/on-dead"),
        fail("STRATEGIC-PATCH ns/pods/unscheduled/status", "unscheduled", json!({})),
        delete("DELETE ns/pods/unscheduled"),
    ];
    Script::new("deleted", steps).play(&collector, LOOK).unwrap();
}
