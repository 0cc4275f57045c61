//! A random workload, what was acknowledged, and what a store must hold after it was cut short.
#![allow(dead_code, reason = "each test uses its part")]

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_store::disk::{Disk, SimulatedDisk};
use bayplan_store::{Change, Entry, LogStore, OpenError, Options, Revision, Store, WriteError};
use bayplan_testkit::Rng;
use bytes::Bytes;
use futures::FutureExt;
use futures::executor::block_on;

/// Small enough that a short workload fills segments and writes snapshots.
pub(crate) fn options() -> Options {
    Options { segment_bytes: 1500, garbage_bytes_min: 500, ..Options::default() }
}

pub(crate) fn open(disk: &SimulatedDisk) -> Result<LogStore, OpenError> {
    LogStore::open(Arc::new(disk.clone()), options())
}

/// The writes in the order they were submitted, and how many were acknowledged.
#[derive(Clone, Default, Debug)]
pub(crate) struct WriteLog {
    /// The write of revision `2 + i`.
    pub(crate) submitted: Vec<(String, Option<Bytes>)>,
    /// The newest acknowledged revision.
    pub(crate) acknowledged: Revision,
    /// The newest revision a compaction was asked for.
    pub(crate) compacted: Revision,
    pub(crate) failure: Option<String>,
}

impl WriteLog {
    /// All changes in order, by the simplest reckoning there is.
    pub(crate) fn changes(&self) -> Vec<Change> {
        let mut state: BTreeMap<&str, Entry> = BTreeMap::new();
        let change = |(position, (key, value)): (usize, &'_ (String, Option<Bytes>))| {
            let revision = position as Revision + 2;
            let previous = state.remove(key.as_str());
            let create_revision = previous.as_ref().map_or(revision, |entry| entry.create_revision);
            let current = value.clone().map(|value| Entry {
                key: key.as_str().into(),
                value,
                create_revision,
                mod_revision: revision,
            });
            if let Some(entry) = &current {
                state.insert(self.submitted[position].0.as_str(), entry.clone());
            }
            Change { revision, key: key.as_str().into(), current, previous }
        };
        self.submitted.iter().enumerate().map(change).collect()
    }
}

/// The entries after the changes up to a revision.
pub(crate) fn state_at(changes: &[Change], revision: Revision) -> Vec<Entry> {
    let mut state = BTreeMap::new();
    for change in changes.iter().filter(|change| change.revision <= revision) {
        state.insert(change.key.clone(), change.current.clone());
    }
    state.into_values().flatten().collect()
}

/// Runs batches of concurrent writes and compactions until the steps are done or a write fails.
pub(crate) fn run(store: &LogStore, seed: u64, steps: usize) -> WriteLog {
    write_on(store, WriteLog { acknowledged: 1, compacted: 1, ..WriteLog::default() }, seed, steps, 4)
}

/// The same one write at a time, so that what a failure may have left behind is known to be the last one.
pub(crate) fn run_alone(store: &LogStore, seed: u64, steps: usize) -> WriteLog {
    go_on(store, WriteLog { acknowledged: 1, compacted: 1, ..WriteLog::default() }, seed, steps)
}

/// Goes on after what was acknowledged; writes that failed are known not to have happened.
pub(crate) fn go_on(store: &LogStore, log: WriteLog, seed: u64, steps: usize) -> WriteLog {
    write_on(store, log, seed, steps, 1)
}

