//! The informer's state machine: takes lines, pages and failures; returns deltas and the next request.

use std::sync::Arc;
use std::time::Duration;

use bayplan_model::delta::Delta;
use bayplan_model::keyed::{KeyedMap, KeyedSet};
use bayplan_model::meta::HasMeta;
use bayplan_model::status::{Status, reason};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::backoff::Backoff;
use super::wire::{Identity, Line, Page};
use super::{Error, Event};

/// client-go's page size.
const PAGE_OBJECTS: usize = 500;

/// A watch that ends sooner, without any event, counts as a failure.
const WATCH_LIFE_MIN: Duration = Duration::from_secs(1);

/// A server that cannot be reached, refuses, or ends watches at once is asked again after at most twice this: it may be
/// starting, and whoever waits for it should notice within seconds. One request in 2.5 s for each informer is no load.
const UNREACHED_DELAY_MAX: Duration = Duration::from_millis(2500);
/// client-go's longest delay, stretched up to twice: between reads of the whole state that keep being in vain, which is
/// a load.
const REREAD_DELAY_MAX: Duration = Duration::from_secs(30);

/// The request to send next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NextRequest {
    /// The whole state as watch events, then the changes.
    Stream,
    /// A page of the state; no limit when 0.
    List { limit: usize, continue_token: String },
    /// The changes after a resource version.
    Watch { resource_version: String },
}

/// How a request ended.
#[derive(Debug)]
pub(crate) enum RequestEnd {
    /// As expected.
    Done,
    /// With the server's `Status`, as the answer or as an ERROR event.
    Refused(Status),
    /// With the loss of the connection in the middle of a watch.
    Broken(Status),
    /// With an answer that is not what the API promises.
    Unreadable(&'static str, serde_json::Error),
    /// With the clean end of a watch that lived this long.
    Closed { lived: Duration },
    /// With a sign that the server does not stream the initial state.
    NotStreaming,
}

/// What the machine is waiting for.
#[derive(Debug)]
enum State {
    /// The whole state, as ADDED events up to a bookmark that says it is complete. Interrupted, it starts over.
    Streaming { seen: KeyedSet<String> },
    /// The whole state, page by page. Interrupted, it goes on with the page it was at, while the server remembers it.
    Listing { seen: KeyedSet<String>, limit: usize, continue_token: String },
    /// Changes after the last one seen. Interrupted, it resumes there; when that history is gone, all is read again.
    Watching { resource_version: String },
}

/// The machine: see the states.
pub(crate) struct Machine<V> {
    state: State,
    objects: KeyedMap<String, Arc<V>>,
    /// Since something arrived: failures to hear from the server,
    unreached: Backoff,
    /// and answers that meant that the state has to be read again.
    reread: Backoff,
    streams: bool,
    synced: bool,
    /// Whether the current watch has delivered anything.
    received: bool,
    undecodable: u64,
}

impl<V: DeserializeOwned + HasMeta> Machine<V> {
    /// A machine that knows nothing yet.
    pub(crate) fn new() -> Self {
        Machine {
            state: State::Streaming { seen: KeyedSet::default() },
            objects: KeyedMap::default(),
            unreached: Backoff::up_to(UNREACHED_DELAY_MAX),
            reread: Backoff::up_to(REREAD_DELAY_MAX),
            streams: true,
            synced: false,
            received: false,
            undecodable: 0,
        }
    }

    /// The next request.
    pub(crate) fn next_request(&mut self) -> NextRequest {
        self.received = false;
        match &mut self.state {
            State::Streaming { seen } => {
                seen.clear();
                NextRequest::Stream
            }
            State::Listing { limit, continue_token, .. } => {
                NextRequest::List { limit: *limit, continue_token: continue_token.clone() }
            }
            State::Watching { resource_version } => NextRequest::Watch { resource_version: resource_version.clone() },
        }
    }

    /// The version up to which everything has been read, once the whole state has been.
    pub(crate) fn version(&self) -> Option<&str> {
        match &self.state {
            State::Watching { resource_version } => Some(resource_version),
            State::Streaming { .. } | State::Listing { .. } => None,
        }
    }

    /// Every object as a delta from itself to itself, by key; none while the whole state is still being read.
    pub(crate) fn resync(&self) -> Vec<Event<V>> {
        if !self.is_watching() {
            return Vec::new();
        }
        let mut objects: Vec<(&String, &Arc<V>)> = self.objects.iter().collect();
        objects.sort_by_key(|(key, _)| *key);
        let unchanged = |o: &Arc<V>| Event::Delta(Delta::Updated { old: Arc::clone(o), new: Arc::clone(o) });
        objects.into_iter().map(|(_, object)| unchanged(object)).collect()
    }

