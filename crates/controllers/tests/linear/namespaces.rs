//! Namespaces that are emptied, and what every namespace is given.

use std::sync::Arc;

use bayplan_controllers::{Cache, Kind, NamespaceController, RootCaPublisher, ServiceAccountController};
use serde_json::{Value, json};

use super::{Case, NamedCase, cache, conditions, pods, things};

pub(super) fn cases() -> Vec<NamedCase> {
    vec![
        ("objects of a namespace that is deleted", Box::new(|n| deleted(n, 0, 1))),
        ("conditions of a namespace that is deleted", Box::new(|n| deleted(0, n, 1))),
        ("finalizers of a namespace that is deleted", Box::new(|n| deleted(0, 0, n))),
        ("pods of a namespace that is deleted", Box::new(pods_of_deleted)),
        ("service accounts of a namespace", Box::new(accounts)),
        ("certificates that a namespace is given", Box::new(certificates)),
    ]
}

fn namespace(condition_count: usize, finalizer_count: usize) -> Value {
    let finalizers: Vec<String> = (1..finalizer_count).map(|n| format!("f.example/{n}")).collect();
    json!({
        "metadata": {
            "name": "ns", "uid": "ns", "resourceVersion": "5", "deletionTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": finalizers,
        },
        "spec": {"finalizers": finalizers.iter().map(String::as_str).chain(["kubernetes"]).collect::<Vec<_>>()},
        "status": {"phase": "Terminating", "conditions": conditions(condition_count)},
    })
}

/// Each of its objects has a finalizer of its own.
fn deleted(object_count: usize, condition_count: usize, finalizer_count: usize) -> Case {
    let namespace = namespace(condition_count, finalizer_count);
    let thing =
        |n| json!({"metadata": {"name": format!("t{n}"), "namespace": "ns", "finalizers": [format!("f.example/{n}")]}});
    let list = json!({"items": (0..object_count).map(thing).collect::<Vec<_>>()});
    Case::of(NamespaceController::new(Arc::new(Cache::default()), things()), "ns").answered(move |request| {
        match (&*request.resource.plural, request.name.is_empty()) {
            ("namespaces", _) => Ok(namespace.clone()),
            (_, true) => Ok(list.clone()),
            _ => Ok(json!({})),
        }
    })
}

fn pods_of_deleted(count: usize) -> Case {
    let namespace = namespace(0, 1);
    let all = pods(count, "ns", &json!([]));
    let list = json!({"items": all.iter().map(|(_, pod)| pod.clone()).collect::<Vec<_>>()});
    Case::of(NamespaceController::new(cache(all), things()), "ns").answered(move |request| {
        match (&*request.resource.plural, request.name.is_empty()) {
            ("namespaces", _) => Ok(namespace.clone()),
            (_, true) => Ok(list.clone()),
            _ => Ok(json!({})),
        }
    })
}

fn active() -> (Kind, Value) {
    (Kind::Namespace, json!({"metadata": {"name": "ns", "uid": "ns"}, "status": {"phase": "Active"}}))
}

fn accounts(count: usize) -> Case {
    let account = |n| (Kind::ServiceAccount, json!({"metadata": {"name": format!("a{n}"), "namespace": "ns"}}));
    Case::of(ServiceAccountController::new(cache((0..count).map(account).chain([active()]))), "ns")
}

fn certificates(count: usize) -> Case {
    let published = json!({"metadata": {"name": "kube-root-ca.crt", "namespace": "ns"}, "data": {"ca.crt": "old"}});
    let cache = cache([active(), (Kind::RootCa, published)]);
    Case::of(RootCaPublisher::new(cache, "certificate\n".repeat(count)), "ns")
}
