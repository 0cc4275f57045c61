//! What the controller asks of the API server for a pod or a claim.

use super::*;
use crate::script::{Script, Step};

/// What it is, the objects that are known, and the exchanges.
type Case = (&'static str, Vec<(Kind, Value)>, Vec<Step>);

fn cache(objects: &[(Kind, Value)]) -> Arc<Cache> {
    let cache = Arc::new(Cache::default());
    for (kind, object) in objects {
        cache.set(*kind, object.to_string().as_bytes()).unwrap();
    }
    cache
}

fn pod(status: Value) -> (Kind, Value) {
    let claims = json!([{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]);
    let pod = json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "pod-uid", "resourceVersion": "5"},
        "spec": {"resourceClaims": claims}, "status": status,
    });
    (Kind::Pod, pod)
}

fn owner() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "pod-uid",
        "controller": true, "blockOwnerDeletion": true})
}

fn foreign_owner() -> Value {
    json!({"apiVersion": "nowhere.io/v1", "kind": "Nothing", "name": "p", "uid": "pod-uid", "controller": true})
}

fn claim(reserved: &[&str], finalizers: &[&str]) -> (Kind, Value) {
    let reserved: Vec<Value> =
        reserved.iter().map(|uid| json!({"resource": "pods", "name": "p", "uid": uid})).collect();
    let claim = json!({
        "metadata": {"name": "p-gpu-x", "namespace": "ns", "uid": "claim-uid", "resourceVersion": "7",
            "annotations": {POD_CLAIM_NAME: "gpu"}, "ownerReferences": [owner()], "finalizers": finalizers},
        "status": {"allocation": {"devices": {"results": []}}, "reservedFor": reserved},
    });
    (Kind::ResourceClaim, claim)
}

fn named() -> Step {
    let statuses = json!([{"name": "gpu", "resourceClaimName": "p-gpu-x"}]);
    let patch = json!({"metadata": {"uid": "pod-uid"}, "status": {"resourceClaimStatuses": statuses}});
    ("STRATEGIC-PATCH ns/pods/p/status", patch, Ok(json!({})))
}

#[test]
fn a_pod_gets_the_claims_of_its_templates_once() {
    let template = json!({
        "metadata": {"name": "one-gpu", "namespace": "ns"},
        "spec": {"metadata": {"labels": {"a": "b"}}, "spec": {"devices": {"requests": []}}},
    });
    let template = (Kind::ResourceClaimTemplate, template);
    let made = || -> Step {
        (
            "POST ns/resourceclaims",
            json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                "metadata": {"generateName": "p-gpu-", "labels": {"a": "b"}, "annotations": {POD_CLAIM_NAME: "gpu"},
                    "ownerReferences": [owner()]},
                "spec": {"devices": {"requests": []}},
            }),
            Ok(json!({"metadata": {"name": "p-gpu-x"}})),
        )
    };
    let controller = ResourceClaimController::new(cache(&[pod(json!({})), template.clone()]));
    Script::new("first", [made(), named()]).play(&controller, "pod/ns/p").unwrap();
    Script::new("the cache is behind", [named()]).play(&controller, "pod/ns/p").unwrap();

    let orphan = ResourceClaimController::new(cache(&[pod(json!({})), claim(&[], &[])]));
    Script::new("it was made before a crash", [named()]).play(&orphan, "pod/ns/p").unwrap();
    let done = pod(json!({"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu-x"}]}));
    let done = ResourceClaimController::new(cache(&[done, claim(&[], &[])]));
    Script::new("all is there", []).play(&done, "pod/ns/p").unwrap();

    // A claim of another namespace, or of an owner that only has the pod's UID, is not the pod's.
    for (field, value) in [("namespace", json!("other")), ("ownerReferences", json!([foreign_owner()]))] {
        let mut foreign = claim(&[], &[]);
        foreign.1["metadata"][field] = value;
        let controller = ResourceClaimController::new(cache(&[pod(json!({})), template.clone(), foreign]));
        Script::new("a foreign claim", [made(), named()]).play(&controller, "pod/ns/p").unwrap();
    }

    let missing = ResourceClaimController::new(cache(&[pod(json!({}))]));
    let script = Script::new("no template", []);
    let error = script.play(&missing, "pod/ns/p").unwrap_err().to_string();
    let why = "resourceclaimtemplate.resource.k8s.io \"one-gpu\" not found";
    assert_eq!(error, format!("resource claim template \"one-gpu\": {why}"));
    assert_eq!(script.events(), ["FailedResourceClaimCreation"]);
}

#[test]
fn a_claim_is_released_deallocated_and_removed_when_its_pod_is_done() {
    let status = |status: Value| -> Step {
        let patch = json!({"metadata": {"resourceVersion": "7", "uid": "claim-uid"}, "status": status});
        ("MERGE-PATCH ns/resourceclaims/p-gpu-x/status", patch, Ok(json!({"metadata": {"resourceVersion": "8"}})))
    };
    let unprotect = |finalizers: Value| -> Step {
        let patch = json!({"metadata": {"resourceVersion": "8", "finalizers": finalizers}});
        ("MERGE-PATCH ns/resourceclaims/p-gpu-x", patch, Ok(json!({})))
    };
    let delete = || -> Step {
        ("DELETE ns/resourceclaims/p-gpu-x", json!({"preconditions": {"uid": "claim-uid"}}), Ok(json!({})))
    };
    let gone = || -> Step { ("GET ns/pods/p", Value::Null, crate::script::refused(404)) };
    let running = pod(json!({"phase": "Running"}));
    let ended = pod(json!({"phase": "Succeeded"}));
    let protected = [DELETE_PROTECTION, "other"];
    let free = json!({"reservedFor": [], "allocation": null});
    let cases: Vec<Case> = vec![
        ("it is used", vec![running.clone(), claim(&["pod-uid"], &protected)], vec![]),
        (
            "its pod has ended",
            vec![ended, claim(&["pod-uid"], &protected)],
            vec![status(free.clone()), unprotect(json!(["other"])), delete()],
        ),
        (
            "its pod is gone",
            vec![claim(&["pod-uid"], &protected)],
            vec![gone(), status(free), unprotect(json!(["other"]))],
        ),
        (
            "another pod of the name",
            vec![running, claim(&["old-uid", "pod-uid"], &protected)],
            vec![status(json!({"reservedFor": [{"resource": "pods", "name": "p", "uid": "pod-uid"}]}))],
        ),
    ];
    for (case, objects, steps) in cases {
        let controller = ResourceClaimController::new(cache(&objects));
        Script::new(case, steps).play(&controller, "claim/ns/p-gpu-x").unwrap();
    }
}

#[test]
fn generated_names_leave_room_for_their_end() {
    assert_eq!(generate_name("pod", "gpu"), "pod-gpu-");
    let name = generate_name(&"p".repeat(100), &"c".repeat(20));
    assert_eq!(name, format!("{}-{}", "p".repeat(46), "c".repeat(9)));
}
