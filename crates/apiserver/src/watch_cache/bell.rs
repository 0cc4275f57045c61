//! Wakes all watchers of a resource after every change.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Watchers wait at so many places, so that thousands of them on several threads do not wait for one lock.
const PLACES: usize = 8;

/// Rings after every change. As tokio's `watch`, but each listener has its place by its number and not by chance, so
/// that runs of a deterministic world repeat themselves.
#[derive(Debug, Default)]
pub(super) struct Bell {
    rung: AtomicU64,
    listeners: AtomicUsize,
    places: [Notify; PLACES],
}

impl Bell {
    /// Wakes every listener that waits, and every one that has not listened since.
    pub(super) fn ring(&self) {
        self.rung.fetch_add(1, Ordering::Release);
        self.places.iter().for_each(Notify::notify_waiters);
    }

    pub(super) fn listen(self: &Arc<Self>) -> Listener {
        let place = self.listeners.fetch_add(1, Ordering::Relaxed) % PLACES;
        Listener { bell: self.clone(), place, heard: self.rung.load(Ordering::Acquire) }
    }
}

/// Who waits for changes.
#[derive(Debug)]
pub(crate) struct Listener {
    bell: Arc<Bell>,
    place: usize,
    heard: u64,
}

impl Listener {
    /// Only what rings from now on wakes it.
    pub(crate) fn hear(&mut self) {
        self.heard = self.bell.rung.load(Ordering::Acquire);
    }

    /// Waits until the bell has rung since this was last called, or since [`hear`](Self::hear).
    pub(crate) async fn changed(&mut self) {
        loop {
            // Made before the count is read: a ring after that wakes it.
            let woken = self.bell.places[self.place].notified();
            let rung = self.bell.rung.load(Ordering::Acquire);
            if rung != self.heard {
                self.heard = rung;
                return;
            }
            woken.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn every_listener_is_woken_once_by_what_it_has_not_heard() {
        let bell = Arc::new(Bell::default());
        let mut listeners: Vec<Listener> = (0..2 * PLACES + 1).map(|_| bell.listen()).collect();
        assert!(listeners[0].changed().now_or_never().is_none());
        let waiting: Vec<_> =
            listeners.drain(..3).map(|mut each| tokio::spawn(async move { each.changed().await })).collect();
        tokio::task::yield_now().await;
        bell.ring();
        for waiting in waiting {
            waiting.await.unwrap();
        }
        let mut last = listeners.pop().unwrap();
        assert!(last.changed().now_or_never().is_some(), "it rang before it waited");
        assert!(last.changed().now_or_never().is_none());
        bell.ring();
        last.hear();
        assert!(last.changed().now_or_never().is_none());
    }
}
