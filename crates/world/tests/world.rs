//! Worlds: many seeds, each a run of the whole with its faults.
//!
//! `BAYPLAN_SEEDS=100000` runs more of them, `BAYPLAN_SEED=7` one and tells its story, whatever came of it.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test may")]

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bayplan_world::{Bug, Form, Outcome, Plan, Point, run, shrink, story};

/// Seeds of the default form.
const SEEDS: u64 = 200;

/// A bug is found within so many seeds.
const SEEDS_PER_BUG: u64 = 80;

/// How often the long form says how far it is.
const REPORT_EVERY: u64 = 1000;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

fn check(plan: &Plan) -> Outcome {
    let outcome = run(plan);
    if outcome.violations.is_empty() {
        return outcome;
    }
    let (smaller, outcome) = shrink(plan).expect("a seed repeats its run");
    panic!("{}", story(&smaller, &outcome));
}

/// What the runs of many seeds came to.
#[derive(Default)]
struct Tally {
    runs: u64,
    reached: BTreeMap<Point, u64>,
    events: usize,
    audited: (usize, usize),
    bound: u64,
    virtual_time: Duration,
    failures: Vec<String>,
}

impl Tally {
    fn add(&mut self, outcome: &Outcome) {
        self.runs += 1;
        self.events += outcome.events;
        self.audited.0 += outcome.audited.0;
        self.audited.1 += outcome.audited.1;
        self.bound += outcome.bound;
        self.virtual_time += outcome.elapsed;
        for (point, count) in &outcome.reached {
            *self.reached.entry(*point).or_default() += count;
        }
    }

    fn report(&self, begun: Instant) {
        let minutes = begun.elapsed().as_secs_f64() / 60.0;
        println!(
            "{} seeds in {minutes:.1} minutes ({:.0} a minute), {:.1} days of virtual time, {} events, {} acknowledged \
             writes, {} watch events, {} pods bound; {} of {} fault points reached",
            self.runs,
            self.runs as f64 / minutes,
            self.virtual_time.as_secs_f64() / 86_400.0,
            self.events,
            self.audited.0,
            self.audited.1,
            self.bound,
            self.reached.len(),
            Point::ALL.len()
        );
    }
}

#[test]
fn every_seed_keeps_every_promise() {
    let (seeds, begun) = (number("BAYPLAN_SEEDS").unwrap_or(SEEDS), Instant::now());
    if let Some(seed) = number("BAYPLAN_SEED") {
        let outcome = check(&Plan::of_seed(seed));
        println!("{}", outcome.lines.join("\n"));
        return;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let threads = number("BAYPLAN_THREADS").unwrap_or(cores.min(4));
    let (next, tally) = (AtomicU64::new(0), Mutex::new(Tally::default()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds || tally.lock().unwrap().failures.len() > 3 {
                        return;
                    }
                    let outcome = run(&Plan::of_seed(seed));
                    let mut tally = tally.lock().unwrap();
                    tally.add(&outcome);
                    if !outcome.violations.is_empty() {
                        println!("seed {seed}: {:?}", outcome.violations);
                        tally.failures.push(format!("seed {seed}"));
                    }
                    if tally.runs.is_multiple_of(REPORT_EVERY) {
                        tally.report(begun);
                    }
                }
            });
        }
    });
    let tally = tally.into_inner().unwrap();
    tally.report(begun);
    for point in Point::ALL {
        println!("{:>9} {}", tally.reached.get(point).unwrap_or(&0), point.name());
    }
    if let Some(failure) = tally.failures.first() {
        let seed: u64 = failure.trim_start_matches("seed ").parse().unwrap();
        check(&Plan::of_seed(seed));
    }
    assert!(seeds < SEEDS || tally.reached.len() >= 60, "only {} fault points were reached", tally.reached.len());
}

#[test]
fn without_faults_everything_arrives_in_both_forms() {
    for form in [Form::Disk, Form::Etcd] {
        let outcome = check(&Plan::in_form(1, form).without_faults());
        assert!(outcome.audited.0 > 100 && outcome.audited.1 > 100 && outcome.bound > 0, "{:?}", outcome.audited);
    }
}

#[test]
fn a_seed_repeats_its_run_to_the_letter() {
    for seed in 0..9 {
        let (one, other) = (run(&Plan::of_seed(seed)), run(&Plan::of_seed(seed)));
        let differs = one.lines.iter().zip(&other.lines).position(|(one, other)| one != other);
        if let Some(at) = differs {
            panic!("seed {seed}:\n{}\n{}", one.lines[at.saturating_sub(5)..=at].join("\n"), other.lines[at]);
        }
        assert_eq!((one.digest, one.events), (other.digest, other.events));
    }
    assert_ne!(run(&Plan::of_seed(0)).digest, run(&Plan::of_seed(1)).digest);
}

#[test]
fn planted_bugs_are_found() {
    let mut unfound = Vec::new();
    for bug in Bug::ALL {
        let fails = |seed: &u64| !run(&Plan::of_seed(*seed).with_bug(*bug)).violations.is_empty();
        match (0..SEEDS_PER_BUG).find(fails) {
            Some(seed) => println!("{bug:?} is found after {} seeds", seed + 1),
            None => unfound.push(bug),
        }
    }
    assert!(unfound.is_empty(), "not found within {SEEDS_PER_BUG} seeds: {unfound:?}");
}

#[test]
fn a_run_that_fails_is_made_smaller_and_told() {
    let plan = (0..).map(|seed| Plan::of_seed(seed).with_bug(Bug::DoubleBinding));
    let plan = plan.into_iter().find(|plan| !run(plan).violations.is_empty()).unwrap();
    let (smaller, outcome) = shrink(&plan).unwrap();
    assert!(smaller.size() < plan.size(), "{:?} is no smaller than {:?}", smaller.size(), plan.size());
    let text = story(&smaller, &outcome);
    assert!(text.contains("was bound to") && text.contains("/binding → 201"), "{text}");
    assert!(text.lines().count() < 150, "{text}");
    assert_eq!(run(&smaller).digest, outcome.digest);
}

#[test]
fn an_idle_hour_takes_seconds() {
    let hours = number("BAYPLAN_HOURS").unwrap_or(1);
    let begun = Instant::now();
    let outcome = check(&Plan::in_form(2, Form::Disk).without_faults().idle_for(Duration::from_secs(hours * 3600)));
    println!("{:?} of virtual time in {:?}, {} events", outcome.elapsed, begun.elapsed(), outcome.events);
    assert!(outcome.elapsed > Duration::from_secs(hours * 3600));
}
