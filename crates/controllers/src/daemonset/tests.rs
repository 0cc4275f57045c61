//! The controller's calls in cases without a recording, and its plans as tables.

use bayplan_model::delta::Delta;
use serde_json::{Value, json};

use super::*;
use crate::revisions;
use crate::script::{ANY, Script, Step, exists, now};

fn daemon_set(strategy: Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {
            "name": "ds", "namespace": "ns", "uid": "u", "resourceVersion": "10", "generation": 1,
            "annotations": {"deprecated.daemonset.template.generation": "1"},
        },
        "spec": {
            "selector": {"matchLabels": {"app": "d"}}, "updateStrategy": strategy, "revisionHistoryLimit": 1,
            "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": []}},
        },
        "status": {
            "currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0,
        },
    })
}

fn rolling(unavailable: Value, surge: Value) -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": unavailable, "maxSurge": surge}})
}

fn owner() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "ds", "uid": "u", "controller": true,
        "blockOwnerDeletion": true})
}

fn revision(name: &str, hash: &str, number: i64, template: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": number, "data": revisions::data(template),
        "metadata": {
            "name": name, "namespace": "ns", "uid": name, "resourceVersion": "5", "ownerReferences": [owner()],
            "labels": {"app": "d", "controller-revision-hash": hash},
        },
    })
}

fn node(name: &str, taints: Value) -> Value {
    json!({"metadata": {"name": name, "resourceVersion": "4"}, "spec": {"taints": taints}})
}

/// A pod of a revision; `state` is its phase, and `Ready` for a running one that is ready.
fn pod(name: &str, node: &str, hash: &str, state: &str) -> Value {
    let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let (phase, conditions) = if state == "Ready" { ("Running", json!([ready])) } else { (state, json!([])) };
    json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": name, "resourceVersion": "6", "ownerReferences": [owner()],
            "labels": {"app": "d", "controller-revision-hash": hash}, "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"nodeName": node},
        "status": {"phase": phase, "conditions": conditions},
    })
}

fn see(controller: &DaemonSetController, kind: Kind, object: &Value) -> Vec<Wakeup> {
    let change = controller.cache.set(kind, object.to_string().as_bytes()).unwrap();
    controller.observe(&change)
}

fn controller(objects: &[(Kind, Value)]) -> DaemonSetController {
    let controller = DaemonSetController::new(Arc::new(Cache::default()));
    for (kind, object) in objects {
        see(&controller, *kind, object);
    }
    controller
}

/// The DaemonSet as it is written with this status.
fn with_status(mut ds: Value, status: Value) -> Value {
    for (field, value) in status.as_object().unwrap() {
        ds["status"][field] = value.clone();
    }
    ds
}

#[test]
fn the_first_reconcile_creates_the_revision_and_a_pod_for_every_node_that_fits() {
    let mut ds = daemon_set(rolling(json!(1), json!(0)));
    ds["spec"]["template"]["spec"]["affinity"] = json!({"podAffinity": {"preferred": []}});
    let taint = json!([{"key": "dedicated", "effect": "NoSchedule"}]);
    let controller = controller(&[
        (Kind::DaemonSet, ds.clone()),
        (Kind::Node, node("a", json!([]))),
        (Kind::Node, node("b", taint)),
        (Kind::Node, node("c", json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]))),
    ]);
    let typed: DaemonSet = serde_json::from_value(ds.clone()).unwrap();
    let hash = crate::pod_template_hash::hash(&ds["spec"]["template"], None);
    let pod_for = |name: &str| PodTemplate::new(&typed, &hash).unwrap().for_node(name);
    assert_eq!(pod_for("a")["spec"]["affinity"]["podAffinity"], json!({"preferred": []}));
    let mut created = revision(&format!("ds-{hash}"), &hash, 1, &ds["spec"]["template"]);
    for field in ["uid", "resourceVersion"] {
        created["metadata"].as_object_mut().unwrap().remove(field);
    }
    created["metadata"]["annotations"] = ds["metadata"]["annotations"].clone();
    let status = json!({"desiredNumberScheduled": 2, "numberUnavailable": 2, "observedGeneration": 1});
    let written = with_status(ds, status);
    let steps: [Step; 4] = [
        ("POST ns/controllerrevisions", created.clone(), Ok(created)),
        ("POST ns/pods", pod_for("a"), Ok(json!({"metadata": {"name": "ds-1", "resourceVersion": "20"}}))),
        ("POST ns/pods", pod_for("c"), Ok(json!({"metadata": {"name": "ds-2", "resourceVersion": "21"}}))),
        ("PUT ns/daemonsets/ds/status", written.clone(), Ok(written)),
    ];
    let script = Script::new("first", steps);
    assert_eq!(script.play(&controller, "ns/ds").unwrap(), Requeue::OnChange);
    assert_eq!(script.events(), ["SuccessfulCreate", "SuccessfulCreate"]);
    controller.cache.bookmark(Kind::Pod, "6");
    let waiting = Script::new("own writes", []).play(&controller, "ns/ds").unwrap_err();
    assert!(matches!(waiting, Error::Stale { resource: "pods", .. }), "{waiting}");
}

