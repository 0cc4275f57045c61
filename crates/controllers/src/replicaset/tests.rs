//! The controller's calls in cases without a recording: bursts, its own writes, refusals.

use serde_json::{Value, json};

use super::*;
use crate::script::{ANY, Script, Step, closing, refused};

fn replica_set(replicas: i32, status: Value) -> Value {
    let labels = json!({"app": "web"});
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": "web", "namespace": "ns", "uid": "rs", "resourceVersion": "10", "generation": 1},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": []}},
        },
        "status": status,
    })
}

fn pod(name: &str, version: &str) -> Value {
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": true});
    json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": name, "resourceVersion": version, "labels": {"app": "web"},
            "ownerReferences": [owner],
        },
        "status": {"phase": "Running"},
    })
}

fn see(controller: &ReplicaSetController, kind: Kind, object: &Value) {
    let change = controller.cache.set(kind, object.to_string().as_bytes()).unwrap();
    controller.observe(&change);
}

fn controller(burst: usize, set: &Value, pods: &[Value]) -> ReplicaSetController {
    let controller = ReplicaSetController::with_burst(Arc::new(Cache::default()), burst);
    see(&controller, Kind::ReplicaSet, set);
    for pod in pods {
        see(&controller, Kind::Pod, pod);
    }
    controller
}

/// The counts of a status, and a condition with this reason and message.
fn status(replicas: i32, failure: Option<(&str, &str)>) -> Value {
    let mut status = json!({"replicas": replicas, "terminatingReplicas": 0, "observedGeneration": 1});
    if replicas > 0 {
        status["fullyLabeledReplicas"] = json!(replicas);
    }
    if let Some((reason, message)) = failure {
        let now = crate::script::now();
        status["conditions"] = json!([
            {"type": "ReplicaFailure", "status": "True", "lastTransitionTime": now,
                "reason": reason, "message": message},
        ]);
    }
    status
}

fn write(replicas: i32, status: Value, version: &str) -> Step {
    let mut stored = replica_set(replicas, status.clone());
    stored["metadata"]["resourceVersion"] = json!(version);
    ("PUT ns/replicasets/web/status", replica_set(replicas, status), Ok(stored))
}

fn create(name: &str, version: &str) -> Step {
    ("POST ns/pods", ANY, Ok(pod(name, version)))
}

fn shown(outcome: Result<Requeue, Error>) -> String {
    outcome.map_or_else(|error| error.to_string(), |next| format!("{next:?}"))
}

#[test]
fn pods_are_created_burst_by_burst_and_the_next_waits_until_the_last_is_seen() {
    let controller = controller(3, &replica_set(5, json!({"replicas": 0})), &[]);
    let play = |case, steps: Vec<Step>| shown(Script::new(case, steps).play(&controller, "ns/web"));
    let first = vec![create("a", "11"), create("b", "12"), create("c", "13"), write(5, status(0, None), "14")];
    assert_eq!(play("the first burst", first), "OnChange");
    see(&controller, Kind::Pod, &pod("a", "11"));
    let stale = "read version: 11 is not as new as written version: 13 for group resource pods";
    assert_eq!(play("not all pods are seen", vec![]), stale);
    see(&controller, Kind::Pod, &pod("b", "12"));
    see(&controller, Kind::Pod, &pod("c", "13"));
    let stale = "read version: 10 is not as new as written version: 14 for group resource replicasets.apps";
    assert_eq!(play("the status is not seen", vec![]), stale);
    let mut seen = replica_set(5, status(0, None));
    seen["metadata"]["resourceVersion"] = json!("14");
    see(&controller, Kind::ReplicaSet, &seen);
    let mut counted = replica_set(5, status(3, None));
    counted["metadata"]["resourceVersion"] = json!("14");
    let second =
        vec![create("d", "15"), create("e", "16"), ("PUT ns/replicasets/web/status", counted.clone(), Ok(counted))];
    assert_eq!(play("the rest", second), "OnChange");
}

#[test]
fn a_bookmark_tells_that_a_write_was_seen_even_when_its_object_is_gone() {
    let controller = controller(3, &replica_set(1, status(0, None)), &[]);
    let play = |case, steps: Vec<Step>| shown(Script::new(case, steps).play(&controller, "ns/web"));
    assert_eq!(play("created", vec![create("a", "11")]), "OnChange");
    controller.cache.bookmark(Kind::Pod, "10");
    assert!(play("created and gone", vec![]).starts_with("read version: 10"));
    controller.cache.bookmark(Kind::Pod, "12");
    // The creation was never seen; it is waited for as long as any other.
    assert_eq!(play("known to be gone", vec![]), "OnChange");
}

