//! The controller's calls in cases without a recording.

use bayplan_model::delta::Delta;
use bayplan_model::status::{Status, reason};
use serde_json::{Value, json};

use super::*;
use crate::revisions;
use crate::script::{ANY, Script, Step, exists};

fn stateful_set() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": "db", "namespace": "ns", "uid": "u", "resourceVersion": "10", "generation": 1},
        "spec": {
            "replicas": 2, "serviceName": "svc", "selector": {"matchLabels": {"app": "d"}},
            "podManagementPolicy": "OrderedReady", "revisionHistoryLimit": 1,
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
            "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": []}},
        },
        "status": {"replicas": 0, "availableReplicas": 0},
    })
}

fn with_claims(when_deleted: &str, when_scaled: &str) -> Value {
    let mut set = stateful_set();
    set["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": {}}]);
    set["spec"]["persistentVolumeClaimRetentionPolicy"] =
        json!({"whenDeleted": when_deleted, "whenScaled": when_scaled});
    set
}

fn owner() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "u", "controller": true,
        "blockOwnerDeletion": true})
}

fn revision_name(set: &Value) -> String {
    revisions::name("db", &revisions::hash(&revisions::data(&set["spec"]["template"]), 0))
}

fn revision(set: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": 1,
        "data": revisions::data(&set["spec"]["template"]),
        "metadata": {
            "name": revision_name(set), "namespace": "ns", "uid": "r", "resourceVersion": "5", "labels": {"app": "d"},
            "ownerReferences": [owner()],
        },
    })
}

/// A pod of the set's revision; `state` is its phase, and `Ready` for a running one that is ready.
fn pod(set: &Value, name: &str, state: &str) -> Value {
    let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let (phase, conditions) = if state == "Ready" { ("Running", json!([ready])) } else { (state, json!([])) };
    let volumes = set["spec"]["volumeClaimTemplates"].as_array().into_iter().flatten().map(|template| {
        let volume = template["metadata"]["name"].as_str().unwrap();
        json!({"name": volume, "persistentVolumeClaim": {"claimName": format!("{volume}-{name}")}})
    });
    json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": name, "resourceVersion": "6", "ownerReferences": [owner()],
            "labels": {"app": "d", "controller-revision-hash": revision_name(set),
                "statefulset.kubernetes.io/pod-name": name},
        },
        "spec": {"volumes": volumes.collect::<Value>()},
        "status": {"phase": phase, "conditions": conditions},
    })
}

fn claim(name: &str, owners: Value) -> Value {
    json!({"metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "7",
        "ownerReferences": owners}})
}

fn see(controller: &StatefulSetController, kind: Kind, object: &Value) -> Vec<Wakeup> {
    controller.observe(&controller.cache.set(kind, object.to_string().as_bytes()).unwrap())
}

fn controller(set: &Value, others: &[(Kind, Value)]) -> StatefulSetController {
    let controller = StatefulSetController::new(Arc::new(Cache::default()));
    see(&controller, Kind::StatefulSet, set);
    for (kind, object) in others {
        see(&controller, *kind, object);
    }
    controller
}

const STATUS: &str = "PUT ns/statefulsets/db/status";

fn status(set: &Value) -> Step {
    (STATUS, ANY, Ok(set.clone()))
}

#[test]
fn the_first_reconcile_creates_revision_claim_and_pod() {
    let set = with_claims("Retain", "Retain");
    let controller = controller(&set, &[]);
    for kind in [Kind::VolumeClaim, Kind::Pod] {
        controller.cache.bookmark(kind, "9");
    }
    let made = revision(&set);
    let wanted = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "db-0", "namespace": "ns", "generateName": "db-", "ownerReferences": [owner()],
            "labels": {
                "app": "d", "apps.kubernetes.io/pod-index": "0", "statefulset.kubernetes.io/pod-name": "db-0",
                "controller-revision-hash": revision_name(&set),
            },
        },
        "spec": {
            "containers": [], "hostname": "db-0", "subdomain": "svc",
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}}],
        },
    });
    let claimed = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": {},
        "metadata": {"name": "data-db-0", "namespace": "ns", "labels": {"app": "d"}},
    });
    let script = Script::new(
        "first",
        [
            ("POST ns/controllerrevisions", ANY, Ok(made)),
            ("POST ns/persistentvolumeclaims", claimed, Ok(json!({"metadata": {"resourceVersion": "20"}}))),
            ("POST ns/pods", wanted, Ok(json!({"metadata": {"resourceVersion": "21"}}))),
            status(&set),
        ],
    );
    script.play(&controller, "ns/db").unwrap();
    assert_eq!(script.events(), ["SuccessfulCreate", "SuccessfulCreate"]);
    // Until the caches have what was written, nothing is decided.
    let stale = Script::new("stale", []).play(&controller, "ns/db").unwrap_err();
    assert!(stale.to_string().contains("group resource persistentvolumeclaims"), "{stale}");
    controller.cache.bookmark(Kind::VolumeClaim, "20");
    let stale = Script::new("stale", []).play(&controller, "ns/db").unwrap_err();
    assert!(stale.to_string().contains("group resource pods"), "{stale}");
}

