//! The mirror: all keys behind the prefix in memory, kept current by one watch.

mod feed;

pub(crate) use feed::went_back;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bayplan_store::{Index, Revision, SharedIndex};
use tokio::sync::{Notify, watch};

use crate::client::{CallError, Client};
use crate::direct::Pages;
use crate::values::Values;

/// How long a reader waits before it asks for progress: events usually arrive sooner than that.
const PROGRESS_DELAY_FIRST: Duration = Duration::from_millis(10);
const PROGRESS_DELAY_MAX: Duration = Duration::from_millis(100);

/// All keys behind the prefix, as of the newest revision that was heard of.
pub(crate) struct Mirror {
    pub(crate) shared: Arc<SharedIndex>,
    client: Arc<Client>,
    values: Values,
    history_bytes_max: usize,
    /// The revision of the index, for those who wait for one.
    reached: watch::Sender<Revision>,
    /// Somebody waits for a revision that no event brings.
    wanted: Notify,
    /// Whether the server's progress notifications come in order with events.
    progress_trusted: bool,
    /// The oldest revision that etcd is known to have kept.
    compacted: Mutex<Revision>,
    /// Why the mirror can never be right again.
    failure: OnceLock<String>,
}

impl Mirror {
    /// Reads all keys.
    pub(crate) async fn load(
        client: Arc<Client>,
        values: Values,
        history_bytes_max: usize,
        progress_trusted: bool,
    ) -> Result<Self, CallError> {
        let index = list(&client, &values).await?;
        let (compacted, reached) = (Mutex::new(0), watch::channel(index.revision()).0);
        Ok(Mirror {
            shared: Arc::new(SharedIndex::new(index)),
            client,
            values,
            history_bytes_max,
            reached,
            wanted: Notify::new(),
            progress_trusted,
            compacted,
            failure: OnceLock::new(),
        })
    }

    /// Keeps the mirror current until the task is dropped.
    pub(crate) async fn run(self: Arc<Self>) {
        feed::run(self).await;
    }

    /// The newest revision that is in memory.
    pub(crate) fn revision(&self) -> Revision {
        self.shared.index().revision()
    }

    /// Waits until a revision is in memory; false when it takes longer than the bound.
    pub(crate) async fn reach(&self, revision: Revision, bound: Duration) -> bool {
        if self.revision() >= revision {
            return true;
        }
        let mut reached = self.reached.subscribe();
        let mut delay = PROGRESS_DELAY_FIRST;
        let waiting = async {
            while tokio::time::timeout(delay, reached.wait_for(|reached| *reached >= revision)).await.is_err() {
                self.wanted.notify_one();
                delay = (delay * 2).min(PROGRESS_DELAY_MAX);
            }
        };
        tokio::time::timeout(bound, waiting).await.is_ok()
    }

    fn set_reached(&self) {
        self.reached.send_replace(self.revision());
    }

    /// Why nothing can be read or written any more.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Serves nothing any more: etcd no longer has what was read from it.
    pub(crate) fn fail(&self, reason: String) {
        tracing::error!(reason, "the store on etcd stops; start this process again");
        let _ = self.failure.set(reason);
        self.shared.close();
    }

    fn compacted_slot(&self) -> MutexGuard<'_, Revision> {
        self.compacted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The oldest revision that etcd is known to have kept.
    pub(crate) fn compacted(&self) -> Revision {
        *self.compacted_slot()
    }

    /// Follows a compaction of etcd.
    pub(crate) fn follow_compaction(&self, oldest: Revision) {
        {
            let mut compacted = self.compacted_slot();
            *compacted = oldest.max(*compacted);
        }
        let (own_oldest, newest) = {
            let index = self.shared.index();
            (index.oldest(), index.revision())
        };
        if oldest > own_oldest && oldest <= newest {
            // Only this and the trimming of the feed move the oldest revision, and neither moves it back.
            let _ = self.shared.compact(oldest);
        }
    }
}

/// All keys behind the prefix at one revision.
async fn list(client: &Client, values: &Values) -> Result<Index, CallError> {
    loop {
        match list_once(client, values).await {
            // A compaction overtook the pages.
            Err(CallError::Compacted) => {}
            result => return result,
        }
    }
}

async fn list_once(client: &Client, values: &Values) -> Result<Index, CallError> {
    let mut pages = Pages::new(client, values.keys.bounds(), None);
    let mut index: Option<Index> = None;
    while let Some(page) = pages.next(0).await? {
        let index = index.get_or_insert_with(|| Index::new(pages.revision()));
        for kv in page {
            let created = crate::values::revision(kv.create_revision);
            match values.entry(kv) {
                Some(Ok(entry)) => index.load(entry),
                Some(Err(unreadable)) => {
                    tracing::error!(%unreadable, "a value in etcd is left out");
                    index.load_unreadable(unreadable, created);
                }
                None => {}
            }
        }
    }
    index.ok_or_else(|| CallError::Unknown("read a range: etcd answered without a page".to_owned()))
}
