//! One change of one object, with the encoded lines that all its watchers share.

use std::sync::{Arc, OnceLock};

use bayplan_kinds::Kind;
use bayplan_model::status::Status;
use bayplan_store::Revision;
use bytes::Bytes;

use super::CachedObject;
use crate::big_work::apart_now;
use crate::encode::Encoded;
use crate::negotiation::versioned_metadata;
use crate::{codec, status_errors};

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
    /// The same in protobuf, once somebody wants that.
    frames: OnceLock<Box<Frames>>,
}

/// The frame of a stream for each type, with the whole object or its metadata only.
type Frames = [OnceLock<Result<Bytes, Status>>; 6];

impl CacheEvent {
    /// A change; at least one of the two states is present.
    pub(crate) fn new(
        revision: Revision,
        key: Arc<str>,
        current: Option<Arc<CachedObject>>,
        previous: Option<Arc<CachedObject>>,
    ) -> CacheEvent {
        let (lines, partial_lines) = Default::default();
        CacheEvent { revision, key, current, previous, lines, partial_lines, frames: OnceLock::new() }
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

    /// The protobuf frame of the stream, with the whole object or its metadata only; shared by all watchers.
    pub(crate) fn frame(
        &self,
        resource: &'static Kind,
        event_type: EventType,
        partial: bool,
    ) -> Result<Option<Bytes>, Status> {
        let Some(object) = self.object(event_type) else { return Ok(None) };
        let frames = self.frames.get_or_init(Box::default);
        let frame = frames[event_type as usize * 2 + usize::from(partial)].get_or_init(|| {
            apart_now(object.encoded.size(), || {
                let mut out = Vec::new();
                write_frame(&mut out, event_type.as_str(), resource, &object.encoded, self.revision, partial)?;
                Ok(Bytes::from(out))
            })
        });
        frame.clone().map(Some)
    }
}

/// Appends the protobuf frame of an event.
pub(crate) fn write_frame(
    out: &mut Vec<u8>,
    event_type: &str,
    resource: &'static Kind,
    encoded: &Encoded,
    revision: Revision,
    partial: bool,
) -> Result<(), Status> {
    let mut object = Vec::with_capacity(encoded.size());
    let written = if partial {
        codec::write_metadata(&mut object, &versioned_metadata(encoded, Some(revision))?)
    } else {
        codec::write_object(&mut object, resource.group_version_kind(), &encoded.decode(Some(revision))?)
    };
    let written = written.and_then(|()| codec::write_watch_event(out, event_type, &object));
    written.map_err(status_errors::internal)
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