#[test]
fn a_pod_that_exists_already_is_no_event_and_a_refused_one_is() {
    let set = stateful_set();
    let refusals = [(exists(), Vec::<String>::new()), (crate::script::closing(), vec!["FailedCreate".to_owned()])];
    for (refusal, events) in refusals {
        let controller = controller(&set, &[(Kind::ControllerRevision, revision(&set))]);
        let script = Script::new("refused", [("POST ns/pods", ANY, refusal), status(&set)]);
        script.play(&controller, "ns/db").unwrap_err();
        assert_eq!(script.events(), events);
    }
}

#[test]
fn a_claim_on_its_way_out_blocks_its_pod() {
    let set = with_claims("Retain", "Retain");
    let mut going = claim("data-db-0", json!([]));
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let controller = controller(&set, &[(Kind::ControllerRevision, revision(&set)), (Kind::VolumeClaim, going)]);
    let script = Script::new("blocked", [status(&set)]);
    let error = script.play(&controller, "ns/db").unwrap_err();
    assert_eq!(error.to_string(), "pvc data-db-0 is being deleted");
    assert_eq!(script.events(), ["FailedCreate"]);
}

#[test]
fn a_pod_waits_for_the_claims_of_its_predecessor_and_is_woken_when_they_are_gone() {
    let set = with_claims("Retain", "Delete");
    let gone = json!([{"apiVersion": "v1", "kind": "Pod", "name": "db-0", "uid": "old", "controller": true}]);
    let old = claim("data-db-0", gone);
    let controller = controller(&set, &[(Kind::ControllerRevision, revision(&set)), (Kind::VolumeClaim, old)]);
    Script::new("waits", [status(&set)]).play(&controller, "ns/db").unwrap();
    let removed = controller.cache.remove(Kind::VolumeClaim, "ns", "data-db-0", "30").unwrap();
    assert!(matches!(&removed, AnyDelta::VolumeClaim(Delta::Deleted(_))));
    assert_eq!(controller.observe(&removed), [Wakeup::now("ns/db")]);
}

#[test]
fn a_pod_without_its_label_is_read_and_written_back() {
    let set = stateful_set();
    let mut bare = pod(&set, "db-0", "Ready");
    bare["metadata"]["labels"].as_object_mut().unwrap().remove("statefulset.kubernetes.io/pod-name");
    let mut whole = pod(&set, "db-0", "Ready");
    whole["metadata"]["labels"]["apps.kubernetes.io/pod-index"] = json!("0");
    let second = pod(&set, "db-1", "Ready");
    let known = [(Kind::ControllerRevision, revision(&set)), (Kind::Pod, bare.clone()), (Kind::Pod, second)];
    let controller = controller(&set, &known);
    let conflict = Err(Status::failure(409, reason::CONFLICT, "changed"));
    let script = Script::new(
        "relabelled",
        [
            ("GET ns/pods/db-0", ANY, Ok(bare.clone())),
            ("PUT ns/pods/db-0", ANY, conflict),
            ("GET ns/pods/db-0", ANY, Ok(bare)),
            ("PUT ns/pods/db-0", whole.clone(), Ok(whole)),
            status(&set),
        ],
    );
    script.play(&controller, "ns/db").unwrap();
    assert_eq!(script.events(), ["SuccessfulUpdate"]);
}

#[test]
fn a_pod_that_somebody_replaced_is_not_written() {
    let set = stateful_set();
    let mut bare = pod(&set, "db-0", "Ready");
    bare["metadata"]["labels"].as_object_mut().unwrap().remove("statefulset.kubernetes.io/pod-name");
    let mut other = bare.clone();
    other["metadata"]["uid"] = json!("other");
    let controller = controller(&set, &[(Kind::ControllerRevision, revision(&set)), (Kind::Pod, bare)]);
    let script = Script::new("replaced", [("GET ns/pods/db-0", ANY, Ok(other)), status(&set)]);
    script.play(&controller, "ns/db").unwrap_err();
    assert_eq!(script.events(), ["FailedUpdate"]);
}