    /// One line of a watch; the error ends the watch.
    pub(crate) fn line(&mut self, line: &[u8], events: &mut Vec<Event<V>>) -> Result<(), RequestEnd> {
        let Line { kind, object } =
            serde_json::from_slice(line).map_err(|e| RequestEnd::Unreadable("watch event", e))?;
        match &*kind {
            "ADDED" | "MODIFIED" => self.present(object, events),
            "DELETED" => self.absent(object, events),
            "BOOKMARK" => return self.bookmark(object, events),
            "ERROR" => {
                return Err(match serde_json::from_str(object.get()) {
                    Ok(status) => RequestEnd::Refused(status),
                    Err(error) => RequestEnd::Unreadable("error event", error),
                });
            }
            other => tracing::debug!(kind = other, "unknown kind of watch event"),
        }
        self.note_event();
        Ok(())
    }

    /// One page of a list.
    pub(crate) fn page(&mut self, page: &[u8]) -> (Vec<Event<V>>, RequestEnd) {
        let page: Page<'_> = match serde_json::from_slice(page) {
            Ok(page) => page,
            Err(error) => return (Vec::new(), RequestEnd::Unreadable("list", error)),
        };
        let mut events = Vec::new();
        for item in page.items.unwrap_or_default() {
            self.present(item, &mut events);
        }
        match &mut self.state {
            State::Listing { continue_token, .. } if !page.metadata.continue_token.is_empty() => {
                *continue_token = page.metadata.continue_token;
            }
            _ => self.complete(page.metadata.resource_version, &mut events),
        }
        (events, RequestEnd::Done)
    }

    /// A request has ended: how long to wait before the next, and why.
    pub(crate) fn end(&mut self, step: RequestEnd, jitter: &mut dyn FnMut() -> f64) -> (Duration, Option<Error>) {
        let error = match step {
            RequestEnd::Done => return (Duration::ZERO, None),
            RequestEnd::Closed { .. } if matches!(self.state, State::Streaming { .. }) => Error::ClosedAtOnce,
            RequestEnd::Closed { lived } if lived < WATCH_LIFE_MIN && !self.received => Error::ClosedAtOnce,
            RequestEnd::Closed { .. } => {
                self.worked();
                return (Duration::ZERO, None);
            }
            RequestEnd::Refused(status) if self.cannot_stream(&status) => {
                self.list_all();
                return (Duration::ZERO, None);
            }
            RequestEnd::NotStreaming => {
                self.streams = false;
                self.read_all();
                return (Duration::ZERO, None);
            }
            RequestEnd::Refused(status) if is_gone(&status) => return self.expired(jitter),
            RequestEnd::Refused(status) => Error::Refused(status),
            RequestEnd::Broken(status) => Error::Broken(status),
            RequestEnd::Unreadable(what, error) => {
                return (self.reread.next(jitter()), Some(Error::Unreadable { what, error }));
            }
        };
        let asked_for = match &error {
            Error::Refused(Status { details: Some(details), .. }) => details.retry_after_seconds,
            _ => 0,
        };
        let delay = self.unreached.next(jitter()).max(Duration::from_secs(asked_for.into()).min(RETRY_AFTER_MAX));
        (delay, Some(error))
    }

    /// Servers without streaming lists answer 422, some proxies turn that into 400, and upstream's server answers 500
    /// when its etcd is too old. A 500 may be temporary: it is listed this time only.
    fn cannot_stream(&mut self, status: &Status) -> bool {
        let refused = matches!(self.state, State::Streaming { .. }) && matches!(status.code, 400 | 422 | 500);
        self.streams &= !refused || status.code == 500;
        refused
    }

    fn list_all(&mut self) {
        self.state = State::Listing { seen: KeyedSet::default(), limit: PAGE_OBJECTS, continue_token: String::new() };
    }

    /// The history is gone: read all again, at once the first time, later if that keeps happening.
    fn expired(&mut self, jitter: &mut dyn FnMut() -> f64) -> (Duration, Option<Error>) {
        let (again, delay) = (self.reread.is_failing(), self.reread.next(jitter()));
        let error = match &self.state {
            State::Watching { resource_version } => Error::Expired(resource_version.clone()),
            State::Listing { .. } => Error::Expired("a page of the list".into()),
            State::Streaming { .. } => Error::Expired("the start".into()),
        };
        let paged = matches!(self.state, State::Listing { .. });
        self.read_all();
        if let (true, State::Listing { limit, .. }) = (paged, &mut self.state) {
            // Reading page by page took longer than the server remembers: ask for everything in one answer.
            *limit = 0;
        }
        (if again { delay } else { Duration::ZERO }, Some(error))
    }

    fn read_all(&mut self) {
        if self.streams {
            self.state = State::Streaming { seen: KeyedSet::default() };
        } else {
            self.list_all();
        }
    }

    /// An object is there.
    fn present(&mut self, raw: &RawValue, events: &mut Vec<Event<V>>) {
        let Some(object) = self.decode(raw) else { return };
        let key = object.meta().key();
        self.note(&key, &object.meta().resource_version);
        match self.objects.get(&key) {
            Some(old) if old.meta().resource_version == object.meta().resource_version => return,
            Some(old) if self.is_watching() && is_older(&*object, &**old) => return,
            Some(old) if is_another(&*object, &**old) => {
                events.push(Event::Delta(Delta::Deleted(Arc::clone(old))));
                events.push(Event::Delta(Delta::Added(Arc::clone(&object))));
            }
            Some(old) => {
                events.push(Event::Delta(Delta::Updated { old: Arc::clone(old), new: Arc::clone(&object) }));
            }
            None => events.push(Event::Delta(Delta::Added(Arc::clone(&object)))),
        }
        self.objects.insert(key, object);
    }

