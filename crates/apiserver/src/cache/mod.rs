//! The watch cache: one per stored resource, fed by one store watch, read by all watchers.
//!
//! ```text
//!   store.watch(prefix) ──▶ feed: parse labels and selectable fields once ──▶ items (newest state)
//!                                                                       └──▶ log (recent events, encoded once each)
//!   watcher: cursor into the log ◀── woken by `changed` ── shares the events' bytes
//!   narrow watcher (one value of one field) ◀── its own mailbox
//! ```
//!
//! Nothing is ever pushed to a watcher: a slow one just falls behind in the log, and behind the log's floor it goes on
//! from the store's own history or is told to list again.

mod event;
mod narrow;

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bayplan_model::status::Status;
use bayplan_store::{Change, Entry, ReadError, Revision, Store};
use rustc_hash::FxHashMap;
use tokio::sync::watch;

pub(crate) use event::labels_of;
pub use event::{Event, EventType, Item, line};
use narrow::Narrow;
pub use narrow::Subscription;

use crate::resources::Resource;

/// How many events a resource's log keeps. A watcher that reconnects within as many events of its resource is served
/// from memory; one that was away longer is served by the store's history. At about 4 KiB an event this is 16 MiB at
/// most for the busiest resource.
const LOG_LIMIT: usize = 4096;

/// How often the feed asks the store how far it has come when nothing happens: the age of an idle bookmark.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// How long the feed waits before it starts over when the store failed.
const RESTART_DELAY: Duration = Duration::from_millis(100);

/// The cache of one stored resource.
pub struct Cache {
    resource: &'static Resource,
    prefix: String,
    end: String,
    state: RwLock<State>,
    changed: watch::Sender<Revision>,
    narrow: Arc<Narrow>,
}

#[derive(Default)]
struct State {
    items: FxHashMap<Arc<str>, Arc<Item>>,
    log: VecDeque<Arc<Event>>,
    /// Every event after this revision is in the log.
    floor: Revision,
    /// The newest revision everything up to which has been seen.
    applied: Revision,
    /// The revision of the newest change of this resource.
    changed: Revision,
}

/// What a watcher gets from the log.
pub enum Since {
    /// The events after its cursor, and the new cursor.
    Events(Vec<Arc<Event>>, Revision),
    /// The log does not reach back that far; it begins after this revision.
    TooOld(Revision),
}

impl Cache {
    /// An empty cache of a resource that is its own storage version.
    pub fn new(resource: &'static Resource) -> Cache {
        let prefix = format!("/registry/{}/", resource.storage_prefix);
        let end = prefix_end(&prefix);
        Cache { resource, prefix, end, state: RwLock::default(), changed: watch::channel(0).0, narrow: Arc::default() }
    }

    /// The resource.
    pub fn resource(&self) -> &'static Resource {
        self.resource
    }

    /// The first key.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Behind the last key.
    pub fn end(&self) -> &str {
        &self.end
    }

    /// Keeps the cache fed for as long as the task runs.
    pub async fn feed(self: Arc<Self>, store: Arc<dyn Store>) {
        loop {
            if let Err(error) = self.follow(&*store).await {
                tracing::debug!(resource = self.resource.plural, %error, "the watch cache starts over");
            }
            tokio::time::sleep(RESTART_DELAY).await;
        }
    }

    async fn follow(&self, store: &dyn Store) -> Result<(), ReadError> {
        let range = store.range(&self.prefix, &self.end, None, 0).await?;
        self.reset(&range.entries, range.revision);
        let mut feed = store.watch(&self.prefix, &self.end, range.revision).await?;
        loop {
            // `next` is safe to drop between changes, so an idle resource still learns how far the store has come.
            match tokio::time::timeout(PROGRESS_INTERVAL, feed.next()).await {
                Ok(changes) => self.apply(changes?),
                Err(_idle) => self.advance(feed.progress()),
            }
        }
    }

    fn reset(&self, entries: &[Entry], revision: Revision) {
        let items = entries
            .iter()
            .filter_map(|entry| match Item::new(self.resource, entry) {
                Ok(item) => Some((entry.key.clone(), Arc::new(item))),
                Err(error) => {
                    tracing::error!(key = %entry.key, %error, "a stored object is left out");
                    None
                }
            })
            .collect();
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.items = items;
        state.log.clear();
        state.floor = revision;
        state.applied = revision;
        state.changed = entries.iter().map(|e| e.mod_revision).max().unwrap_or(0).max(state.changed);
        self.narrow.lose();
        drop(state);
        self.changed.send_replace(revision);
    }

    fn apply(&self, changes: Vec<Change>) {
        // Parsing happens outside the lock: readers never wait for it.
        let parsed: Vec<_> = changes
            .into_iter()
            .map(|change| {
                let current = change.current.as_ref().map(|entry| Item::new(self.resource, entry));
                (change, current)
            })
            .collect();
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        for (change, current) in parsed {
            let current = match current.transpose() {
                Ok(current) => current.map(Arc::new),
                Err(error) => {
                    tracing::error!(key = %change.key, %error, "a stored object is left out");
                    continue;
                }
            };
            let previous = match &current {
                Some(item) => state.items.insert(change.key.clone(), item.clone()),
                None => state.items.remove(&change.key),
            };
            state.applied = change.revision;
            state.changed = change.revision;
            if current.is_some() || previous.is_some() {
                let event = Arc::new(Event::new(change.revision, change.key, current, previous));
                // Under the lock: whoever reads `applied` finds everything up to there delivered.
                self.narrow.deliver(&event);
                state.log.push_back(event);
            }
        }
        while state.log.len() > LOG_LIMIT {
            if let Some(event) = state.log.pop_front() {
                state.floor = event.revision();
            }
        }
        let applied = state.applied;
        drop(state);
        self.changed.send_replace(applied);
    }

    fn advance(&self, revision: Revision) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if revision > state.applied {
            state.applied = revision;
        }
    }

    /// Wakes when something happened.
    pub fn subscribe(&self) -> watch::Receiver<Revision> {
        self.changed.subscribe()
    }

    /// Delivers the events of objects that have, or had, this value of a field, and no others.
    pub fn subscribe_narrow(&self, field: &str, value: &str) -> Subscription {
        Subscription::new(&self.narrow, field, value)
    }

    /// The parsed form of an entry: the cached one when it is the same write, a new one otherwise.
    pub fn item(&self, entry: &Entry) -> Result<Arc<Item>, Status> {
        {
            let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(item) = state.items.get(&entry.key)
                && item.revision == entry.mod_revision
            {
                return Ok(item.clone());
            }
        }
        Item::new(self.resource, entry).map(Arc::new)
    }

    /// The events after a cursor.
    pub fn since(&self, cursor: Revision) -> Since {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        if cursor < state.floor {
            return Since::TooOld(state.floor);
        }
        let from = state.log.partition_point(|event| event.revision() <= cursor);
        Since::Events(state.log.range(from..).cloned().collect(), state.applied.max(cursor))
    }

    /// The revision everything up to which has been seen.
    pub fn applied(&self) -> Revision {
        self.state.read().unwrap_or_else(PoisonError::into_inner).applied
    }

    /// The revision of the newest change of this resource that has been seen.
    pub fn last_change(&self) -> Revision {
        self.state.read().unwrap_or_else(PoisonError::into_inner).changed
    }
}

/// The first key behind all keys with a prefix; prefixes end in `/`.
pub fn prefix_end(prefix: &str) -> String {
    let mut end = prefix.trim_end_matches('/').to_owned();
    end.push('0'); // '0' is the character after '/'.
    end
}
