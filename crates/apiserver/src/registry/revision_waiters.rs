//! Reads that wait for a revision: one follower of the store wakes all of them, each when its revision is reached.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bayplan_store::{ReadError, Revision, Store};
use tokio::sync::oneshot;

use super::ALL_KEYS;
use crate::watch_cache::prefix_end;

/// How long the follower looks for writes before it sees whether anybody still waits.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How long it waits before it follows again after the store failed.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// The reads that wait, by revision.
#[derive(Default)]
pub(super) struct RevisionWaiters {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: BTreeMap<(Revision, u64), oneshot::Sender<()>>,
    next_id: u64,
    /// The revision that the follower has seen, while there is one.
    followed: Option<Revision>,
}

impl RevisionWaiters {
    /// Waits until the store has reached a revision; the caller limits the time.
    pub(super) async fn wait(self: &Arc<Self>, store: &Arc<dyn Store>, requested: Revision) {
        let (waiter, reached) = {
            let mut state = self.lock();
            if state.followed.is_some_and(|seen| seen >= requested) {
                return;
            }
            if state.followed.is_none() {
                state.followed = Some(0);
                tokio::spawn(self.clone().follow(store.clone()));
            }
            state.next_id += 1;
            let key = (requested, state.next_id);
            let (wake, reached) = oneshot::channel();
            state.waiting.insert(key, wake);
            (Waiter { waiters: self, key }, reached)
        };
        let _ = reached.await;
        drop(waiter);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows the writes of all keys as long as anybody waits.
    async fn follow(self: Arc<Self>, store: Arc<dyn Store>) {
        while let Err(error) = self.follow_writes(&*store).await {
            tracing::debug!(%error, "the store is followed again for reads that wait");
            tokio::time::sleep(RETRY_DELAY).await;
            if !self.wake(0) {
                return;
            }
        }
    }

    async fn follow_writes(&self, store: &dyn Store) -> Result<(), ReadError> {
        let current = store.revision().await?;
        let mut writes = store.watch(ALL_KEYS, &prefix_end(ALL_KEYS), current).await?;
        let mut reached = current;
        while self.wake(reached) {
            if let Ok(changes) = tokio::time::timeout(LOOK_INTERVAL, writes.next()).await {
                reached = changes?.last().map_or(reached, |change| change.revision);
            }
        }
        Ok(())
    }

    /// Wakes those whose revision is reached; false if nobody is left, and the follower ends.
    fn wake(&self, reached: Revision) -> bool {
        let mut state = self.lock();
        let later = state.waiting.split_off(&(reached + 1, 0));
        for wake in std::mem::replace(&mut state.waiting, later).into_values() {
            let _ = wake.send(());
        }
        state.followed = (!state.waiting.is_empty()).then_some(reached);
        state.followed.is_some()
    }
}

/// A place among the waiting, left when it is dropped.
struct Waiter<'a> {
    waiters: &'a RevisionWaiters,
    key: (Revision, u64),
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.waiters.lock().waiting.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use bayplan_store::LogStore;
    use bytes::Bytes;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn many_reads_share_one_follower_which_ends_with_the_last() {
        let store: Arc<dyn Store> = Arc::new(LogStore::in_memory().unwrap());
        let waiters = Arc::new(RevisionWaiters::default());
        let first = store.revision().await.unwrap();
        let wait = |after: u64| {
            let (waiters, store) = (waiters.clone(), store.clone());
            tokio::spawn(async move { waiters.wait(&store, first + after).await })
        };
        let soon: Vec<_> = (0..100).map(|_| wait(1)).collect();
        let later: Vec<_> = (0..100).map(|_| wait(2)).collect();
        let never = wait(1_000);
        // Time only passes once everybody waits.
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(waiters.lock().waiting.len(), 201);
        store.create("/registry/configmaps/a/b", Bytes::from_static(b"{}")).await.unwrap();
        for read in soon {
            read.await.unwrap();
        }
        assert_eq!(waiters.lock().waiting.len(), 101);
        store.create("/registry/configmaps/a/c", Bytes::from_static(b"{}")).await.unwrap();
        for read in later {
            read.await.unwrap();
        }
        assert!(waiters.lock().followed.is_some());
        never.abort();
        tokio::time::sleep(3 * LOOK_INTERVAL).await;
        let state = waiters.lock();
        assert_eq!((state.waiting.len(), state.followed), (0, None));
    }
}
