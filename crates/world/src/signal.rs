//! A count that many wait for: as tokio's `watch`, but those who wait are woken in their order and not by chance.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// What raises the count.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signal(Arc<(AtomicU64, Notify)>);

impl Signal {
    pub(crate) fn raise(&self) {
        self.0.0.fetch_add(1, Ordering::Relaxed);
        self.0.1.notify_waiters();
    }

    /// Waits for what is raised from now on.
    pub(crate) fn follow(&self) -> Follower {
        Follower { signal: self.clone(), seen: self.0.0.load(Ordering::Relaxed) }
    }

    /// Waits until it was raised at all.
    pub(crate) fn ever(&self) -> Follower {
        Follower { signal: self.clone(), seen: 0 }
    }
}

/// Who waits.
#[derive(Clone, Debug)]
pub(crate) struct Follower {
    signal: Signal,
    seen: u64,
}

impl Follower {
    pub(crate) async fn raised(&mut self) {
        let (count, bell) = &*self.signal.0;
        loop {
            // Made before the count is read: what is raised after that wakes it.
            let woken = bell.notified();
            let now = count.load(Ordering::Relaxed);
            if now != self.seen {
                self.seen = now;
                return;
            }
            woken.await;
        }
    }
}
