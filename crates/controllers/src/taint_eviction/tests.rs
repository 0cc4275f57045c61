//! When pods have to leave tainted nodes.

use std::time::Duration;

use super::*;
use crate::script::{Script, Step, refused};

fn taint(key: &str) -> Value {
    json!({"key": key, "effect": "NoExecute"})
}

fn toleration(key: &str, seconds: Option<i64>) -> Value {
    json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds})
}

/// A controller that knows a pod with these tolerations on a node with these taints.
fn world(taints: &[Value], tolerations: &[Value]) -> (Arc<Cache>, TaintEvictionController) {
    let cache = Arc::new(Cache::default());
    let controller = TaintEvictionController::new(cache.clone());
    let pod = json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
        "spec": {"nodeName": "n", "tolerations": tolerations},
    });
    controller.observe(&cache.set(Kind::Pod, pod.to_string().as_bytes()).unwrap());
    set_taints(&cache, &controller, taints);
    (cache, controller)
}

fn set_taints(cache: &Cache, controller: &TaintEvictionController, taints: &[Value]) -> Vec<Wakeup> {
    let node = json!({"metadata": {"name": "n"}, "spec": {"taints": taints}});
    controller.observe(&cache.set(Kind::Node, node.to_string().as_bytes()).unwrap())
}

fn wakes(next: Requeue) -> Vec<(String, u64)> {
    let Requeue::Keys { keys, again: false } = next else { panic!("{next:?}") };
    keys.into_iter().map(|wakeup| (wakeup.key, wakeup.after.as_secs())).collect()
}

#[test]
fn a_pod_stays_as_long_as_the_shortest_toleration_it_needs() {
    let evict = |seconds| vec![("evict/ns/p".to_owned(), seconds)];
    for (case, taints, tolerations, expected) in [
        ("it bears nothing", vec![taint("a")], vec![], evict(0)),
        ("it bears another taint", vec![taint("a")], vec![toleration("b", None)], evict(0)),
        ("it bears one of two", vec![taint("a"), taint("b")], vec![toleration("b", None)], evict(0)),
        ("for ever", vec![taint("a")], vec![toleration("a", None)], vec![]),
        ("for a while", vec![taint("a")], vec![toleration("a", Some(300))], evict(300)),
        (
            "for the shorter while",
            vec![taint("a"), taint("b")],
            vec![toleration("a", Some(300)), toleration("b", Some(20))],
            evict(20),
        ),
        ("for no time", vec![taint("a")], vec![toleration("a", Some(-1))], evict(0)),
        ("for the least time", vec![taint("a")], vec![toleration("a", Some(i64::MIN))], evict(0)),
        ("until the last day", vec![taint("a")], vec![toleration("a", Some(i64::MAX))], evict(251_622_207_200)),
    ] {
        let (_, controller) = world(&taints, &tolerations);
        let next = Script::new(case, []).play(&controller, "node/n").unwrap();
        assert_eq!(wakes(next), expected, "{case}");
    }
}

fn exchange() -> Vec<Step> {
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
        "message": "Taint manager: deleting due to NoExecute taint", "lastTransitionTime": "2026-05-28T20:31:40Z",
        "observedGeneration": 2,
    });
    let patch = json!({"metadata": {"uid": "u"}, "status": {"conditions": [condition]}});
    vec![
        ("GET ns/pods/p", Value::Null, Ok(json!({"metadata": {"name": "p", "uid": "u", "generation": 2}}))),
        ("STRATEGIC-PATCH ns/pods/p/status", patch, Ok(json!({}))),
        ("DELETE ns/pods/p", json!({}), Ok(json!({}))),
    ]
}

#[test]
fn a_pod_is_told_to_go_when_its_time_is_over_and_only_once() {
    let (_, controller) = world(&[taint("a")], &[toleration("a", Some(300))]);
    Script::new("planned", []).play_at(0, &controller, "node/n").unwrap();
    let again = Script::new("its time runs already", []).play_at(100, &controller, "node/n").unwrap();
    assert_eq!(wakes(again), []);
    let early = Script::new("too early", []).play_at(200, &controller, "evict/ns/p").unwrap();
    assert_eq!(early, Requeue::After(Duration::from_secs(100)));
    let script = Script::new("now", exchange());
    script.play_at(300, &controller, "evict/ns/p").unwrap();
    assert_eq!(script.events(), ["TaintManagerEviction"]);
    Script::new("it was told", []).play_at(301, &controller, "evict/ns/p").unwrap();
}

#[test]
fn a_pod_whose_node_recovers_may_stay() {
    let (cache, controller) = world(&[taint("a")], &[toleration("a", Some(300))]);
    Script::new("planned", []).play_at(0, &controller, "node/n").unwrap();
    assert_eq!(set_taints(&cache, &controller, &[]), [Wakeup::now("node/n")]);
    let script = Script::new("recovered", []);
    script.play_at(100, &controller, "node/n").unwrap();
    assert_eq!(script.events(), ["TaintManagerEviction"]);
    Script::new("nothing is planned", []).play_at(300, &controller, "evict/ns/p").unwrap();
}

#[test]
fn a_pod_that_is_gone_already_is_nobodys_trouble() {
    let (_, controller) = world(&[taint("a")], &[]);
    Script::new("planned", []).play(&controller, "node/n").unwrap();
    let gone = ("GET ns/pods/p", Value::Null, refused(404));
    Script::new("gone", [gone]).play(&controller, "evict/ns/p").unwrap();
}
