//! The loop's calls and packing in cases without a recording: several slices, its own writes, refusals, hints by zone.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::script::{ANY, Script, Step, closing, refused};

fn service(annotations: Value) -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "ns", "uid": "s", "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": annotations},
        "spec": {"clusterIP": "10.0.0.1", "ipFamilies": ["IPv4"], "selector": {"app": "web"},
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 8080}]},
    })
}

fn node(name: &str, zone: &str, cpu: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {LABEL_ZONE: zone}},
        "status": {"allocatable": {"cpu": cpu}, "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn pod(number: usize, node: &str) -> Value {
    json!({
        "metadata": {"name": format!("p{number:03}"), "namespace": "ns", "uid": format!("u{number}"),
            "resourceVersion": "3", "labels": {"app": "web"}},
        "spec": {"nodeName": node},
        "status": {"phase": "Running", "podIPs": [{"ip": format!("10.1.{}.{}", number / 250, number % 250)}],
            "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn controller(endpoints_max: usize, objects: &[(Kind, Value)]) -> EndpointSliceController {
    let config = EndpointSliceConfig { endpoints_max, ..EndpointSliceConfig::default() };
    let controller = EndpointSliceController::new(Arc::new(Cache::default()), config);
    for (kind, object) in objects {
        see(&controller, *kind, object);
    }
    controller
}

fn see(controller: &EndpointSliceController, kind: Kind, object: &Value) -> Vec<Wakeup> {
    controller.observe(&controller.cache.set(kind, object.to_string().as_bytes()).unwrap())
}

fn play(controller: &EndpointSliceController, case: &'static str, steps: Vec<Step>) -> (String, Vec<String>) {
    let script = Script::new(case, steps);
    let outcome = script.play(controller, "ns/web");
    (outcome.map_or_else(|error| error.to_string(), |next| format!("{next:?}")), script.events())
}

/// A slice as the server has it.
fn stored(name: &str, generation: i64, version: &str) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": name, "namespace": "ns", "uid": name, "generation": generation, "resourceVersion": version,
            "labels": {SERVICE_NAME: "web", MANAGED_BY: MANAGER},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Service", "name": "web", "uid": "s", "controller": true},
            ]},
        "endpoints": null, "ports": null,
    })
}

#[test]
fn a_reconcile_waits_for_the_loops_own_writes() {
    let loop_ = controller(100, &[(Kind::Service, service(json!({})))]);
    let create = || -> Vec<Step> { vec![("POST ns/endpointslices", ANY, Ok(stored("web-1", 1, "5")))] };
    assert_eq!(play(&loop_, "a placeholder", create()).0, "OnChange");
    let late = "EndpointSlice informer cache is out of date";
    assert_eq!(play(&loop_, "not seen", vec![]).0, late);
    assert_eq!(see(&loop_, Kind::EndpointSlice, &stored("web-1", 1, "5")), [], "its own write");
    assert_eq!(play(&loop_, "seen", vec![]).0, "OnChange");
    let other = || [Wakeup::after("ns/web", SLICE_CHANGE_DELAY)];
    assert_eq!(see(&loop_, Kind::EndpointSlice, &stored("web-1", 2, "6")), other(), "somebody else's");
    let gone = loop_.cache.remove(Kind::EndpointSlice, "ns", "web-1", "7").unwrap();
    assert_eq!(loop_.observe(&gone), other());
    assert_eq!(play(&loop_, "gone", create()).0, "OnChange");
    // Somebody deleted it before this loop knew that it had written it.
    loop_.cache.bookmark(Kind::EndpointSlice, "9");
    assert_eq!(play(&loop_, "gone at once", create()).0, "OnChange");
}

