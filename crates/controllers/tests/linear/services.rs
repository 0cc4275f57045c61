//! Endpoints and EndpointSlices.

use std::sync::Arc;
use std::time::Duration;

use bayplan_controllers::{
    Cache, Context, Controller, EndpointSliceConfig, EndpointSliceController, EndpointSliceMirroringConfig,
    EndpointSliceMirroringController, EndpointsController, Kind,
};
use bayplan_model::api::{Request, Verb};
use bayplan_model::status::Status;
use bayplan_testkit::FakeApi;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Case, NamedCase, observed, sync};

fn service(selector: Value) -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "ns", "uid": "s", "resourceVersion": "5"},
        "spec": {
            "clusterIP": "10.0.0.1", "ipFamilies": ["IPv4"], "selector": selector,
            "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": "http"}],
        },
    })
}

fn pod(number: usize, ready: bool, port: usize) -> Value {
    json!({
        "metadata": {"name": format!("p{number:05}"), "namespace": "ns", "uid": format!("u{number}"),
            "resourceVersion": "5", "labels": {"app": "web"}},
        "spec": {"nodeName": "n", "containers": [
            {"name": "c", "ports": [{"name": "http", "protocol": "TCP", "containerPort": port}]},
        ]},
        "status": {
            "phase": "Running", "podIPs": [{"ip": format!("10.1.{}.{}", number / 256, number % 256)}],
            "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
        },
    })
}

fn objects(pods: usize, port: impl Fn(usize) -> usize) -> Vec<(Kind, Value)> {
    let mut objects =
        vec![(Kind::Service, service(json!({"app": "web"}))), (Kind::Node, json!({"metadata": {"name": "n"}}))];
    objects.extend((0..pods).map(|number| (Kind::Pod, pod(number, true, port(number)))));
    objects
}

/// A server that stores slices under names of its own.
fn store(request: &Request) -> Result<Value, Status> {
    let (Verb::Create(body) | Verb::Update(body)) = &request.verb else { return Ok(json!({})) };
    let mut object: Value = serde_json::from_slice(body).unwrap();
    let first = object["endpoints"][0]["addresses"][0].as_str().unwrap_or("none").to_owned();
    let metadata = object["metadata"].as_object_mut().unwrap();
    let name = metadata.get("name").and_then(Value::as_str).map_or(format!("web-{first}"), str::to_owned);
    for (field, value) in [("name", json!(name)), ("uid", json!(name)), ("resourceVersion", json!("9"))] {
        metadata.insert(field.into(), value);
    }
    metadata.insert("namespace".into(), json!("ns"));
    Ok(object)
}

fn slices(cache: &Arc<Cache>) -> EndpointSliceController {
    EndpointSliceController::new(cache.clone(), EndpointSliceConfig::default())
}

/// A loop over these objects.
fn of<C: Controller + 'static>(make: fn(&Arc<Cache>) -> C, objects: Vec<(Kind, Value)>) -> Case {
    let cache = Arc::new(Cache::default());
    let controller = make(&cache);
    observed(&controller, &cache, objects);
    Case::of(controller, "ns/web").answered(store)
}

fn endpoints(cache: &Arc<Cache>) -> EndpointsController {
    EndpointsController::new(cache.clone(), Duration::ZERO)
}

fn mirroring(cache: &Arc<Cache>) -> EndpointSliceMirroringController {
    EndpointSliceMirroringController::new(cache.clone(), EndpointSliceMirroringConfig::default())
}

pub(super) fn cases() -> Vec<NamedCase> {
    let one = |_: usize| 8080;
    let each = |number: usize| number + 1;
    vec![
        ("pods of slices", Box::new(move |n| of(slices, objects(n, one)))),
        ("pods of slices, with ports of their own", Box::new(move |n| of(slices, objects(n, each)))),
        ("pods of Endpoints", Box::new(move |n| of(endpoints, objects(n, one)))),
        ("pods of Endpoints, with ports of their own", Box::new(move |n| of(endpoints, objects(n, each)))),
        ("mirrored addresses", Box::new(mirrored)),
        ("Services beside a pod's", Box::new(compared)),
    ]
}

