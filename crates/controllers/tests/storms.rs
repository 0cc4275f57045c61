//! Watches, reconciles and their calls in any order, with crashes, lost watches and lost answers: once that is over,
//! every Deployment and ReplicaSet has what it asks for, and is left alone.
//!
//! A run is a seed. `BAYPLAN_RUNS` says how many there are (the long form takes thousands); a failure names its seed,
//! and `BAYPLAN_SEED` runs that one alone.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

mod world;

use std::time::Duration;

use bayplan_testkit::Rng;
use serde_json::{Value, json};
use world::World;
use world::life::{STAGES, begin, deployment, live_through, recreate, rolling};
use world::server::Server;
use world::storm::{Edit, Weather};

/// Runs in the default tests; enough to meet every kind of fault in every stage.
const RUNS: u64 = 40;

const STORM: Weather = Weather { crash: 150, lost_watch: 60, bad_answer: 40, faults: 12 };

fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    match number("BAYPLAN_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("BAYPLAN_RUNS").unwrap_or(RUNS),
    }
}

fn strategy(seed: u64) -> Value {
    if seed.is_multiple_of(3) { recreate() } else { rolling() }
}

/// The world matches its specs, and no controller changes it any more.
fn assert_at_rest(world: &mut World, run: &str) {
    world.assert_desired(run);
    let writes = world.server.writes();
    world.resync(Duration::from_secs(3600));
    assert_eq!(world.server.writes(), writes, "{run}: the desired state is not left alone");
}

fn assert_same_end(outcome: &Value, undisturbed: &Value, run: &str) {
    for (part, expected) in undisturbed.as_object().unwrap() {
        assert_eq!(outcome[part], *expected, "{part} of {run}");
    }
}

fn undisturbed() -> [World; 2] {
    [rolling(), recreate()].map(|strategy| live_through(0..STAGES, &strategy, World::new()))
}

fn of_strategy<'a>(worlds: &'a [World; 2], strategy: &Value) -> &'a World {
    &worlds[usize::from(*strategy == recreate())]
}

#[test]
fn a_rollout_in_a_storm_ends_as_if_there_had_been_none() {
    let undisturbed = undisturbed();
    let outcomes = [0, 1].map(|at| undisturbed[at].outcome());
    for seed in seeds() {
        let (run, strategy, mut rng) = (format!("seed {seed}"), strategy(seed), Rng::new(seed));
        let mut world = World::new();
        for stage in 0..STAGES {
            begin(stage, &strategy, &world.server);
            world.storm(&mut rng, STORM);
        }
        assert_same_end(&world.outcome(), &outcomes[usize::from(strategy == recreate())], &run);
        assert_at_rest(&mut world, &run);
    }
}

#[test]
fn two_managers_at_once_end_where_one_does_and_make_no_storm_of_pods() {
    let undisturbed = undisturbed();
    let outcomes = [0, 1].map(|at| undisturbed[at].outcome_by_order());
    let mut worst = 0;
    for seed in seeds() {
        let (run, strategy, mut rng) = (format!("seed {seed}"), strategy(seed), Rng::new(seed));
        let mut world = World::with_managers(2);
        let weather = if seed.is_multiple_of(2) { STORM } else { Weather::default() };
        for stage in 0..STAGES {
            begin(stage, &strategy, &world.server);
            world.storm(&mut rng, weather);
        }
        assert_same_end(&world.outcome_by_order(), &outcomes[usize::from(strategy == recreate())], &run);
        assert_at_rest(&mut world, &run);
        let (created, needed) =
            (world.server.pods_created(), of_strategy(&undisturbed, &strategy).server.pods_created());
        worst = worst.max(created * 100 / needed);
        // Each of the two may create what is missing before it sees the other's, and what one deletes too many is
        // created once more.
        assert!(created <= 4 * needed, "{run}: {created} pods were created where {needed} are needed");
    }
    assert!(worst > 100, "the two never got into each other's way");
}

/// The user changes things at any moment, and in the end resumes.
fn edits(rng: &mut Rng) -> Vec<Edit> {
    let change = |edit: fn(&mut Value, usize), number: usize| -> Edit {
        Box::new(move |server: &Server| server.edit("deployments", "web", |d| edit(&mut d["spec"], number)))
    };
    let mut edits: Vec<Edit> = Vec::new();
    for _ in 0..3 + rng.below(5) {
        let number = rng.below(5);
        edits.push(match rng.below(4) {
            0 => change(|spec, number| spec["replicas"] = json!(number), number),
            1 => change(|spec, number| spec["minReadySeconds"] = json!(number), number),
            2 => change(|spec, number| spec["paused"] = json!(number > 1), number),
            _ => change(
                |spec, number| spec["template"]["spec"]["containers"][0]["image"] = json!(format!("web:{number}")),
                number,
            ),
        });
    }
    edits.push(change(|spec, _| spec["paused"] = json!(false), 0));
    edits
}

#[test]
fn whatever_the_user_changes_in_a_storm_the_last_word_counts() {
    for seed in seeds() {
        let (run, mut rng) = (format!("seed {seed}"), Rng::new(seed));
        let strategy = strategy(seed);
        // Two managers, one of them out of date, can leave a Recreate Deployment with two ReplicaSets that ask for
        // pods. If it is resized then, neither upstream nor we know which to resize, and it stays so until its next
        // change.
        let two = strategy == rolling() && seed.is_multiple_of(4);
        let mut world = World::with_managers(1 + usize::from(two));
        world.server.put("deployments", deployment(strategy));
        let edits = edits(&mut rng);
        world.storm_with(&mut rng, STORM, edits);
        if world.stands_still() {
            // The next change of its size gets it going.
            world.server.edit("deployments", "web", |d| d["spec"]["replicas"] = json!(5));
            world.storm(&mut rng, Weather::default());
        }
        assert_at_rest(&mut world, &run);
    }
}
