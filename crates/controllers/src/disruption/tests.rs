//! What a budget allows, as it is written.

use bayplan_model::api::Resource;
use serde_json::{Value, json};

use std::time::Duration;

use super::*;
use crate::discovery::ApiResource;
use crate::script::{Script, Step, now, refused};

/// What it is, the budget's spec, the exchanges, the outcome, and the reasons of the events.
type Case = (&'static str, Value, Vec<Step>, &'static str, &'static [&'static str]);

/// A Deployment of four in a namespace with a ReplicaSet that has three of its pods and one of two that are left of an
/// older one; `ready` of the pods are ready.
fn controller(spec: Value, status: Value, ready: usize) -> DisruptionController {
    let resource = Resource::new("apps", "v1", "statefulsets");
    let sets = ApiResource { resource, kind: "StatefulSet".into(), namespaced: true, verbs: Vec::new() };
    let resources = Resources::default();
    resources.replace(vec![sets]);
    let cache = Arc::new(Cache::default());
    let set = |kind, object: Value| cache.set(kind, object.to_string().as_bytes()).map(drop).unwrap();
    let owner = |kind: &str, name: &str| {
        let reference = json!({"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name, "controller": true});
        json!([reference])
    };
    set(Kind::Deployment, json!({"metadata": {"name": "d", "namespace": "ns", "uid": "d"}, "spec": {"replicas": 4}}));
    for name in ["old", "new"] {
        let metadata =
            json!({"name": name, "namespace": "ns", "uid": name, "ownerReferences": owner("Deployment", "d")});
        set(Kind::ReplicaSet, json!({"metadata": metadata, "spec": {"replicas": 3}}));
    }
    for (at, name) in ["a", "b", "c", "z"].into_iter().enumerate() {
        let owner = owner("ReplicaSet", if name == "z" { "old" } else { "new" });
        let metadata = json!({"name": name, "namespace": "ns", "labels": {"app": "web"}, "ownerReferences": owner});
        let truth = if at < ready { "True" } else { "False" };
        set(
            Kind::Pod,
            json!({
                "metadata": metadata,
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": truth}]},
            }),
        );
    }
    let lone = json!({"name": "lone", "namespace": "ns", "labels": {"app": "lone"}});
    set(Kind::Pod, json!({"metadata": lone}));
    let owners = owner("StatefulSet", "s");
    let stateful = json!({"name": "s-0", "namespace": "ns", "labels": {"app": "db"}, "ownerReferences": owners});
    set(Kind::Pod, json!({"metadata": stateful, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}));
    let metadata = json!({"name": "b", "namespace": "ns", "uid": "b", "resourceVersion": "7", "generation": 2});
    set(Kind::Budget, json!({"metadata": metadata, "spec": spec, "status": status}));
    DisruptionController::new(cache, resources)
}

fn web(bound: (&str, Value)) -> Value {
    let mut spec = json!({"selector": {"matchLabels": {"app": "web"}}});
    spec[bound.0] = bound.1;
    spec
}

/// The status in four numbers: allowed, healthy, desired, expected.
fn status(numbers: [i32; 4]) -> Value {
    let [allowed, healthy, desired, expected] = numbers;
    let (truth, reason) = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let condition = json!({
        "type": "DisruptionAllowed", "status": truth, "observedGeneration": 2, "lastTransitionTime": now(),
        "reason": reason, "message": "",
    });
    json!({
        "observedGeneration": 2, "disruptionsAllowed": allowed, "currentHealthy": healthy, "desiredHealthy": desired,
        "expectedPods": expected, "conditions": [condition],
    })
}

fn put(spec: Value, status: Value) -> Step {
    let metadata = json!({"name": "b", "namespace": "ns", "uid": "b", "resourceVersion": "7", "generation": 2});
    let body = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": metadata, "spec": spec, "status": status,
    });
    ("PUT ns/poddisruptionbudgets/b/status", body.clone(), Ok(body))
}

#[test]
fn a_budget_allows_what_is_healthy_beyond_what_it_asks_for() {
    let cases: [(&str, Value, usize, [i32; 4]); 10] = [
        ("maxUnavailable", json!(1), 4, [1, 4, 3, 4]),
        ("maxUnavailable", json!(1), 3, [0, 3, 3, 4]),
        ("maxUnavailable", json!("30%"), 4, [2, 4, 2, 4]),
        ("maxUnavailable", json!(9), 4, [4, 4, 0, 4]),
        ("maxUnavailable", json!(0), 4, [0, 4, 4, 4]),
        ("minAvailable", json!(2), 4, [2, 4, 2, 4]),
        ("minAvailable", json!(9), 4, [0, 4, 9, 4]),
        ("minAvailable", json!("60%"), 4, [1, 4, 3, 4]),
        ("minAvailable", json!("100%"), 4, [0, 4, 4, 4]),
        ("minAvailable", json!(0), 0, [0, 0, 0, 4]),
    ];
    for (bound, value, ready, numbers) in cases {
        let spec = web((bound, value));
        let script = Script::new("numbers", [put(spec.clone(), status(numbers))]);
        let controller = controller(spec.clone(), json!({}), ready);
        assert_eq!(script.play(&controller, "ns/b").unwrap(), Requeue::OnChange, "{spec}");
        assert_eq!(script.events(), [""; 0], "{spec}");
    }
}

