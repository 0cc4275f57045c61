//! What the loops of endpoints share.

use std::collections::BTreeSet;
use std::sync::Arc;

use bayplan_model::delta::Delta;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::cache::{Cache, Kind};

fn pod(fields: Value) -> Arc<Pod> {
    let mut pod = json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "1", "resourceVersion": "1", "labels": {"app": "web"}},
        "status": {"phase": "Running", "podIPs": [{"ip": "10.1.0.1"}],
            "conditions": [{"type": "Ready", "status": "True"}]},
    });
    for (pointer, value) in fields.as_object().unwrap() {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        pod.pointer_mut(parent).unwrap()[field] = value.clone();
    }
    Arc::new(serde_json::from_value(pod).unwrap())
}

#[test]
fn addresses_are_read_as_kubernetes_always_has() {
    for (text, expected) in [
        ("10.0.0.1", Some("10.0.0.1")),
        ("010.000.0.01", Some("10.0.0.1")),
        ("::ffff:10.0.0.1", Some("10.0.0.1")),
        ("FD00::0:1", Some("fd00::1")),
        ("10.0.0", None),
        ("10.0.0.256", None),
        ("10.0.0.1.1", None),
        ("10.0.0.+1", None),
        ("", None),
    ] {
        assert_eq!(parse_ip(text).map(|ip| ip.to_string()).as_deref(), expected, "{text}");
    }
}

/// The Services that a change of a pod wakes.
fn woken(old: Option<Value>, new: Option<Value>) -> BTreeSet<String> {
    let cache = Arc::new(Cache::default());
    let mut selecting = Selecting::default();
    for (name, selector) in [
        ("web", json!({"app": "web"})),
        ("both", json!({"app": "web", "tier": "front"})),
        ("db", json!({"app": "db"})),
        ("none", Value::Null),
    ] {
        let service = json!({"metadata": {"name": name, "namespace": "ns"}, "spec": {"selector": selector}});
        let delta = cache.set(Kind::Service, service.to_string().as_bytes()).unwrap();
        let crate::cache::AnyDelta::Service(delta) = delta else { panic!("a Service") };
        selecting.observe(&delta);
    }
    let delta = match (old.map(pod), new.map(pod)) {
        (Some(old), Some(new)) => Delta::Updated { old, new },
        (None, Some(new)) => Delta::Added(new),
        (Some(old), None) => Delta::Deleted(old),
        (None, None) => panic!("no change"),
    };
    let names = selecting.concerned(&delta, &cache).into_iter();
    names.map(|key| key.strip_prefix("ns/").unwrap().to_owned()).collect()
}

#[test]
fn a_pod_wakes_the_services_whose_endpoints_its_change_may_change() {
    let newer = |fields: Value| {
        let mut fields = fields;
        fields["/metadata/resourceVersion"] = json!("2");
        Some(fields)
    };
    let front = json!({"app": "web", "tier": "front"});
    for (case, old, new, expected) in [
        ("added", None, Some(json!({})), "web"),
        ("deleted", Some(json!({"/metadata/labels": front})), None, "both,web"),
        ("said again", Some(json!({})), Some(json!({"/status/conditions": []})), ""),
        ("an annotation", Some(json!({})), newer(json!({"/metadata/annotations": {"a": "b"}})), ""),
        ("not ready", Some(json!({})), newer(json!({"/status/conditions": []})), "web"),
        ("another address", Some(json!({})), newer(json!({"/status/podIPs": [{"ip": "10.1.0.2"}]})), "web"),
        ("a terminal phase alone, as upstream", Some(json!({})), newer(json!({"/status/phase": "Failed"})), ""),
        ("one more label", Some(json!({})), newer(json!({"/metadata/labels": front})), "both"),
        ("other labels", Some(json!({})), newer(json!({"/metadata/labels": {"app": "db"}})), "db,web"),
        (
            "one more label, and not ready",
            Some(json!({})),
            newer(json!({"/metadata/labels": front, "/status/conditions": []})),
            "both,web",
        ),
        (
            "anything of a pod that is being deleted",
            Some(json!({"/metadata/deletionTimestamp": "2026-01-01T00:00:00Z"})),
            newer(json!({"/metadata/deletionTimestamp": "2026-01-01T00:00:00Z"})),
            "web",
        ),
    ] {
        let expected: BTreeSet<String> = expected.split(',').filter(|n| !n.is_empty()).map(str::to_owned).collect();
        assert_eq!(woken(old, new), expected, "{case}");
    }
}

#[test]
fn the_time_of_a_change_is_the_oldest_that_was_not_seen() {
    let at = |second: i64| Timestamp::from_second(1_780_000_000 + second).unwrap();
    let ready = |name: &str, second: i64| {
        let conditions = json!([{"type": "Ready", "status": "True", "lastTransitionTime": at(second)}]);
        pod(json!({"/metadata/name": name, "/status/conditions": conditions}))
    };
    let mut service = Service::default();
    service.metadata.creation_timestamp = Some(at(0));
    let mut times = TriggerTimes::default();
    for (case, pods, expected) in [
        ("the first time", vec![ready("a", 5)], Some(at(0))),
        ("nothing new", vec![ready("a", 5)], None),
        ("two became ready", vec![ready("a", 5), ready("b", 8), ready("c", 7)], Some(at(7))),
        ("one is gone", vec![ready("b", 8)], None),
        ("it is back", vec![ready("a", 5), ready("b", 8)], Some(at(5))),
    ] {
        assert_eq!(times.next(&service, &pods), expected, "{case}");
    }
    times.forget("");
    assert_eq!(times.next(&service, &[]), Some(at(0)));
}

#[test]
fn a_pod_offers_the_port_that_has_the_name_and_the_protocol() {
    let container =
        |name: &str, policy: Value, ports: Value| json!({"name": name, "restartPolicy": policy, "ports": ports});
    let pod: Pod = serde_json::from_value(json!({
        "spec": {
            "containers": [container("c", Value::Null, json!([
                {"name": "http", "protocol": "UDP", "containerPort": 1},
                {"name": "http", "protocol": "TCP", "containerPort": 2},
            ]))],
            "initContainers": [
                container("i", Value::Null, json!([{"name": "side", "protocol": "TCP", "containerPort": 3}])),
                container("s", json!("Always"), json!([{"name": "side", "protocol": "TCP", "containerPort": 4}])),
            ],
        },
    }))
    .unwrap();
    for (target, expected) in [
        (json!("http"), Some(2)),
        (json!("side"), Some(4)),
        (json!("other"), None),
        (json!(8080), Some(8080)),
        (Value::Null, Some(0)),
    ] {
        let port: ServicePort = serde_json::from_value(json!({"protocol": "TCP", "targetPort": target})).unwrap();
        assert_eq!(Service::default().port_of(&port, &pod), expected, "{target}");
    }
}
