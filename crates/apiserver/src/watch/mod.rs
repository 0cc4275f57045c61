//! Watch streams: the initial state if the client wants it, then every change, one JSON line or protobuf frame each.
//!
//! ```text
//!   initial state (store.range) ─▶ BOOKMARK initial-events-end ─▶ log of the watch cache ─▶ … ─▶ EOF at the timeout
//!                                      cursor older than the log: store.watch ─▶ back to the log when caught up
//! ```

mod encoder;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bayplan_kinds::Kind;
use bayplan_model::status::Status;
use bayplan_store::{Change, Entry, ReadError, Revision};
use bytes::Bytes;
use futures::Stream;
use rand::RngExt;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::chance;
use crate::negotiation::{Format, Media};
use crate::registry::{Registry, list};
use crate::request::ListOptions;
use crate::selection::Selection;
use crate::server::WatchSeries;
use crate::status_errors;
use crate::watch_cache::{CacheEvent, CachedObject, EventType, EventsSince, Listener, Subscription, WatchCache};

use encoder::EventEncoder;

/// The shortest lifetime of a watch without a timeout of its own; the longest is twice that. Upstream's values, spread
/// so that clients do not reconnect all at once.
const LIFETIME_MIN: Duration = Duration::from_secs(1800);
/// The longest lifetime that a client can ask for: longer than any server runs, and short enough to add to any time.
const LIFETIME_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// The time between two bookmarks, as upstream.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);
/// About how many bytes of the initial state are sent at once.
const INITIAL_CHUNK: usize = 64 * 1024;

/// Where a watcher reads its events.
enum Source {
    /// The log of the watch cache.
    Cache,
    /// The store's own history, because the cursor is older than the log.
    Store(Box<dyn bayplan_store::Watch>),
}

struct Watcher {
    registry: Arc<Registry>,
    cache: Arc<WatchCache>,
    resource: &'static Kind,
    prefix: String,
    end: String,
    selection: Selection,
    encoder: EventEncoder,
    source: Source,
    /// The stream has carried every event up to this revision.
    cursor: Revision,
    initial: std::vec::IntoIter<Entry>,
    /// The bookmark after the initial state has not been sent yet.
    initial_bookmark: bool,
    bookmarks: bool,
    next_bookmark: Instant,
    deadline: Instant,
    pending: VecDeque<Bytes>,
    changed: Listener,
    /// The mailbox of a watcher of one value of one field.
    subscription: Option<Subscription>,
    /// The mailbox has every event after the cursor.
    caught_up: bool,
    shutdown: watch::Receiver<bool>,
    finished: bool,
    /// What is held until the initial state is sent.
    held: Option<Box<dyn Send>>,
    /// Counts what is sent.
    series: WatchSeries,
}

/// Holds something for so many bytes of initial state.
pub(crate) type Hold<'a> = &'a (dyn Fn(usize) -> Result<Box<dyn Send>, Status> + Sync);

/// The content type of a stream of events.
pub(crate) fn content_type(format: Format) -> &'static str {
    match format.media {
        Media::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
        Media::Json | Media::Yaml => "application/json",
    }
}

#[allow(clippy::too_many_arguments, reason = "what a request for a watch consists of")]
/// Opens a watch. Bad options and a failed first read are answered with a `Status`; a later failure is an `ERROR` line.
pub(crate) async fn open(
    registry: Arc<Registry>,
    resource: &'static Kind,
    namespace: &str,
    options: &ListOptions,
    format: Format,
    shutdown: watch::Receiver<bool>,
    hold: Hold<'_>,
    series: WatchSeries,
) -> Result<impl Stream<Item = Bytes> + Send + use<>, Status> {
    let selection = Selection::parse(resource, &options.label_selector, &options.field_selector)?;
    let with_initial_state = list::watch_options(options)?;
    let version = match options.resource_version.as_str() {
        "" | "0" => None,
        text => Some(list::parse_version(text)?),
    };
    let cache = registry.cache(resource).clone();
    let (prefix, end) = Registry::bounds(resource, namespace);
    // Subscribe before the state is read, so that no change in between is missed.
    let changed = cache.subscribe();
    let subscription = selection.required_value().map(|(field, value)| cache.subscribe_to_value(field, value));
    let (initial, cursor) = if with_initial_state {
        initial_state(&registry, (&prefix, &end), version, options.resource_version == "0").await?
    } else {
        let cursor = match version {
            Some(version) => version,
            None => registry.store().revision().await.map_err(status_errors::read)?,
        };
        (Vec::new(), cursor)
    };
    let initial_bookmark = with_initial_state && options.send_initial_events == Some(true) && options.allow_bookmarks;
    // Where there is no initial state, it is sent already.
    let held = hold(initial.len() * size_of::<Entry>())?;
    let held = (initial_bookmark || !initial.is_empty()).then_some(held);
    let now = Instant::now();
    let lifetime = match options.timeout_seconds {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds.unsigned_abs()).min(LIFETIME_MAX),
        _ => LIFETIME_MIN.mul_f64(1.0 + chance::rng().random_range(0.0..1.0)),
    };
    let watcher = Watcher {
        encoder: EventEncoder::new(resource, format),
        registry,
        cache,
        resource,
        prefix,
        end,
        selection,
        source: Source::Cache,
        cursor,
        initial: initial.into_iter(),
        initial_bookmark,
        bookmarks: options.allow_bookmarks,
        next_bookmark: now + BOOKMARK_INTERVAL,
        deadline: now + lifetime,
        pending: VecDeque::new(),
        changed,
        subscription,
        caught_up: false,
        shutdown,
        finished: false,
        held,
        series,
    };
    Ok(futures::stream::unfold(watcher, |mut watcher| async move {
        let line = watcher.next().await?;
        Some((line, watcher))
    }))
}

