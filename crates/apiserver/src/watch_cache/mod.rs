//! The watch cache: one per stored resource, fed by one store watch, read by all watchers.
//!
//! ```text
//!   store.watch(prefix) ──▶ feed: parses labels and selectable fields once ──▶ objects (newest state)
//!                                                                        └──▶ log (recent events, encoded once)
//!   watcher: cursor into the log ◀── woken by `changed`; shares the events' bytes
//!   watcher of one value of one field ◀── its own mailbox (`value_watchers`)
//! ```
//!
//! Events are never pushed to a watcher. A slow watcher falls behind in the log; once it is behind the oldest event
//! of the log, it reads the store's own history or gets a 410 and lists again.

mod bell;
mod event;
mod object;
mod value_watchers;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bayplan_kinds::Kind;
use bayplan_metrics::Counter;
use bayplan_model::status::Status;
use bayplan_store::{Change, Entry, ReadError, Revision, Store};

use bell::Bell;
pub(crate) use bell::Listener;
pub(crate) use event::{CacheEvent, EventType, watch_line, write_frame};
pub(crate) use object::{CachedObject, labels_of};
pub(crate) use value_watchers::Subscription;
use value_watchers::ValueWatchers;

/// How many events the log of a resource keeps. A watcher that reconnects within that many events is served from
/// memory; one that was away longer is served from the store's history. At about 4 KiB an event, the log of the
/// busiest resource takes 16 MiB at most.
const LOG_LIMIT: usize = 4096;

/// How often an idle feed asks the store for its revision; a bookmark is at most this old.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// How long the feed waits before it lists again after the store failed.
const RESTART_DELAY: Duration = Duration::from_millis(100);

/// The watch cache of one stored resource.
pub(crate) struct WatchCache {
    resource: &'static Kind,
    prefix: String,
    end: String,
    state: RwLock<State>,
    changed: Arc<Bell>,
    value_watchers: Arc<ValueWatchers>,
}

#[derive(Default)]
struct State {
    /// Clients choose the names, so they are hashed with a key that clients do not know.
    objects: HashMap<Arc<str>, Arc<CachedObject>>,
    log: VecDeque<Arc<CacheEvent>>,
    /// The log has every event after this revision.
    floor: Revision,
    /// The cache has every change up to this revision.
    applied: Revision,
}

/// What the log has after a watcher's cursor.
pub(crate) enum EventsSince {
    /// The events after the cursor, and the new cursor.
    Events(Vec<Arc<CacheEvent>>, Revision),
    /// The log starts after this revision, which is after the cursor.
    TooOld(Revision),
}

impl WatchCache {
    /// An empty cache of a resource that is its own storage version.
    pub(crate) fn new(resource: &'static Kind) -> WatchCache {
        let prefix = format!("/registry/{}/", resource.storage_prefix);
        let end = prefix_end(&prefix);
        WatchCache {
            resource,
            prefix,
            end,
            state: RwLock::default(),
            changed: Arc::default(),
            value_watchers: Arc::default(),
        }
    }

    /// Feeds the cache from the store until the task is dropped; `received` counts the changes.
    pub(crate) async fn feed(self: Arc<Self>, store: Arc<dyn Store>, received: Arc<Counter>) {
        loop {
            if let Err(error) = self.list_and_watch(&*store, &received).await {
                tracing::debug!(resource = self.resource.plural, %error, "the watch cache lists again");
            }
            tokio::time::sleep(RESTART_DELAY).await;
        }
    }

    async fn list_and_watch(&self, store: &dyn Store, received: &Counter) -> Result<(), ReadError> {
        let range = store.range(&self.prefix, &self.end, None, 0).await?;
        for unreadable in &range.unreadable {
            tracing::error!(%unreadable, "an object is not served");
        }
        self.reset(&range.entries, range.revision);
        let mut feed = store.watch(&self.prefix, &self.end, range.revision).await?;
        loop {
            // `next` may be dropped between changes, so an idle resource still follows the store's revision.
            match tokio::time::timeout(PROGRESS_INTERVAL, feed.next()).await {
                Ok(changes) => {
                    let changes = changes?;
                    received.add(changes.len() as u64);
                    self.apply(changes);
                }
                Err(_idle) => self.advance(feed.progress()),
            }
        }
    }