#[test]
fn refusals_are_told_of_and_a_closing_namespace_is_not() {
    for (case, answer, expected, events) in [
        ("refused", refused(422), "failed to create EndpointSlice for Service ns/web: refused with 422", 1),
        ("closing", closing(), "OnChange", 0),
    ] {
        let loop_ = controller(100, &[(Kind::Service, service(json!({})))]);
        let (outcome, told) = play(&loop_, case, vec![("POST ns/endpointslices", ANY, answer)]);
        assert_eq!((outcome.as_str(), told.len()), (expected, events), "{case}");
    }
}

#[test]
fn a_pod_on_an_unknown_node_is_left_out_and_told_of() {
    let loop_ = controller(100, &[(Kind::Service, service(json!({}))), (Kind::Pod, pod(1, "gone"))]);
    let (outcome, events) =
        play(&loop_, "unknown node", vec![("POST ns/endpointslices", ANY, Ok(stored("web-1", 1, "5")))]);
    assert_eq!(outcome, "skipping Pod p001 for Service ns/web: Node gone Not Found");
    assert_eq!(events, ["FailedToUpdateEndpointSlices"]);
}

/// The sizes of the slices that are created, updated and left, by name where they have one.
fn packed(existing: &[usize], pods: usize, max: usize) -> String {
    let cache = Cache::default();
    cache.set(Kind::Node, node("n", "z", "1").to_string().as_bytes()).unwrap();
    let service: Service = serde_json::from_value(service(json!({}))).unwrap();
    let pods: Vec<Arc<Pod>> =
        (0..pods).map(|number| Arc::new(serde_json::from_value(pod(number, "n")).unwrap())).collect();
    let packing = Packing { service: &service, family: Family::IPv4, endpoints_max: max };
    let (first, _) = packing.changes(&pods, &cache.nodes(), Vec::new());
    let all: Vec<Endpoint> = first.create.iter().flat_map(|slice| slice.endpoints.clone()).collect();
    let mut rest = all.into_iter();
    let slice = |(at, size): (usize, &usize)| {
        let mut slice = EndpointSlice::clone(&first.create[0]);
        slice.metadata.name = ["a", "b", "c", "d"][at].into();
        slice.endpoints = rest.by_ref().take(*size).collect();
        // Pods that are gone.
        while slice.endpoints.len() < *size {
            let address = format!("10.9.{at}.{}", slice.endpoints.len());
            slice.endpoints.push(Endpoint { addresses: vec![address], ..Endpoint::default() });
        }
        Arc::new(slice)
    };
    let existing = existing.iter().enumerate().map(slice).collect();
    let (mut changes, _) = packing.changes(&pods, &cache.nodes(), existing);
    changes.reuse(&service);
    let shown = |slice: &EndpointSlice| format!("{}{}", slice.metadata.name, slice.endpoints.len());
    let list = |slices: Vec<String>| slices.join(" ");
    format!(
        "create [{}] update [{}] delete [{}] keep [{}]",
        list(changes.create.iter().map(shown).collect()),
        list(changes.update.iter().map(shown).collect()),
        list(changes.delete.iter().map(|slice| shown(slice)).collect()),
        list(changes.unchanged.iter().map(|slice| shown(slice)).collect()),
    )
}

#[test]
fn as_few_slices_as_possible_are_written() {
    for (existing, pods, expected) in [
        (&[][..], 7, "create [3 3 1] update [] delete [] keep []"),
        (&[3, 2], 5, "create [] update [] delete [] keep [a3 b2]"),
        (&[3, 2], 6, "create [] update [b3] delete [] keep [a3]"),
        (&[3, 1], 5, "create [] update [b2] delete [] keep [a3]"),
        // All that is new goes into the slice that it leaves the least room in.
        (&[1, 2], 4, "create [] update [b3] delete [] keep [a1]"),
        (&[2, 1], 5, "create [] update [b3] delete [] keep [a2]"),
        // No slice takes three at once, so a new one does.
        (&[1, 1], 5, "create [3] update [] delete [] keep [a1 b1]"),
        // Slices that lose an endpoint are written anyway, and are filled up.
        (&[3, 3], 5, "create [] update [b2] delete [] keep [a3]"),
        (&[3, 3, 3], 3, "create [] update [] delete [b3 c3] keep [a3]"),
    ] {
        assert_eq!(packed(existing, pods, 3), expected, "{existing:?} for {pods} pods");
    }
}

