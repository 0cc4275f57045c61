//! Claims whose selectors are expensive, beside ordinary pods: all ordinary ones are bound within five seconds of the
//! scheduler's clock, and the expensive ones go on being tried.

#![allow(clippy::unwrap_used)] // Helpers of tests, not the product.

mod world;

use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::{Registry, Scheduler, TieBreak};
use jiff::SignedDuration;
use serde_json::{Value, json};
use world::World;

/// Loops around a pattern, which is another one in each round.
const ATTACK: &str = r#"[0,1,2,3,4,5,6,7,8,9].exists(a, [0,1,2,3,4,5,6,7,8,9].exists(b,
    [0,1,2,3,4,5,6,7,8,9].exists(e, [0,1,2,3,4,5,6,7,8,9].exists(f,
        device.attributes["d.example"].t.matches("(a{0,60}){0,30}c" + string(a+b+e+f))))))"#;
/// The same without what Go refuses: its repetitions stand for 900 of them.
const HEAVIER: &str = r#"[0,1,2,3,4,5,6,7,8,9].exists(a, [0,1,2,3,4,5,6,7,8,9].exists(b,
    [0,1,2,3,4,5,6,7,8,9].exists(e, [0,1,2,3,4,5,6,7,8,9].exists(f,
        device.attributes["d.example"].t.matches("(a{0,60}){0,15}c" + string(a+b+e+f) + "x")))))"#;

fn world() -> World {
    let configuration = Configuration::default();
    let scheduler = Scheduler::new(&configuration, &Registry::default(), TieBreak::SmallestName).unwrap();
    let mut world = World::new(1, scheduler);
    (0..20).for_each(|node| world.set_node(node, false));
    world.upsert_object(&json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "c", "uid": "c"},
    }));
    for slice in 0..4 {
        let device = |i: i32| json!({"name": format!("d{i}"), "attributes": {"t": {"string": "a".repeat(64)}}});
        let devices: Vec<Value> = (0..128).map(device).collect();
        let pool = json!({"name": format!("p{slice}"), "generation": 1, "resourceSliceCount": 1});
        world.upsert_object(&json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": format!("s{slice}")},
            "spec": {"driver": "d.example", "allNodes": true, "pool": pool, "devices": devices},
        }));
    }
    world
}

/// A claim with a selector, and a pod with it.
fn create_claimant(world: &mut World, claim: &str, selector: &str) -> String {
    let exactly = json!({"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1,
        "selectors": [{"cel": {"expression": selector}}]});
    world.upsert_object(&json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"namespace": "d", "name": claim, "uid": claim, "resourceVersion": "1"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
    }));
    let spec = json!({"containers": [{"name": "c"}], "priority": 1000,
        "resourceClaims": [{"name": "r", "resourceClaimName": claim}]});
    world.create_pod(spec, json!({}))
}

#[test]
fn ordinary_pods_are_bound_beside_claims_that_are_never_answered() {
    let mut world = world();
    let mut attackers = Vec::new();
    for i in 0..12 {
        // Each is another expression, and comes before the ordinary pods.
        let selector = if i % 2 == 0 { ATTACK } else { HEAVIER };
        attackers.push(create_claimant(&mut world, &format!("claim-{i}"), &format!("{selector} || {i} == 100")));
    }
    let ordinary: Vec<String> = (0..40)
        .map(|_| {
            let requests = json!({"resources": {"requests": {"cpu": "100m"}}, "name": "c"});
            world.create_pod(json!({"containers": [requests]}), json!({}))
        })
        .collect();
    for _ in 0..5 {
        world.settle();
        world.advance(SignedDuration::from_secs(1));
    }
    let unbound: Vec<&String> = ordinary.iter().filter(|pod| !world.server.is_bound(pod)).collect();
    assert!(unbound.is_empty(), "not bound: {unbound:?}");
    assert!(attackers.iter().all(|pod| !world.server.is_bound(pod)), "an attacker is bound");
}
