//! Crashes at every operation of the disk: nothing acknowledged is lost.
//!
//! `STORE_CRASH_WORKLOADS=200 cargo test -p bayplan-store --test crash` looks further.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod workload;

use bayplan_store::Store;
use bayplan_store::disk::{Crash, SimulatedDisk};
use futures::executor::block_on;
use workload::{WriteLog, check, names, open, run};

const STEPS: usize = 24;
const CRASHES: [Crash; 4] = [Crash::LoseAll, Crash::KeepAll, Crash::Torn, Crash::Holes];

fn workloads() -> std::ops::Range<u64> {
    0..std::env::var("STORE_CRASH_WORKLOADS").ok().and_then(|count| count.parse().ok()).unwrap_or(4)
}

fn told_nothing() -> WriteLog {
    WriteLog { acknowledged: 1, compacted: 1, ..WriteLog::default() }
}

/// Runs a workload on a disk with a fault; opening may fail of it as well.
fn run_on(disk: &SimulatedDisk, seed: u64) -> WriteLog {
    match open(disk) {
        Ok(store) => run(&store, seed, STEPS),
        Err(error) => WriteLog { failure: Some(error.to_string()), ..told_nothing() },
    }
}

/// What a machine finds that comes up again, and goes on from there.
fn check_disk(disk: &SimulatedDisk, log: &WriteLog, context: &str) {
    let store = open(disk).unwrap_or_else(|error| panic!("{context}: {error}"));
    let revision = check(&store, log).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(block_on(store.create("/after", "x".into())), Ok(revision + 1), "{context}");
    drop(store);
    let store = open(disk).unwrap_or_else(|error| panic!("{context}, again: {error}"));
    assert_eq!(store.recovery().cut, None, "{context}: a store that was closed has no torn tail");
    assert_eq!(block_on(store.get("/after")).unwrap().unwrap().mod_revision, revision + 1, "{context}");
}

#[test]
fn a_crash_at_any_operation_loses_nothing_acknowledged() {
    let (mut crashes, mut cuts) = (0, 0);
    for seed in workloads() {
        for at in 1.. {
            let disk = SimulatedDisk::new();
            disk.crash_at(at);
            let log = run_on(&disk, seed);
            for (variant, crash) in CRASHES.into_iter().cycle().take(6).enumerate() {
                let rebooted = disk.reboot(crash, seed * 1000 + at * 10 + variant as u64);
                let context = format!("workload {seed}, crash at {at}, {crash:?} {variant}, {log:?}");
                check_disk(&rebooted, &log, &context);
                cuts += usize::from(open(&disk.reboot(crash, variant as u64)).unwrap().recovery().cut.is_some());
                crashes += 1;
            }
            if disk.operations() < at {
                break;
            }
        }
    }
    assert!(crashes > 500 && cuts > 20, "{crashes} crashes, {cuts} torn tails: the workload proves too little");
}

#[test]
fn what_is_shown_after_a_kill_survives_a_power_cut() {
    for seed in workloads() {
        for at in 1.. {
            let disk = SimulatedDisk::new();
            disk.crash_at(at);
            let log = run_on(&disk, seed);
            let crashed = disk.operations() >= at;
            disk.only_the_process_died();
            // The store is not closed before the power goes, for closing would sync.
            let store = open(&disk).unwrap();
            let shown = check(&store, &log).unwrap();
            let after = WriteLog { acknowledged: shown, ..log };
            check_disk(&disk.reboot(Crash::LoseAll, at), &after, &format!("workload {seed}, killed at {at}"));
            if !crashed {
                break;
            }
        }
    }
}

#[test]
fn the_workload_reaches_snapshots_and_several_segments() {
    let (mut snapshots, mut rotations) = (0, 0);
    for seed in workloads() {
        let disk = SimulatedDisk::new();
        let log = run_on(&disk, seed);
        assert_eq!(log.failure, None);
        snapshots += names(&disk, "snapshot").len();
        rotations += usize::from(names(&disk, "log-").last() > Some(&format!("log-{:020}.segment", 2)));
        check_disk(&disk, &log, "no crash");
    }
    assert!(snapshots * 2 >= workloads().count() && rotations == workloads().count(), "{snapshots}, {rotations}");
}

#[test]
fn a_crash_during_recovery_is_recovered_from() {
    for seed in workloads() {
        for at in (3..).step_by(7) {
            let crashed = SimulatedDisk::new();
            crashed.crash_at(at);
            let log = run_on(&crashed, seed);
            if crashed.operations() < at {
                break;
            }
            for again in 1.. {
                let disk = crashed.reboot(Crash::Torn, at);
                disk.crash_at(again);
                let opened = open(&disk).is_ok();
                let context = format!("workload {seed}, crash at {at} and at {again} of recovery");
                check_disk(&disk.reboot(Crash::Torn, again), &log, &context);
                check_disk(&disk.reboot(Crash::LoseAll, again), &log, &context);
                if opened {
                    break;
                }
            }
        }
    }
}

#[test]
fn a_snapshot_that_fails_costs_nothing_but_space() {
    for seed in 0..20 {
        let disk = SimulatedDisk::new();
        disk.fail_syncs_of("snapshot");
        let store = open(&disk).unwrap();
        let log = run(&store, seed, STEPS);
        assert_eq!(log.failure, None);
        drop(store);
        check_disk(&disk, &log, &format!("seed {seed}"));
        assert!(disk.failed_syncs() > 0, "no snapshot was tried");
        // Without a snapshot nothing is cleared away: the log is whole from its first segment on.
        assert!(names(&disk, "log-").len() > 2, "{:?}", names(&disk, ""));
    }
}