#[test]
fn what_cannot_be_created_or_deleted_is_told_of_once() {
    let refusal = || -> Step { ("POST ns/pods", ANY, refused(403)) };
    let failing = status(0, Some(("FailedCreate", "refused with 403")));
    let empty = controller(500, &replica_set(2, status(0, None)), &[]);
    let script = Script::new("refused", [refusal(), write(2, failing.clone(), "11")]);
    assert_eq!(shown(script.play(&empty, "ns/web")), "refused with 403");
    assert_eq!(script.events(), ["FailedCreate"]);

    // The condition stays as it was first said, whatever the next refusal says, and goes with the first success.
    let failed = controller(500, &replica_set(2, failing), &[]);
    let script = Script::new("refused again", [("POST ns/pods", ANY, refused(500))]);
    assert_eq!(shown(script.play(&failed, "ns/web")), "refused with 500");
    let script = Script::new("at last", [create("a", "11"), create("b", "12"), write(2, status(0, None), "13")]);
    assert_eq!(shown(script.play(&failed, "ns/web")), "OnChange");

    // In a terminating namespace no event is recorded and nothing is retried: the pods count as
    // created.
    let going = controller(500, &replica_set(2, status(0, None)), &[]);
    let script = Script::new("closing", [("POST ns/pods", ANY, closing()), ("POST ns/pods", ANY, closing())]);
    assert_eq!(shown(script.play(&going, "ns/web")), "OnChange");
    assert_eq!(script.events(), [""; 0]);
    assert_eq!(shown(Script::new("closing still", []).play(&going, "ns/web")), "OnChange");

    let pods = [pod("a", "8"), pod("b", "9")];
    let delete = |line, answer| -> Step { (line, json!({}), answer) };
    let crowded = controller(500, &replica_set(0, status(2, None)), &pods);
    let failing = status(2, Some(("FailedDelete", "unable to delete pods: refused with 500")));
    let script = Script::new(
        "one is gone, one stays",
        [delete("DELETE ns/pods/a", refused(404)), delete("DELETE ns/pods/b", refused(500)), write(0, failing, "11")],
    );
    assert_eq!(shown(script.play(&crowded, "ns/web")), "unable to delete pods: refused with 500");
    assert_eq!(script.events(), ["FailedDelete"]);
}

#[test]
fn a_template_without_labels_creates_nothing() {
    let mut set = replica_set(1, status(0, None));
    set["spec"]["template"]["metadata"] = json!({});
    let nameless = controller(500, &set, &[]);
    let script = Script::new("no labels", [("PUT ns/replicasets/web/status", ANY, Ok(set.clone()))]);
    assert_eq!(shown(script.play(&nameless, "ns/web")), "unable to create pods, no labels");
    assert_eq!(script.events(), [""; 0]);
}

#[test]
fn a_status_that_meets_a_newer_object_is_written_to_that_once() {
    let old = status(0, None);
    let set = replica_set(0, json!({"replicas": 3}));
    let mut newer = replica_set(7, json!({"replicas": 3}));
    newer["metadata"]["resourceVersion"] = json!("20");
    newer["metadata"]["generation"] = json!(2);
    let mut written = newer.clone();
    written["status"] = old.clone();
    let steps = |answer| -> Vec<Step> {
        vec![
            ("PUT ns/replicasets/web/status", replica_set(0, old.clone()), refused(409)),
            ("GET ns/replicasets/web", Value::Null, Ok(newer.clone())),
            ("PUT ns/replicasets/web/status", written.clone(), answer),
        ]
    };
    let script = Script::new("newer", steps(Ok(written.clone())));
    assert_eq!(shown(script.play(&controller(500, &set, &[]), "ns/web")), "OnChange");
    let script = Script::new("newer still", steps(refused(409)));
    assert_eq!(shown(script.play(&controller(500, &set, &[]), "ns/web")), "refused with 409");
}

/// Pods that name the ReplicaSet `web` of `ns` by its UID, each wrong in one way, and first to go if they were its own.
fn impostors() -> Vec<(&'static str, Value)> {
    let forged = |change: fn(&mut Value)| {
        let mut forged = pod("x", "20");
        forged["metadata"]["annotations"] = json!({"controller.kubernetes.io/pod-deletion-cost": "2147483647"});
        change(&mut forged);
        forged
    };
    vec![
        ("in another namespace", forged(|pod| pod["metadata"]["namespace"] = json!("other"))),
        (
            "in another namespace, of another kind",
            forged(|pod| {
                pod["metadata"]["namespace"] = json!("other");
                let owner = json!({"apiVersion": "nowhere.io/v1", "kind": "Nothing", "name": "x", "uid": "rs"});
                pod["metadata"]["ownerReferences"] = json!([owner]);
                pod["metadata"]["ownerReferences"][0]["controller"] = json!(true);
            }),
        ),
        ("of another name", forged(|pod| pod["metadata"]["ownerReferences"][0]["name"] = json!("web2"))),
        ("of another kind", forged(|pod| pod["metadata"]["ownerReferences"][0]["kind"] = json!("Deployment"))),
    ]
}

#[test]
fn a_pod_that_only_names_its_uid_is_not_a_replica_sets() {
    for (case, impostor) in impostors() {
        let pods = [pod("a", "8"), pod("b", "9"), impostor.clone()];
        let full = controller(500, &replica_set(2, status(2, None)), &pods);
        assert_eq!(shown(Script::new(case, []).play(&full, "ns/web")), "OnChange", "{case}: nothing is deleted");

        let short = controller(500, &replica_set(2, status(1, None)), &[pod("a", "8"), impostor]);
        let script = Script::new(case, [create("b", "11")]);
        assert_eq!(shown(script.play(&short, "ns/web")), "OnChange", "{case}: what is missing is created");
    }
}

#[test]
fn pods_of_foreign_siblings_do_not_decide_which_pod_goes() {
    let above = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d", "controller": true});
    let mut set = replica_set(1, status(2, None));
    set["metadata"]["ownerReferences"] = json!([above]);
    let on = |mut pod: Value, node: &str| {
        pod["spec"] = json!({"nodeName": node});
        pod
    };
    // A sibling in another namespace, with a pod on the node of `a`: counted, it would make `a` the one to go.
    let mut sibling = set.clone();
    let mut foreign = on(pod("c", "20"), "crowded");
    for object in [&mut sibling, &mut foreign] {
        object["metadata"]["namespace"] = json!("other");
    }
    let controller = controller(500, &set, &[on(pod("a", "8"), "crowded"), on(pod("b", "9"), "free"), foreign]);
    see(&controller, Kind::ReplicaSet, &sibling);
    let related: Vec<_> = controller.related_pods(&serde_json::from_value(set).unwrap());
    let names: Vec<&str> = related.iter().map(|pod| pod.metadata.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
}