#[test]
fn a_name_that_another_template_has_is_a_collision() {
    let ds = daemon_set(json!({"type": "OnDelete"}));
    let controller = controller(&[(Kind::DaemonSet, ds.clone())]);
    let foreign = revision("x", "x", 7, &json!({"spec": {"other": true}}));
    let mut counted = ds.clone();
    counted["status"]["collisionCount"] = json!(1);
    let hash = crate::pod_template_hash::hash(&ds["spec"]["template"], None);
    let get: &'static str = format!("GET ns/controllerrevisions/ds-{hash}").leak();
    let steps: [Step; 4] = [
        ("POST ns/controllerrevisions", ANY, exists()),
        (get, Value::Null, Ok(foreign)),
        ("GET ns/daemonsets/ds", Value::Null, Ok(ds)),
        ("PUT ns/daemonsets/ds/status", counted.clone(), Ok(counted)),
    ];
    Script::new("collision", steps).play(&controller, "ns/ds").unwrap_err();
}

#[test]
fn a_template_that_comes_back_is_renumbered_and_old_revisions_go() {
    let mut ds = daemon_set(json!({"type": "OnDelete"}));
    let template = ds["spec"]["template"].clone();
    let other = |image: &str| json!({"spec": {"containers": [{"image": image}]}});
    ds["status"]["observedGeneration"] = json!(1);
    let controller = controller(&[
        (Kind::DaemonSet, ds),
        (Kind::ControllerRevision, revision("ds-1", "1", 1, &template)),
        (Kind::ControllerRevision, revision("ds-2", "2", 2, &other("2"))),
        (Kind::ControllerRevision, revision("ds-3", "3", 3, &other("3"))),
        (Kind::ControllerRevision, revision("ds-4", "4", 4, &other("4"))),
        // The pod of a node that is gone keeps its revision.
        (Kind::Pod, pod("p", "gone", "2", "Ready")),
    ]);
    let renumbered = revision("ds-1", "1", 5, &template);
    let steps: [Step; 3] = [
        ("PUT ns/controllerrevisions/ds-1", renumbered.clone(), Ok(renumbered)),
        ("DELETE ns/controllerrevisions/ds-3", ANY, Ok(json!({}))),
        ("DELETE ns/controllerrevisions/ds-4", ANY, Ok(json!({}))),
    ];
    Script::new("back", steps).play(&controller, "ns/ds").unwrap();
}

#[test]
fn of_two_revisions_of_one_template_the_newest_stays_and_gets_the_pods() {
    let mut ds = daemon_set(json!({"type": "OnDelete"}));
    let template = ds["spec"]["template"].clone();
    ds["status"]["observedGeneration"] = json!(1);
    let controller = controller(&[
        (Kind::DaemonSet, ds),
        (Kind::ControllerRevision, revision("ds-1", "1", 1, &template)),
        (Kind::ControllerRevision, revision("ds-2", "2", 2, &template)),
        (Kind::Pod, pod("p", "gone", "1", "Ready")),
        (Kind::Pod, pod("q", "gone", "2", "Ready")),
    ]);
    let patch = json!({"metadata": {"labels": {"controller-revision-hash": "2"}}});
    let steps: [Step; 2] = [
        ("MERGE-PATCH ns/pods/p", patch, Ok(pod("p", "gone", "2", "Ready"))),
        ("DELETE ns/controllerrevisions/ds-1", ANY, Ok(json!({}))),
    ];
    Script::new("duplicates", steps).play(&controller, "ns/ds").unwrap();
}

