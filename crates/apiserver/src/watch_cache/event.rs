//! One change of one object, with the encoded lines that all its watchers share.

use std::sync::{Arc, OnceLock};

use bayplan_store::Revision;
use bytes::Bytes;

use super::CachedObject;

/// The type of a watch event; upstream's `watch.EventType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventType {
    /// The object was created, or starts to match the selectors.
    Added,
    /// The object changed and matches before and after.
    Modified,
    /// The object was deleted, or no longer matches the selectors.
    Deleted,
}

impl EventType {
    /// The type on the wire.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            EventType::Added => "ADDED",
            EventType::Modified => "MODIFIED",
            EventType::Deleted => "DELETED",
        }
    }

    /// The event a watcher gets when an object matched before the change, and matches after it.
    pub(crate) fn of(matched: bool, matches: bool) -> Option<EventType> {
        match (matched, matches) {
            (false, true) => Some(EventType::Added),
            (true, true) => Some(EventType::Modified),
            (true, false) => Some(EventType::Deleted),
            (false, false) => None,
        }
    }
}

/// One change of one object; upstream's `watchCacheEvent`.
#[derive(Debug)]
pub(crate) struct CacheEvent {
    revision: Revision,
    key: Arc<str>,
    current: Option<Arc<CachedObject>>,
    previous: Option<Arc<CachedObject>>,
    /// The line of the stream for each type, built when the first watcher needs it.
    lines: [OnceLock<Bytes>; 3],
    /// The same lines with `PartialObjectMetadata`.
    partial_lines: [OnceLock<Bytes>; 3],
}

impl CacheEvent {
    /// A change; at least one of the two states is present.
    pub(crate) fn new(
        revision: Revision,
        key: Arc<str>,
        current: Option<Arc<CachedObject>>,
        previous: Option<Arc<CachedObject>>,
    ) -> CacheEvent {
        CacheEvent { revision, key, current, previous, lines: Default::default(), partial_lines: Default::default() }
    }

    /// The revision of the change.
    pub(crate) fn revision(&self) -> Revision {
        self.revision
    }

    /// The storage key.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// The object after the change; `None` if it was deleted.
    pub(crate) fn current(&self) -> Option<&Arc<CachedObject>> {
        self.current.as_ref()
    }

    /// The object before the change; `None` if it was created.
    pub(crate) fn previous(&self) -> Option<&Arc<CachedObject>> {
        self.previous.as_ref()
    }

    /// The object an event of this type carries: the last state for a deletion, otherwise the new one.
    pub(crate) fn object(&self, event_type: EventType) -> Option<&Arc<CachedObject>> {
        match event_type {
            EventType::Deleted => self.previous.as_ref().or(self.current.as_ref()),
            EventType::Added | EventType::Modified => self.current.as_ref(),
        }
    }

    /// The line of the stream, with the whole object or its metadata only; shared by all watchers.
    pub(crate) fn line(&self, event_type: EventType, partial: bool) -> Option<Bytes> {
        let object = self.object(event_type)?;
        let lines = if partial { &self.partial_lines } else { &self.lines };
        let line = lines[event_type as usize].get_or_init(|| {
            watch_line(event_type.as_str(), object.encoded.size(), |out| {
                if partial {
                    object.encoded.write_partial(out, Some(self.revision));
                } else {
                    object.encoded.write_object(out, Some(self.revision));
                }
            })
        });
        Some(line.clone())
    }
}

/// One line of a watch stream: a `metav1.WatchEvent`.
pub(crate) fn watch_line(event_type: &str, size: usize, object: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut out = Vec::with_capacity(size + 64);
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(event_type.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    object(&mut out);
    out.extend_from_slice(b"}\n");
    Bytes::from(out)
}
