//! The search for devices on small clusters.

use std::sync::Arc;

use bayplan_model::pod::Pod;
use bayplan_model::quantity::Quantity;
use bayplan_model::resources::Amounts;
use bayplan_testkit::merge;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{DeviceUsage, DynamicResources, State, lock};
use crate::cluster::{Cluster, Object, PodInfo};
use crate::framework::*;

const POD: &str = "pod";

fn store(cluster: &mut Cluster, object: &Value) {
    cluster.store(Object::decode(object).expect("a kind the scheduler reads").expect("an object"));
}

fn slice(name: &str, spec: Value) -> Value {
    let mut slice = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name},
        "spec": {"driver": "d", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}},
    });
    merge(&mut slice["spec"], spec);
    slice
}

fn claim(name: &str, devices: Value) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"namespace": "ns", "name": name, "uid": name, "resourceVersion": "1"},
        "spec": {"devices": devices},
    })
}

fn exactly(name: &str, more: Value) -> Value {
    let mut request =
        json!({"name": name, "exactly": {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}});
    merge(&mut request["exactly"], more);
    request
}

fn pod(claims: &[&str]) -> PodInfo {
    let claims: Vec<Value> = claims.iter().map(|name| json!({"name": name, "resourceClaimName": name})).collect();
    let pod = json!({"metadata": {"namespace": "ns", "name": POD, "uid": POD}, "spec": {"resourceClaims": claims}});
    PodInfo::new(Arc::new(serde_json::from_value::<Pod>(pod).unwrap()))
}

/// Node `n` with class `c`, these slices and claims.
fn cluster(objects: &[Value]) -> Cluster {
    let mut cluster = Cluster::new();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": {"zone": "a"}}});
    let class = json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "c"}});
    [&node, &class].into_iter().chain(objects).for_each(|object| store(&mut cluster, object));
    cluster
}

fn plugin() -> DynamicResources {
    DynamicResources::new(&json!({"bindingTimeout": "10s"})).unwrap()
}

fn filter(cluster: &Cluster, pod: &PodInfo, state: &mut State) -> Status {
    let cycle = Cycle { pod, cluster, now: Timestamp::UNIX_EPOCH };
    let status = plugin().pre_filter(&cycle, state).status;
    if !status.is_success() {
        return status;
    }
    plugin().filter(&cycle, state, cluster.node("n").unwrap())
}

/// The devices that claims get, as `request:device`, or why they get none.
fn search(objects: &[Value], claims: &[&str]) -> Result<String, String> {
    let (cluster, pod, mut state) = (cluster(objects), pod(claims), State::default());
    let status = filter(&cluster, &pod, &mut state);
    if !status.is_success() {
        return Err(status.message());
    }
    let prepared = state.prepared.unwrap();
    let found = lock(&prepared.found).get("n").cloned().unwrap();
    let results = found.allocations.iter().flat_map(|(_, allocation)| &allocation.result.devices.results);
    Ok(results.map(|result| format!("{}:{}", result.request, result.device)).collect::<Vec<_>>().join(" "))
}

fn devices(names: &[&str]) -> Value {
    names.iter().map(|name| json!({"name": name, "attributes": {"numa": {"int": name.len()}}})).collect()
}

/// A slice with devices `a` and `b`.
fn two() -> Value {
    slice("s", json!({"devices": devices(&["a", "b"])}))
}

/// Claim `one` with one request.
fn one(request: Value) -> Value {
    claim("one", json!({"requests": [request]}))
}

/// Another claim, to which a device is allocated.
fn allocated(device: &str) -> Value {
    let mut other = claim("other", json!({}));
    other["status"] = json!({"allocation": {"devices": {"results": [
        {"request": "r", "driver": "d", "pool": "p", "device": device},
    ]}}});
    other
}