#[test]
fn a_failed_pod_is_replaced_at_once_and_the_next_one_after_a_pause() {
    let mut ds = daemon_set(json!({"type": "OnDelete"}));
    ds["status"] = json!({"currentNumberScheduled": 1, "desiredNumberScheduled": 1, "numberMisscheduled": 0,
        "numberReady": 0, "numberUnavailable": 1, "observedGeneration": 1, "updatedNumberScheduled": 1});
    let template = ds["spec"]["template"].clone();
    let controller = controller(&[
        (Kind::DaemonSet, ds),
        (Kind::Node, node("a", json!([]))),
        (Kind::ControllerRevision, revision("ds-1", "1", 1, &template)),
        (Kind::Pod, pod("p", "a", "1", "Failed")),
    ]);
    let script = Script::new("failed", [("DELETE ns/pods/p", ANY, Ok(json!({})))]);
    assert_eq!(script.play(&controller, "ns/ds").unwrap(), Requeue::OnChange);
    assert_eq!(script.events(), ["FailedDaemonPod", "SuccessfulDelete"]);
    let gone = controller.cache.remove(Kind::Pod, "ns", "p", "7").unwrap();
    assert_eq!(controller.observe(&gone), [Wakeup::now("ns/ds")]);
    see(&controller, Kind::Pod, &pod("q", "a", "1", "Failed"));
    let again = Script::new("pause", []).play(&controller, "ns/ds").unwrap();
    assert_eq!(again, Requeue::After(Duration::from_secs(1)));
    let script = Script::new("over", [("DELETE ns/pods/q", ANY, Ok(json!({})))]);
    script.play_at(1, &controller, "ns/ds").unwrap();
}

#[test]
fn a_selector_of_everything_is_refused() {
    let mut ds = daemon_set(json!({"type": "OnDelete"}));
    ds["spec"]["selector"] = json!({});
    let script = Script::new("everything", []);
    script.play(&controller(&[(Kind::DaemonSet, ds)]), "ns/ds").unwrap();
    assert_eq!(script.events(), ["SelectingAll"]);
}

#[test]
fn nodes_wake_the_daemon_sets_that_have_something_to_do_there() {
    let no_execute = json!([{"key": "k", "effect": "NoExecute"}]);
    let no_schedule = json!([{"key": "k", "effect": "NoSchedule"}]);
    for (taints, with_pod, misscheduled, wakes) in [
        (json!([]), false, 0, true),
        (json!([]), true, 0, false),
        (json!([]), true, 1, true),
        (no_schedule.clone(), false, 0, false),
        (no_schedule, true, 0, false),
        (no_execute.clone(), true, 0, true),
        (no_execute, false, 1, false),
    ] {
        let case = format!("{taints} {with_pod} {misscheduled}");
        let mut ds = daemon_set(json!({"type": "OnDelete"}));
        ds["status"]["numberMisscheduled"] = json!(misscheduled);
        let controller = controller(&[(Kind::DaemonSet, ds), (Kind::Node, node("a", taints))]);
        if with_pod {
            see(&controller, Kind::Pod, &pod("p", "a", "1", "Ready"));
        }
        let keys = if wakes { vec![Wakeup::now("ns/ds")] } else { vec![] };
        let outcome = Script::new("node", []).play(&controller, "a").unwrap();
        assert_eq!(outcome, Requeue::Keys { keys, again: false }, "{case}");
    }
}

#[test]
fn only_labels_and_taints_of_a_node_matter() {
    let controller = controller(&[(Kind::Node, node("a", json!([])))]);
    let mut changed = node("a", json!([]));
    changed["status"] = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    assert_eq!(see(&controller, Kind::Node, &changed), []);
    changed["metadata"]["labels"] = json!({"x": "y"});
    assert_eq!(see(&controller, Kind::Node, &changed), [Wakeup::now("a")]);
    let gone = controller.cache.nodes().get("", "a").unwrap();
    assert_eq!(controller.observe(&AnyDelta::Node(Delta::Deleted(gone))), []);
}

