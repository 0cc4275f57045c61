//! Watch streams: the state first if asked for, then every change, one JSON line each.
//!
//! ```text
//!   initial state (store.range) ─▶ BOOKMARK initial-events-end ─▶ cache log (shared lines) ─▶ … ─▶ EOF at the timeout
//!                                      a cursor behind the log's floor: store.watch ─▶ back to the log when caught up
//! ```

mod lines;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bayplan_model::status::Status;
use bayplan_store::{Change, Entry, ReadError, Revision};
use bytes::Bytes;
use futures::Stream;
use rand::RngExt;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::cache::{Cache, Event, EventType, Item, Since, Subscription};
use crate::negotiation::Transform;
use crate::registry::{Registry, list};
use crate::request::ListOptions;
use crate::resources::Resource;
use crate::selection::Selection;
use crate::status_errors;

use lines::Lines;

/// Upstream's range of lifetimes when the client names none: spread, so that clients do not come back all at once.
const LIFETIME_MIN: Duration = Duration::from_secs(1800);
/// Between bookmarks.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
/// About how many bytes of the initial state go out at once.
const INITIAL_CHUNK: usize = 64 * 1024;

/// Where a watcher's changes come from.
enum Source {
    /// The log of the watch cache.
    Cache,
    /// The store's own history: the log did not reach back far enough.
    Store(Box<dyn bayplan_store::Watch>),
}

struct Watcher {
    registry: Arc<Registry>,
    cache: Arc<Cache>,
    resource: &'static Resource,
    prefix: String,
    end: String,
    selection: Selection,
    lines: Lines,
    source: Source,
    /// Everything up to here has been told.
    cursor: Revision,
    initial: std::vec::IntoIter<Entry>,
    /// The bookmark behind the initial state is still to be sent.
    initial_bookmark: bool,
    bookmarks: bool,
    next_bookmark: Instant,
    deadline: Instant,
    pending: VecDeque<Bytes>,
    changed: watch::Receiver<Revision>,
    /// The mailbox of a watcher of one value of one field.
    narrow: Option<Subscription>,
    /// The mailbox has everything after the cursor.
    caught_up: bool,
    shutdown: watch::Receiver<bool>,
    finished: bool,
}

/// Opens a watch. Failures of the options and of the first read are answered at once; what fails later is an `ERROR`
/// line.
pub(crate) async fn open(
    registry: Arc<Registry>,
    resource: &'static Resource,
    namespace: &str,
    options: &ListOptions,
    transform: Transform,
    shutdown: watch::Receiver<bool>,
) -> Result<impl Stream<Item = Bytes> + Send + use<>, Status> {
    let selection = Selection::parse(resource, &options.label_selector, &options.field_selector)?;
    let with_state = list::watch_options(options)?;
    let version = match options.resource_version.as_str() {
        "" | "0" => None,
        text => Some(list::parse_version(text)?),
    };
    let cache = registry.cache(resource).clone();
    let (prefix, end) = Registry::bounds(resource, namespace);
    // Subscribed before the state is read: no change in between goes unnoticed.
    let changed = cache.subscribe();
    let narrow = selection.narrow().map(|(field, value)| cache.subscribe_narrow(field, value));
    let (initial, cursor) = if with_state {
        if let Some(version) = version {
            registry.wait_for(version).await?;
        }
        let range = registry.store().range(&prefix, &end, None, 0).await.map_err(status_errors::read)?;
        (range.entries, range.revision)
    } else {
        let cursor = match version {
            Some(version) => version,
            None => registry.store().revision().await.map_err(status_errors::read)?,
        };
        (Vec::new(), cursor)
    };
    let now = Instant::now();
    let lifetime = match options.timeout_seconds {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds.unsigned_abs()),
        _ => LIFETIME_MIN.mul_f64(1.0 + rand::rng().random_range(0.0..1.0)),
    };
    let watcher = Watcher {
        lines: Lines::new(resource, transform),
        registry,
        cache,
        resource,
        prefix,
        end,
        selection,
        source: Source::Cache,
        cursor,
        initial: initial.into_iter(),
        initial_bookmark: with_state && options.send_initial_events == Some(true) && options.allow_bookmarks,
        bookmarks: options.allow_bookmarks,
        next_bookmark: now + BOOKMARK_INTERVAL,
        deadline: now + lifetime,
        pending: VecDeque::new(),
        changed,
        narrow,
        caught_up: false,
        shutdown,
        finished: false,
    };
    Ok(futures::stream::unfold(watcher, |mut watcher| async move {
        let line = watcher.next().await?;
        Some((line, watcher))
    }))
}