/// A sentence, the slices and claims, and the devices of claim `one` or why it gets none.
type SearchCase = (&'static str, Vec<Value>, Result<&'static str, &'static str>);

fn check(cases: impl IntoIterator<Item = SearchCase>) {
    for (sentence, objects, expected) in cases {
        assert_eq!(search(&objects, &["one"]), expected.map(str::to_owned).map_err(str::to_owned), "{sentence}");
    }
}

#[test]
fn the_first_solution_in_order_wins() {
    check([
        ("two devices for one request", vec![two(), one(exactly("r", json!({"count": 2})))], Ok("r:a r:b")),
        ("allocated devices are left out", vec![two(), allocated("a"), one(exactly("r", json!({})))], Ok("r:b")),
        (
            "there are too few devices",
            vec![two(), one(exactly("r", json!({"count": 3})))],
            Err("cannot allocate all claims"),
        ),
        (
            "admin access ignores other users",
            vec![two(), allocated("a"), one(exactly("r", json!({"adminAccess": true})))],
            Ok("r:a"),
        ),
        ("mode All takes all devices", vec![two(), one(exactly("r", json!({"allocationMode": "All"})))], Ok("r:a r:b")),
        (
            "mode All fails when one of them is in use",
            vec![two(), allocated("a"), one(exactly("r", json!({"allocationMode": "All"})))],
            Err("cannot allocate all claims"),
        ),
        (
            "the first alternative with a solution",
            vec![
                two(),
                one(json!({"name": "r", "firstAvailable": [
                    {"name": "x", "deviceClassName": "c", "allocationMode": "ExactCount", "count": 3},
                    {"name": "y", "deviceClassName": "c", "allocationMode": "ExactCount", "count": 1},
                ]})),
            ],
            Ok("r/y:a"),
        ),
        (
            "a claim has at most 32 devices",
            vec![two(), one(exactly("r", json!({"count": 33})))],
            Err("claim ns/one: number of requested devices 33 exceeds the claim limit of 32"),
        ),
    ]);
}

#[test]
fn only_devices_of_valid_pools_that_the_node_reaches_are_tried() {
    check([
        (
            "an older generation is outdated",
            vec![
                two(),
                slice("t", json!({"devices": devices(&["z"]), "pool": {"generation": 2}})),
                one(exactly("r", json!({}))),
            ],
            Ok("r:z"),
        ),
        (
            "an incomplete pool is left out",
            vec![
                slice("s", json!({"devices": devices(&["a"]), "pool": {"resourceSliceCount": 2}})),
                one(exactly("r", json!({}))),
            ],
            Err("cannot allocate all claims"),
        ),
        (
            "a pool with duplicate device names is invalid",
            vec![slice("s", json!({"devices": devices(&["a", "a"])})), one(exactly("r", json!({})))],
            Err("invalid resource pools were encountered"),
        ),
        (
            "devices may select nodes themselves",
            vec![
                slice(
                    "s",
                    json!({"nodeName": null, "perDeviceNodeSelection": true, "devices": [
                        {"name": "far", "nodeName": "elsewhere"}, {"name": "near", "nodeName": "n"},
                    ]}),
                ),
                one(exactly("r", json!({}))),
            ],
            Ok("r:near"),
        ),
        (
            "devices with untolerated taints are left out",
            vec![
                slice(
                    "s",
                    json!({"devices": [
                        {"name": "a", "taints": [{"key": "k", "effect": "NoSchedule"}]}, {"name": "b"},
                    ]}),
                ),
                one(exactly("r", json!({}))),
            ],
            Ok("r:b"),
        ),
        (
            "a selector that fails is an error",
            vec![
                two(),
                one(exactly("r", json!({"selectors": [{"cel": {"expression": "device.attributes['d'].x == 1"}}]}))),
            ],
            Err("claim ns/one: selector #0: CEL runtime error: no such key: x"),
        ),
    ]);
}

#[test]
fn constraints_hold_between_devices() {
    let slices = || slice("s", json!({"devices": devices(&["a", "bb", "c", "dd"])}));
    let with = |constraint: Value| {
        claim(
            "one",
            json!({"requests": [exactly("x", json!({})), exactly("y", json!({}))], "constraints": [constraint]}),
        )
    };
    let cases = [
        (json!({"matchAttribute": "d/numa"}), Ok("x:a y:c")),
        (json!({"distinctAttribute": "d/numa"}), Ok("x:a y:bb")),
        (json!({"matchAttribute": "d/absent"}), Err("cannot allocate all claims")),
        (json!({"matchAttribute": "d/numa", "requests": ["x"]}), Ok("x:a y:bb")),
        (json!({}), Err("claim ns/one, constraint #0: empty constraint (unsupported constraint type?)")),
    ];
    for (constraint, expected) in cases {
        let found = search(&[slices(), with(constraint.clone())], &["one"]);
        assert_eq!(found, expected.map(str::to_owned).map_err(str::to_owned), "{constraint}");
    }
}

#[test]
fn partitions_share_counters_and_claims_share_devices() {
    let consumes = |amount: &str| json!([{"counterSet": "gpu", "counters": {"memory": {"value": amount}}}]);
    let partitions = [
        slice(
            "counters",
            json!({"pool": {"resourceSliceCount": 2}, "sharedCounters": [
                {"name": "gpu", "counters": {"memory": {"value": "4Gi"}}},
            ]}),
        ),
        slice(
            "partitions",
            json!({"pool": {"resourceSliceCount": 2}, "devices": [
                {"name": "large", "consumesCounters": consumes("3Gi")},
                {"name": "small-1", "consumesCounters": consumes("2Gi")},
                {"name": "small-2", "consumesCounters": consumes("2Gi")},
            ]}),
        ),
    ];
    let two = claim("one", json!({"requests": [exactly("r", json!({"count": 2}))]}));
    let found = search(&[partitions.as_slice(), &[two]].concat(), &["one"]);
    assert_eq!(found, Ok("r:small-1 r:small-2".to_owned()), "the large partition leaves too little for another one");

    let shared = slice(
        "s",
        json!({"devices": [{"name": "nic", "allowMultipleAllocations": true, "capacity": {
            "bandwidth": {"value": "10", "requestPolicy": {
                "default": "1", "validRange": {"min": "2", "step": "2", "max": "8"},
            }},
        }}]}),
    );
    let wants = |name: &str, amount: &str| {
        claim(name, json!({"requests": [exactly("r", json!({"capacity": {"requests": {"bandwidth": amount}}}))]}))
    };
    let cases = [
        // 3 is rounded up to 4, which leaves 6.
        ("3", "6", Ok("r:nic r:nic".to_owned())),
        ("3", "7", Err("cannot allocate all claims".to_owned())),
        ("9", "1", Err("cannot allocate all claims".to_owned())),
    ];
    for (one, two, expected) in cases {
        let found = search(&[shared.clone(), wants("one", one), wants("two", two)], &["one", "two"]);
        assert_eq!(found, expected, "{one} and {two}");
    }
}

#[test]
fn scorers_see_devices_where_the_node_has_no_such_resource() {
    let class = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"},
        "spec": {
            "extendedResourceName": "x.io/gpu",
            "selectors": [{"cel": {"expression": "device.attributes['d'].numa == 1"}}],
        },
    });
    let mut other = claim("other", json!({}));
    other["status"] = json!({"allocation": {"devices": {"results": [
        {"request": "r", "driver": "d", "pool": "p", "device": "b"},
    ]}}});
    let cluster = cluster(&[slice("s", json!({"devices": devices(&["a", "b", "c", "other"])})), class, other]);
    let request = Amounts::of(&[("x.io/gpu".to_owned(), Quantity::parse("1").unwrap())].into());
    let node = cluster.node("n").unwrap().node();
    let count = |names: &[&str]| DeviceUsage::new(&cluster, &request, names.iter().copied()).count(node, "x.io/gpu");
    assert_eq!(count(&["cpu", "x.io/gpu"]), Some((3, 1)));
    assert_eq!(count(&["cpu"]), None);
}