/// The names of the pods that a rolling update deletes, and of the nodes for which it creates; pods are
/// `node:hash:state`.
fn roll(strategy: Value, nodes: &[&str], pods: &[&str]) -> (Vec<String>, Vec<String>) {
    let ds: DaemonSet = serde_json::from_value(daemon_set(strategy)).unwrap();
    let nodes: Vec<NodeWithFit> = nodes
        .iter()
        .map(|name| {
            let (name, taints) = match name.strip_prefix('!') {
                Some(name) => (name, json!([{"key": "k", "effect": "NoSchedule"}])),
                None => (*name, json!([])),
            };
            let node: Arc<Node> = Arc::new(serde_json::from_value(node(name, taints)).unwrap());
            let fit = fit(&ds.spec.template, &node);
            (node, fit)
        })
        .collect();
    let pods: Vec<Arc<Pod>> = pods
        .iter()
        .map(|text| {
            let [node, hash, state] = text.split(':').collect::<Vec<_>>()[..] else { panic!("{text}") };
            Arc::new(serde_json::from_value(pod(&format!("{node}-{hash}"), node, hash, state)).unwrap())
        })
        .collect();
    let plan = Rolling { ds: &ds, hash: "new", now: now() }.plan(&nodes, &pods::by_node(&pods)).unwrap();
    (plan.delete.iter().map(|pod| pod.metadata.name.clone()).collect(), plan.create)
}

#[test]
fn without_surge_old_pods_go_within_the_budget() {
    type Row = (i32, &'static [&'static str], &'static [&'static str], &'static [&'static str]);
    let rows: [Row; 7] = [
        (1, &["a", "b"], &["a:old:Ready", "b:old:Ready"], &["a-old"]),
        (2, &["a", "b"], &["a:old:Ready", "b:old:Ready"], &["a-old", "b-old"]),
        // Both zero: one at a time.
        (0, &["a", "b"], &["a:old:Ready", "b:old:Ready"], &["a-old"]),
        // A new pod that is not available, a missing one and an unavailable old one take of the budget.
        (1, &["a", "b"], &["a:new:Running", "b:old:Ready"], &[]),
        (1, &["a", "b"], &["b:old:Ready"], &[]),
        (1, &["a", "b"], &["a:old:Running", "b:old:Ready"], &["a-old"]),
        (2, &["a", "b"], &["a:old:Running", "b:old:Ready"], &["a-old", "b-old"]),
    ];
    for (unavailable, nodes, pods, expected) in rows {
        let (deleted, created) = roll(rolling(json!(unavailable), json!(0)), nodes, pods);
        assert_eq!((deleted, created), (expected.iter().map(|s| (*s).to_owned()).collect(), vec![]), "{pods:?}");
    }
}

#[test]
fn with_surge_new_pods_come_first() {
    type Row = (&'static [&'static str], &'static [&'static str], &'static [&'static str], &'static [&'static str]);
    let rows: [Row; 6] = [
        (&["a", "b"], &["a:old:Ready", "b:old:Ready"], &[], &["a"]),
        // The first one is under way.
        (&["a", "b"], &["a:old:Ready", "a:new:Running", "b:old:Ready"], &[], &[]),
        (&["a", "b"], &["a:old:Ready", "a:new:Ready", "b:old:Ready"], &["a-old"], &["b"]),
        // An old pod that is not available costs nothing.
        (&["a", "b"], &["a:old:Running", "b:old:Ready"], &[], &["a", "b"]),
        // A node that should not run it any more loses it when enough others are available.
        (&["!a", "b"], &["a:old:Ready", "b:new:Ready"], &["a-old"], &[]),
        (&["!a", "b"], &["a:old:Ready", "b:new:Running"], &[], &[]),
    ];
    for (nodes, pods, deletes, creates) in rows {
        let (deleted, created) = roll(rolling(json!(0), json!(1)), nodes, pods);
        let owned = |names: &[&str]| names.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        assert_eq!((deleted, created), (owned(deletes), owned(creates)), "{nodes:?} {pods:?}");
    }
}