fn write_on(store: &LogStore, mut log: WriteLog, seed: u64, steps: usize, together: usize) -> WriteLog {
    let mut rng = Rng::new(seed);
    log.submitted.truncate(log.acknowledged as usize - 1);
    log.failure = None;
    let live = state_at(&log.changes(), log.acknowledged).into_iter();
    let mut live: BTreeMap<String, Revision> = live.map(|entry| (entry.key.to_string(), entry.mod_revision)).collect();
    for _ in 0..steps {
        if rng.below(5) == 0 && log.acknowledged > 2 {
            let behind = rng.below(3);
            log.compacted = log.compacted.max(log.acknowledged - behind as Revision);
            block_on(store.compact(log.compacted)).expect("between oldest and newest");
            continue;
        }
        let batch = batch(&mut rng, &mut live, log.submitted.len() as Revision + 2, together);
        log.submitted.extend(batch.iter().map(|(key, value, _)| (key.clone(), value.clone())));
        let writes = batch.into_iter().map(|(key, value, expected)| async move {
            match (value, expected) {
                (Some(value), None) => store.create(&key, value).await,
                (Some(value), Some(expected)) => store.update(&key, value, expected).await,
                (None, expected) => store.delete(&key, expected.expect("only what exists is deleted")).await,
            }
        });
        for result in block_on(futures::future::join_all(writes)) {
            match result {
                Ok(revision) => {
                    assert_eq!(log.failure, None, "a write was acknowledged after one had failed");
                    assert_eq!(revision, log.acknowledged + 1);
                    log.acknowledged = revision;
                }
                Err(WriteError::Unavailable(reason)) => log.failure = Some(reason),
                Err(other) => panic!("{other:?}"),
            }
        }
        if log.failure.is_some() {
            break;
        }
    }
    log
}

type Planned = (String, Option<Bytes>, Option<Revision>);

/// Up to so many writes of different keys; sometimes larger than a sector.
fn batch(rng: &mut Rng, live: &mut BTreeMap<String, Revision>, first: Revision, most: usize) -> Vec<Planned> {
    let (count, shift) = (1 + rng.below(most), rng.below(6));
    (0..count)
        .map(|position| {
            let key = format!("/registry/pods/{}", (shift + position) % 6);
            let expected = live.get(&key).copied();
            if expected.is_some() && rng.below(3) == 0 {
                live.remove(&key);
                return (key, None, expected);
            }
            let len = if rng.below(5) == 0 { 1200 } else { rng.below(40) };
            live.insert(key.clone(), first + position as Revision);
            (key, Some(vec![first as u8; len].into()), expected)
        })
        .collect()
}

/// Everything that can be read from a store: its oldest and newest revision, and all changes in between.
pub(crate) fn check(store: &LogStore, log: &WriteLog) -> Result<Revision, String> {
    let recovery = store.recovery().clone();
    let (oldest, revision) = (recovery.oldest, block_on(store.revision()).map_err(|error| error.to_string())?);
    let submitted = log.submitted.len() as Revision + 1;
    if revision < log.acknowledged || revision > submitted {
        return Err(format!("at {revision}, acknowledged {}, submitted {submitted}", log.acknowledged));
    }
    if oldest > log.compacted {
        return Err(format!("reads from {oldest}, compacted only to {}", log.compacted));
    }
    let changes = log.changes();
    for at in oldest..=revision {
        let range = block_on(store.range("", "\u{10FFFF}", Some(at), 0)).map_err(|error| error.to_string())?;
        if range.entries != state_at(&changes, at) {
            return Err(format!("the state at {at} differs"));
        }
    }
    let mut watch = block_on(store.watch("", "\u{10FFFF}", oldest)).map_err(|error| error.to_string())?;
    let mut seen = Vec::new();
    while let Some(more) = watch.next().now_or_never() {
        seen.extend(more.map_err(|error| error.to_string())?);
    }
    let expected = &changes[oldest as usize - 1..revision as usize - 1];
    if seen == expected { Ok(revision) } else { Err(format!("a watch from {oldest} replays other changes")) }
}

/// Files of a disk by name.
pub(crate) fn names(disk: &SimulatedDisk, part: &str) -> Vec<String> {
    let files = disk.list().expect("a simulated disk lists");
    files.into_iter().map(|file| file.name).filter(|name| name.contains(part)).collect()
}
