//! The engine: what the handle, the writer and the compactor share.

use std::sync::{Arc, Mutex, MutexGuard, RwLockReadGuard};

use crate::commit::Queue;
use crate::compaction::Requests;
use crate::{Change, Index, SharedIndex};

/// The state behind a store, without its files: watchers may outlive the store, and must not keep its folder locked.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) shared: Arc<SharedIndex>,
    pub(crate) queue: Queue,
    pub(crate) requests: Requests,
    /// Why no write can be taken at present.
    failure: Mutex<Option<String>>,
}

impl Engine {
    pub(crate) fn new(index: Index) -> Self {
        Engine {
            shared: Arc::new(SharedIndex::new(index)),
            queue: Queue::default(),
            requests: Requests::default(),
            failure: Mutex::default(),
        }
    }

    pub(crate) fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.shared.index()
    }

    /// Shows durable changes to readers and watchers.
    pub(crate) fn publish(&self, changes: &[Change]) {
        self.shared.publish(changes);
    }

    /// Makes `oldest` the oldest revision that can be read, and frees what is older.
    pub(crate) fn compact(&self, oldest: u64) -> Result<(), crate::ReadError> {
        self.shared.compact(oldest)
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
