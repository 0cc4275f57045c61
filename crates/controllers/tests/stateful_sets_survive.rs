//! StatefulSets in every weather: a fault at any single write, late and lost watches, and storms with one and two
//! managers end as if nothing had happened, and stay there; and at no moment do two pods have one identity.
//!
//! A storm is a seed. `BAYPLAN_RUNS` says how many there are (the long form takes thousands); a failure names its seed,
//! and `BAYPLAN_SEED` runs that one alone.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may fail by panicking, in its helpers too")]

mod world;

use std::time::Duration;

use bayplan_testkit::Rng;
use serde_json::json;
use world::server::{Fault, Server, Trouble};
use world::stateful::{MANNERS, Manner, STAGES, begin, edit, live_through, roll, stateful_set};
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

fn manner(seed: u64) -> Manner {
    MANNERS[(seed % 4) as usize]
}

/// The world matches its specs, and no controller changes it any more.
fn assert_at_rest(world: &mut World, run: &str) {
    world.assert_stateful(run);
    let writes = world.server.writes();
    world.resync(Duration::from_secs(3600));
    assert_eq!(world.server.writes(), writes, "{run}: the desired state is not left alone");
}

/// No change of a claim wakes its set, here or upstream: claims that are shown when all pods run have to wait for the
/// set's next turn.
fn hides_claims(fault: Fault) -> bool {
    matches!(fault, Fault::Watch(trouble) if trouble.plural == "persistentvolumeclaims" && !trouble.lasts.is_zero())
}

/// Lets each stage pass once for every write it needs, with a fault at that write, and compares where it ends.
fn every_point_of_each_stage(manner: Manner, fault: Fault) {
    let mut start = World::of_stateful_sets(1);
    let mut points = 0;
    for stage in 0..STAGES {
        let undisturbed = live_through(stage..stage + 1, manner, start.restarted());
        let writes = undisturbed.server.writes();
        for write in 1..=writes {
            let point = format!("{manner:?}, {fault:?} at write {write} of {writes} in stage {stage}");
            let world = start.restarted();
            world.server.plan(write, fault);
            let mut world = live_through(stage..stage + 1, manner, world);
            if hides_claims(fault) {
                world.resync(Duration::from_secs(3600));
            }
            assert_eq!(world.stateful(), undisturbed.stateful(), "{point}");
            world.assert_no_storm(writes, &point);
            assert_at_rest(&mut world, &point);
        }
        points += writes;
        start = undisturbed;
    }
    println!("{fault:?}: {points} pairs");
    assert!(points > 60, "only {points} writes");
}

#[test]
fn a_fault_at_any_write_of_a_set_in_order_changes_nothing_in_the_end() {
    for fault in [Fault::CrashAfter, Fault::LostAnswer] {
        every_point_of_each_stage(MANNERS[2], fault);
    }
    for fault in [Fault::CrashBefore, Fault::Conflict] {
        every_point_of_each_stage(MANNERS[0], fault);
    }
}

#[test]
fn a_fault_at_any_write_of_a_parallel_set_changes_nothing_in_the_end() {
    for fault in [Fault::CrashAfter, Fault::LostAnswer] {
        every_point_of_each_stage(MANNERS[1], fault);
    }
    for fault in [Fault::CrashBefore, Fault::Conflict] {
        every_point_of_each_stage(MANNERS[3], fault);
    }
}

fn late_or_lost(lost: bool, manners: &[Manner], lasts: Duration) {
    for plural in Cast::StatefulSets.plurals() {
        for manner in manners {
            every_point_of_each_stage(*manner, Fault::Watch(Trouble { plural, lost, lasts }));
        }
    }
}

#[test]
fn a_late_or_lost_watch_from_any_write_on_changes_nothing_in_the_end() {
    late_or_lost(false, &MANNERS[2..3], Duration::ZERO);
    late_or_lost(true, &MANNERS[1..2], Duration::ZERO);
}

#[test]
#[ignore = "takes half a minute"]
fn a_watch_that_is_away_for_long_changes_nothing_in_the_end_whatever_the_manner() {
    for lasts in [Duration::ZERO, Duration::from_secs(400)] {
        late_or_lost(false, &MANNERS, lasts);
        late_or_lost(true, &MANNERS, lasts);
    }
}

#[test]
fn a_set_in_a_storm_ends_as_if_there_had_been_none() {
    let outcomes = MANNERS.map(|manner| {
        let end = live_through(0..STAGES, manner, World::of_stateful_sets(1)).stateful();
        let kept = end["claims"].as_array().unwrap().len() > end["pods"].as_array().unwrap().len();
        assert_eq!(kept, manner.when_scaled == "Retain", "{manner:?}: claims of pods that are gone");
        end
    });
    for seed in seeds() {
        let (run, manner, mut rng) = (format!("seed {seed}"), manner(seed), Rng::new(seed));
        let mut world = World::of_stateful_sets(1 + usize::from(seed % 8 > 3));
        for stage in 0..STAGES {
            begin(stage, manner, &world.server);
            world.storm_watched(&mut rng, STORM, Vec::new(), |world| world.assert_identities(&run));
        }
        assert_eq!(world.stateful(), outcomes[(seed % 4) as usize], "{run}");
        assert_at_rest(&mut world, &run);
    }
}

#[test]
fn two_managers_make_no_storm_of_pods() {
    let needed =
        MANNERS.map(|manner| live_through(0..STAGES, manner, World::of_stateful_sets(1)).server.pods_created());
    for seed in seeds() {
        let (manner, mut rng) = (manner(seed), Rng::new(seed));
        let mut world = World::of_stateful_sets(2);
        for stage in 0..STAGES {
            begin(stage, manner, &world.server);
            world.storm(&mut rng, Weather::default());
        }
        let (created, needed) = (world.server.pods_created(), needed[(seed % 4) as usize]);
        // What one of them, out of date, deletes too many is created once more.
        assert!(created <= 3 * needed, "seed {seed}: {created} pods were created where {needed} are needed");
    }
}

/// The user changes things at any moment.
fn edits(rng: &mut Rng) -> Vec<Edit> {
    let mut edits: Vec<Edit> = Vec::new();
    for _ in 0..3 + rng.below(5) {
        let number = rng.below(5);
        edits.push(match rng.below(7) {
            0 => Box::new(move |server: &Server| edit(server, |spec| spec["replicas"] = json!(number))),
            1 => Box::new(move |server: &Server| edit(server, |spec| spec["minReadySeconds"] = json!(number))),
            2 => Box::new(move |server: &Server| {
                edit(server, |spec| spec["updateStrategy"]["rollingUpdate"]["partition"] = json!(number));
            }),
            3 => Box::new(move |server: &Server| edit(server, |spec| spec["ordinals"]["start"] = json!(number))),
            4 => Box::new(move |server: &Server| server.delete_pod(&format!("db-{number}"))),
            5 => Box::new(move |server: &Server| server.end_pod(&format!("db-{number}"), "Succeeded")),
            _ => Box::new(move |server: &Server| roll(server, &format!("db:{number}"))),
        });
    }
    edits
}

#[test]
fn whatever_the_user_changes_in_a_storm_the_last_word_counts() {
    for seed in seeds() {
        let (run, mut rng) = (format!("seed {seed}"), Rng::new(seed));
        let mut world = World::of_stateful_sets(1 + usize::from(seed % 8 == 5));
        world.server.put("statefulsets", stateful_set(manner(seed)));
        let edits = edits(&mut rng);
        world.storm_watched(&mut rng, STORM, edits, |world| world.assert_identities(&run));
        assert_at_rest(&mut world, &run);
    }
}
