//! DaemonSets in every weather: a fault at any single write, late and lost watches, and storms with one and two
//! managers end as if nothing had happened, and stay there.
//!
//! A storm is a seed. `BAYPLAN_RUNS` says how many there are (the long form takes thousands); a failure names its seed,
//! and `BAYPLAN_SEED` runs that one alone.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may fail by panicking, in its helpers too")]

mod world;

use std::time::Duration;

use bayplan_testkit::Rng;
use serde_json::{Value, json};
use world::daemons::{STAGES, begin, live_through, roll, taint, with_surge, without_surge};
use world::server::{Fault, Server, Trouble};
use world::storm::{Edit, Weather};
use world::{Cast, World};

/// Runs in the default tests.
const RUNS: u64 = 100;

const STORM: Weather = Weather { crash: 150, lost_watch: 60, bad_answer: 40, faults: 12 };

fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    match number("BAYPLAN_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("BAYPLAN_RUNS").unwrap_or(RUNS),
    }
}

fn strategy(seed: u64) -> Value {
    if seed.is_multiple_of(2) { with_surge() } else { without_surge() }
}

/// The world matches its specs, and no controller changes it any more.
fn assert_at_rest(world: &mut World, run: &str) {
    world.assert_daemons_run(run);
    let writes = world.server.writes();
    world.resync(Duration::from_secs(3600));
    assert_eq!(world.server.writes(), writes, "{run}: the desired state is not left alone");
}

/// Lets each stage pass once for every write it needs, with a fault at that write, and compares where it ends.
fn every_point_of_each_stage(strategy: &Value, fault: Fault) {
    let mut start = World::of_daemon_sets(1);
    let mut points = 0;
    for stage in 0..STAGES {
        let undisturbed = live_through(stage..stage + 1, strategy, start.restarted());
        let writes = undisturbed.server.writes();
        for write in 1..=writes {
            let point = format!("{fault:?} at write {write} of {writes} in stage {stage}");
            let world = start.restarted();
            world.server.plan(write, fault);
            let mut world = live_through(stage..stage + 1, strategy, world);
            assert_eq!(world.daemons(), undisturbed.daemons(), "{point}");
            world.assert_no_storm(writes, &point);
            assert_at_rest(&mut world, &point);
        }
        points += writes;
        start = undisturbed;
    }
    println!("{fault:?}: {points} pairs");
    assert!(points > 40, "only {points} writes");
}

#[test]
fn a_fault_at_any_write_of_an_update_without_surge_changes_nothing_in_the_end() {
    for fault in [Fault::CrashAfter, Fault::CrashBefore, Fault::LostAnswer, Fault::Conflict] {
        every_point_of_each_stage(&without_surge(), fault);
    }
}

#[test]
fn a_fault_at_any_write_of_an_update_with_surge_changes_nothing_in_the_end() {
    for fault in [Fault::CrashAfter, Fault::CrashBefore, Fault::LostAnswer, Fault::Conflict] {
        every_point_of_each_stage(&with_surge(), fault);
    }
}

fn late_or_lost(lasts: Duration) {
    for plural in Cast::DaemonSets.plurals() {
        for lost in [false, true] {
            for strategy in [without_surge(), with_surge()] {
                every_point_of_each_stage(&strategy, Fault::Watch(Trouble { plural, lost, lasts }));
            }
        }
    }
}

#[test]
fn a_late_or_lost_watch_from_any_write_on_changes_nothing_in_the_end() {
    late_or_lost(Duration::ZERO);
}

#[test]
#[ignore = "takes half a minute"]
fn a_watch_that_is_away_for_longer_than_anything_is_expected_changes_nothing_in_the_end() {
    late_or_lost(Duration::from_secs(400));
}

#[test]
fn daemons_in_a_storm_end_as_if_there_had_been_none() {
    let outcomes = [with_surge(), without_surge()]
        .map(|strategy| live_through(0..STAGES, &strategy, World::of_daemon_sets(1)).daemons());
    for seed in seeds() {
        let (run, strategy, mut rng) = (format!("seed {seed}"), strategy(seed), Rng::new(seed));
        let managers = 1 + usize::from(seed % 4 > 1);
        let mut world = World::of_daemon_sets(managers);
        for stage in 0..STAGES {
            begin(stage, &strategy, &world.server);
            world.storm(&mut rng, STORM);
        }
        assert_eq!(world.daemons(), outcomes[(seed % 2) as usize], "{run}");
        assert_at_rest(&mut world, &run);
    }
}

#[test]
fn two_managers_make_no_storm_of_pods() {
    let mut worst = 0;
    for seed in seeds() {
        let (strategy, mut rng) = (strategy(seed), Rng::new(seed));
        let needed = live_through(0..STAGES, &strategy, World::of_daemon_sets(1)).server.pods_created();
        let mut world = World::of_daemon_sets(2);
        for stage in 0..STAGES {
            begin(stage, &strategy, &world.server);
            world.storm(&mut rng, Weather::default());
        }
        let created = world.server.pods_created();
        worst = worst.max(created * 100 / needed);
        assert!(created <= 4 * needed, "seed {seed}: {created} pods were created where {needed} are needed");
    }
    assert!(worst > 100, "the two never got into each other's way");
}

/// The user changes things at any moment.
fn edits(rng: &mut Rng) -> Vec<Edit> {
    let mut edits: Vec<Edit> = Vec::new();
    for _ in 0..3 + rng.below(5) {
        let number = rng.below(5);
        let name = ["a", "b", "c", "d", "e"][number];
        edits.push(match rng.below(4) {
            0 => Box::new(move |server: &Server| {
                server.edit("daemonsets", "agent", |ds| ds["spec"]["minReadySeconds"] = json!(number));
            }),
            1 => Box::new(move |server: &Server| {
                let taints = [taint("NoSchedule"), taint("NoExecute"), json!([])][number % 3].clone();
                server.edit("nodes", name, |node| node["spec"]["taints"] = taints);
            }),
            _ => Box::new(move |server: &Server| roll(server, &format!("agent:{number}"))),
        });
    }
    // A node that lets its pod stay keeps an old one: the last word is that none does.
    for name in ["a", "b", "c", "d", "e"] {
        edits.push(Box::new(move |server: &Server| {
            server.edit("nodes", name, |node| {
                if node["spec"]["taints"][0]["effect"] == "NoSchedule" {
                    node["spec"]["taints"] = json!([]);
                }
            });
        }));
    }
    edits
}

#[test]
fn whatever_the_user_changes_in_a_storm_the_last_word_counts() {
    for seed in seeds() {
        let (run, mut rng) = (format!("seed {seed}"), Rng::new(seed));
        let mut world = World::of_daemon_sets(1 + usize::from(seed.is_multiple_of(4)));
        begin(0, &strategy(seed), &world.server);
        let edits = edits(&mut rng);
        world.storm_with(&mut rng, STORM, edits);
        assert_at_rest(&mut world, &run);
    }
}
