//! Whatever goes wrong at any single write, a rollout ends as if nothing had, and stays there.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod world;

use std::time::Duration;

use serde_json::{Value, json};
use world::World;
use world::server::Fault;

fn deployment(strategy: Value) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "web"}},
            "strategy": strategy,
            "revisionHistoryLimit": 1,
            "progressDeadlineSeconds": 600,
            "minReadySeconds": 3,
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "web:1"}]},
            },
        },
        "status": {},
    })
}

fn rolling() -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}})
}

/// Create, roll to a second image, resize and roll to a third at once, go back to the second, close down to two.
fn live_through(strategy: &Value, fault: Option<(usize, Fault)>) -> World {
    let mut world = World::new();
    if let Some((write, fault)) = fault {
        world.server.plan(write, fault);
    }
    let image = |image: &'static str| {
        move |d: &mut Value| d["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image)
    };
    let resize = |size: i32| move |d: &mut Value| d["spec"]["replicas"] = json!(size);
    world.server.put("deployments", deployment(strategy.clone()));
    world.settle();
    world.server.edit("deployments", "web", image("web:2"));
    world.settle();
    world.server.edit("deployments", "web", resize(5));
    world.server.edit("deployments", "web", image("web:3"));
    world.settle();
    world.server.edit("deployments", "web", image("web:2"));
    world.settle();
    world.server.edit("deployments", "web", resize(2));
    world.settle();
    world
}

fn every_point(strategy: &Value, fault: Fault) {
    let undisturbed = live_through(strategy, None);
    let (expected, writes) = (undisturbed.outcome(), undisturbed.server.writes());
    assert_eq!(expected["deployments"][0]["status"]["availableReplicas"], 2);
    assert_eq!(expected["pods"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum::<u64>(), 2);
    assert!(writes > 40, "only {writes} writes");
    for write in 1..=writes {
        let mut world = live_through(strategy, Some((write, fault)));
        let outcome = world.outcome();
        for (part, expected) in expected.as_object().unwrap() {
            assert_eq!(outcome[part], *expected, "{part} after {fault:?} at write {write} of {writes}");
        }
        let settled = world.server.writes();
        assert!(settled < 2 * writes, "{fault:?} at write {write} made a storm of {settled} writes");
        world.resync(Duration::from_secs(3600));
        assert_eq!(world.server.writes(), settled, "{fault:?} at write {write}: the desired state is not left alone");
    }
}

#[test]
fn a_crash_after_any_write_of_a_rolling_update_changes_nothing_in_the_end() {
    every_point(&rolling(), Fault::CrashAfter);
}

#[test]
fn a_crash_before_any_write_of_a_rolling_update_changes_nothing_in_the_end() {
    every_point(&rolling(), Fault::CrashBefore);
}

#[test]
fn a_lost_answer_to_any_write_of_a_rolling_update_changes_nothing_in_the_end() {
    every_point(&rolling(), Fault::LostAnswer);
}

#[test]
fn a_conflict_at_any_write_of_a_rolling_update_changes_nothing_in_the_end() {
    every_point(&rolling(), Fault::Conflict);
}

#[test]
fn a_crash_after_any_write_of_a_recreation_changes_nothing_in_the_end() {
    every_point(&json!({"type": "Recreate"}), Fault::CrashAfter);
}
