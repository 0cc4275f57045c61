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
//! an etcd, or `KUBEBUILDER_ASSETS` a folder with one; `BAYPLAN_FAULTS` is how many, `BAYPLAN_CLUSTERS` on how many
//! clusters side by side, `BAYPLAN_SEED` repeats a run.

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

/// Clusters that run side by side when nothing else is asked for: a cluster mostly waits, for elections, leases and
/// connections that are given up, so that two on two processors take half the time of one.
const CLUSTERS: usize = 2;

#[test]
fn nothing_is_lost_when_any_member_fails() {
    let Some(binaries) = Binaries::find() else { return };
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<usize>().unwrap());
    let seed = number("BAYPLAN_SEED").map_or_else(|| u64::from(std::process::id()), |seed| seed as u64);
    let clusters = number("BAYPLAN_CLUSTERS").unwrap_or(CLUSTERS);
    let faults = plan(number("BAYPLAN_FAULTS"), seed);
    let binary = binaries.api_server_name();
    println!("{} faults on {clusters} clusters, {binary}, BAYPLAN_SEED={seed}", faults.len());
    std::thread::scope(|scope| {
        for (cluster, faults) in deal(&faults, clusters).into_iter().enumerate() {
            let (binaries, seed) = (&binaries, seed.wrapping_add(cluster as u64));
            scope.spawn(move || play(binaries, cluster, &faults, seed));
        }
    });
}

/// Plays these faults on a cluster of their own.
fn play(binaries: &Binaries, cluster: usize, faults: &[Fault], seed: u64) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let mut rounds = Rounds::start(binaries, cluster, seed).await;
        for (i, fault) in faults.iter().enumerate() {
            rounds.play(i, faults.len(), *fault).await;
        }
        rounds.find_a_planted_loss().await;
        rounds.summary();
    });
}

/// Deals faults to clusters in turn.
fn deal(faults: &[Fault], clusters: usize) -> Vec<Vec<Fault>> {
    (0..clusters).map(|first| faults.iter().copied().skip(first).step_by(clusters).collect()).collect()
}

/// The dozen for every change in another order each time; or as many as were asked for, in which none comes again
/// before all have come.
fn plan(count: Option<usize>, seed: u64) -> Vec<Fault> {
    let (pool, count) = match count {
        None => (faults::DOZEN.to_vec(), faults::DOZEN.len()),
        Some(count) => (faults::all(), count),
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
    assert_eq!(unique(&names(plan(Some(kinds), 7))), kinds);
    assert_eq!(unique(&names(plan(None, 7))), faults::DOZEN.len());
    assert!(faults::DOZEN.iter().all(|fault| faults::all().contains(fault)));
    let dealt = deal(&faults::all(), 3);
    assert_eq!(dealt.iter().map(Vec::len).sum::<usize>(), kinds);
    assert_eq!(dealt[1][..2], [faults::all()[1], faults::all()[4]]);
}
