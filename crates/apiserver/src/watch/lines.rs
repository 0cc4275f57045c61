//! The lines of a watch stream in the form the client accepts.

use std::sync::Arc;

use bayplan_model::status::Status;
use bayplan_store::Revision;
use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cache::{Event, EventType, Item, line};
use crate::codec::{self, Kind};
use crate::negotiation::{TableMeta, Transform, table};
use crate::registry::Shown;
use crate::request::{FieldValidation, IncludeObject};
use crate::resources::Resource;

/// Writes the lines of one stream.
pub(super) struct Lines {
    resource: &'static Resource,
    transform: Transform,
    /// Only a table's first line names the columns.
    columns_told: bool,
}

impl Lines {
    pub(super) fn new(resource: &'static Resource, transform: Transform) -> Lines {
        Lines { resource, transform, columns_told: false }
    }

    /// Appends an object of the initial state.
    pub(super) fn state(&mut self, item: &Arc<Item>, now: Timestamp, out: &mut Vec<u8>) -> Result<(), Status> {
        let revision = Some(item.revision);
        out.extend_from_slice(b"{\"type\":\"ADDED\",\"object\":");
        match self.transform {
            Transform::Object => item.encoded.write_object(out, revision),
            Transform::Partial => item.encoded.write_partial(out, revision),
            Transform::Table(include) => {
                out.extend_from_slice(self.table(item, item.revision, include, now)?.to_string().as_bytes());
            }
        }
        out.extend_from_slice(b"}\n");
        Ok(())
    }

    /// The line of a change.
    pub(super) fn event(
        &mut self,
        event: &Event,
        event_type: EventType,
        now: Timestamp,
    ) -> Result<Option<Bytes>, Status> {
        match self.transform {
            Transform::Object => Ok(event.line(event_type, false)),
            Transform::Partial => Ok(event.line(event_type, true)),
            Transform::Table(include) => {
                let Some(item) = event.shown(event_type) else { return Ok(None) };
                let table = self.table(item, event.revision(), include, now)?;
                Ok(Some(value_line(event_type.as_str(), &table)))
            }
        }
    }

    fn table(
        &mut self,
        item: &Arc<Item>,
        revision: Revision,
        include: IncludeObject,
        now: Timestamp,
    ) -> Result<Value, Status> {
        let shown = Shown { encoded: item.encoded.clone(), revision: Some(revision) };
        let meta = TableMeta { without_columns: self.columns_told, ..TableMeta::default() };
        self.columns_told = true;
        table(self.resource, &[shown], include, now, &meta)
    }

    /// A promise: everything up to the revision has been told.
    pub(super) fn bookmark(&self, revision: Revision, initial_events_end: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if initial_events_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = match self.transform {
            Transform::Object => self.empty(metadata),
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

    /// An object of the kind with nothing but metadata, as its typed clients expect it.
    fn empty(&self, metadata: Value) -> Value {
        let object = json!({
            "kind": self.resource.kind, "apiVersion": self.resource.api_version(), "metadata": metadata,
        });
        let mut object = match codec::canonical(Kind::of(self.resource), object.clone(), FieldValidation::Ignore) {
            Ok(decoded) => decoded.object,
            Err(_) => object,
        };
        // Upstream's internal types have a plain number here, so even an empty object shows it.
        if matches!(self.resource.kind, "Deployment" | "ReplicaSet" | "StatefulSet") && object["spec"].is_object() {
            object["spec"]["replicas"] = json!(0);
        }
        object
    }
}

fn value_line(event_type: &str, object: &Value) -> Bytes {
    let text = object.to_string();
    line(event_type, text.len(), |out| out.extend_from_slice(text.as_bytes()))
}

/// The last line of a stream that failed.
pub(super) fn error(status: &Status) -> Bytes {
    let text = serde_json::to_string(status).expect("a Status has a JSON form");
    line("ERROR", text.len(), |out| out.extend_from_slice(text.as_bytes()))
}
