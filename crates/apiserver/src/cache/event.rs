//! One cached object and one change of it, with the bytes all watchers share.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bayplan_model::status::Status;
use bayplan_store::{Entry, Revision};
use bytes::Bytes;
use serde_json::Value;

use crate::encode::Encoded;
use crate::resources::Resource;
use crate::strategy;

/// An object with what selectors look at.
#[derive(Debug)]
pub struct Item {
    /// The bytes.
    pub encoded: Encoded,
    /// The revision of the write.
    pub revision: Revision,
    /// Namespace, empty for cluster-scoped objects.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// The selectable fields beyond name and namespace.
    pub fields: Vec<(&'static str, String)>,
    decoded: OnceLock<Arc<Value>>,
}

impl Item {
    /// Parses a stored object.
    pub fn new(resource: &'static Resource, entry: &Entry) -> Result<Item, Status> {
        let encoded = Encoded::from_store(resource, entry.value.clone())?;
        let strategy = strategy::of(resource);
        let selectable = strategy.selectable_fields();
        let (metadata, fields) = if selectable.is_empty() {
            (encoded.decode_metadata()?, Vec::new())
        } else {
            let mut object = encoded.decode_shallow()?;
            let fields = selectable
                .iter()
                .map(|field| (*field, strategy.field_value(&object, field).unwrap_or_default()))
                .collect();
            (object["metadata"].take(), fields)
        };
        let text = |key: &str| metadata[key].as_str().unwrap_or_default().to_owned();
        Ok(Item {
            revision: entry.mod_revision,
            namespace: text("namespace"),
            name: text("name"),
            labels: labels_of(&metadata),
            fields,
            encoded,
            decoded: OnceLock::new(),
        })
    }

    /// The same object in other bytes: how another version shows it.
    pub(crate) fn with_encoded(&self, encoded: Encoded) -> Item {
        Item {
            encoded,
            revision: self.revision,
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            labels: self.labels.clone(),
            fields: self.fields.clone(),
            decoded: OnceLock::new(),
        }
    }

    /// The object as JSON with its resource version; decoded at most once.
    pub fn decoded(&self) -> Result<Arc<Value>, Status> {
        if let Some(value) = self.decoded.get() {
            return Ok(value.clone());
        }
        let value = Arc::new(self.encoded.decode(Some(self.revision))?);
        Ok(self.decoded.get_or_init(|| value).clone())
    }

    /// The value of a field as selectors see it; `None` for fields that cannot be selected.
    pub fn field(&self, field: &str) -> Option<&str> {
        match field {
            "metadata.name" => Some(&self.name),
            "metadata.namespace" => Some(&self.namespace),
            _ => self.fields.iter().find(|(name, _)| *name == field).map(|(_, value)| value.as_str()),
        }
    }
}

/// The labels in an object's metadata.
pub(crate) fn labels_of(metadata: &Value) -> BTreeMap<String, String> {
    metadata["labels"]
        .as_object()
        .map(|labels| labels.iter().map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().to_owned())).collect())
        .unwrap_or_default()
}

/// What a watcher is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// The object began to match.
    Added,
    /// It changed and still matches.
    Modified,
    /// It is gone, or no longer matches.
    Deleted,
}

impl EventType {
    /// As the stream says it.
    pub fn as_str(self) -> &'static str {
        match self {
            EventType::Added => "ADDED",
            EventType::Modified => "MODIFIED",
            EventType::Deleted => "DELETED",
        }
    }

    /// What a watcher is told when an object matched before, and matches now.
    pub fn of(matched: bool, matches: bool) -> Option<EventType> {
        match (matched, matches) {
            (false, true) => Some(EventType::Added),
            (true, true) => Some(EventType::Modified),
            (true, false) => Some(EventType::Deleted),
            (false, false) => None,
        }
    }
}

/// One change of one object.
#[derive(Debug)]
pub struct Event {
    revision: Revision,
    key: Arc<str>,
    current: Option<Arc<Item>>,
    previous: Option<Arc<Item>>,
    /// The stream's line for each type, built when the first watcher needs it.
    lines: [OnceLock<Bytes>; 3],
    /// The same with `PartialObjectMetadata`.
    partial_lines: [OnceLock<Bytes>; 3],
}

impl Event {
    /// A change; one of the two states is there.
    pub fn new(revision: Revision, key: Arc<str>, current: Option<Arc<Item>>, previous: Option<Arc<Item>>) -> Event {
        Event { revision, key, current, previous, lines: Default::default(), partial_lines: Default::default() }
    }

    /// The revision of the change.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The storage key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The new state, unless the object was deleted.
    pub fn current(&self) -> Option<&Arc<Item>> {
        self.current.as_ref()
    }

    /// The state before, unless the object was created.
    pub fn previous(&self) -> Option<&Arc<Item>> {
        self.previous.as_ref()
    }

    /// The state an event of a type shows: a deletion shows what was, anything else what is.
    pub fn shown(&self, event_type: EventType) -> Option<&Arc<Item>> {
        match event_type {
            EventType::Deleted => self.previous.as_ref().or(self.current.as_ref()),
            EventType::Added | EventType::Modified => self.current.as_ref(),
        }
    }

    /// The stream's line, whole object or metadata only; shared by all watchers.
    pub fn line(&self, event_type: EventType, partial: bool) -> Option<Bytes> {
        let item = self.shown(event_type)?;
        let lines = if partial { &self.partial_lines } else { &self.lines };
        Some(
            lines[event_type as usize]
                .get_or_init(|| {
                    line(event_type.as_str(), item.encoded.size(), |out| {
                        if partial {
                            item.encoded.write_partial(out, Some(self.revision));
                        } else {
                            item.encoded.write_object(out, Some(self.revision));
                        }
                    })
                })
                .clone(),
        )
    }
}

/// One line of a watch stream.
pub fn line(event_type: &str, size: usize, object: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut out = Vec::with_capacity(size + 64);
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(event_type.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    object(&mut out);
    out.extend_from_slice(b"}\n");
    Bytes::from(out)
}