/// The hints that pods in two zones get, and the reasons of the events.
fn hinted(cpus: [&str; 2], pods: [usize; 2]) -> (BTreeMap<String, usize>, Vec<String>) {
    let auto = json!({"service.kubernetes.io/topology-mode": "Auto"});
    let mut objects = vec![(Kind::Service, service(auto))];
    for (zone, (cpu, count)) in cpus.into_iter().zip(pods).enumerate() {
        let name = format!("n{zone}");
        objects.push((Kind::Node, node(&name, &format!("z{zone}"), cpu)));
        objects.extend((0..count).map(|number| (Kind::Pod, pod(100 * zone + number, &name))));
    }
    let loop_ = controller(100, &objects);
    Script::new("zones", []).play(&loop_, NODES_KEY).unwrap();
    let api = bayplan_testkit::FakeApi::new(|_| Ok(stored("web-1", 1, "5")));
    let context = Context { now: crate::script::now(), api: &api, recorder: &api };
    futures::FutureExt::now_or_never(loop_.sync("ns/web", context)).unwrap().unwrap();
    let mut zones = BTreeMap::new();
    for call in api.calls() {
        let bayplan_model::api::Verb::Create(body) = call.verb else { continue };
        let slice: EndpointSlice = serde_json::from_slice(&body).unwrap();
        for zone in slice.endpoints.into_iter().filter_map(|endpoint| endpoint.hints).flat_map(|hints| hints.for_zones)
        {
            *zones.entry(zone.name).or_default() += 1;
        }
    }
    (zones, api.events().into_iter().map(|event| event.note).collect())
}

#[test]
fn zones_get_endpoints_by_their_share_of_processors() {
    let zones = |first: usize, second: usize| BTreeMap::from([("z0".to_owned(), first), ("z1".to_owned(), second)]);
    let enabled = "Topology Aware Hints has been enabled, addressType: IPv4";
    assert_eq!(hinted(["4", "4"], [3, 3]), (zones(3, 3), vec![enabled.into()]));
    assert_eq!(hinted(["4", "4"], [5, 1]), (zones(3, 3), vec![enabled.into()]));
    assert_eq!(hinted(["4", "8"], [6, 0]), (zones(2, 4), vec![enabled.into()]));
    for (cpus, pods, why) in [
        (["4", "4"], [1, 0], "Insufficient number of endpoints (1 endpoints, 2 zones)"),
        (
            ["0", "4"],
            [3, 3],
            "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes",
        ),
        (
            ["1", "9"],
            [1, 1],
            "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold \
             (2 endpoints, 2 zones)",
        ),
    ] {
        assert_eq!(
            hinted(cpus, pods),
            (BTreeMap::new(), vec![format!("{why}, addressType: IPv4")]),
            "{cpus:?} {pods:?}"
        );
    }
}

#[test]
fn ports_are_in_the_order_of_upstreams_hash() {
    let port = |name: &str, port: i32, protocol: &str, app: Option<&str>| EndpointPort {
        name: Some(name.into()),
        port: Some(port),
        protocol: Some(protocol.into()),
        app_protocol: app.map(str::to_owned),
    };
    let ports = sorted(vec![
        port("http", 80, "TCP", None),
        port("https", 443, "TCP", None),
        port("metrics", 9090, "TCP", None),
        port("dns", 53, "UDP", Some("dns")),
    ]);
    // What `portsInOrder` of v1.36 makes of them.
    let names: Vec<&str> = ports.iter().filter_map(|port| port.name.as_deref()).collect();
    assert_eq!(names, ["dns", "https", "http", "metrics"]);
}
