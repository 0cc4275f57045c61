//! Several of everything under faults: three etcd members, two API servers, two schedulers and two controller managers,
//! as processes on loopback, under load; each is killed, paused and cut off in turn.
//!
//! ```text
//!   faults ──▶ cluster (processes, recipes, proxy)
//!                 ▲
//!   load, workloads, watchers (requests) ──▶ history ◀── etcd: every change it made
//! ```
//!
//! What the clients were told is held against what etcd did (`history`). A dozen faults run where `BAYPLAN_ETCD` names
//! an etcd, or `KUBEBUILDER_ASSETS` a folder with one; `BAYPLAN_FAULTS` is how many, `BAYPLAN_SEED` repeats a run.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]
#![allow(clippy::print_stdout, reason = "a run of hundreds of faults says how far it is")]

mod cluster;
mod etcd;
mod faults;
mod history;
mod load;
mod processes;
mod proxy;
mod recipes;
mod requests;
mod rounds;
mod watchers;
mod workloads;

use bayplan_testkit::Rng;

use crate::faults::Fault;
use crate::recipes::Binaries;
use crate::rounds::Rounds;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_when_any_member_fails() {
    let Some(binaries) = Binaries::find() else { return };
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seed = number("BAYPLAN_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let faults = plan(number("BAYPLAN_FAULTS"), seed);
    println!("{} faults, {}, BAYPLAN_SEED={seed}", faults.len(), binaries.api_server_name());
    let mut rounds = Rounds::start(&binaries, seed).await;
    for (i, fault) in faults.iter().enumerate() {
        rounds.play(i, faults.len(), *fault).await;
    }
    rounds.find_a_planted_loss().await;
    rounds.summary();
}

/// The dozen for every change in another order each time; or as many as were asked for, in which none comes again
/// before all have come.
fn plan(count: Option<u64>, seed: u64) -> Vec<Fault> {
    let (pool, count) = match count {
        None => (faults::DOZEN.to_vec(), faults::DOZEN.len()),
        Some(count) => (faults::all(), usize::try_from(count).unwrap()),
    };
    let mut rng = Rng::new(seed);
    let mut plan = Vec::new();
    while plan.len() < count {
        let mut rest = pool.clone();
        while !rest.is_empty() {
            plan.push(rest.swap_remove(rng.below(rest.len())));
        }
    }
    plan.truncate(count);
    plan
}

#[test]
fn a_plan_has_every_fault_and_its_seed_repeats_it() {
    let names = |plan: Vec<Fault>| plan.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(names(plan(Some(100), 7)), names(plan(Some(100), 7)));
    assert_ne!(names(plan(Some(100), 7)), names(plan(Some(100), 8)));
    let kinds = faults::all().len();
    let unique = |names: &[String]| names.iter().collect::<std::collections::BTreeSet<_>>().len();
    assert_eq!(unique(&names(plan(Some(kinds as u64), 7))), kinds);
    assert_eq!(unique(&names(plan(None, 7))), faults::DOZEN.len());
    assert!(faults::DOZEN.iter().all(|fault| faults::all().contains(fault)));
}
