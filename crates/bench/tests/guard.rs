//! Guards the growth of costs, not their size: each promise is a ratio of two measurements of one run, in processor
//! time, so that a slow or busy machine does not change it. The guards are not part of the ordinary tests:
//!
//! ```sh
//! cargo test --release -p bayplan-bench --test guard -- --ignored --test-threads=1
//! ```

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking, in its helpers too")]

use std::process::Command;

use bayplan_bench::engine::{Options, run};
use bayplan_bench::workload;

/// Measurements of each workload, of which the lowest counts: noise only adds.
const RUNS: u64 = 5;

/// Processor microseconds of one pod.
fn cost(name: &str, nodes: usize, pods: usize, confirmations: bool) -> f64 {
    let workload = workload::find(name).unwrap();
    let once = |seed| {
        let options = Options { nodes, pods, seed, confirmations, decision_log: false };
        let run = run(workload, &options, &mut |_, _, _| {}).unwrap();
        1e6 * run.cpu_seconds / pods as f64
    };
    (1..=RUNS).map(once).fold(f64::INFINITY, f64::min)
}

#[track_caller]
fn at_most(what: &str, cost: f64, base: f64, ratio: f64) {
    let measured = cost / base;
    assert!(measured <= ratio, "{what}: {cost:.2} µs against {base:.2} µs a pod, {measured:.2} times as much");
}

#[test]
#[ignore = "a benchmark"]
fn ten_times_the_nodes_and_pods_cost_a_pod_at_most_twice_as_much() {
    // Ten times the pods as well, because the first of them looks at all nodes.
    for name in ["SchedulingBasic", "NodeAffinity", "TopologySpreading", "PodAffinity", "PodAntiAffinity"] {
        let (few, many) = (cost(name, 5_000, 4_000, false), cost(name, 50_000, 40_000, false));
        at_most(name, many, few, 2.0);
    }
}

#[test]
#[ignore = "a benchmark"]
fn unschedulable_pods_that_wait_cost_the_others_next_to_nothing() {
    let (alone, beside) = (cost("SchedulingBasic", 5_000, 10_000, false), cost("Unschedulable", 5_000, 10_000, false));
    at_most("10,000 unschedulable pods in the queue", beside, alone, 1.2);
}

#[test]
#[ignore = "a benchmark"]
fn constraints_cost_a_pod_at_most_ten_plain_pods() {
    let plain = cost("SchedulingBasic", 5_000, 2_000, false);
    for name in ["TopologySpreading", "DefaultTopologySpreading", "PodAffinity", "PodAntiAffinity", "Mixed200"] {
        at_most(name, cost(name, 5_000, 2_000, false), plain, 10.0);
    }
}

/// Instructions of a decision on 1,000 nodes when it was last measured. An eighth more passes, because compilers
/// differ.
#[test]
#[ignore = "a benchmark"]
fn decisions_take_no_more_instructions_than_they_did() {
    let known = [
        ("SchedulingBasic", 15_100),
        ("NodeAffinity", 14_600),
        ("TopologySpreading", 16_300),
        ("DefaultTopologySpreading", 25_900),
        ("PodAffinity", 16_800),
        ("PodAntiAffinity", 18_000),
        ("Unschedulable", 15_500),
        ("Mixed200", 80_200),
    ];
    // Twice as many are the most that PodAntiAffinity finds nodes of their own for.
    let measured = known.map(|(name, before)| (name, before, instructions(name, 1_000, 400)));
    let dearer: Vec<_> = measured.iter().filter(|(_, before, now)| now * 100 > before * 112).collect();
    assert!(dearer.is_empty(), "dearer (workload, before, now): {dearer:?}; all: {measured:?}");
}

/// Instructions of one more decision, without the work that is done once.
fn instructions(workload: &str, nodes: usize, pods: usize) -> u64 {
    let count = |pods: usize| -> u64 {
        let counted = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=*World*empty_queue*"])
            .arg(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "counted", "--test-threads=1"])
            .env("BAYPLAN_COUNTED", format!("{workload} {nodes} {pods}"))
            .output()
            .expect("valgrind is installed");
        let said = String::from_utf8_lossy(&counted.stderr);
        assert!(counted.status.success(), "{said}");
        let figure = said.lines().find_map(|line| line.split_once("Collected : ")).expect("valgrind says how many").1;
        figure.trim().parse().unwrap()
    };
    (count(2 * pods) - count(pods)) / pods as u64
}

/// What [`instructions`] counts under valgrind.
#[test]
#[ignore = "run by the guard of instruction counts"]
fn counted() {
    let Ok(asked) = std::env::var("BAYPLAN_COUNTED") else { return };
    let [name, nodes, pods] = asked.split(' ').collect::<Vec<_>>()[..] else { panic!("{asked}") };
    let options = Options {
        nodes: nodes.parse().unwrap(),
        pods: pods.parse().unwrap(),
        seed: 1,
        confirmations: false,
        decision_log: false,
    };
    run(workload::find(name).unwrap(), &options, &mut |_, _, _| {}).unwrap();
}
