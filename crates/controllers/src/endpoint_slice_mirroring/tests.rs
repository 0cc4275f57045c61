//! The loop's calls in cases without a recording.

use serde_json::{Value, json};

use super::*;
use crate::endpoint_slice::{MANAGED_BY, SERVICE_NAME};
use crate::script::{ANY, Script, Step, refused};

fn service(selector: Value) -> Value {
    json!({"metadata": {"name": "ext", "namespace": "ns", "uid": "s"}, "spec": {"selector": selector}})
}

fn endpoints(addresses: &[&str]) -> Value {
    let addresses: Vec<Value> = addresses.iter().map(|ip| json!({"ip": ip})).collect();
    json!({
        "metadata": {"name": "ext", "namespace": "ns", "uid": "e", "resourceVersion": "4", "annotations": {
            "kept": "yes", "kubectl.kubernetes.io/last-applied-configuration": "{}",
        }},
        "subsets": [{"addresses": addresses, "ports": [{"port": 80, "protocol": "TCP"}]}],
    })
}

fn slice(name: &str, addresses: &[&str]) -> Value {
    let endpoint = |ip: &&str| json!({"addresses": [ip], "conditions": {"ready": true}});
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": name, "namespace": "ns", "uid": name, "generation": 1, "resourceVersion": "5",
            "labels": {SERVICE_NAME: "ext", MANAGED_BY: MANAGER}, "annotations": {"kept": "yes"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Endpoints", "name": "ext", "uid": "e", "controller": true,
                "blockOwnerDeletion": true}]},
        "endpoints": addresses.iter().map(endpoint).collect::<Vec<_>>(),
        "ports": [{"name": "", "port": 80, "protocol": "TCP"}],
    })
}

/// The same as it is sent: without what the server adds, under this name or none.
fn sent(addresses: &[&str], name: Option<&str>) -> Value {
    let mut slice = slice("", addresses);
    let metadata = slice["metadata"].as_object_mut().unwrap();
    for field in ["uid", "generation", "resourceVersion", "name"] {
        metadata.remove(field);
    }
    match name {
        Some(name) => metadata.extend([("name".to_owned(), json!(name)), ("resourceVersion".to_owned(), json!("5"))]),
        None => drop(metadata.insert("generateName".into(), json!("ext-"))),
    }
    slice
}

fn play(objects: &[(Kind, Value)], max: usize, case: &'static str, steps: Vec<Step>) -> (String, Vec<String>) {
    let config = EndpointSliceMirroringConfig { endpoints_max: max, ..EndpointSliceMirroringConfig::default() };
    let controller = EndpointSliceMirroringController::new(Arc::new(Cache::default()), config);
    for (kind, object) in objects {
        controller.observe(&controller.cache.set(*kind, object.to_string().as_bytes()).unwrap());
    }
    let script = Script::new(case, steps);
    let outcome = script.play(&controller, "ns/ext");
    (outcome.map_or_else(|error| error.to_string(), |next| format!("{next:?}")), script.events())
}

#[test]
fn endpoints_are_mirrored_into_one_slice_for_each_family_and_set_of_ports() {
    let ours =
        |addresses: &[&str]| vec![(Kind::Service, service(Value::Null)), (Kind::Endpoints, endpoints(addresses))];
    let with = |addresses: &[&str], slices: &[Value]| {
        let slices = slices.iter().map(|slice| (Kind::EndpointSlice, slice.clone()));
        ours(addresses).into_iter().chain(slices).collect::<Vec<_>>()
    };
    let done = |events: &[&str]| ("OnChange".to_owned(), events.iter().map(ToString::to_string).collect::<Vec<_>>());
    let post = |addresses: &[&str]| -> Step {
        ("POST ns/endpointslices", sent(addresses, None), Ok(slice("ext-1", addresses)))
    };
    assert_eq!(play(&ours(&["1.1.1.1"]), 1000, "created", vec![post(&["1.1.1.1"])]), done(&[]));
    assert_eq!(play(&with(&["1.1.1.1"], &[slice("ext-1", &["1.1.1.1"])]), 1000, "equal", vec![]), done(&[]));
    let put: Step =
        ("PUT ns/endpointslices/ext-1", sent(&["1.1.1.1"], Some("ext-1")), Ok(slice("ext-1", &["1.1.1.1"])));
    let delete: Step = ("DELETE ns/endpointslices/ext-2", ANY, Ok(json!({})));
    let two = [slice("ext-1", &["1.1.1.2"]), slice("ext-2", &["1.1.1.1"])];
    assert_eq!(play(&with(&["1.1.1.1"], &two), 1000, "one is kept", vec![put, delete]), done(&[]));
    let many = ["1.1.1.1", "1.1.1.2", "1.1.1.3"];
    let cut = done(&["TooManyAddressesToMirror"]);
    assert_eq!(play(&ours(&many), 2, "too many", vec![post(&["1.1.1.1", "1.1.1.2"])]), cut);
    let invalid = done(&["InvalidIPAddress"]);
    assert_eq!(play(&ours(&["1.1.1.1", "x"]), 1000, "not an address", vec![post(&["1.1.1.1"])]), invalid);
}

#[test]
fn what_is_not_to_be_mirrored_any_more_goes() {
    let mut skipped = endpoints(&["1.1.1.1"]);
    skipped["metadata"]["labels"] = json!({SKIP: "true"});
    let mut election = endpoints(&["1.1.1.1"]);
    election["metadata"]["annotations"] = json!({LEADER_ELECTION: "{}"});
    let mirrored = (Kind::EndpointSlice, slice("ext-1", &["1.1.1.1"]));
    for (case, objects) in [
        ("skipped", vec![(Kind::Service, service(Value::Null)), (Kind::Endpoints, skipped)]),
        ("an election", vec![(Kind::Service, service(Value::Null)), (Kind::Endpoints, election)]),
        ("a selector", vec![(Kind::Service, service(json!({"a": "b"}))), (Kind::Endpoints, endpoints(&["1.1.1.1"]))]),
        ("no Service", vec![(Kind::Endpoints, endpoints(&["1.1.1.1"]))]),
        ("no Endpoints", vec![(Kind::Service, service(Value::Null))]),
    ] {
        let objects: Vec<_> = objects.into_iter().chain([mirrored.clone()]).collect();
        let delete = |answer| -> Vec<Step> { vec![("DELETE ns/endpointslices/ext-1", ANY, answer)] };
        assert_eq!(play(&objects, 1000, case, delete(Ok(json!({})))).0, "OnChange", "{case}");
        assert_eq!(play(&objects, 1000, case, delete(refused(404))).0, "OnChange", "{case}");
        let failed = "error(s) deleting 1/1 EndpointSlices for ns/ext Endpoints, including: refused with 503";
        assert_eq!(play(&objects, 1000, case, delete(refused(503))).0, failed, "{case}");
    }
}
