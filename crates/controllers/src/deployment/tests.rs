//! The controller's calls in cases without a recording: rollbacks, collisions, refusals.

use serde_json::{Value, json};

use super::*;
use crate::script::{ANY, Script, Step, closing, exists, refused};

const REVISION: &str = annotations::REVISION;

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": image}]}})
}

/// A complete Deployment at revision 3, with this change to it.
fn deployment(change: impl FnOnce(&mut Value)) -> Value {
    let condition = |kind: &str, reason: &str| json!({"type": kind, "status": "True", "reason": reason});
    let mut d = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": "web", "namespace": "ns", "uid": "d", "resourceVersion": "7", "generation": 2,
            "annotations": {(REVISION): "3", "note": "of the Deployment"},
        },
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template("web:3"),
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "progressDeadlineSeconds": 600,
        },
        "status": {
            "observedGeneration": 2, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
            "terminatingReplicas": 0,
            "conditions": [
                condition("Available", "MinimumReplicasAvailable"),
                condition("Progressing", "NewReplicaSetAvailable"),
            ],
        },
    });
    change(&mut d);
    d
}

/// The ReplicaSet of a revision; those before the third have no pods.
fn replica_set(revision: i32) -> Value {
    let (name, size) = (format!("web-{revision}"), i32::from(revision == 3));
    let mut template = template(&format!("web:{revision}"));
    template["metadata"]["labels"]["pod-template-hash"] = json!(revision.to_string());
    let owner = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d", "controller": true});
    let sizes = |annotation: &str| format!("deployment.kubernetes.io/{annotation}-replicas");
    json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": name, "resourceVersion": "5", "generation": 1,
            "labels": {"app": "web"}, "ownerReferences": [owner],
            "annotations": {
                (REVISION): revision.to_string(), "note": "of the Deployment",
        (sizes("desired")): "1", (sizes("max")): "2",
            },
        },
        "spec": {"replicas": size, "selector": {"matchLabels": {"app": "web"}}, "template": template},
        "status": {
            "replicas": size, "readyReplicas": size, "availableReplicas": size, "observedGeneration": 1,
            "terminatingReplicas": 0,
        },
    })
}

fn controller(d: &Value, sets: &[Value]) -> DeploymentController {
    let cache = Arc::new(Cache::default());
    cache.set(Kind::Deployment, d.to_string().as_bytes()).unwrap();
    for set in sets {
        cache.set(Kind::ReplicaSet, set.to_string().as_bytes()).unwrap();
    }
    DeploymentController::new(cache)
}

fn shown(outcome: Result<Requeue, Error>) -> String {
    outcome.map_or_else(|error| error.to_string(), |next| format!("{next:?}"))
}

#[test]
fn a_rollback_takes_template_and_annotations_of_the_revision_and_the_request_away() {
    let request = |to: &str| deployment(|d| d["metadata"]["annotations"][annotations::ROLLBACK_TO] = json!(to));
    let unchanged = || deployment(|_| {});
    let back_to = |revision: i32| {
        deployment(|d| {
            d["spec"]["template"] = template(&format!("web:{revision}"));
            d["metadata"]["annotations"] = json!({(REVISION): "3", "note": format!("of {revision}")});
        })
    };
    let noted = |revision: i32| {
        let mut set = replica_set(revision);
        set["metadata"]["annotations"]["note"] = json!(format!("of {revision}"));
        set
    };
    let all = [noted(1), noted(2), replica_set(3)];
    let cases: [(&str, &str, &[Value], Value, &str); 5] = [
        ("to a revision", "1", &all, back_to(1), "DeploymentRollback"),
        ("to the one before", "0", &all, back_to(2), "DeploymentRollback"),
        ("to one that is not there", "9", &all, unchanged(), "DeploymentRollbackRevisionNotFound"),
        ("to the one before the first", "0", &all[2..], unchanged(), "DeploymentRollbackRevisionNotFound"),
        ("to where it is", "3", &all, unchanged(), "DeploymentRollbackTemplateUnchanged"),
    ];
    for (case, to, sets, written, event) in cases {
        let script = Script::new(case, [("PUT ns/deployments/web", written.clone(), Ok(written))]);
        assert_eq!(shown(script.play(&controller(&request(to), sets), "ns/web")), "OnChange", "{case}");
        assert_eq!(script.events(), [event], "{case}");
    }
    // What is no number asks for nothing.
    let script = Script::new("nonsense", []);
    assert_eq!(shown(script.play(&controller(&request("back"), &all), "ns/web")), "OnChange");
}

