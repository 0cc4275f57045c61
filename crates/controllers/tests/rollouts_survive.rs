//! Whatever goes wrong at any single write, a rollout ends as if nothing had, and stays there.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod world;

use std::ops::Range;
use std::time::Duration;

use serde_json::{Value, json};
use world::World;
use world::server::{Fault, Server};

const FAULTS: [Fault; 4] = [Fault::CrashAfter, Fault::CrashBefore, Fault::LostAnswer, Fault::Conflict];

fn deployment(strategy: Value) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {
            "replicas": 2,
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

fn recreate() -> Value {
    json!({"type": "Recreate"})
}

/// The user creates a Deployment, rolls to a second image, resizes and rolls to a third at once, goes back to the
/// second, and closes down to one.
const STAGES: usize = 5;

fn begin(stage: usize, strategy: &Value, server: &Server) {
    let roll = |image: &str| {
        server.edit("deployments", "web", |d| d["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image));
    };
    let resize = |size: i32| server.edit("deployments", "web", |d| d["spec"]["replicas"] = json!(size));
    match stage {
        0 => server.put("deployments", deployment(strategy.clone())),
        1 => roll("web:2"),
        2 => {
            resize(4);
            roll("web:3");
        }
        3 => roll("web:2"),
        _ => resize(1),
    }
}

fn live_through(stages: Range<usize>, strategy: &Value, mut world: World) -> World {
    for stage in stages {
        begin(stage, strategy, &world.server);
        world.settle();
    }
    world
}

/// Lets the stages pass once for every write they need, with a fault at that write, and compares where they end with
/// `undisturbed`.
fn every_point(stages: Range<usize>, strategy: &Value, fault: Fault, start: &World, undisturbed: &World) {
    let (expected, writes) = (undisturbed.outcome(), undisturbed.server.writes());
    for write in 1..=writes {
        let world = start.restarted();
        world.server.plan(write, fault);
        let mut world = live_through(stages.clone(), strategy, world);
        let point = format!("{fault:?} at write {write} of {writes} in stages {stages:?}");
        let outcome = world.outcome();
        for (part, expected) in expected.as_object().unwrap() {
            assert_eq!(outcome[part], *expected, "{part} after {point}");
        }
        let settled = world.server.writes();
        assert!(settled < 2 * writes + 5, "{point} made a storm of {settled} writes");
        world.resync(Duration::from_secs(3600));
        assert_eq!(world.server.writes(), settled, "{point}: the desired state is not left alone");
    }
}

/// Stage by stage: each begins where the undisturbed one before it ended, so that no fault costs a whole life.
fn every_point_of_each_stage(strategy: &Value, fault: Fault) {
    let mut start = World::new();
    let mut writes = 0;
    for stage in 0..STAGES {
        let undisturbed = live_through(stage..stage + 1, strategy, start.restarted());
        writes += undisturbed.server.writes();
        every_point(stage..stage + 1, strategy, fault, &start, &undisturbed);
        start = undisturbed;
    }
    assert!(writes > 40, "only {writes} writes");
    let outcome = start.outcome();
    assert_eq!(outcome["deployments"][0]["status"]["availableReplicas"], 1);
    assert_eq!(outcome["pods"].as_array().unwrap().len(), 1);
    assert_eq!(
        outcome,
        live_through(0..STAGES, strategy, World::new()).outcome(),
        "restarts between the stages matter"
    );
}

#[test]
fn a_crash_after_any_write_of_a_rolling_update_changes_nothing_in_the_end() {
    every_point_of_each_stage(&rolling(), Fault::CrashAfter);
}

#[test]
fn a_crash_before_any_write_of_a_rolling_update_changes_nothing_in_the_end() {
    every_point_of_each_stage(&rolling(), Fault::CrashBefore);
}

#[test]
fn a_lost_answer_to_any_write_of_a_rolling_update_changes_nothing_in_the_end() {
    every_point_of_each_stage(&rolling(), Fault::LostAnswer);
}

#[test]
fn a_conflict_at_any_write_of_a_rolling_update_changes_nothing_in_the_end() {
    every_point_of_each_stage(&rolling(), Fault::Conflict);
}

#[test]
fn a_fault_at_any_write_of_a_recreation_changes_nothing_in_the_end() {
    for fault in FAULTS {
        every_point_of_each_stage(&recreate(), fault);
    }
}

/// What a fault leaves behind in a process might only show in a later stage.
#[test]
#[ignore = "a whole life for every write takes minutes"]
fn a_fault_at_any_write_changes_nothing_however_long_the_same_process_lives() {
    for strategy in [rolling(), recreate()] {
        let undisturbed = live_through(0..STAGES, &strategy, World::new());
        for fault in FAULTS {
            every_point(0..STAGES, &strategy, fault, &World::new(), &undisturbed);
        }
    }
}
