//! Packing and cutting of subsets, and the loop's calls in cases without a recording.

use serde_json::{Value, json};

use super::*;
use crate::script::{ANY, Script, Step, closing, exists, refused};

fn subsets(value: Value) -> Vec<Subset> {
    serde_json::from_value(value).unwrap()
}

/// Subsets of so many ready and not ready addresses each.
fn sized(sizes: &[(usize, usize)]) -> Vec<Subset> {
    let many = |from: usize, count: usize| {
        (0..count).map(move |n| Address { ip: format!("{}", from + n), ..Address::default() })
    };
    let subset = |(at, (ready, not_ready)): (usize, &(usize, usize))| Subset {
        addresses: many(at * 10_000, *ready).collect(),
        not_ready_addresses: many(at * 10_000 + 5_000, *not_ready).collect(),
        ports: vec![Port { port: i32::try_from(at).unwrap() + 1, ..Port::default() }],
    };
    sizes.iter().enumerate().map(subset).collect()
}

#[test]
fn addresses_are_in_one_subset_with_all_ports_they_offer() {
    let port = |number: i32| json!({"port": number, "protocol": "TCP"});
    let cases = [
        (
            "one address, two ports",
            json!([
                {"addresses": [{"ip": "1.1.1.1"}], "ports": [port(1)]},
                {"addresses": [{"ip": "1.1.1.1"}], "ports": [port(2)]},
            ]),
            1,
        ),
        (
            "ready for one port only",
            json!([
                {"addresses": [{"ip": "1.1.1.1"}], "ports": [port(1)]},
                {"notReadyAddresses": [{"ip": "1.1.1.1"}], "ports": [port(2)]},
            ]),
            2,
        ),
        (
            "two pods of one address",
            json!([
                {"addresses": [{"ip": "1.1.1.1", "targetRef": {"uid": "b"}}], "ports": [port(1)]},
                {"addresses": [{"ip": "1.1.1.1", "targetRef": {"uid": "a"}}], "ports": [port(1)]},
            ]),
            1,
        ),
        ("no ports", json!([{"addresses": [{"ip": "1.1.1.1"}]}]), 1),
        ("nothing", json!([]), 0),
    ];
    for (case, given, count) in cases {
        let packed = repack(&subsets(given));
        assert_eq!(packed.len(), count, "{case}");
        assert_eq!(repack(&packed), packed, "{case}: packed once is packed");
    }
    let both = repack(&subsets(json!([
        {"addresses": [{"ip": "1.1.1.1"}, {"ip": "1.1.1.0"}], "ports": [port(1)]},
        {"notReadyAddresses": [{"ip": "1.1.1.1"}], "ports": [port(1)]},
    ])));
    let expected =
        json!([{"addresses": [{"ip": "1.1.1.0"}], "notReadyAddresses": [{"ip": "1.1.1.1"}], "ports": [port(1)]}]);
    assert_eq!(serde_json::to_value(both).unwrap(), expected, "not ready wins");
}

/// The order is upstream's: a hash that Go's `fnv` made of the same ports.
#[test]
fn ports_are_in_the_order_of_upstreams_hash() {
    let subset = json!([{"addresses": [{"ip": "1.1.1.1"}], "ports": [
        {"name": "http", "port": 80, "protocol": "TCP"},
        {"name": "https", "port": 443, "protocol": "TCP"},
        {"name": "metrics", "port": 9090, "protocol": "TCP"},
        {"name": "dns", "port": 53, "protocol": "UDP", "appProtocol": "dns"},
    ]}]);
    let packed = repack(&subsets(subset));
    let names: Vec<&str> = packed[0].ports.iter().map(|port| port.name.as_str()).collect();
    assert_eq!(names, ORDER);
}

/// What `RepackSubsets` of v1.36 answers for the ports above.
const ORDER: [&str; 4] = ["dns", "http", "https", "metrics"];

#[test]
fn subsets_are_hashed_as_upstream_hashes_them() {
    let subset = subsets(json!([{
        "addresses": [
            {"ip": "10.1.0.1", "nodeName": "n",
                "targetRef": {"kind": "Pod", "namespace": "ns", "name": "p", "uid": "u"}},
            {"ip": "10.1.0.2"},
        ],
        "ports": [{"port": 80, "protocol": "TCP"}, {"port": 81}],
    }]));
    assert_eq!(crate::service::fnv_128a(&subset[0].dump()), 0xed50_ca8b_6d5f_8ec1_6cd5_20a8_0c17_d588);
}

#[test]
fn too_many_addresses_are_cut_by_share_ready_ones_last() {
    for (given, expected) in [
        (&[(600, 400)][..], None),
        (&[(1500, 10)], Some(&[(1000, 0)][..])),
        (&[(900, 300)], Some(&[(900, 100)])),
        (&[(3000, 5), (1000, 5)], Some(&[(750, 0), (250, 0)])),
        (&[(1001, 0), (1, 0), (1, 0)], Some(&[(999, 0), (1, 0), (0, 0)])),
        (&[(500, 600), (0, 300)], Some(&[(500, 334), (0, 166)])),
    ] {
        let mut subsets = sized(given);
        let cut = truncate(&mut subsets);
        let sizes: Vec<(usize, usize)> =
            subsets.iter().map(|subset| (subset.addresses.len(), subset.not_ready_addresses.len())).collect();
        assert_eq!((cut, sizes), (expected.is_some(), expected.unwrap_or(given).to_vec()), "{given:?}");
    }
}