#[test]
fn a_replica_set_that_cannot_be_created_is_told_of_and_a_foreign_one_of_its_name_makes_room() {
    let rolled = deployment(|d| d["spec"]["template"] = template("web:4"));
    let name = format!("web-{}", crate::pod_template_hash::hash(&template("web:4"), None));
    let foreign = || {
        let mut set = replica_set(3);
        set["metadata"]["name"] = json!(name);
        set["metadata"]["uid"] = json!("foreign");
        set["metadata"]["ownerReferences"][0]["uid"] = json!("another");
        set
    };
    let counted = deployment(|d| {
        d["spec"]["template"] = template("web:4");
        d["status"]["collisionCount"] = json!(1);
    });
    let create = |answer| -> Step { ("POST ns/replicasets", ANY, answer) };
    /// What happens, the ReplicaSets, the exchanges, the outcome and the events.
    type Case<'a> = (&'a str, Vec<Value>, Vec<Step>, &'a str, &'a [&'a str]);
    let cases: Vec<Case<'_>> = vec![
        (
            "a foreign one",
            vec![replica_set(3), foreign()],
            vec![create(exists()), ("PUT ns/deployments/web/status", counted.clone(), Ok(counted))],
            "exists",
            &[],
        ),
        ("one that no watch has told of yet", vec![replica_set(3)], vec![create(exists())], "exists", &[]),
        ("the namespace goes", vec![replica_set(3)], vec![create(closing())], "closing", &[]),
        (
            "refused",
            vec![replica_set(3)],
            vec![create(refused(500)), ("PUT ns/deployments/web/status", ANY, Ok(rolled.clone()))],
            "refused with 500",
            &["ReplicaSetCreateError"],
        ),
        (
            "refused, and that cannot be told either",
            vec![replica_set(3)],
            vec![create(refused(500)), ("PUT ns/deployments/web/status", ANY, refused(409))],
            "refused with 500",
            &["ReplicaSetCreateError"],
        ),
    ];
    for (case, sets, steps, outcome, events) in cases {
        let script = Script::new(case, steps);
        assert_eq!(shown(script.play(&controller(&rolled, &sets), "ns/web")), outcome, "{case}");
        assert_eq!(script.events(), events, "{case}");
    }
}

#[test]
fn senseless_deployments_are_told_of_or_refused() {
    let everything = || {
        deployment(|d| {
            d["spec"]["selector"] = json!({});
            d["status"]["observedGeneration"] = json!(1);
        })
    };
    let observed = deployment(|d| d["spec"]["selector"] = json!({}));
    let script = Script::new("everything", [("PUT ns/deployments/web/status", observed.clone(), Ok(observed.clone()))]);
    assert_eq!(shown(script.play(&controller(&everything(), &[]), "ns/web")), "OnChange");
    assert_eq!(script.events(), ["SelectingAll"]);
    let script = Script::new("everything, and that was said", []);
    assert_eq!(shown(script.play(&controller(&observed, &[]), "ns/web")), "OnChange");
    assert_eq!(script.events(), ["SelectingAll"]);

    let strange = deployment(|d| d["spec"]["strategy"] = json!({"type": "Sometimes"}));
    let outcome = Script::new("strange", []).play(&controller(&strange, &[replica_set(3)]), "ns/web");
    assert_eq!(shown(outcome), "unexpected deployment strategy type: Sometimes");
}

/// The pod of an old ReplicaSet, or of one that only looks like it.
fn old_pod(namespace: &str, kind: &str, name: &str) -> Value {
    let owner = json!({"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "web-2", "controller": true});
    json!({
        "metadata": {"name": "p", "namespace": namespace, "uid": "p", "ownerReferences": [owner]},
        "status": {"phase": "Running"},
    })
}

#[test]
fn a_recreation_waits_for_its_own_old_pods_alone() {
    let recreating = deployment(|d| {
        d["spec"]["strategy"] = json!({"type": "Recreate"});
        d["spec"]["template"] = template("web:4");
    });
    // No old pod is left in any ReplicaSet's count: only the pods themselves tell.
    let sets = || {
        let mut last = replica_set(3);
        last["spec"]["replicas"] = json!(0);
        last["status"] = json!({"replicas": 0, "observedGeneration": 1});
        [replica_set(2), last]
    };
    let cases = [
        ("its own", old_pod("ns", "ReplicaSet", "web-2"), false),
        ("of another namespace", old_pod("other", "ReplicaSet", "web-2"), true),
        ("of another kind", old_pod("ns", "Nothing", "web-2"), true),
        ("of another name", old_pod("ns", "ReplicaSet", "web-9"), true),
    ];
    for (case, pod, goes_on) in cases {
        let controller = controller(&recreating, &sets());
        controller.cache.set(Kind::Pod, pod.to_string().as_bytes()).unwrap();
        let (d, sets) = (recreating.clone(), sets());
        let mut steps: Vec<Step> = Vec::new();
        if goes_on {
            steps.push(("POST ns/replicasets", ANY, refused(500)));
        }
        steps.push(("PUT ns/deployments/web/status", ANY, Ok(d)));
        let outcome = shown(Script::new(case, steps).play(&controller, "ns/web"));
        assert_eq!(outcome == "refused with 500", goes_on, "{case}: {outcome} {sets:?}");
    }
}

#[test]
fn the_last_old_pod_of_a_recreation_wakes_it_whatever_foreign_pods_say() {
    let recreating = deployment(|d| d["spec"]["strategy"] = json!({"type": "Recreate"}));
    for (case, other, woken) in [
        ("none is left", old_pod("other", "ReplicaSet", "web-2"), 1),
        ("another is left", old_pod("ns", "ReplicaSet", "web-2"), 0),
    ] {
        let controller = controller(&recreating, &[replica_set(2)]);
        let mut other = other;
        other["metadata"]["name"] = json!("q");
        controller.cache.set(Kind::Pod, other.to_string().as_bytes()).unwrap();
        controller.cache.set(Kind::Pod, old_pod("ns", "ReplicaSet", "web-2").to_string().as_bytes()).unwrap();
        let gone = controller.cache.remove(Kind::Pod, "ns", "p", "9").unwrap();
        assert_eq!(controller.observe(&gone).len(), woken, "{case}");
    }
}