fn mirrored(count: usize) -> Case {
    let addresses: Vec<Value> = (0..count).map(|n| json!({"ip": format!("10.0.{}.{}", n / 256, n % 256)})).collect();
    let subsets = json!([{"addresses": addresses, "ports": [{"port": 80, "protocol": "TCP"}]}]);
    let by_hand = json!({"metadata": {"name": "web", "namespace": "ns", "uid": "e"}, "subsets": subsets});
    of(mirroring, vec![(Kind::Service, service(Value::Null)), (Kind::Endpoints, by_hand)])
}

/// As many pods as Services, none of which selects any.
fn compared(count: usize) -> Case {
    let cache = Arc::new(Cache::default());
    let controller = slices(&cache);
    let other = |number: usize| {
        let mut other = service(json!({"app": format!("other-{number}")}));
        other["metadata"]["name"] = json!(format!("s{number}"));
        (Kind::Service, other)
    };
    observed(&controller, &cache, (0..count).map(other));
    let run = move |_: Context<'_>| {
        observed(&controller, &cache, (0..count).map(|number| (Kind::Pod, pod(number, true, 80))));
    };
    Case { run: Box::new(run), answer: Box::new(|_| Ok(json!({}))) }
}

/// Runs the loop, and shows it what it wrote.
fn written(controller: &dyn Controller, cache: &Cache, kind: Kind) -> Vec<(String, usize)> {
    let api = FakeApi::new(store);
    let context = Context { now: Timestamp::from_second(1_780_000_000).unwrap(), api: &api, recorder: &api };
    sync(controller, "ns/web", context);
    let mut writes = Vec::new();
    for call in api.calls() {
        let verb = format!("{:?}", call.verb).split('(').next().unwrap().to_owned();
        let (Verb::Create(body) | Verb::Update(body)) = &call.verb else { panic!("{verb}") };
        writes.push((verb, body.len()));
        let object = store(&call).unwrap();
        controller.observe(&cache.set(kind, object.to_string().as_bytes()).unwrap());
    }
    writes
}

/// One pod of ten thousand becomes unready: one slice of a hundred is written, and the Endpoints, which hold a
/// thousand, stay as they are unless it is one of these.
#[test]
fn one_pods_change_is_one_small_write() {
    const PODS: usize = 10_000;
    let cache = Arc::new(Cache::default());
    let (slices, endpoints) = (slices(&cache), endpoints(&cache));
    for (kind, object) in objects(PODS, |_| 8080) {
        let delta = cache.set(kind, object.to_string().as_bytes()).unwrap();
        slices.observe(&delta);
        endpoints.observe(&delta);
    }
    let created = written(&slices, &cache, Kind::EndpointSlice);
    assert_eq!(created.len(), PODS / 100);
    assert!(created.iter().all(|(verb, _)| verb == "Create"));
    let largest = created.iter().map(|(_, size)| *size).max().unwrap();
    assert_eq!(written(&endpoints, &cache, Kind::Endpoints).len(), 1);
    for number in [0, 4_321, PODS - 1] {
        let mut changed = pod(number, false, 8080);
        changed["metadata"]["resourceVersion"] = json!("6");
        let delta = cache.set(Kind::Pod, changed.to_string().as_bytes()).unwrap();
        assert_eq!(slices.observe(&delta).len(), 1);
        assert_eq!(endpoints.observe(&delta).len(), 1);
        let writes = written(&slices, &cache, Kind::EndpointSlice);
        assert!(matches!(&writes[..], [(verb, size)] if verb == "Update" && *size < largest + 100), "{writes:?}");
        // The first thousand by address are shown, ready ones before others.
        let shown = number == 0;
        assert_eq!(written(&endpoints, &cache, Kind::Endpoints).len(), usize::from(shown), "pod {number}");
    }
    assert_eq!(written(&slices, &cache, Kind::EndpointSlice), []);
    assert_eq!(written(&endpoints, &cache, Kind::Endpoints), []);
}
