//! Which claims are made for a pod.

use serde_json::{Value, json};

use super::*;
use crate::script::{Script, Step, refused};

fn pod() -> Value {
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"accessModes": ["ReadWriteOnce"], "new": 1}});
    let volumes = json!([
        {"name": "config", "configMap": {"name": "c"}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}},
    ]);
    json!({"metadata": {"name": "p", "namespace": "ns", "uid": "pu"}, "spec": {"volumes": volumes}})
}

fn owned_by(uid: &str) -> Value {
    let owner = json!({
        "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": true, "blockOwnerDeletion": true,
    });
    json!({"name": "p-scratch", "ownerReferences": [owner]})
}

fn creation(answer: Result<Value, bayplan_model::status::Status>) -> Step {
    let mut metadata = owned_by("pu");
    metadata["labels"] = json!({"a": "b"});
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata,
        "spec": {"accessModes": ["ReadWriteOnce"], "new": 1},
    });
    ("POST ns/persistentvolumeclaims", claim, answer)
}

#[test]
fn a_pod_gets_the_claims_of_its_ephemeral_volumes_unless_they_are_anothers() {
    let mut deleted = pod();
    deleted["metadata"]["deletionTimestamp"] = json!("2026-05-28T00:00:00Z");
    let foreign =
        "pod ns/p, ephemeral volume scratch: PVC ns/p-scratch was not created for pod ns/p (pod is not owner)";
    let failed = "pod ns/p, ephemeral volume scratch: create PVC p-scratch: refused with 500";
    let cases = [
        ("a new pod", pod(), None, vec![creation(Ok(json!({"metadata": {}})))], Ok(Requeue::OnChange)),
        ("a claim that is there", pod(), Some("pu"), vec![], Ok(Requeue::OnChange)),
        ("a claim of another", pod(), Some("other"), vec![], Err(foreign)),
        ("a refusal", pod(), None, vec![creation(refused(500))], Err(failed)),
        ("a pod that goes", deleted, None, vec![], Ok(Requeue::OnChange)),
    ];
    for (case, pod, owner, steps, expected) in cases {
        let cache = Arc::new(Cache::default());
        cache.set(Kind::Pod, pod.to_string().as_bytes()).unwrap();
        if let Some(owner) = owner {
            let mut metadata = owned_by(owner);
            metadata["namespace"] = json!("ns");
            cache.set(Kind::VolumeClaim, json!({"metadata": metadata}).to_string().as_bytes()).unwrap();
        }
        let script = Script::new(case, steps);
        let outcome = script.play(&EphemeralVolumeController::new(cache), "ns/p");
        assert_eq!(script.events(), if outcome.is_err() { vec!["FailedBinding"] } else { vec![] }, "{case}");
        assert_eq!(outcome.map_err(|error| error.to_string()), expected.map_err(String::from), "{case}");
    }
}

#[test]
fn a_pod_is_looked_at_when_it_is_new_and_when_its_claim_is_gone() {
    let cache = Arc::new(Cache::default());
    let controller = EphemeralVolumeController::new(cache.clone());
    let see = |kind: Kind, object: Value| controller.observe(&cache.set(kind, object.to_string().as_bytes()).unwrap());
    assert_eq!(see(Kind::Pod, pod()), [Wakeup::now("ns/p")]);
    assert_eq!(see(Kind::Pod, pod()), []);
    let mut plain = pod();
    plain["metadata"]["name"] = json!("plain");
    plain["spec"]["volumes"] = json!([]);
    assert_eq!(see(Kind::Pod, plain), []);
    for name in ["p-scratch", "p-config"] {
        see(Kind::VolumeClaim, json!({"metadata": {"name": name, "namespace": "ns"}}));
    }
    let gone = |name: &str| controller.observe(&cache.remove(Kind::VolumeClaim, "ns", name, "").unwrap());
    assert_eq!(gone("p-scratch"), [Wakeup::now("ns/p")]);
    assert_eq!(gone("p-config"), []);
}
