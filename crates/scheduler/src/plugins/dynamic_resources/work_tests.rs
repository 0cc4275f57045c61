//! What expensive selectors and searches may cost, counted as work.

use std::sync::Arc;
use std::time::Duration;

use bayplan_model::pod::Pod;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::work::{ATTEMPT_MAX, ATTEMPT_MIN, Allowance};
use super::{DynamicResources, State, lock};
use crate::cluster::{Cluster, Object, PodInfo};
use crate::framework::*;

const TIMED_OUT: &str = "node n: timed out trying to allocate devices";

/// Four loops around a pattern that is another for each round, and that written out has thousands of states.
const ATTACK: &str = r#"[0,1,2,3,4,5,6,7,8,9].exists(a, [0,1,2,3,4,5,6,7,8,9].exists(b,
    [0,1,2,3,4,5,6,7,8,9].exists(e, [0,1,2,3,4,5,6,7,8,9].exists(f,
        device.attributes["d.example"].t.matches("(a{0,60}){0,15}c" + string(a + b + e + f))))))"#;
/// About 100,000 units for a device, and no device matches: the API server takes it.
const EXPENSIVE: &str = "lists.range(110).exists(x, lists.range(110).exists(y, x + y < 0))";
const TOO_EXPENSIVE: &str =
    "claim ns/one: selector #0: CEL runtime error: operation cancelled: actual cost limit exceeded";

/// Node `n` with 512 devices, and a claim with a selector.
fn cluster(selector: &str) -> Cluster {
    let mut cluster = Cluster::new();
    let mut store = |object: Value| cluster.store(Object::decode(&object).unwrap().unwrap());
    store(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}));
    store(json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "c"}}));
    for slice in 0..4 {
        let device = |i: i32| json!({"name": format!("d{i}"), "attributes": {"t": {"string": "a".repeat(64)}}});
        let pool = json!({"name": format!("p{slice}"), "generation": 1, "resourceSliceCount": 1});
        let devices: Vec<Value> = (0..128).map(device).collect();
        store(json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": format!("s{slice}")},
            "spec": {"driver": "d.example", "nodeName": "n", "pool": pool, "devices": devices},
        }));
    }
    let exactly = json!({"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1,
        "selectors": [{"cel": {"expression": selector}}]});
    store(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"namespace": "ns", "name": "one", "uid": "one", "resourceVersion": "1"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
    }));
    cluster
}

fn plugin(filter_timeout: &str) -> DynamicResources {
    DynamicResources::new(&json!({"filterTimeout": filter_timeout})).unwrap()
}

fn after(seconds: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
}

/// Tries the pod of the claim, and says what was answered and how much work it was.
fn attempt(plugin: &DynamicResources, cluster: &Cluster, now: Timestamp) -> (String, u64) {
    let pod = json!({"metadata": {"namespace": "ns", "name": "p", "uid": "p"},
        "spec": {"resourceClaims": [{"name": "one", "resourceClaimName": "one"}]}});
    let pod = PodInfo::new(Arc::new(serde_json::from_value::<Pod>(pod).unwrap()));
    let cycle = Cycle { pod: &pod, cluster, now };
    let mut state = State::default();
    assert!(plugin.pre_filter(&cycle, &mut state).status.is_success());
    let work = &state.prepared.as_ref().unwrap().work;
    let before = work.node(Duration::ZERO).left();
    let status = plugin.filter(&cycle, &state, cluster.node("n").unwrap());
    (status.message(), before - work.node(Duration::ZERO).left())
}

#[test]
fn a_selector_that_costs_too_much_is_asked_once() {
    let (plugin, cluster) = (plugin("10s"), cluster(ATTACK));
    let (message, work) = attempt(&plugin, &cluster, after(0));
    assert_eq!(message, TOO_EXPENSIVE);
    assert!(work < ATTEMPT_MAX / 2, "{work}");
    // Its failure is kept like an answer.
    let (message, work) = attempt(&plugin, &cluster, after(1));
    assert_eq!(message, TOO_EXPENSIVE);
    assert!(work < 100, "{work}");
}

#[test]
fn an_attempt_ends_when_its_share_is_used_up() {
    let (plugin, cluster) = (plugin("10s"), cluster(EXPENSIVE));
    assert_eq!(attempt(&plugin, &cluster, after(0)), (TIMED_OUT.to_owned(), ATTEMPT_MAX));
}

