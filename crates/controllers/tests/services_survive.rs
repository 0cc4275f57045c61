//! Services in every weather: a fault at any single write, late and lost watches, and storms with one and two managers
//! end with every pod in exactly one slice of its ports, and Endpoints that say the same.
//!
//! A storm is a seed. `BAYPLAN_RUNS` says how many there are (the long form takes thousands); a failure names its seed,
//! and `BAYPLAN_SEED` runs that one alone.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may fail by panicking, in its helpers too")]

mod world;

use std::time::Duration;

use bayplan_testkit::Rng;
use serde_json::json;
use world::server::{Fault, Server, Trouble};
use world::services::{STAGES, begin, by_hand, live_through, pod, set_ready};
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

/// The endpoints are right, and no controller changes them any more.
fn assert_at_rest(world: &mut World, run: &str) {
    world.assert_endpoints(run);
    let writes = world.server.writes();
    world.resync(Duration::from_secs(3600));
    assert_eq!(world.server.writes(), writes, "{run}: the desired state is not left alone");
}

/// Lets each stage pass once for every write it needs, with a fault at that write, and compares where it ends.
fn every_point_of_each_stage(fault: Fault) {
    let mut start = World::of_services(1);
    let mut points = 0;
    for stage in 0..STAGES {
        let undisturbed = live_through(stage..stage + 1, start.restarted());
        let writes = undisturbed.server.writes();
        for write in 1..=writes {
            let point = format!("{fault:?} at write {write} of {writes} in stage {stage}");
            let world = start.restarted();
            world.server.plan(write, fault);
            let mut world = live_through(stage..stage + 1, world);
            assert_eq!(world.reached(), undisturbed.reached(), "{point}");
            let settled = world.server.writes();
            assert!(settled < 2 * writes + 5, "{point} made a storm of {settled} writes");
            assert_at_rest(&mut world, &point);
        }
        points += writes;
        start = undisturbed;
    }
    println!("{fault:?}: {points} pairs");
    assert!(points > 15, "only {points} writes");
}

#[test]
fn a_fault_at_any_write_changes_nothing_in_the_end() {
    for fault in [Fault::CrashAfter, Fault::CrashBefore, Fault::LostAnswer, Fault::Conflict] {
        every_point_of_each_stage(fault);
    }
}

fn late_or_lost(lasts: Duration) {
    for plural in Cast::Services.plurals() {
        for lost in [false, true] {
            every_point_of_each_stage(Fault::Watch(Trouble { plural, lost, lasts }));
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
fn services_in_a_storm_end_as_if_there_had_been_none() {
    let outcome = live_through(0..STAGES, World::of_services(1)).reached();
    for seed in seeds() {
        let (run, mut rng) = (format!("seed {seed}"), Rng::new(seed));
        let mut world = World::of_services(1 + usize::from(seed.is_multiple_of(2)));
        for stage in 0..STAGES {
            begin(stage, &world.server);
            world.storm(&mut rng, STORM);
        }
        assert_eq!(world.reached(), outcome, "{run}");
        assert_at_rest(&mut world, &run);
    }
}

/// The user, kubelets and a vandal change things at any moment.
fn edits(rng: &mut Rng) -> Vec<Edit> {
    let mut edits: Vec<Edit> = Vec::new();
    for _ in 0..8 + rng.below(8) {
        let number = rng.below(10);
        let name = format!("p{number}");
        edits.push(match rng.below(7) {
            0 => Box::new(move |server: &Server| server.remove("pods", &name)),
            1 => Box::new(move |server: &Server| {
                if !server.objects("pods").iter().any(|pod| pod["metadata"]["name"] == name) {
                    server.put("pods", pod(number, number.is_multiple_of(2)));
                }
            }),
            2 => Box::new(move |server: &Server| {
                server.edit("services", "web", |web| web["spec"]["ports"][1]["targetPort"] = json!(9000 + number));
            }),
            3 => Box::new(move |server: &Server| {
                let slices = server.objects("endpointslices");
                if let Some(slice) = slices.get(number % slices.len().max(1)) {
                    server.remove("endpointslices", slice["metadata"]["name"].as_str().unwrap());
                }
            }),
            4 => Box::new(move |server: &Server| {
                let slices = server.objects("endpointslices");
                if let Some(slice) = slices.get(number % slices.len().max(1)) {
                    let name = slice["metadata"]["name"].as_str().unwrap();
                    server.edit("endpointslices", name, |slice| slice["endpoints"] = json!([]));
                }
            }),
            5 => Box::new(move |server: &Server| {
                let address = format!("192.0.2.{number}");
                let subsets = by_hand(&[&address, "192.0.2.77"])["subsets"].clone();
                server.edit("endpoints", "outside", |endpoints| endpoints["subsets"] = subsets);
            }),
            _ => Box::new(move |server: &Server| set_ready(server, number, !number.is_multiple_of(3))),
        });
    }
    edits
}

#[test]
fn whatever_changes_in_a_storm_the_last_word_counts() {
    for seed in seeds() {
        let (run, mut rng) = (format!("seed {seed}"), Rng::new(seed));
        let mut world = World::of_services(1 + usize::from(seed.is_multiple_of(4)));
        (0..3).for_each(|stage| begin(stage, &world.server));
        let edits = edits(&mut rng);
        world.storm_with(&mut rng, STORM, edits);
        assert_at_rest(&mut world, &run);
    }
}

#[test]
fn two_managers_make_no_storm_of_writes() {
    let needed = live_through(0..STAGES, World::of_services(1)).server.writes();
    for seed in seeds() {
        let mut rng = Rng::new(seed);
        let mut world = World::of_services(2);
        for stage in 0..STAGES {
            begin(stage, &world.server);
            world.storm(&mut rng, Weather::default());
        }
        let writes = world.server.writes();
        assert!(writes <= 6 * needed, "seed {seed}: {writes} writes where {needed} are needed");
    }
}
