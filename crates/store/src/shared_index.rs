//! An index that readers, watchers and one writer share.

use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::task::Poll;

use crate::index::Observed;
use crate::watch::{HistoryWatch, Watchers};
use crate::{Change, Index, Range, ReadError, Revision, Scan, Watch};

/// How many changes are applied, or freed, before the index is unlocked for readers: about 100 µs of work.
const LOCKED_CHANGES_MAX: usize = 256;
/// How many keys a range read walks before it lets writers and other tasks run: about 100 µs of work.
const SCANNED_KEYS_MAX: usize = 1024;
/// How many revisions are forgotten at a time when the history has grown too large.
const TRIMMED_REVISIONS: u64 = 4096;

/// An index and its watchers. One writer feeds it: the embedded store's, or a mirror's.
#[derive(Debug)]
pub struct SharedIndex {
    index: RwLock<Index>,
    pub(crate) watchers: Watchers,
}

impl SharedIndex {
    /// Shares an index.
    pub fn new(index: Index) -> Self {
        SharedIndex { index: RwLock::new(index), watchers: Watchers::default() }
    }

    /// The index, for reading.
    pub fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().expect("the index is sound: its writers do not panic")
    }

    fn index_mut(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write().expect("the index is sound: its writers do not panic")
    }

    /// Shows durable changes to readers and watchers; each has the revision after the last.
    pub(crate) fn publish(&self, changes: &[Change]) {
        for part in changes.chunks(LOCKED_CHANGES_MAX) {
            let mut index = self.index_mut();
            part.iter().for_each(|change| index.apply(change.clone()));
        }
        if let Some(last) = changes.last() {
            self.watchers.publish(changes, last.revision);
        }
    }

    /// Shows readers and watchers what another store did up to a revision, all of it in revision order.
    pub fn observe(&self, observed: Vec<Observed>, revision: Revision) {
        let mut changes = Vec::with_capacity(observed.len());
        let mut observed = observed.into_iter().peekable();
        loop {
            let mut index = self.index_mut();
            let first = changes.len();
            while let Some(write) = observed.next() {
                let at = write.revision;
                changes.push(index.observe(write));
                // Nobody may see a part of a revision.
                let whole = observed.peek().is_none_or(|next| next.revision != at);
                if whole && changes.len() - first >= LOCKED_CHANGES_MAX {
                    break;
                }
            }
            if observed.peek().is_none() {
                index.advance(revision);
                break;
            }
        }
        self.watchers.publish(&changes, revision);
    }

    /// Begins again with another index, whose revision must not be older. Watchers that have not seen everything up to
    /// its oldest revision are told so.
    pub fn replace(&self, index: Index) {
        let before = {
            let mut current = self.index_mut();
            assert!(index.revision() >= current.revision(), "revisions never go back");
            std::mem::replace(&mut *current, index)
        };
        self.watchers.wake_all();
        drop(before);
    }

    /// Makes `oldest` the oldest revision that can be read, and frees what is older.
    pub fn compact(&self, oldest: Revision) -> Result<(), ReadError> {
        self.index_mut().compact(oldest)?;
        while !self.index_mut().prune(LOCKED_CHANGES_MAX) {}
        Ok(())
    }

    /// Forgets the oldest changes until a quarter of the history's limit is free again.
    pub fn trim(&self, history_bytes_max: usize) {
        loop {
            let oldest = {
                let index = self.index();
                if index.history_bytes() <= history_bytes_max / 4 * 3 || index.oldest() == index.revision() {
                    return;
                }
                (index.oldest() + TRIMMED_REVISIONS).min(index.revision())
            };
            self.compact(oldest).expect("between the oldest revision and the newest");
        }
    }

    /// The entries with `start <= key < end`, at a revision (`None`: the newest), at most `limit` (0: all).
    pub async fn range(&self, start: &str, end: &str, at: Option<Revision>, limit: usize) -> Result<Range, ReadError> {
        loop {
            match self.scan(Scan::new(start, Some(end), at, limit)).await {
                // A compaction overtook a read of the newest revision: read the one that is newest now.
                Err(ReadError::Compacted { .. }) if at.is_none() => {}
                result => return result,
            }
        }
    }

    async fn scan(&self, mut scan: Scan) -> Result<Range, ReadError> {
        while !self.index().scan(&mut scan, SCANNED_KEYS_MAX)? {
            yield_now().await;
        }
        Ok(scan.finish())
    }

    /// Watches `start <= key < end` for changes after a revision.
    pub fn watch(self: &Arc<Self>, start: &str, end: &str, after: Revision) -> Result<Box<dyn Watch>, ReadError> {
        Ok(Box::new(HistoryWatch::open(self, start, end, after)?))
    }

    /// Ends all watches once they have delivered what there is.
    pub fn close(&self) {
        self.watchers.close();
    }
}

/// Gives the executor one chance to poll other tasks.
async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