#[test]
fn a_pod_of_another_name_is_released_and_an_orphan_of_the_set_adopted() {
    let set = stateful_set();
    let stranger = pod(&set, "web-0", "Ready");
    let mut orphan = pod(&set, "db-1", "Pending");
    orphan["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    let known = [(Kind::ControllerRevision, revision(&set)), (Kind::Pod, stranger), (Kind::Pod, orphan.clone())];
    let controller = controller(&set, &known);
    let release = json!({"metadata": {"uid": "web-0", "ownerReferences": [{"$patch": "delete", "uid": "u"}]}});
    let adopt = json!({"metadata": {"uid": "db-1", "ownerReferences": [owner()]}});
    let script = Script::new(
        "claimed",
        [
            ("STRATEGIC-PATCH ns/pods/web-0", release, Ok(json!({"metadata": {}}))),
            ("GET ns/statefulsets/db", ANY, Ok(set.clone())),
            ("STRATEGIC-PATCH ns/pods/db-1", adopt, Ok(orphan)),
            ("POST ns/pods", ANY, Ok(json!({"metadata": {"resourceVersion": "21"}}))),
            status(&set),
        ],
    );
    script.play(&controller, "ns/db").unwrap();
}

#[test]
fn a_revision_that_means_the_same_is_kept() {
    let mut set = stateful_set();
    set["spec"]["replicas"] = json!(0);
    set["spec"]["template"]["spec"]["restartPolicy"] = json!("Always");
    let mut old = revision(&set);
    // An older version wrote the time that a template never has, and left out a default.
    old["data"]["spec"]["template"]["metadata"]["creationTimestamp"] = Value::Null;
    old["data"]["spec"]["template"]["spec"].as_object_mut().unwrap().remove("restartPolicy");
    let other = controller(&set, &[(Kind::ControllerRevision, old.clone())]);
    for turn in ["asked", "remembered"] {
        Script::new(turn, [status(&set)]).play(&other, "ns/db").unwrap();
    }
    old["data"]["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    let changed = controller(&set, &[(Kind::ControllerRevision, old)]);
    let created = ("POST ns/controllerrevisions", ANY, Ok(revision(&set)));
    Script::new("changed", [created, status(&set)]).play(&changed, "ns/db").unwrap();
}

#[test]
fn orphaned_revisions_are_adopted_unless_the_set_is_deleted() {
    let mut set = stateful_set();
    set["spec"]["replicas"] = json!(0);
    let mut orphan = revision(&set);
    orphan["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    let patch = json!({"metadata": {"uid": "r", "ownerReferences": [owner()]}});
    let name = format!("STRATEGIC-PATCH ns/controllerrevisions/{}", revision_name(&set));
    let adopter = controller(&set, &[(Kind::ControllerRevision, orphan.clone())]);
    let script = Script::new(
        "adopted",
        [
            ("GET ns/statefulsets/db", ANY, Ok(set.clone())),
            (&*name.leak(), patch, Ok(json!({"metadata": {}}))),
            status(&set),
        ],
    );
    script.play(&adopter, "ns/db").unwrap();
    let mut deleted = set.clone();
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let refused = controller(&set, &[(Kind::ControllerRevision, orphan)]);
    let script = Script::new("refused", [("GET ns/statefulsets/db", ANY, Ok(deleted))]);
    let error = script.play(&refused, "ns/db").unwrap_err().to_string();
    let told = "can't adopt ControllerRevisions: ns/db has just been deleted at";
    assert!(error.starts_with(told), "{error}");
}

#[test]
fn a_set_of_any_size_costs_what_is_there() {
    let mut set = stateful_set();
    set["spec"]["replicas"] = json!(i32::MAX);
    set["spec"]["ordinals"] = json!({"start": i32::MAX});
    let ordered = controller(&set, &[(Kind::ControllerRevision, revision(&set))]);
    let created: Step = ("POST ns/pods", ANY, Ok(json!({"metadata": {}})));
    Script::new("ordered", [created, status(&set)]).play(&ordered, "ns/db").unwrap();
    set["spec"]["podManagementPolicy"] = json!("Parallel");
    let parallel = controller(&set, &[(Kind::ControllerRevision, revision(&set))]);
    let created = (0..manage::BURST_REPLICAS).map(|_| -> Step { ("POST ns/pods", ANY, Ok(json!({"metadata": {}}))) });
    Script::new("parallel", created.chain([status(&set)])).play(&parallel, "ns/db").unwrap();
}

#[test]
fn a_ready_pod_is_looked_at_again_when_it_may_be_available() {
    let mut set = stateful_set();
    set["spec"]["minReadySeconds"] = json!(30);
    let waiting = pod(&set, "db-0", "Running");
    let controller = controller(&set, &[(Kind::ControllerRevision, revision(&set)), (Kind::Pod, waiting)]);
    let mut ready = pod(&set, "db-0", "Ready");
    ready["metadata"]["resourceVersion"] = json!("8");
    let since = crate::script::now() - jiff::SignedDuration::from_secs(12);
    ready["status"]["conditions"][0]["lastTransitionTime"] = json!(since);
    let later = Wakeup::after("ns/db", std::time::Duration::from_secs(30));
    assert_eq!(see(&controller, Kind::Pod, &ready), [Wakeup::now("ns/db"), later]);
    let requeue = Script::new("ready", [status(&set)]).play(&controller, "ns/db").unwrap();
    assert_eq!(requeue, Requeue::After(std::time::Duration::from_secs(18)));
}

#[test]
fn names_tell_the_set_and_the_number() {
    for (name, parent, ordinal) in [
        ("db-0", Some("db"), Some(0)),
        ("a-b-12", Some("a-b"), Some(12)),
        ("db-2147483648", Some("db"), None),
        ("db-", None, None),
        ("db", None, None),
        ("db-1x", None, None),
        ("-3", Some(""), Some(3)),
    ] {
        assert_eq!((identity::parent(name), identity::ordinal(name)), (parent, ordinal), "{name}");
    }
}