    fn reset(&self, entries: &[Entry], revision: Revision) {
        let objects = entries
            .iter()
            .filter_map(|entry| match CachedObject::new(self.resource, entry) {
                Ok(object) => Some((entry.key.clone(), Arc::new(object))),
                Err(error) => {
                    tracing::error!(key = %entry.key, %error, "a stored object cannot be read and is left out");
                    None
                }
            })
            .collect();
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.objects = objects;
        state.log.clear();
        state.floor = revision;
        state.applied = revision;
        self.value_watchers.invalidate();
        drop(state);
        self.changed.ring();
    }

    fn apply(&self, changes: Vec<Change>) {
        // Parsing happens outside the lock, so that readers never wait for it.
        let parsed: Vec<_> = changes
            .into_iter()
            .map(|change| {
                let current = change.current.as_ref().map(|entry| CachedObject::new(self.resource, entry));
                (change, current)
            })
            .collect();
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        for (change, current) in parsed {
            let current = match current.transpose() {
                Ok(current) => current.map(Arc::new),
                Err(error) => {
                    tracing::error!(key = %change.key, %error, "a stored object cannot be read and is left out");
                    continue;
                }
            };
            let previous = match &current {
                Some(object) => state.objects.insert(change.key.clone(), object.clone()),
                None => state.objects.remove(&change.key),
            };
            state.applied = change.revision;
            if current.is_some() || previous.is_some() {
                let event = Arc::new(CacheEvent::new(change.revision, change.key, current, previous));
                // Under the lock: a reader of `applied` finds every event up to it delivered.
                self.value_watchers.deliver(&event);
                state.log.push_back(event);
            }
        }
        while state.log.len() > LOG_LIMIT {
            if let Some(event) = state.log.pop_front() {
                state.floor = event.revision();
            }
        }
        drop(state);
        self.changed.ring();
    }

    fn advance(&self, revision: Revision) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if revision > state.applied {
            state.applied = revision;
        }
    }

    /// The resource, in its storage version.
    pub(crate) fn kind(&self) -> &'static Kind {
        self.resource
    }

    /// About how many objects there are, and how large one is, judged by a few.
    pub(crate) fn extent(&self) -> (usize, usize) {
        const SAMPLE: usize = 8;
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let sample = state.objects.values().take(SAMPLE);
        let bytes: usize = sample.map(|object| object.encoded.size()).sum();
        (state.objects.len(), bytes.div_ceil(state.objects.len().clamp(1, SAMPLE)))
    }

    /// Wakes after every change.
    pub(crate) fn subscribe(&self) -> Listener {
        self.changed.listen()
    }

    /// Subscribes to the events of objects that have, or had, this value of a field.
    pub(crate) fn subscribe_to_value(&self, field: &str, value: &str) -> Subscription {
        Subscription::new(&self.value_watchers, field, value)
    }

    /// The parsed form of an entry: the cached one if it is of the same write, otherwise a new one.
    pub(crate) fn object(&self, entry: &Entry) -> Result<Arc<CachedObject>, Status> {
        {
            let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(object) = state.objects.get(&entry.key)
                && object.revision == entry.mod_revision
            {
                return Ok(object.clone());
            }
        }
        CachedObject::new(self.resource, entry).map(Arc::new)
    }

    /// The events after a cursor.
    pub(crate) fn events_since(&self, cursor: Revision) -> EventsSince {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        if cursor < state.floor {
            return EventsSince::TooOld(state.floor);
        }
        let from = state.log.partition_point(|event| event.revision() <= cursor);
        EventsSince::Events(state.log.range(from..).cloned().collect(), state.applied.max(cursor))
    }

    /// The revision up to which the cache has every change.
    pub(crate) fn applied(&self) -> Revision {
        self.state.read().unwrap_or_else(PoisonError::into_inner).applied
    }
}

/// The first key after all keys with a prefix; prefixes end in `/`.
pub(crate) fn prefix_end(prefix: &str) -> String {
    let mut end = prefix.trim_end_matches('/').to_owned();
    end.push('0'); // '0' is the character after '/'.
    end
}
