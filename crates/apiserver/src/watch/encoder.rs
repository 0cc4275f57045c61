//! Encodes the events of one watch stream in the form the client accepts.

use std::sync::Arc;

use bayplan_kinds::Kind;
use bayplan_model::status::Status;
use bayplan_store::Revision;
use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::codec;
use crate::negotiation::{TableMeta, Transform, table};
use crate::registry::VersionedObject;
use crate::request::{FieldValidation, IncludeObject};
use crate::watch_cache::{CacheEvent, CachedObject, EventType, watch_line};

/// Encodes the events of one stream, one JSON line each.
pub(super) struct EventEncoder {
    resource: &'static Kind,
    transform: Transform,
    /// Only the first table of a stream carries the column definitions.
    columns_sent: bool,
}

impl EventEncoder {
    pub(super) fn new(resource: &'static Kind, transform: Transform) -> EventEncoder {
        EventEncoder { resource, transform, columns_sent: false }
    }

    /// Appends the `ADDED` event of an object of the initial state.
    pub(super) fn initial(
        &mut self,
        object: &Arc<CachedObject>,
        now: Timestamp,
        out: &mut Vec<u8>,
    ) -> Result<(), Status> {
        let revision = Some(object.revision);
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

    /// The line of a change; `None` if an event of this type carries no object.
    pub(super) fn event(
        &mut self,
        event: &CacheEvent,
        event_type: EventType,
        now: Timestamp,
    ) -> Result<Option<Bytes>, Status> {
        match self.transform {
            Transform::Object => Ok(event.line(event_type, false)),
            Transform::Partial => Ok(event.line(event_type, true)),
            Transform::Table(include) => {
                let Some(object) = event.object(event_type) else { return Ok(None) };
                let table = self.table(object, event.revision(), include, now)?;
                Ok(Some(value_line(event_type.as_str(), &table)))
            }
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
    pub(super) fn bookmark(&self, revision: Revision, initial_events_end: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if initial_events_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = match self.transform {
            Transform::Object => self.empty_object(metadata),
            Transform::Partial => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
            }
            Transform::Table(_) => json!({
                "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
                "columnDefinitions": null, "rows": [],
            }),
        };
        value_line("BOOKMARK", &object)
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

/// The `ERROR` event: the last line of a stream that failed.
pub(super) fn error(status: &Status) -> Bytes {
    let text = serde_json::to_string(status).expect("a Status has a JSON form");
    watch_line("ERROR", text.len(), |out| out.extend_from_slice(text.as_bytes()))
}
