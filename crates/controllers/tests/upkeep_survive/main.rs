//! The loops that look after single objects, in every weather: a fault at any single write, late and lost watches, and
//! storms with one and two managers end with what each loop promises, and at rest.
//!
//! ```text
//!   lives     the life of each loop's objects, and what the loop promises of them
//!   server    an API server in memory, with a fault at a write
//!   manager   a controller manager with caches that lag behind
//!   world     all of it under virtual time
//! ```
//!
//! A storm is a seed. `BAYPLAN_RUNS` says how many there are (the long form takes thousands); a failure names its seed,
//! and `BAYPLAN_SEED` runs that one alone.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may fail by panicking, in its helpers too")]

mod lives;
mod manager;
mod server;
mod world;

use std::time::Duration;

use bayplan_testkit::Rng;
use lives::{LIVES, Life};
use server::{Fault, Trouble};
use world::{Weather, World};

/// Storms of each loop in the default tests.
const RUNS: u64 = 20;

/// Of a stage with more writes than this, so many are tried with each fault: the others are of the same kind.
const POINTS_MAX: usize = 16;

const STORM: Weather = Weather { crash: 60, lost_watch: 40, bad_answer: 20, faults: 8 };

fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    match number("BAYPLAN_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("BAYPLAN_RUNS").unwrap_or(RUNS),
    }
}

/// What the loop promises is so, and no manager changes it any more.
fn assert_at_rest(world: &mut World, run: &str) {
    (world.life.assert_kept)(&world.server, run);
    let writes = world.server.writes();
    world.resync(Duration::from_secs(3600));
    assert_eq!(world.server.writes(), writes, "{run}: what is as it should be is left alone");
}

/// Lets each stage pass once for every write it needs, with a fault at that write, and compares where it ends.
fn every_point_of_each_stage(life: &'static Life, fault: Fault) -> usize {
    let mut start = World::new(life, 1);
    let mut points = 0;
    for stage in 0..life.stages.len() {
        let mut undisturbed = start.restarted().live_through(stage..stage + 1);
        let (writes, outcome) = (undisturbed.server.writes(), undisturbed.server.outcome());
        assert_at_rest(&mut undisturbed, life.name);
        let tried: Vec<usize> = (1..=writes).step_by(writes.div_ceil(POINTS_MAX).max(1)).collect();
        for write in tried.iter().copied() {
            let point = format!("{}: {fault:?} at write {write} of {writes} in stage {stage}", life.name);
            let world = start.restarted();
            world.server.plan(write, fault);
            let mut world = world.live_through(stage..stage + 1);
            assert_eq!(world.server.outcome(), outcome, "{point}");
            let settled = world.server.writes();
            assert!(settled < 2 * writes + 5, "{point} made a storm of {settled} writes");
            assert_at_rest(&mut world, &point);
        }
        points += tried.len();
        start = undisturbed;
    }
    points
}

#[test]
fn a_fault_at_any_write_changes_nothing_in_the_end() {
    for life in LIVES {
        let faults = [Fault::CrashAfter, Fault::CrashBefore, Fault::LostAnswer, Fault::Conflict];
        let points: usize = faults.into_iter().map(|fault| every_point_of_each_stage(life, fault)).sum();
        println!("{}: {points} pairs", life.name);
        assert!(points >= 4 * life.stages.len(), "{}: only {points} writes", life.name);
    }
}

fn late_or_lost(lasts: Duration) {
    for life in LIVES {
        for kind in life.kinds {
            for lost in [false, true] {
                every_point_of_each_stage(life, Fault::Watch(Trouble { kind: *kind, lost, lasts }));
            }
        }
    }
}

#[test]
fn a_late_or_lost_watch_from_any_write_on_changes_nothing_in_the_end() {
    late_or_lost(Duration::ZERO);
}

#[test]
fn a_watch_that_is_away_for_long_changes_nothing_in_the_end() {
    late_or_lost(Duration::from_secs(400));
}

#[test]
fn a_life_in_a_storm_ends_as_if_there_had_been_none() {
    for life in LIVES {
        let outcome = World::new(life, 1).live_through(0..life.stages.len()).server.outcome();
        for seed in seeds() {
            let (run, mut rng) = (format!("{}: seed {seed}", life.name), Rng::new(seed));
            let mut world = World::new(life, 1 + usize::from(seed.is_multiple_of(2)));
            for stage in life.stages {
                stage(&world.server);
                world.storm(&mut rng, STORM, Vec::new());
                (life.report)(&world.server);
                world.storm(&mut rng, STORM, Vec::new());
            }
            assert_eq!(world.server.outcome(), outcome, "{run}");
            assert_at_rest(&mut world, &run);
        }
    }
}

#[test]
fn whatever_changes_in_a_storm_the_last_word_counts() {
    for life in LIVES {
        for seed in seeds() {
            let (run, mut rng) = (format!("{}: seed {seed}", life.name), Rng::new(seed));
            let mut world = World::new(life, 1 + usize::from(seed.is_multiple_of(4)));
            (life.stages[0])(&world.server);
            let edits = (0..8 + rng.below(8)).map(|_| (life.edit)(&mut rng)).collect();
            world.storm(&mut rng, STORM, edits);
            (life.report)(&world.server);
            world.storm(&mut rng, STORM, Vec::new());
            assert_at_rest(&mut world, &run);
        }
    }
}

#[test]
fn two_managers_make_no_storm_of_writes() {
    for life in LIVES {
        let needed = World::new(life, 1).live_through(0..life.stages.len()).server.writes();
        for seed in seeds() {
            let mut rng = Rng::new(seed);
            let mut world = World::new(life, 2);
            for stage in life.stages {
                stage(&world.server);
                world.storm(&mut rng, Weather::default(), Vec::new());
                (life.report)(&world.server);
                world.storm(&mut rng, Weather::default(), Vec::new());
            }
            let writes = world.server.writes();
            assert!(writes <= 6 * needed, "{}: seed {seed}: {writes} writes where {needed} are needed", life.name);
        }
    }
}
