//! When finalizers come and go.

use serde_json::{Value, json};

use super::*;
use crate::script::{Script, Step, refused};

fn meta(deleted: bool, finalizers: &[&str]) -> Value {
    let mut meta =
        json!({"name": "c", "namespace": "ns", "uid": "cu", "resourceVersion": "7", "finalizers": finalizers});
    if deleted {
        meta["deletionTimestamp"] = json!("2026-05-28T00:00:00Z");
    }
    meta
}

fn pod(node: &str, volumes: Value, grace: Option<i64>) -> Value {
    let mut pod = json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "pu"}, "spec": {"nodeName": node, "volumes": volumes},
    });
    if let Some(grace) = grace {
        pod["metadata"]["deletionTimestamp"] = json!("2026-05-28T00:00:00Z");
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
    }
    pod
}

fn named() -> Value {
    json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}])
}

fn listed(pods: &[Value]) -> Step {
    ("LIST ns/pods", Value::Null, Ok(json!({"items": pods})))
}

fn finalizers(path: &'static str, left: &[&str]) -> Step {
    let patch = json!({"metadata": {"uid": "cu", "resourceVersion": "7", "finalizers": left}});
    (path, patch, Ok(json!({"metadata": {}})))
}

const CLAIM: &str = "MERGE-PATCH ns/persistentvolumeclaims/c";

#[test]
fn a_claim_keeps_its_finalizer_while_a_bound_pod_uses_it() {
    let both = [CLAIM_FINALIZER, "other"];
    let gone = || finalizers(CLAIM, &["other"]);
    let cases = [
        ("a new claim", meta(false, &["other"]), None, vec![finalizers(CLAIM, &["other", CLAIM_FINALIZER])]),
        ("a claim that is protected", meta(false, &both), None, vec![]),
        ("a deleted claim without our finalizer", meta(true, &["other"]), None, vec![]),
        ("nobody uses it", meta(true, &both), None, vec![listed(&[]), gone()]),
        ("a pod uses it", meta(true, &both), Some(pod("n", named(), None)), vec![]),
        ("a pod that was deleted uses it", meta(true, &both), Some(pod("n", named(), Some(0))), vec![]),
        ("only a pod that waits", meta(true, &both), Some(pod("", named(), None)), vec![listed(&[]), gone()]),
        ("only the server knows its pod", meta(true, &both), None, vec![listed(&[pod("n", named(), None)])]),
    ];
    for (case, meta, pod, steps) in cases {
        let cache = Arc::new(Cache::default());
        cache.set(Kind::VolumeClaim, json!({"metadata": meta}).to_string().as_bytes()).unwrap();
        if let Some(pod) = pod {
            cache.set(Kind::Pod, pod.to_string().as_bytes()).unwrap();
        }
        let script = Script::new(case, steps);
        let outcome = script.play(&ClaimProtectionController::new(cache), "ns/c");
        assert_eq!(outcome.map_err(|error| error.to_string()), Ok(Requeue::OnChange), "{case}");
    }
}

#[test]
fn the_claim_of_an_ephemeral_volume_is_used_by_the_pod_it_was_made_for_until_that_is_over() {
    let claim = |owner: &str, name: &str| -> PersistentVolumeClaim {
        let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner, "controller": true});
        serde_json::from_value(json!({"metadata": {"name": name, "ownerReferences": [owner]}})).unwrap()
    };
    let pod = |grace: Option<i64>| -> Pod {
        let volumes = json!([{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]);
        serde_json::from_value(pod("n", volumes, grace)).unwrap()
    };
    assert!(uses(&pod(None), &claim("pu", "p-v")));
    assert!(uses(&pod(Some(30)), &claim("pu", "p-v")));
    assert!(!uses(&pod(Some(0)), &claim("pu", "p-v")));
    assert!(!uses(&pod(None), &claim("another", "p-v")));
    assert!(!uses(&pod(None), &claim("pu", "p-w")));
}