fn service(labels: Value) -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "ns", "uid": "s", "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": labels},
        "spec": {"clusterIP": "10.0.0.1", "ipFamilies": ["IPv4"], "selector": {"app": "web"},
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 8080}]},
    })
}

fn pod(name: &str, ready: bool) -> Value {
    let number = name.len();
    json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "3", "labels": {"app": "web"}},
        "spec": {"nodeName": "n"},
        "status": {"phase": "Running", "podIPs": [{"ip": format!("10.1.0.{number}")}],
            "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]},
    })
}

/// The Endpoints of one pod `a`.
fn endpoints(version: &str) -> Value {
    let target = json!({"kind": "Pod", "namespace": "ns", "name": "a", "uid": "a"});
    json!({
        "apiVersion": "v1", "kind": "Endpoints",
        "metadata": {"name": "web", "namespace": "ns", "resourceVersion": version, "labels": {MANAGED_BY: MANAGER}},
        "subsets": [{"addresses": [{"ip": "10.1.0.1", "nodeName": "n", "targetRef": target}],
            "ports": [{"port": 8080, "protocol": "TCP"}]}],
    })
}

fn see(controller: &EndpointsController, kind: Kind, object: &Value) -> Vec<Wakeup> {
    controller.observe(&controller.cache.set(kind, object.to_string().as_bytes()).unwrap())
}

fn controller(objects: &[(Kind, Value)]) -> EndpointsController {
    let controller = EndpointsController::new(Arc::new(Cache::default()), Duration::ZERO);
    for (kind, object) in objects {
        see(&controller, *kind, object);
    }
    controller
}

fn play(controller: &EndpointsController, case: &'static str, steps: Vec<Step>) -> (String, Vec<String>) {
    let script = Script::new(case, steps);
    let outcome = script.play(controller, "ns/web");
    (outcome.map_or_else(|error| error.to_string(), |next| format!("{next:?}")), script.events())
}

#[test]
fn endpoints_are_written_when_they_change_and_not_before_the_last_write_is_seen() {
    let loop_ = controller(&[(Kind::Service, service(json!({}))), (Kind::Pod, pod("a", true))]);
    let created = vec![("POST ns/endpoints", ANY, Ok(endpoints("5")))];
    assert_eq!(play(&loop_, "created", created).0, "OnChange");
    let late = "endpoints informer cache is out of date, resource version 0 already processed for endpoints ns/web";
    assert_eq!(play(&loop_, "the creation is not seen", vec![]).0, late);
    see(&loop_, Kind::Endpoints, &endpoints("5"));
    assert_eq!(play(&loop_, "nothing to write", vec![]).0, "OnChange");
    see(&loop_, Kind::Pod, &pod("bb", false));
    let updated = vec![("PUT ns/endpoints/web", ANY, Ok(endpoints("6")))];
    assert_eq!(play(&loop_, "updated", updated).0, "OnChange");
    let late = "endpoints informer cache is out of date, resource version 5 already processed for endpoints ns/web";
    assert_eq!(play(&loop_, "the update is not seen", vec![]).0, late);
}

#[test]
fn refusals_are_told_of_and_a_closing_namespace_is_not() {
    let objects = || [(Kind::Service, service(json!({}))), (Kind::Pod, pod("a", false))];
    let refusal = |answer| vec![("POST ns/endpoints", ANY, answer)];
    let told = |reason: &str| vec![reason.to_owned()];
    for (case, answer, expected, events) in [
        ("refused", refused(422), "refused with 422", told("FailedToCreateEndpoint")),
        ("exists", exists(), "exists", told("FailedToCreateEndpoint")),
        ("closing", closing(), "OnChange", vec![]),
    ] {
        assert_eq!(play(&controller(&objects()), case, refusal(answer)), (expected.to_owned(), events));
    }
    let loop_ = controller(&objects());
    see(&loop_, Kind::Endpoints, &endpoints("5"));
    let steps = vec![("PUT ns/endpoints/web", ANY, refused(409))];
    assert_eq!(play(&loop_, "conflict", steps), ("refused with 409".to_owned(), told("FailedToUpdateEndpoint")));
}

#[test]
fn endpoints_go_with_their_service_and_others_are_left_alone() {
    let gone = |answer| vec![("DELETE ns/endpoints/web", ANY, answer)];
    assert_eq!(play(&controller(&[]), "gone", gone(Ok(json!({})))).0, "OnChange");
    assert_eq!(play(&controller(&[]), "gone before", gone(refused(404))).0, "OnChange");
    let mut outside = service(json!({}));
    outside["spec"]["selector"] = Value::Null;
    assert_eq!(play(&controller(&[(Kind::Service, outside)]), "no selector", vec![]).0, "OnChange");
    let mut external = service(json!({}));
    external["spec"]["type"] = json!("ExternalName");
    assert_eq!(play(&controller(&[(Kind::Service, external)]), "external name", vec![]).0, "OnChange");
    // What was left behind is looked at once; what elects leaders never.
    let mut election = endpoints("5");
    election["metadata"]["annotations"] = json!({LEADER_ELECTION: "{}"});
    assert_eq!(controller(&[(Kind::Endpoints, endpoints("5"))]).start(), [Wakeup::now("ns/web")]);
    assert_eq!(controller(&[(Kind::Endpoints, election)]).start(), []);
}
