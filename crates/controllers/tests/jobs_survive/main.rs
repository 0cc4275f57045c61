//! Jobs and CronJobs in every weather: a fault at any single write, late and lost watches, and storms with one and two
//! managers end as if nothing had happened. No pod that ended is lost, and none is counted twice.
//!
//! A storm is a seed. `BAYPLAN_RUNS` says how many there are (the long form takes thousands); a failure names its seed,
//! and `BAYPLAN_SEED` runs that one alone.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may fail by panicking, in its helpers too")]

mod world;

use std::time::Duration;

use bayplan_testkit::Rng;
use serde_json::json;
use world::World;
use world::jobs::{STAGES, begin, cron_job, live_through};
use world::server::{Fault, Server, Trouble};
use world::storm::{Edit, Weather};

/// Runs in the default tests.
const RUNS: u64 = 100;

const STORM: Weather = Weather { crash: 150, lost_watch: 60, bad_answer: 40, faults: 12 };

/// How many minutes a CronJob is watched.
const MINUTES: usize = 6;

fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    match number("BAYPLAN_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("BAYPLAN_RUNS").unwrap_or(RUNS),
    }
}

/// Everything is counted, and no controller changes it any more.
fn assert_at_rest(world: &mut World, run: &str) {
    world.assert_jobs_are_counted(run);
    let writes = world.server.writes();
    world.resync(Duration::from_secs(3600));
    assert_eq!(world.server.writes(), writes, "{run}: what has ended is not left alone");
}

/// Lets each stage pass once for every write it needs, with a fault at that write, and compares where it ends.
fn every_point_of_each_stage(fault: Fault) {
    let mut start = World::of_jobs(1);
    let mut points = 0;
    for stage in 0..STAGES {
        let undisturbed = live_through(stage..stage + 1, start.restarted());
        let writes = undisturbed.server.writes();
        for write in 1..=writes {
            let point = format!("{fault:?} at write {write} of {writes} in stage {stage}");
            let world = start.restarted();
            world.server.plan(write, fault);
            let mut world = live_through(stage..stage + 1, world);
            assert_eq!(world.jobs(), undisturbed.jobs(), "{point}");
            let settled = world.server.writes();
            assert!(settled < 2 * writes + 5, "{point} made a storm of {settled} writes");
            assert_at_rest(&mut world, &point);
        }
        points += writes;
        start = undisturbed;
    }
    println!("{fault:?}: {points} pairs");
    assert!(points > 60, "only {points} writes");
}

#[test]
fn a_fault_at_any_write_of_a_job_changes_nothing_in_the_end() {
    for fault in [Fault::CrashAfter, Fault::CrashBefore, Fault::LostAnswer, Fault::Conflict] {
        every_point_of_each_stage(fault);
    }
}

fn late_or_lost(lasts: Duration) {
    for plural in ["jobs", "pods"] {
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
#[ignore = "takes minutes"]
fn a_watch_that_is_away_for_longer_than_anything_is_expected_changes_nothing_in_the_end() {
    late_or_lost(Duration::from_secs(400));
}

#[test]
fn jobs_in_a_storm_end_as_if_there_had_been_none() {
    let undisturbed = live_through(0..STAGES, World::of_jobs(1)).jobs();
    for seed in seeds() {
        let (run, mut rng) = (format!("seed {seed}"), Rng::new(seed));
        let mut world = World::of_jobs(1 + usize::from(seed % 4 > 1));
        for stage in 0..STAGES {
            begin(stage, &world.server);
            world.storm(&mut rng, STORM);
        }
        assert_eq!(world.jobs(), undisturbed, "{run}");
        assert_at_rest(&mut world, &run);
    }
}

#[test]
fn two_managers_make_no_storm_of_pods() {
    let needed = live_through(0..STAGES, World::of_jobs(1)).server.pods_created();
    let mut worst = 0;
    for seed in seeds().step_by(2) {
        let mut rng = Rng::new(seed);
        let mut world = World::of_jobs(2);
        for stage in 0..STAGES {
            begin(stage, &world.server);
            world.storm(&mut rng, Weather::default());
        }
        world.assert_jobs_are_counted(&format!("seed {seed}"));
        let created = world.server.pods_created();
        worst = worst.max(created * 100 / needed);
        assert!(created <= 4 * needed, "seed {seed}: {created} pods were created where {needed} are needed");
    }
    assert!(worst > 100, "the two never got into each other's way");
}

/// The user pauses, resumes and resizes a Job and deletes its pods at any moment, and in the end lets it go on.
fn edits(rng: &mut Rng) -> Vec<Edit> {
    let mut edits: Vec<Edit> = Vec::new();
    for _ in 0..3 + rng.below(5) {
        let number = rng.below(4);
        edits.push(match rng.below(3) {
            0 => Box::new(move |server: &Server| {
                server.edit("jobs", "plain", |job| job["spec"]["suspend"] = json!(number.is_multiple_of(2)));
            }),
            1 => Box::new(move |server: &Server| {
                server.edit("jobs", "plain", |job| job["spec"]["parallelism"] = json!(number));
            }),
            _ => Box::new(move |server: &Server| {
                let pods = server.objects("pods");
                if let Some(pod) = pods.get(number) {
                    server.remove("pods", pod["metadata"]["name"].as_str().unwrap());
                }
            }),
        });
    }
    edits.push(Box::new(|server: &Server| {
        server.edit("jobs", "plain", |job| {
            job["spec"]["suspend"] = json!(false);
            job["spec"]["parallelism"] = json!(2);
        });
    }));
    edits
}

#[test]
fn whatever_the_user_changes_in_a_storm_every_pod_is_counted_once() {
    for seed in seeds() {
        let (run, mut rng) = (format!("seed {seed}"), Rng::new(seed));
        let mut world = World::of_jobs(1 + usize::from(seed.is_multiple_of(4)));
        begin(0, &world.server);
        let edits = edits(&mut rng);
        world.storm_with(&mut rng, STORM, edits);
        assert_at_rest(&mut world, &run);
    }
}

#[test]
fn a_cron_job_in_a_storm_starts_every_minutes_job_once() {
    for seed in seeds() {
        let (run, mut rng) = (format!("seed {seed}"), Rng::new(seed));
        let mut world = World::of_jobs(1 + usize::from(seed.is_multiple_of(3)));
        world.server.put("cronjobs", cron_job(["Allow", "Forbid", "Replace"][(seed % 3) as usize]));
        let first = world.until_the_minute();
        world.until = first + Duration::from_secs(60 * MINUTES as u64 - 10);
        world.storm(&mut rng, STORM);
        world.server.edit("cronjobs", "tick", |cron_job| cron_job["spec"]["suspend"] = json!(true));
        world.goes_on();
        world.storm(&mut rng, Weather::default());
        world.assert_jobs_are_counted(&run);
        world.assert_every_minute_has_its_job(MINUTES, &run);
    }
}
