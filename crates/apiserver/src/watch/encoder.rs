//! Encodes the events of one watch stream in the form the client accepts.

use std::sync::Arc;

use bayplan_kinds::Kind;
use bayplan_model::status::Status;
use bayplan_store::Revision;
use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::big_work::apart_now;
use crate::codec;
use crate::negotiation::{Format, Media, TableMeta, Transform, table, table_of_value};
use crate::registry::VersionedObject;
use crate::request::{FieldValidation, IncludeObject};
use crate::watch_cache::{CacheEvent, CachedObject, EventType, watch_line, write_frame};

/// Encodes the events of one stream: JSON lines, or protobuf frames.
pub(super) struct EventEncoder {
    resource: &'static Kind,
    media: Media,
    transform: Transform,
    /// Only the first table of a stream carries the column definitions.
    columns_sent: bool,
}

impl EventEncoder {
    pub(super) fn new(resource: &'static Kind, format: Format) -> EventEncoder {
        EventEncoder { resource, media: format.media, transform: format.transform, columns_sent: false }
    }

    /// Appends the `ADDED` event of an object of the initial state.
    pub(super) fn initial(
        &mut self,
        object: &Arc<CachedObject>,
        now: Timestamp,
        out: &mut Vec<u8>,
    ) -> Result<(), Status> {
        let revision = Some(object.revision);
        if self.media == Media::Protobuf {
            let partial = self.transform == Transform::Partial;
            let event_type = EventType::Added.as_str();
            return apart_now(object.encoded.size(), || {
                write_frame(out, event_type, self.resource, &object.encoded, object.revision, partial)
            });
        }
        out.extend_from_slice(b"{\"type\":\"ADDED\",\"object\":");
        match self.transform {
            Transform::Object => object.encoded.write_object(out, revision),
            Transform::Partial => object.encoded.write_partial(out, revision),
            Transform::Table(include) => {
                out.extend_from_slice(self.table(object, object.revision, include, now)?.to_string().as_bytes());
            }
        }
        out.extend_from_slice(b"}\n");
        Ok(())
    }

    /// A change as it is sent; `None` if an event of this type carries no object.
    pub(super) fn event(
        &mut self,
        event: &CacheEvent,
        event_type: EventType,
        now: Timestamp,
    ) -> Result<Option<Bytes>, Status> {
        let partial = match self.transform {
            Transform::Object => false,
            Transform::Partial => true,
            Transform::Table(include) => {
                let Some(object) = event.object(event_type) else { return Ok(None) };
                let table = self.table(object, event.revision(), include, now)?;
                return Ok(Some(value_line(event_type.as_str(), &table)));
            }
        };
        if self.media == Media::Protobuf {
            event.frame(self.resource, event_type, partial)
        } else {
            Ok(event.line(event_type, partial))
        }
    }

    fn table(
        &mut self,
        object: &Arc<CachedObject>,
        revision: Revision,
        include: IncludeObject,
        now: Timestamp,
    ) -> Result<Value, Status> {
        let versioned = VersionedObject { encoded: object.encoded.clone(), revision: Some(revision) };
        let meta = TableMeta { without_columns: self.columns_sent, ..TableMeta::default() };
        self.columns_sent = true;
        table(self.resource, &[versioned], include, now, &meta)
    }

    /// A bookmark: the stream has carried every event up to the revision.
    pub(super) fn bookmark(&mut self, revision: Revision, initial_events_end: bool, now: Timestamp) -> Bytes {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if initial_events_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = match self.transform {
            Transform::Object => self.empty_object(metadata),
            Transform::Partial => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
            }
            Transform::Table(include) => {
                // The mark is on the object of the row, which is there for it even if objects are not asked for.
                let marks = initial_events_end && include == IncludeObject::None;
                let include = if marks { IncludeObject::Metadata } else { include };
                self.table_of_nothing(metadata, include, now)
            }
        };
        self.value("BOOKMARK", &object)
    }

    /// The table of an object with nothing but metadata.
    fn table_of_nothing(&mut self, metadata: Value, include: IncludeObject, now: Timestamp) -> Value {
        let mut object = self.resource.blank();
        object["metadata"] = metadata;
        let mut table = table_of_value(self.resource, object, include, now);
        if std::mem::replace(&mut self.columns_sent, true) {
            table["columnDefinitions"] = Value::Null;
        }
        table
    }

    /// The `ERROR` event: the last of a stream that failed.
    pub(super) fn error(&self, status: &Status) -> Bytes {
        self.value("ERROR", &serde_json::to_value(status).expect("a Status has a JSON form"))
    }

    fn value(&self, event_type: &str, object: &Value) -> Bytes {
        if self.media != Media::Protobuf {
            return value_line(event_type, object);
        }
        let (mut message, mut frame) = (Vec::new(), Vec::new());
        let written = if object["kind"] == "PartialObjectMetadata" {
            codec::write_metadata(&mut message, &object["metadata"])
        } else {
            codec::write_value(&mut message, object)
        };
        if let Err(error) = written.and_then(|()| codec::write_watch_event(&mut frame, event_type, &message)) {
            tracing::error!(error, "an event has no protobuf form");
            return Bytes::new();
        }
        Bytes::from(frame)
    }

    /// An object of the kind with nothing but metadata, which typed clients expect in a bookmark.
    fn empty_object(&self, metadata: Value) -> Value {
        let object = json!({
            "kind": self.resource.kind, "apiVersion": self.resource.api_version(), "metadata": metadata,
        });
        let mut object =
            match codec::canonical(self.resource.group_version_kind(), object.clone(), FieldValidation::Ignore) {
                Ok(decoded) => decoded.object,
                Err(_) => object,
            };
        // Upstream's internal types have a plain number here, so even its empty objects have replicas.
        if matches!(self.resource.kind, "Deployment" | "ReplicaSet" | "StatefulSet") && object["spec"].is_object() {
            object["spec"]["replicas"] = json!(0);
        }
        object
    }
}

fn value_line(event_type: &str, object: &Value) -> Bytes {
    let text = object.to_string();
    watch_line(event_type, text.len(), |out| out.extend_from_slice(text.as_bytes()))
}