impl Watcher {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.pending.pop_front() {
                return Some(line);
            }
            if self.finished {
                return None;
            }
            if self.initial.len() > 0 {
                self.tell_state();
                continue;
            }
            if self.initial_bookmark {
                self.initial_bookmark = false;
                return Some(self.lines.bookmark(self.cursor, true));
            }
            if let Err(status) = self.advance().await {
                self.finished = true;
                return Some(lines::error(&status));
            }
        }
    }

    /// Queues a part of the initial state.
    fn tell_state(&mut self) {
        let mut chunk = Vec::with_capacity(INITIAL_CHUNK);
        for entry in self.initial.by_ref() {
            let told = self.cache.item(&entry).and_then(|item| {
                if !self.selection.matches(&item) {
                    return Ok(());
                }
                let item = self.registry.converted(self.resource, &item)?;
                self.lines.state(&item, self.registry.now(), &mut chunk)
            });
            if let Err(status) = told {
                tracing::error!(key = %entry.key, %status, "a stored object is left out");
            }
            if chunk.len() >= INITIAL_CHUNK {
                break;
            }
        }
        if !chunk.is_empty() {
            self.pending.push_back(Bytes::from(chunk));
        }
    }

    /// Queues what happened since, or waits until something does.
    async fn advance(&mut self) -> Result<(), Status> {
        if let Source::Cache = self.source {
            // Mark the wake-up seen before looking, so that a change after the look wakes again.
            self.changed.borrow_and_update();
            if let Some(floor) = self.look()? {
                return self.go_to_store(floor).await;
            }
            if !self.pending.is_empty() {
                return Ok(());
            }
        }
        let wake = self.wake();
        let Watcher { source, changed, narrow, shutdown, .. } = self;
        let waited = async {
            match (source, narrow) {
                (Source::Cache, None) => changed.changed().await.map(|()| None).map_err(|_| Ended::Feed),
                (Source::Cache, Some(mailbox)) => {
                    mailbox.filled().await;
                    Ok(None)
                }
                (Source::Store(feed), _) => feed.next().await.map(Some).map_err(Ended::Read),
            }
        };
        let woken = tokio::select! {
            waited = waited => Woken::Feed(waited),
            () = tokio::time::sleep_until(wake) => Woken::Time,
            () = stopped(shutdown) => Woken::Stop,
        };
        match woken {
            Woken::Feed(Ok(None)) => {}
            Woken::Feed(Ok(Some(changes))) => return self.tell_changes(changes),
            Woken::Feed(Err(Ended::Read(error))) => return Err(self.too_old(error)),
            Woken::Time => {
                if let (Source::Cache, Some(_)) = (&self.source, &self.narrow) {
                    // Nothing woke it since its last event, however much happened elsewhere: a bookmark may say so.
                    self.look()?;
                }
                self.on_time();
            }
            Woken::Feed(Err(Ended::Feed)) | Woken::Stop => self.finished = true,
        }
        Ok(())
    }

    /// Queues what the cache has after the cursor; the log's floor when the cursor is behind it.
    fn look(&mut self) -> Result<Option<Revision>, Status> {
        match self.news() {
            Since::TooOld(floor) => Ok(Some(floor)),
            Since::Events(events, cursor) => {
                for event in events {
                    self.tell(&event)?;
                }
                self.cursor = cursor;
                Ok(None)
            }
        }
    }

    /// What the cache has after the cursor: from the mailbox, once the log was read up to where the mailbox begins.
    fn news(&mut self) -> Since {
        let Some(mailbox) = &self.narrow else { return self.cache.since(self.cursor) };
        // Asked before the mailbox is emptied: what was applied by now is in it.
        let applied = self.cache.applied();
        match mailbox.take() {
            Some(mut events) if self.caught_up => {
                events.retain(|event| event.revision() > self.cursor);
                Since::Events(events, applied.max(self.cursor))
            }
            _ => {
                let since = self.cache.since(self.cursor);
                self.caught_up = matches!(since, Since::Events(..));
                since
            }
        }
    }

    fn wake(&self) -> Instant {
        if self.bookmarks { self.deadline.min(self.next_bookmark) } else { self.deadline }
    }

    fn on_time(&mut self) {
        let now = Instant::now();
        if self.bookmarks {
            self.pending.push_back(self.lines.bookmark(self.cursor, false));
            self.next_bookmark = now + BOOKMARK_INTERVAL;
        }
        self.finished = now >= self.deadline;
    }

    async fn go_to_store(&mut self, floor: Revision) -> Result<(), Status> {
        match self.registry.store().watch(&self.prefix, &self.end, self.cursor).await {
            Ok(feed) => {
                self.source = Source::Store(feed);
                self.caught_up = false;
                Ok(())
            }
            Err(ReadError::Compacted { .. }) => {
                Err(status_errors::expired(format!("too old resource version: {} ({floor})", self.cursor)))
            }
            Err(error) => Err(self.too_old(error)),
        }
    }

    fn too_old(&self, error: ReadError) -> Status {
        match error {
            ReadError::Compacted { oldest, .. } => {
                status_errors::expired(format!("too old resource version: {} ({oldest})", self.cursor))
            }
            other => status_errors::read(other),
        }
    }

    /// Tells changes from the store's history; once the log reaches back far enough, the log takes over.
    fn tell_changes(&mut self, changes: Vec<Change>) -> Result<(), Status> {
        for change in changes {
            let current = change.current.map(|e| self.cache.item(&e)).transpose()?;
            let previous = change.previous.map(|e| self.cache.item(&e)).transpose()?;
            let event = Event::new(change.revision, change.key, current, previous);
            self.tell(&event)?;
            self.cursor = change.revision;
        }
        if matches!(self.cache.since(self.cursor), Since::Events(..)) {
            self.source = Source::Cache;
        }
        Ok(())
    }

    fn tell(&mut self, event: &Event) -> Result<(), Status> {
        if !event.key().starts_with(&self.prefix) {
            return Ok(());
        }
        let matched = event.previous().is_some_and(|item| self.selection.matches(item));
        let matches = event.current().is_some_and(|item| self.selection.matches(item));
        let Some(event_type) = EventType::of(matched, matches) else { return Ok(()) };
        let converted;
        let event = if std::ptr::eq(self.resource, self.resource.storage()) {
            event
        } else {
            let convert = |item: &Arc<Item>| self.registry.converted(self.resource, item);
            let current = event.current().map(convert).transpose()?;
            let previous = event.previous().map(convert).transpose()?;
            converted = Event::new(event.revision(), event.key().into(), current, previous);
            &converted
        };
        if let Some(line) = self.lines.event(event, event_type, self.registry.now())? {
            self.pending.push_back(line);
        }
        Ok(())
    }
}

/// Why a waiting watcher goes on.
enum Woken {
    Feed(Result<Option<Vec<Change>>, Ended>),
    Time,
    Stop,
}

async fn stopped(shutdown: &mut watch::Receiver<bool>) {
    // A server that is gone has stopped too.
    let _ = shutdown.wait_for(|stop| *stop).await;
}

/// Why a feed gives no more.
enum Ended {
    Feed,
    Read(ReadError),
}
