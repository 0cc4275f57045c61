//! The leases of the modelled etcd: keys that it deletes by itself when their time is over.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bayplan_store::{LogStore, Revision, Store};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::points::Point;
use crate::shared::Shared;

/// How often etcd looks for leases that are over.
const LOOK: Duration = Duration::from_secs(5);

/// Keys with a time to live.
#[derive(Clone, Default)]
pub(crate) struct Leases(Arc<Mutex<Vec<Lease>>>);

struct Lease {
    ends: Instant,
    key: String,
    /// A later write has a lease of its own.
    revision: Revision,
}

impl Leases {
    fn all(&self) -> MutexGuard<'_, Vec<Lease>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn grant(&self, key: &str, revision: Revision, time_to_live: Duration) {
        self.all().push(Lease { ends: Instant::now() + time_to_live, key: key.to_owned(), revision });
    }

    /// Deletes what is over, as long as the store is open.
    pub(crate) async fn expire(self, shared: Arc<Shared>, store: Arc<LogStore>, bell: Arc<Notify>) {
        loop {
            sleep(LOOK).await;
            let now = Instant::now();
            let over: Vec<Lease> = self.all().extract_if(.., |lease| lease.ends <= now).collect();
            for lease in over {
                bell.notify_one();
                if store.delete(&lease.key, lease.revision).await.is_ok() {
                    shared.reach(Point::EtcdLeaseOver);
                }
            }
        }
    }
}