#[test]
fn many_attempts_together_take_their_share_of_the_time_and_little_more() {
    let (plugin, cluster) = (plugin("10s"), cluster(EXPENSIVE));
    let attempts = 40;
    let work: u64 = (0..attempts).map(|_| attempt(&plugin, &cluster, after(0)).1).sum();
    assert!(work <= ATTEMPT_MAX + attempts * ATTEMPT_MIN, "{work}");
    // A second later there is a quarter of a second of it again.
    assert_eq!(attempt(&plugin, &cluster, after(1)).1, ATTEMPT_MAX);
}

#[test]
fn an_expensive_selector_is_answered_in_as_many_attempts_as_it_needs() {
    let (plugin, cluster) = (plugin("10s"), cluster(EXPENSIVE));
    let (mut work, mut attempts) = (0, 0);
    let answer = loop {
        let (message, more) = attempt(&plugin, &cluster, after(attempts));
        (work, attempts) = (work + more, attempts + 1);
        if message != TIMED_OUT {
            break message;
        }
        assert!(attempts < 30, "{work} units in {attempts} attempts");
    };
    assert_eq!(answer, "cannot allocate all claims");
    // What was answered is not asked again.
    let (_, again) = attempt(&plugin, &cluster, after(attempts));
    assert!(again < ATTEMPT_MIN, "{again}");
    assert!(work / 512 < 1_000_000, "{work}");
}

#[test]
fn the_filter_timeout_bounds_the_search_on_a_node() {
    let cluster = cluster(EXPENSIVE);
    let (message, work) = attempt(&plugin("1ms"), &cluster, after(0));
    assert_eq!((message.as_str(), work), (TIMED_OUT, 20_000));
    let (message, work) = attempt(&plugin("0s"), &cluster, after(0));
    assert_eq!((message.as_str(), work), (TIMED_OUT, ATTEMPT_MAX));
}

#[test]
fn an_ordinary_claim_is_answered_beside_expensive_ones() {
    let plugin = plugin("10s");
    let expensive = cluster(EXPENSIVE);
    (0..3).for_each(|_| drop(attempt(&plugin, &expensive, after(0))));
    let ordinary = cluster(r#"device.attributes["d.example"].t.startsWith("aa")"#);
    let (message, work) = attempt(&plugin, &ordinary, after(0));
    assert_eq!(message, "");
    assert!(work < ATTEMPT_MIN / 10, "{work}");
}

#[test]
fn a_search_through_all_sets_of_devices_ends_too() {
    // Sixteen devices are chosen again and again for a second request that no device satisfies.
    let mut cluster = cluster("true");
    let exactly = |count: u32, selector: &str| {
        json!({"deviceClassName": "c", "allocationMode": "ExactCount", "count": count,
            "selectors": [{"cel": {"expression": selector}}]})
    };
    let requests =
        json!([{"name": "r", "exactly": exactly(16, "true")}, {"name": "s", "exactly": exactly(1, "false")}]);
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"namespace": "ns", "name": "one", "uid": "one", "resourceVersion": "2"},
        "spec": {"devices": {"requests": requests}},
    });
    cluster.store(Object::decode(&claim).unwrap().unwrap());
    let (message, work) = attempt(&plugin("10s"), &cluster, after(0));
    assert_eq!((message.as_str(), work), (TIMED_OUT, ATTEMPT_MAX));
}

#[test]
fn the_allowance_is_refilled_with_time_and_never_overflows() {
    let mut allowance = Allowance::default();
    allowance.spend(u64::MAX);
    let left = |allowance: &mut Allowance, now| allowance.attempt(now).node(Duration::ZERO).left();
    assert_eq!(left(&mut allowance, after(0)), ATTEMPT_MAX);
    allowance.spend(ATTEMPT_MAX);
    assert_eq!(left(&mut allowance, after(0)), ATTEMPT_MIN);
    let half = Timestamp::UNIX_EPOCH + SignedDuration::from_millis(500);
    assert_eq!(left(&mut allowance, half), ATTEMPT_MAX / 2);
    // A clock that goes back refills nothing.
    allowance.spend(ATTEMPT_MAX);
    assert_eq!(left(&mut allowance, after(-100)), ATTEMPT_MIN);
    assert_eq!(left(&mut allowance, Timestamp::MAX), ATTEMPT_MAX);
    drop(lock(&plugin("10s").allowance));
}
