//! A disk that fails and one that is full: writes are refused while it lasts and taken again when it is over, and
//! nothing acknowledged is lost, whatever happens to the machine afterwards.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod workload;

use std::sync::Arc;

use bayplan_store::disk::{Crash, SimulatedDisk};
use bayplan_store::{LogStore, Options, Store, WriteError};
use futures::executor::block_on;
use workload::{WriteLog, check, go_on, open, options, run_alone};

const STEPS: usize = 40;
const CRASHES: [Crash; 4] = [Crash::LoseAll, Crash::KeepAll, Crash::Torn, Crash::Holes];

/// The reason why a write was refused.
fn refusal(store: &LogStore) -> String {
    let late = format!("/late/{}", store.failure().unwrap_or_default().len());
    match block_on(store.create(&late, "".into())) {
        Err(WriteError::Unavailable(reason)) => reason,
        other => panic!("a write on a disk that fails: {other:?}"),
    }
}

/// What every machine finds that loses power now.
fn check_reboots(disk: &SimulatedDisk, log: &WriteLog, context: &str) {
    for (seed, crash) in CRASHES.into_iter().enumerate() {
        let store = open(&disk.reboot(crash, seed as u64)).unwrap_or_else(|e| panic!("{context}, {crash:?}: {e}"));
        check(&store, log).unwrap_or_else(|error| panic!("{context}, {crash:?}: {error}"));
    }
}

/// Writes go on in the same process, and what they and the writes before them left is there after a reboot.
fn check_goes_on(disk: &SimulatedDisk, store: LogStore, log: WriteLog, context: &str) {
    assert_eq!(block_on(store.revision()), Ok(log.acknowledged), "{context}: what is not durable is not shown");
    assert_eq!(block_on(store.writable()), Ok(()), "{context}");
    assert_eq!(store.failure(), None, "{context}");
    let log = go_on(&store, log, 7, STEPS);
    assert_eq!(log.failure, None, "{context}");
    check_reboots(disk, &log, &format!("{context}, running"));
    drop(store);
    check_reboots(disk, &log, &format!("{context}, closed"));
}

#[test]
fn writing_goes_on_after_any_operation_failed_once() {
    let mut failures = 0;
    for seed in 0..3 {
        for operation in 1.. {
            let disk = SimulatedDisk::new();
            disk.fail_at(operation);
            let Ok(store) = open(&disk) else { continue };
            let log = run_alone(&store, seed, STEPS);
            if disk.operations() < operation {
                break;
            }
            failures += usize::from(log.failure.is_some());
            check_reboots(&disk, &log, &format!("workload {seed}, operation {operation} failed"));
            check_goes_on(&disk, store, log, &format!("workload {seed}, after operation {operation} failed"));
        }
    }
    assert!(failures > 50, "{failures}");
}

#[test]
fn bytes_that_a_failed_sync_gave_up_are_never_counted_on() {
    let mut failures = 0;
    for sync in 1.. {
        let disk = SimulatedDisk::new();
        disk.fail_sync(sync);
        let Ok(store) = open(&disk) else { continue };
        let log = run_alone(&store, 1, STEPS);
        if disk.syncs() < sync {
            break;
        }
        if log.failure.is_some() {
            failures += 1;
            let reason = store.failure().unwrap();
            assert!(reason.starts_with("could not sync") && reason.ends_with("simulated fsync failure"), "{reason}");
        }
        check_goes_on(&disk, store, log, &format!("sync {sync} failed"));
    }
    assert!(failures > 5, "{failures}");
}

#[test]
fn a_disk_that_keeps_failing_while_the_store_restarts_is_tried_again() {
    let mut attempts = 0;
    for sync in (4..40).step_by(5) {
        for again in 1..12 {
            let disk = SimulatedDisk::new();
            disk.fail_sync(sync);
            let store = open(&disk).unwrap();
            let log = run_alone(&store, 2, STEPS);
            if log.failure.is_none() {
                continue;
            }
            // The restart's own operations fail, one after the other.
            disk.fail_at(disk.operations() + again);
            let first = block_on(store.writable());
            attempts += usize::from(first.is_err());
            check_reboots(&disk, &log, &format!("sync {sync} failed, and step {again} of the restart"));
            check_goes_on(&disk, store, log, &format!("sync {sync} failed, and step {again} of the restart"));
        }
    }
    assert!(attempts > 20, "{attempts}");
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_space_and_keeps_what_was_acknowledged() {
    let mut failures = 0;
    for capacity in (200..12_000).step_by(97) {
        let disk = SimulatedDisk::new();
        disk.set_capacity(Some(capacity));
        let Ok(store) = open(&disk) else { continue };
        let log = run_alone(&store, 2, STEPS);
        let context = format!("capacity {capacity}");
        if log.failure.is_some() {
            failures += 1;
            disk.set_capacity(Some(0));
            let reason = refusal(&store);
            assert!(reason.starts_with("nothing was written, for the disk takes no writes (could not "), "{reason}");
            assert!(block_on(store.writable()).is_err(), "{context}");
            check_reboots(&disk, &log, &context);
        }
        disk.set_capacity(None);
        check_goes_on(&disk, store, log, &context);
    }
    assert!(failures > 20, "{failures}");
}

#[test]
fn a_store_opens_on_a_full_disk_and_can_be_read() {
    let disk = SimulatedDisk::new();
    let log = run_alone(&open(&disk).unwrap(), 5, STEPS);
    disk.set_capacity(Some(0));
    let store = open(&disk).unwrap();
    check(&store, &log).unwrap();
    assert!(block_on(store.create("/more", "x".into())).is_err());
    disk.set_capacity(None);
    assert_eq!(block_on(store.create("/more", "x".into())), Ok(log.acknowledged + 1));
}

#[test]
fn damage_that_a_failed_sync_uncovers_is_not_written_over() {
    let disk = SimulatedDisk::new();
    let store = LogStore::open(Arc::new(disk.clone()), Options { segment_bytes: 1 << 20, ..options() }).unwrap();
    for key in ["/a", "/b"] {
        block_on(store.create(key, "1".into())).unwrap();
    }
    disk.fail_sync(disk.syncs() + 1);
    assert!(block_on(store.create("/c", "1".into())).is_err());
    let segment = workload::names(&disk, "log-").pop().unwrap();
    disk.flip(&segment, 40, 1);
    let reason = refusal(&store);
    assert!(reason.contains(&format!("could not read back {segment}: {segment} is damaged at byte 28")), "{reason}");
    disk.flip(&segment, 40, 1);
    assert_eq!(block_on(store.create("/c", "1".into())), Ok(4));
}

#[test]
fn low_space_is_warned_of_while_writes_are_still_taken() {
    let disk = SimulatedDisk::new();
    let options = Options { free_bytes_low: 5 << 20, ..options() };
    let store = LogStore::open(Arc::new(disk.clone()), options).unwrap();
    assert_eq!(store.warning(), None);
    disk.set_capacity(Some(4 << 20));
    block_on(store.create("/a", "1".into())).unwrap();
    let warning = "the disk of the store has 3 MiB left, less than 5 MiB: free some, or writing will stop";
    assert_eq!(store.warning().as_deref(), Some(warning));
}
