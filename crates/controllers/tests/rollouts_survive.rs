//! Whatever goes wrong at any single write, a rollout ends as if nothing had, and stays there.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may fail by panicking, in its helpers too")]

mod world;

use std::ops::Range;
use std::time::Duration;

use bayplan_controllers::deployment::MAX_RETRIES;
use serde_json::Value;
use world::World;
use world::life::{STAGES, live_through, recreate, rolling};
use world::server::{Fault, Trouble};

const FAULTS: [Fault; 4] = [Fault::CrashAfter, Fault::CrashBefore, Fault::LostAnswer, Fault::Conflict];

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
        world.assert_desired(&point);
        let settled = world.server.writes();
        assert!(settled < 2 * writes + 5 + tries(fault), "{point} made a storm of {settled} writes");
        world.resync(Duration::from_secs(3600));
        assert_eq!(world.server.writes(), settled, "{point}: the desired state is not left alone");
    }
}

/// How often a Deployment writes in vain while its watch is away: as often as it is retried, twice each time.
fn tries(fault: Fault) -> usize {
    match fault {
        Fault::Watch(trouble) if !trouble.lasts.is_zero() => 2 * MAX_RETRIES as usize,
        _ => 0,
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
    println!("{fault:?}: {writes} pairs");
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

/// Every watch, late or lost.
fn troubles(lasts: Duration) -> impl Iterator<Item = Fault> {
    let watches = ["deployments", "pods", "replicasets"].into_iter();
    let troubles = watches.flat_map(|plural| [false, true].map(|lost| (plural, lost)));
    troubles.map(move |(plural, lost)| Fault::Watch(Trouble { plural, lost, lasts }))
}

#[test]
fn a_late_or_lost_watch_of_pods_from_any_write_on_changes_nothing_in_the_end() {
    for lost in [false, true] {
        let trouble = Trouble { plural: "pods", lost, lasts: Duration::ZERO };
        every_point_of_each_stage(&rolling(), Fault::Watch(trouble));
    }
}

#[test]
#[ignore = "takes minutes"]
fn a_late_or_lost_watch_from_any_write_on_changes_nothing_in_the_end_for_however_long_it_is_away() {
    // The second is longer than an unmet expectation is waited for.
    for lasts in [Duration::ZERO, Duration::from_secs(400)] {
        for trouble in troubles(lasts) {
            every_point_of_each_stage(&rolling(), trouble);
            every_point_of_each_stage(&recreate(), trouble);
        }
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