/// What is there, at least at a version, and the revision that was read. `recent` is content with what is known here.
async fn initial_state(
    registry: &Registry,
    (start, end): (&str, &str),
    version: Option<Revision>,
    recent: bool,
) -> Result<(Vec<Entry>, Revision), Status> {
    if let Some(version) = version {
        registry.wait_for(version).await?;
    }
    let store = registry.store();
    let range = if recent { store.range_recent(start, end, 0).await } else { store.range(start, end, None, 0).await };
    let range = range.map_err(status_errors::read)?;
    Ok((range.entries, range.revision))
}

impl Watcher {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.pending.pop_front() {
                self.series.sent(line.len());
                return Some(line);
            }
            if self.finished {
                return None;
            }
            if self.initial.len() > 0 {
                match self.next_of_initial_state() {
                    Some(chunk) => return Some(chunk),
                    None => continue,
                }
            }
            self.held = None;
            if self.initial_bookmark {
                self.initial_bookmark = false;
                return Some(self.encoder.bookmark(self.cursor, true, self.registry.now()));
            }
            if let Err(status) = self.advance().await {
                self.finished = true;
                return Some(self.encoder.error(&status));
            }
        }
    }

    /// A part of the initial state; `None` if the selection left nothing of it.
    fn next_of_initial_state(&mut self) -> Option<Bytes> {
        let mut chunk = Vec::with_capacity(INITIAL_CHUNK);
        for entry in self.initial.by_ref() {
            let before = chunk.len();
            let encoded = self.cache.object(&entry).and_then(|object| {
                if !self.selection.matches(&object) {
                    return Ok(());
                }
                let object = self.registry.converted(self.resource, &object)?;
                self.encoder.initial(&object, self.registry.now(), &mut chunk)
            });
            if let Err(status) = encoded {
                tracing::error!(key = %entry.key, %status, "a stored object cannot be read and is left out");
                chunk.truncate(before);
            }
            if chunk.len() > before {
                self.series.sent(chunk.len() - before);
            }
            if chunk.len() >= INITIAL_CHUNK {
                break;
            }
        }
        (!chunk.is_empty()).then(|| Bytes::from(chunk))
    }

    /// Queues the events after the cursor, or waits for one.
    async fn advance(&mut self) -> Result<(), Status> {
        if let Source::Cache = self.source {
            // Mark the wake-up as seen before reading, so that a later change wakes the watcher again.
            self.changed.hear();
            if let Some(floor) = self.read_cache()? {
                return self.switch_to_store(floor).await;
            }
            if !self.pending.is_empty() {
                return Ok(());
            }
        }
        let wake_at = self.wake_at();
        let Watcher { source, changed, subscription, shutdown, .. } = self;
        let waited = async {
            match (source, subscription) {
                (Source::Cache, None) => {
                    changed.changed().await;
                    Ok(None)
                }
                (Source::Cache, Some(mailbox)) => {
                    mailbox.filled().await;
                    Ok(None)
                }
                (Source::Store(feed), _) => feed.next().await.map(Some),
            }
        };
        let wakeup = tokio::select! {
            // In this order, so that runs repeat themselves; the two that come seldom never wait for a flood.
            biased;
            () = stopped(shutdown) => Wakeup::Shutdown,
            () = tokio::time::sleep_until(wake_at) => Wakeup::Timer,
            waited = waited => Wakeup::Feed(waited),
        };
        match wakeup {
            Wakeup::Feed(Ok(None)) => {}
            Wakeup::Feed(Ok(Some(changes))) => return self.queue_changes(changes),
            Wakeup::Feed(Err(error)) => return Err(self.too_old(error)),
            Wakeup::Timer => {
                if let (Source::Cache, Some(_)) = (&self.source, &self.subscription) {
                    // Events of other values do not wake this watcher: advance the cursor for the bookmark.
                    self.read_cache()?;
                }
                self.on_timer();
            }
            Wakeup::Shutdown => self.finished = true,
        }
        Ok(())
    }

    /// Queues the cached events after the cursor; answers the start of the log if the cursor is older.
    fn read_cache(&mut self) -> Result<Option<Revision>, Status> {
        match self.events_after_cursor() {
            EventsSince::TooOld(floor) => Ok(Some(floor)),
            EventsSince::Events(events, cursor) => {
                for event in events {
                    self.queue_event(&event)?;
                }
                self.cursor = cursor;
                Ok(None)
            }
        }
    }

    /// The cached events after the cursor: from the mailbox, once the log was read up to where the mailbox starts.
    fn events_after_cursor(&mut self) -> EventsSince {
        let Some(mailbox) = &self.subscription else { return self.cache.events_since(self.cursor) };
        // Read before the mailbox is emptied: the mailbox then has every event up to this revision.
        let applied = self.cache.applied();
        match mailbox.take() {
            Some(mut events) if self.caught_up => {
                events.retain(|event| event.revision() > self.cursor);
                EventsSince::Events(events, applied.max(self.cursor))
            }
            _ => {
                let events = self.cache.events_since(self.cursor);
                self.caught_up = matches!(events, EventsSince::Events(..));
                events
            }
        }
    }

    fn wake_at(&self) -> Instant {
        if self.bookmarks { self.deadline.min(self.next_bookmark) } else { self.deadline }
    }

    fn on_timer(&mut self) {
        let now = Instant::now();
        if self.bookmarks {
            let bookmark = self.encoder.bookmark(self.cursor, false, self.registry.now());
            self.pending.push_back(bookmark);
            self.next_bookmark = now + BOOKMARK_INTERVAL;
        }
        self.finished = now >= self.deadline;
    }

    async fn switch_to_store(&mut self, floor: Revision) -> Result<(), Status> {
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

    /// Queues changes from the store's history; once the log has every later event, the watcher reads the log again.
    fn queue_changes(&mut self, changes: Vec<Change>) -> Result<(), Status> {
        for change in changes {
            let current = change.current.map(|e| self.cache.object(&e)).transpose()?;
            let previous = change.previous.map(|e| self.cache.object(&e)).transpose()?;
            let event = CacheEvent::new(change.revision, change.key, current, previous);
            self.queue_event(&event)?;
            self.cursor = change.revision;
        }
        if matches!(self.cache.events_since(self.cursor), EventsSince::Events(..)) {
            self.source = Source::Cache;
        }
        Ok(())
    }

    /// Queues the line of an event if the watcher selects its object.
    fn queue_event(&mut self, event: &CacheEvent) -> Result<(), Status> {
        if !event.key().starts_with(&self.prefix) {
            return Ok(());
        }
        let matched = event.previous().is_some_and(|object| self.selection.matches(object));
        let matches = event.current().is_some_and(|object| self.selection.matches(object));
        let Some(event_type) = EventType::of(matched, matches) else { return Ok(()) };
        let converted;
        let event = if std::ptr::eq(self.resource, self.resource.storage()) {
            event
        } else {
            let convert = |object: &Arc<CachedObject>| self.registry.converted(self.resource, object);
            let current = event.current().map(convert).transpose()?;
            let previous = event.previous().map(convert).transpose()?;
            converted = CacheEvent::new(event.revision(), event.key().into(), current, previous);
            &converted
        };
        if let Some(line) = self.encoder.event(event, event_type, self.registry.now())? {
            self.pending.push_back(line);
        }
        Ok(())
    }
}

/// What ended a watcher's wait.
enum Wakeup {
    /// Changes of the store's history, or `None` for new events in the cache.
    Feed(Result<Option<Vec<Change>>, ReadError>),
    /// A bookmark is due, or the watch has reached its deadline.
    Timer,
    Shutdown,
}

async fn stopped(shutdown: &mut watch::Receiver<bool>) {
    // A dropped sender means that the server is gone.
    let _ = shutdown.wait_for(|stop| *stop).await;
}
