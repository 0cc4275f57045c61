//! Watches: readers of the shared history, each with a position of its own and nothing queued.
//!
//! ```text
//!   history  … 41 42 43 44 45 46        behind: reads on from its position when polled
//!                  ▲        ▲           parked: has seen everything; the writer wakes it for a match,
//!               behind    parked                and otherwise moves its position on
//! ```

use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use futures::future::BoxFuture;

use crate::shared_index::SharedIndex;
use crate::{Change, ReadError, Revision, Watch};

/// How many changes one call reads before it yields: well below a millisecond.
const LOOKED_AT_MAX: usize = 4096;
/// How many changes one call returns, so that a watcher far behind gets them in pieces.
const ANSWERED_MAX: usize = 512;

/// Where a watcher is.
#[derive(Debug)]
struct Position {
    /// Everything up to here has been delivered or does not match.
    revision: Revision,
    /// Set while the watcher has seen everything there is and waits for a match.
    parked: Option<Waker>,
}

#[derive(Debug)]
struct Watcher {
    start: Box<str>,
    end: Box<str>,
    position: Mutex<Position>,
}

impl Watcher {
    fn matches(&self, change: &Change) -> bool {
        // A write of a value that cannot be read has neither side.
        (change.current.is_some() || change.previous.is_some()) && self.covers(&change.key)
    }

    fn covers(&self, key: &str) -> bool {
        *self.start <= *key && *key < *self.end
    }

    fn position(&self) -> MutexGuard<'_, Position> {
        self.position.lock().expect("no code panics while it holds a position")
    }
}

#[derive(Debug, Default)]
struct OpenWatches {
    watchers: Vec<Arc<Watcher>>,
    closed: bool,
}

/// All open watches.
#[derive(Debug, Default)]
pub(crate) struct Watchers(Mutex<OpenWatches>);

impl Watchers {
    fn registry(&self) -> MutexGuard<'_, OpenWatches> {
        self.0.lock().expect("no code panics while it holds the registry")
    }

    /// Wakes the parked watchers that match changes, which are in the index already; the others have seen everything
    /// up to the revision.
    pub(crate) fn publish(&self, changes: &[Change], revision: Revision) {
        // Woken after the locks are released: a waker may run anything.
        let mut woken = Vec::new();
        for watcher in &self.registry().watchers {
            let mut position = watcher.position();
            if position.parked.is_none() || position.revision >= revision {
                continue;
            }
            let seen = position.revision;
            if changes.iter().any(|change| change.revision > seen && watcher.matches(change)) {
                woken.extend(position.parked.take());
            } else {
                position.revision = revision;
            }
        }
        woken.into_iter().for_each(Waker::wake);
    }

    /// Ends all watches once they have delivered what there is.
    pub(crate) fn close(&self) {
        self.registry().closed = true;
        self.wake_all();
    }

    /// Has all parked watchers look at the index again.
    pub(crate) fn wake_all(&self) {
        let registry = self.registry();
        let woken: Vec<Waker> =
            registry.watchers.iter().filter_map(|watcher| watcher.position().parked.take()).collect();
        drop(registry);
        woken.into_iter().for_each(Waker::wake);
    }

    fn closed(&self) -> bool {
        self.registry().closed
    }
}

/// A watch on the history of an index.
pub(crate) struct HistoryWatch {
    shared: Arc<SharedIndex>,
    watcher: Arc<Watcher>,
}

impl HistoryWatch {
    /// Watches `start <= key < end` for changes after a revision.
    pub(crate) fn open(shared: &Arc<SharedIndex>, start: &str, end: &str, after: Revision) -> Result<Self, ReadError> {
        shared.index().check(after)?;
        let position = Mutex::new(Position { revision: after, parked: None });
        let watcher = Arc::new(Watcher { start: start.into(), end: end.into(), position });
        shared.watchers.registry().watchers.push(watcher.clone());
        Ok(HistoryWatch { shared: shared.clone(), watcher })
    }

    /// Takes the next changes and moves on in one step, so a dropped future has taken nothing.
    fn poll_next(&self, context: &mut Context<'_>) -> Poll<Result<Vec<Change>, ReadError>> {
        // Read before the index, so that whatever was written before the end is still delivered.
        let closed = self.shared.watchers.closed();
        let mut position = self.watcher.position();
        let mut found = Vec::new();
        let index = self.shared.index();
        let (mut looked_at, mut complete) = (0, true);
        for change in index.changes(position.revision, LOOKED_AT_MAX)? {
            // A revision is delivered whole, for a watch can only be resumed between revisions.
            if found.len() >= ANSWERED_MAX && change.revision > position.revision {
                complete = false;
                break;
            }
            position.revision = change.revision;
            looked_at += 1;
            if self.watcher.matches(change) {
                found.push(change.clone());
            }
        }
        if complete && looked_at < LOOKED_AT_MAX {
            // Nothing of this index changed in the revisions after the last change.
            position.revision = index.revision();
        }
        let behind = position.revision < index.revision();
        drop(index);
        if !found.is_empty() {
            position.parked = None;
            return Poll::Ready(Ok(found));
        }
        if behind {
            context.waker().wake_by_ref();
        } else if closed {
            return Poll::Ready(Err(ReadError::Unavailable("the store is closed".to_owned())));
        } else {
            position.parked = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

impl Watch for HistoryWatch {
    fn next(&mut self) -> BoxFuture<'_, Result<Vec<Change>, ReadError>> {
        Box::pin(std::future::poll_fn(|context| self.poll_next(context)))
    }

    fn progress(&self) -> Revision {
        self.watcher.position().revision
    }
}

impl Drop for HistoryWatch {
    fn drop(&mut self) {
        self.shared.watchers.registry().watchers.retain(|watcher| !Arc::ptr_eq(watcher, &self.watcher));
    }
}