#[test]
fn a_status_that_is_right_is_left_alone() {
    let mut right = status([1, 4, 3, 4]);
    right["conditions"][0]["lastTransitionTime"] = json!("2020-01-01T00:00:00Z");
    let controller = controller(web(("maxUnavailable", json!(1))), right, 4);
    assert_eq!(Script::new("right", []).play(&controller, "ns/b").unwrap(), Requeue::OnChange);
}

#[test]
fn granted_evictions_count_until_they_are_seen_or_overdue() {
    let spec = web(("maxUnavailable", json!(1)));
    let granted = |ago: u64| now() - Duration::from_secs(ago);
    let disrupted = json!({"a": granted(30), "b": granted(121), "gone": granted(1)});
    let mut counted = status([0, 3, 3, 4]);
    counted["disruptedPods"] = json!({"a": granted(30)});
    let script = Script::new("granted", [put(spec.clone(), counted)]);
    let controller = controller(spec, json!({"disruptedPods": disrupted}), 4);
    assert_eq!(script.play(&controller, "ns/b").unwrap(), Requeue::After(Duration::from_secs(90)));
    assert_eq!(script.events(), ["NotDeleted"]);
}

#[test]
fn pods_are_counted_by_whatever_says_how_many_there_should_be() {
    let select = |app: &str| json!({"selector": {"matchLabels": {"app": app}}, "maxUnavailable": 1});
    let scale = |answer| -> Step { ("GET ns/statefulsets/s/scale", Value::Null, answer) };
    let live = json!({"metadata": {"name": "s", "uid": "s"}, "spec": {"replicas": 3}});
    let failed = |why: &str| {
        let condition = json!({
            "type": "DisruptionAllowed", "status": "False", "observedGeneration": 0, "lastTransitionTime": now(),
            "reason": "SyncFailed", "message": why,
        });
        json!({
            "observedGeneration": 0, "disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0,
            "expectedPods": 0, "conditions": [condition],
        })
    };
    let lost = "found no controllers for pod \"s-0\"";
    let cases: Vec<Case> = vec![
        ("another kind", select("db"), vec![scale(Ok(live)), put(select("db"), status([0, 1, 2, 3]))], "OnChange", &[]),
        (
            "it is gone",
            select("db"),
            vec![scale(refused(404)), put(select("db"), failed(lost))],
            lost,
            &["CalculateExpectedPodCountFailed"],
        ),
        ("nobody", select("lone"), vec![put(select("lone"), status([0, 0, 0, 0]))], "OnChange", &["UnmanagedPods"]),
        ("no pods", select("none"), vec![put(select("none"), status([0, 0, 0, 0]))], "OnChange", &["NoPods"]),
    ];
    for (case, spec, steps, outcome, events) in cases {
        let script = Script::new(case, steps);
        let next = script.play(&controller(spec, json!({}), 4), "ns/b");
        assert_eq!(next.map_or_else(|error| error.to_string(), |next| format!("{next:?}")), outcome, "{case}");
        assert_eq!(script.events(), events, "{case}");
    }
}

#[test]
fn a_pod_that_was_said_to_be_disrupted_and_was_not_is_taken_back_after_two_minutes() {
    let pod = |ago: u64, reason: &str, phase: &str| {
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": reason,
            "lastTransitionTime": now() - Duration::from_secs(ago),
        });
        let metadata = json!({"name": "p", "namespace": "ns", "uid": "p", "resourceVersion": "5"});
        json!({"metadata": metadata, "status": {"phase": phase, "conditions": [condition]}})
    };
    let condition = json!({
        "type": "DisruptionTarget", "status": "False", "lastTransitionTime": now(), "reason": null, "message": null,
    });
    let patch = json!({"metadata": {"uid": "p", "resourceVersion": "5"}, "status": {"conditions": [condition]}});
    let write = |answer| -> Vec<Step> { vec![("STRATEGIC-PATCH ns/pods/p/status", patch.clone(), answer)] };
    let soon = Requeue::After(Duration::from_secs(90));
    let cases: [(&str, Value, bool, Vec<Step>, Requeue); 5] = [
        ("not yet", pod(30, "EvictionByEvictionAPI", "Running"), true, vec![], soon),
        ("stale", pod(120, "EvictionByEvictionAPI", "Running"), true, write(Ok(json!({}))), Requeue::OnChange),
        ("gone", pod(121, "PreemptionByScheduler", "Pending"), true, write(refused(404)), Requeue::OnChange),
        ("a kubelet said it", pod(500, "TerminationByKubelet", "Running"), false, vec![], Requeue::OnChange),
        ("it has ended", pod(500, "EvictionByEvictionAPI", "Failed"), false, vec![], Requeue::OnChange),
    ];
    for (case, pod, wakes, steps, next) in cases {
        let controller = controller(web(("minAvailable", json!(1))), json!({}), 4);
        let change = controller.cache.set(Kind::Pod, pod.to_string().as_bytes()).unwrap();
        let woken = controller.observe(&change);
        assert_eq!(woken.contains(&Wakeup::now("pods/ns/p")), wakes, "{case}");
        assert_eq!(Script::new(case, steps).play(&controller, "pods/ns/p").unwrap(), next, "{case}");
    }
}

#[test]
fn a_pod_wakes_the_budgets_that_protect_it() {
    let controller = controller(web(("minAvailable", json!(1))), json!({}), 4);
    let gone = |name| controller.observe(&controller.cache.remove(Kind::Pod, "ns", name, "9").unwrap());
    assert_eq!(gone("a"), [Wakeup::now("ns/b")]);
    assert_eq!(gone("lone"), []);
}
