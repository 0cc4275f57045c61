//! The engine: what the handle, the writer, the compactor and the watchers share.

use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::commit::Queue;
use crate::compaction::Requests;
use crate::watch::Watchers;
use crate::{Change, Index};

/// How many changes are applied, or freed, before the index is unlocked for readers: about 100 µs of work.
const LOCKED_CHANGES_MAX: usize = 256;

/// The state behind a store, without its files: watchers may outlive the store, and must not keep its folder locked.
#[derive(Debug)]
pub(crate) struct Engine {
    index: RwLock<Index>,
    pub(crate) queue: Queue,
    pub(crate) requests: Requests,
    pub(crate) watchers: Watchers,
    /// Why no write can be taken at present.
    failure: Mutex<Option<String>>,
}

impl Engine {
    pub(crate) fn new(index: Index) -> Self {
        Engine {
            index: RwLock::new(index),
            queue: Queue::default(),
            requests: Requests::default(),
            watchers: Watchers::default(),
            failure: Mutex::default(),
        }
    }

    pub(crate) fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().expect("the index is sound: its writers do not panic")
    }

    fn index_mut(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write().expect("the index is sound: its writers do not panic")
    }

    /// Shows durable changes to readers and watchers.
    pub(crate) fn publish(&self, changes: &[Change]) {
        for part in changes.chunks(LOCKED_CHANGES_MAX) {
            let mut index = self.index_mut();
            part.iter().for_each(|change| index.apply(change.clone()));
        }
        self.watchers.publish(changes);
    }

    /// Makes `oldest` the oldest revision that can be read, and frees what is older.
    pub(crate) fn compact(&self, oldest: u64) -> Result<(), crate::ReadError> {
        self.index_mut().compact(oldest)?;
        while !self.index_mut().prune(LOCKED_CHANGES_MAX) {}
        Ok(())
    }

    fn failing(&self) -> MutexGuard<'_, Option<String>> {
        self.failure.lock().expect("no code panics while it holds the failure")
    }

    /// Refuses writes until they can be made durable again.
    pub(crate) fn fail(&self, reason: String) {
        let mut failure = self.failing();
        if failure.as_ref() != Some(&reason) {
            tracing::error!(reason, "the store takes no writes until the disk does");
        }
        *failure = Some(reason);
    }

    /// Takes writes again.
    pub(crate) fn recover(&self) {
        if self.failing().take().is_some() {
            tracing::warn!("the store takes writes again");
        }
    }

    pub(crate) fn failure(&self) -> Option<String> {
        self.failing().clone()
    }
}