#[test]
fn a_volume_keeps_its_finalizer_while_a_claim_is_bound_to_it() {
    let path = "MERGE-PATCH persistentvolumes/c";
    let cases = [
        ("a new volume", meta(false, &[]), "Available", vec![finalizers(path, &[VOLUME_FINALIZER])]),
        ("bound", meta(true, &[VOLUME_FINALIZER]), "Bound", vec![]),
        ("released", meta(true, &[VOLUME_FINALIZER]), "Released", vec![finalizers(path, &[])]),
    ];
    for (case, mut meta, phase, steps) in cases {
        meta["namespace"] = json!("");
        let cache = Arc::new(Cache::default());
        let volume = json!({"metadata": meta, "status": {"phase": phase}});
        cache.set(Kind::Volume, volume.to_string().as_bytes()).unwrap();
        let outcome = Script::new(case, steps).play(&VolumeProtectionController::new(cache), "c");
        assert_eq!(outcome.map_err(|error| error.to_string()), Ok(Requeue::OnChange), "{case}");
    }
}

#[test]
fn a_refused_list_keeps_the_finalizer() {
    let cache = Arc::new(Cache::default());
    let claim = json!({"metadata": meta(true, &[CLAIM_FINALIZER])});
    cache.set(Kind::VolumeClaim, claim.to_string().as_bytes()).unwrap();
    let script = Script::new("refused", [("LIST ns/pods", Value::Null, refused(500))]);
    assert!(script.play(&ClaimProtectionController::new(cache), "ns/c").is_err());
}

#[test]
fn claims_are_looked_at_when_they_may_have_lost_their_last_user() {
    let cache = Arc::new(Cache::default());
    let controller = ClaimProtectionController::new(cache.clone());
    let see = |pod: Value| controller.observe(&cache.set(Kind::Pod, pod.to_string().as_bytes()).unwrap());
    let claim = [Wakeup::now("ns/c")];
    assert_eq!(see(pod("n", named(), None)), []);
    assert_eq!(see(pod("n", named(), Some(30))), []);
    assert_eq!(see(pod("n", named(), Some(0))), claim);
    let mut another = pod("n", json!([]), None);
    another["metadata"]["uid"] = json!("another");
    assert_eq!(see(another), claim, "another pod of the name has taken its place");
    see(pod("n", named(), None));
    assert_eq!(controller.observe(&cache.remove(Kind::Pod, "ns", "p", "").unwrap()), claim);
}

#[test]
fn a_class_of_attributes_keeps_its_finalizer_while_a_volume_or_a_claim_names_it() {
    const FINALIZER: &str = "kubernetes.io/vac-protection";
    let path = "MERGE-PATCH volumeattributesclasses/c";
    let names = json!({"volumeAttributesClassName": "c"});
    let user = |spec: &Value, status: &Value| {
        let meta = json!({"name": "u", "namespace": "ns", "uid": "u"});
        json!({"metadata": meta, "spec": spec, "status": status})
    };
    let none = json!({});
    let target = json!({"modifyVolumeStatus": {"targetVolumeAttributesClassName": "c"}});
    let (volume, claim) = (Kind::Volume, Kind::CountedVolumeClaim);
    let deleted = || meta(true, &[FINALIZER]);
    let cases = [
        ("a new class", meta(false, &[]), None, vec![finalizers(path, &[FINALIZER])]),
        ("a protected one", meta(false, &[FINALIZER]), None, vec![]),
        ("nobody names it", deleted(), None, vec![finalizers(path, &[])]),
        ("a volume names it", deleted(), Some((volume, user(&names, &none))), vec![]),
        ("a claim names it", deleted(), Some((claim, user(&names, &none))), vec![]),
        ("a claim is on its way", deleted(), Some((claim, user(&none, &target))), vec![]),
    ];
    for (case, mut meta, user, steps) in cases {
        meta["namespace"] = json!("");
        let cache = Arc::new(Cache::default());
        let controller = AttributesClassProtectionController::new(cache.clone());
        let class = json!({"metadata": meta});
        cache.set(Kind::VolumeAttributesClass, class.to_string().as_bytes()).unwrap();
        if let Some((kind, user)) = &user {
            controller.observe(&cache.set(*kind, user.to_string().as_bytes()).unwrap());
        }
        let outcome = Script::new(case, steps).play(&controller, "c");
        assert_eq!(outcome.map_err(|error| error.to_string()), Ok(Requeue::OnChange), "{case}");
        if let Some((kind, _)) = user {
            let gone = cache.remove(kind, "ns", "u", "9").unwrap();
            assert_eq!(controller.observe(&gone), [Wakeup::now("c")], "{case}");
        }
    }
}
