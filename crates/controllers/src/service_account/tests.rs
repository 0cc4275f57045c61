//! What the two publishers ask of the API server for one namespace.

use super::*;
use crate::script::{Script, Step, closing, exists, refused};

/// What it is, the namespace's phase, the objects that are known, the exchanges, and the outcome.
type Case = (&'static str, &'static str, Vec<(Kind, Value)>, Vec<Step>, &'static str);

fn cache(phase: &str, objects: &[(Kind, Value)]) -> Arc<Cache> {
    let cache = Arc::new(Cache::default());
    let namespace = json!({"metadata": {"name": "ns"}, "status": {"phase": phase}});
    cache.set(Kind::Namespace, namespace.to_string().as_bytes()).unwrap();
    for (kind, object) in objects {
        cache.set(*kind, object.to_string().as_bytes()).unwrap();
    }
    cache
}

fn outcome(next: Result<Requeue, Error>) -> String {
    next.map_or_else(|error| error.to_string(), |next| format!("{next:?}"))
}

#[test]
fn every_active_namespace_gets_its_default_account_once() {
    let post = |answer| -> Step {
        let account =
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "ns"}});
        ("POST ns/serviceaccounts", account, answer)
    };
    let there = (Kind::ServiceAccount, json!({"metadata": {"name": "default", "namespace": "ns"}}));
    let other = (Kind::ServiceAccount, json!({"metadata": {"name": "robot", "namespace": "ns"}}));
    let cases: Vec<Case> = vec![
        ("it is missing", "Active", vec![other], vec![post(Ok(json!({})))], "OnChange"),
        ("it is there", "Active", vec![there], vec![], "OnChange"),
        ("the namespace closes", "Terminating", vec![], vec![], "OnChange"),
        ("somebody was faster", "Active", vec![], vec![post(exists())], "OnChange"),
        ("the namespace closes meanwhile", "Active", vec![], vec![post(closing())], "OnChange"),
        ("the namespace is gone", "Active", vec![], vec![post(refused(404))], "OnChange"),
        ("the server fails", "Active", vec![], vec![post(refused(500))], "refused with 500"),
    ];
    for (case, phase, objects, steps, expected) in cases {
        let controller = ServiceAccountController::new(cache(phase, &objects));
        assert_eq!(outcome(Script::new(case, steps).play(&controller, "ns")), expected, "{case}");
    }
}

#[test]
fn every_active_namespace_holds_the_certificates_of_today() {
    let metadata = json!({"name": ROOT_CA_CONFIG_MAP, "namespace": "ns", "resourceVersion": "7"});
    let map = |ca: &str| json!({"metadata": metadata, "data": {"ca.crt": ca}});
    let known = |ca: &str| vec![(Kind::RootCa, map(ca))];
    let post = |answer| -> Step {
        let annotations = json!({"kubernetes.io/description": DESCRIPTION});
        let metadata = json!({"name": ROOT_CA_CONFIG_MAP, "namespace": "ns", "annotations": annotations});
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"ca.crt": "new"}});
        ("POST ns/configmaps", map, answer)
    };
    let get = |answer| -> Step { ("GET ns/configmaps/kube-root-ca.crt", Value::Null, answer) };
    let put = |answer| -> Step { ("PUT ns/configmaps/kube-root-ca.crt", map("new"), answer) };
    let cases: Vec<Case> = vec![
        ("it is missing", "Active", vec![], vec![post(Ok(json!({})))], "OnChange"),
        ("it is right", "Active", known("new"), vec![], "OnChange"),
        ("it is old", "Active", known("old"), vec![get(Ok(map("old"))), put(Ok(map("new")))], "OnChange"),
        (
            "it changes meanwhile",
            "Active",
            known("old"),
            vec![get(Ok(map("old"))), put(refused(409))],
            "refused with 409",
        ),
        ("the namespace closes", "Terminating", known("old"), vec![], "OnChange"),
        ("somebody was faster", "Active", vec![], vec![post(exists())], "OnChange"),
        ("the namespace closes meanwhile", "Active", vec![], vec![post(closing())], "OnChange"),
    ];
    for (case, phase, objects, steps, expected) in cases {
        let controller = RootCaPublisher::new(cache(phase, &objects), "new".into());
        assert_eq!(outcome(Script::new(case, steps).play(&controller, "ns")), expected, "{case}");
    }
}

#[test]
fn a_lost_account_or_changed_map_wakes_its_namespace() {
    let there = [
        (Kind::ServiceAccount, json!({"metadata": {"name": "default", "namespace": "ns"}})),
        (Kind::RootCa, json!({"metadata": {"name": ROOT_CA_CONFIG_MAP, "namespace": "ns"}})),
    ];
    let cache = cache("Active", &there);
    let accounts = ServiceAccountController::new(cache.clone());
    let publisher = RootCaPublisher::new(cache.clone(), String::new());
    let lost = cache.remove(Kind::ServiceAccount, "ns", "default", "9").unwrap();
    assert_eq!(accounts.observe(&lost), [Wakeup::now("ns")]);
    assert_eq!(publisher.observe(&lost), []);
    let changed = cache.set(Kind::RootCa, there[1].1.to_string().as_bytes()).unwrap();
    assert_eq!(publisher.observe(&changed), [Wakeup::now("ns")]);
}