    /// An object is gone, or no longer selected.
    fn absent(&mut self, raw: &RawValue, events: &mut Vec<Event<V>>) {
        let (key, last) = match serde_json::from_str::<V>(raw.get()) {
            Ok(object) => (object.meta().key(), Some(Arc::new(object))),
            Err(_) => match serde_json::from_str::<Identity>(raw.get()) {
                Ok(identity) => (identity.key(), None),
                Err(_) => return,
            },
        };
        if let Some(last) = &last {
            self.note(&key, &last.meta().resource_version);
            if self.objects.get(&key).is_some_and(|known| self.is_watching() && is_older(&**last, &**known)) {
                return;
            }
        }
        if let State::Streaming { seen } = &mut self.state {
            seen.remove(&key);
        }
        if let Some(known) = self.objects.remove(&key) {
            events.push(Event::Delta(Delta::Deleted(last.unwrap_or(known))));
        }
    }

    fn bookmark(&mut self, raw: &RawValue, events: &mut Vec<Event<V>>) -> Result<(), RequestEnd> {
        let bookmark: Identity = serde_json::from_str(raw.get()).map_err(|e| RequestEnd::Unreadable("bookmark", e))?;
        self.note_event();
        match &mut self.state {
            State::Watching { resource_version } => *resource_version = bookmark.metadata.resource_version,
            State::Streaming { .. } if bookmark.ends_initial_events() => {
                self.complete(bookmark.metadata.resource_version, events);
            }
            // A bookmark before the initial state is complete: the server took this for a plain watch.
            State::Streaming { .. } => return Err(RequestEnd::NotStreaming),
            State::Listing { .. } => {}
        }
        Ok(())
    }

    /// The whole state has been read: what was not in it has vanished.
    fn complete(&mut self, resource_version: String, events: &mut Vec<Event<V>>) {
        let next = State::Watching { resource_version };
        if let State::Streaming { seen } | State::Listing { seen, .. } = std::mem::replace(&mut self.state, next) {
            let mut vanished: Vec<String> = self.objects.keys().filter(|key| !seen.contains(*key)).cloned().collect();
            vanished.sort();
            let vanished = vanished.iter().filter_map(|key| self.objects.remove(key));
            events.extend(vanished.map(|object| Event::Delta(Delta::Deleted(object))));
        }
        if !self.synced {
            self.synced = true;
            events.push(Event::Synced);
        }
    }

    /// Decodes an object, or counts it as undecodable and goes on with what is known of it.
    fn decode(&mut self, raw: &RawValue) -> Option<Arc<V>> {
        match serde_json::from_str::<V>(raw.get()) {
            Ok(object) => Some(Arc::new(object)),
            Err(error) => {
                self.undecodable += 1;
                let identity: Identity = serde_json::from_str(raw.get()).unwrap_or_default();
                let key = identity.key();
                tracing::warn!(
                    object = key,
                    count = self.undecodable,
                    "undecodable object, the last version that could be decoded stays: {error}"
                );
                self.note(&key, &identity.metadata.resource_version);
                None
            }
        }
    }

    /// Remembers how far the state has been read.
    fn note(&mut self, key: &str, version: &str) {
        match &mut self.state {
            State::Streaming { seen } | State::Listing { seen, .. } => {
                seen.insert(key.to_owned());
            }
            State::Watching { resource_version } if !version.is_empty() => {
                resource_version.clear();
                resource_version.push_str(version);
            }
            State::Watching { .. } => {}
        }
    }

    fn note_event(&mut self) {
        self.received = true;
        if self.is_watching() {
            self.worked();
        }
    }

    fn worked(&mut self) {
        self.unreached.reset();
        self.reread.reset();
    }

    fn is_watching(&self) -> bool {
        matches!(self.state, State::Watching { .. })
    }
}

/// The longest `Retry-After` that is respected.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(120);

/// True when the server no longer knows (or, restored from a backup, does not yet know) the version asked for.
fn is_gone(status: &Status) -> bool {
    status.code == 410
        || status.is(reason::EXPIRED)
        || status.is(reason::GONE)
        || status.has_cause("ResourceVersionTooLarge")
}

fn is_older<V: HasMeta>(object: &V, than: &V) -> bool {
    let version = |o: &V| o.meta().resource_version.parse::<u64>().ok();
    version(object).zip(version(than)).is_some_and(|(a, b)| a < b)
}

/// True when the name was reused by another object.
fn is_another<V: HasMeta>(object: &V, than: &V) -> bool {
    object.meta().uid != than.meta().uid
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
