//! Answers in protobuf: objects, lists, metadata and the events of watches, as upstream's serializer writes them.

use bayplan_model::schema::{Definition, Schema};
use serde_json::{Map, Value};

use super::protobuf_writer::{around, bytes, envelope, in_envelope, message, nested};
use super::{OBJECT_META, definition_of};
use crate::group_version_kind::GroupVersionKind;

const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
/// The group version of what objects are converted to.
const META: &str = "meta.k8s.io/v1";
/// The fields of a list.
const METADATA: u32 = 1;
const ITEMS: u32 = 2;

/// Appends an object of a kind in its envelope.
pub fn write_object(out: &mut Vec<u8>, kind: GroupVersionKind<'_>, object: &Value) -> Result<(), String> {
    let definition = definition_of(kind).map_err(|status| status.message)?;
    envelope(out, &kind.api_version(), kind.kind, definition, members(object)?)
}

/// Appends an object of the kind that it names itself: a `Status`, a review, a scale.
pub fn write_value(out: &mut Vec<u8>, object: &Value) -> Result<(), String> {
    let text = |name: &str| object[name].as_str().unwrap_or_default();
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    write_object(out, GroupVersionKind { group, version, kind: text("kind") }, object)
}

/// Appends metadata as a `PartialObjectMetadata` in its envelope.
pub fn write_metadata(out: &mut Vec<u8>, metadata: &Value) -> Result<(), String> {
    in_envelope(out, META, "PartialObjectMetadata", |out| partial(out, metadata))
}

/// Appends an event of a watch about an object in its envelope: a frame, which begins with its length.
pub fn write_watch_event(out: &mut Vec<u8>, event_type: &str, object: &[u8]) -> Result<(), String> {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    bytes(out, 1, event_type.as_bytes());
    nested(out, 2, |out| {
        bytes(out, 1, object);
        Ok(())
    })?;
    let length = out.len() - start - 4;
    let length = u32::try_from(length).map_err(|_| format!("{length} bytes do not fit a frame"))?;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

/// A list that is written item by item. Its length comes first on the wire, so that it is there only once all of its
/// items are.
#[derive(Debug)]
pub struct ProtobufList {
    api_version: String,
    kind: String,
    /// The type of the items; none for metadata alone.
    item: Option<&'static Definition>,
    items: Vec<u8>,
}

impl ProtobufList {
    /// A list of objects of a kind.
    pub fn of_objects(kind: GroupVersionKind<'_>, list_kind: String) -> Result<ProtobufList, String> {
        let item = definition_of(kind).map_err(|status| status.message)?;
        Ok(ProtobufList { api_version: kind.api_version(), kind: list_kind, item: Some(item), items: Vec::new() })
    }

    /// A `PartialObjectMetadataList`.
    pub fn of_metadata() -> ProtobufList {
        let kind = "PartialObjectMetadataList".to_owned();
        ProtobufList { api_version: META.to_owned(), kind, item: None, items: Vec::new() }
    }

    /// Adds an object, or its metadata if the list is one of metadata. What cannot be written leaves no trace.
    pub fn add(&mut self, item: &Value) -> Result<(), String> {
        let before = self.items.len();
        let written = nested(&mut self.items, ITEMS, |out| match self.item {
            Some(definition) => message(out, definition, members(item)?),
            None => partial(out, item),
        });
        if written.is_err() {
            self.items.truncate(before);
        }
        written
    }

    /// What comes before the items, the items, and what comes after them.
    pub fn finish(self, metadata: &Value) -> Result<[Vec<u8>; 3], String> {
        let mut start = Vec::new();
        nested(&mut start, METADATA, |out| message(out, named(LIST_META)?, members(metadata)?))?;
        let (head, tail) = around(&self.api_version, &self.kind, &start, self.items.len())?;
        Ok([head, self.items, tail])
    }
}

fn partial(out: &mut Vec<u8>, metadata: &Value) -> Result<(), String> {
    nested(out, METADATA, |out| message(out, named(OBJECT_META)?, members(metadata)?))
}

fn named(name: &str) -> Result<&'static Definition, String> {
    Schema::get().named(name).ok_or_else(|| format!("the schema has no {name}"))
}

fn members(object: &Value) -> Result<&Map<String, Value>, String> {
    object.as_object().ok_or_else(|| "it is no object".to_owned())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use serde_json::json;

    use super::super::protobuf;
    use super::*;

    fn read(body: &[u8], definition: &'static Definition) -> (String, String, Value) {
        let unknown = protobuf::unknown(body.strip_prefix(protobuf::MAGIC).unwrap()).unwrap();
        let object = protobuf::message(unknown.raw, definition, &Cell::new(0)).unwrap();
        (unknown.api_version.to_owned(), unknown.kind.to_owned(), object.into())
    }

    #[test]
    fn a_list_is_read_back_with_its_metadata_and_items() {
        let kind = GroupVersionKind { group: "", version: "v1", kind: "ConfigMap" };
        let mut list = ProtobufList::of_objects(kind, "ConfigMapList".into()).unwrap();
        for name in ["a", "b"] {
            list.add(&json!({"metadata": {"name": name, "resourceVersion": "7"}, "data": {"k": name}})).unwrap();
        }
        assert!(list.add(&json!({"metadata": {"name": 1}})).is_err(), "and it leaves no trace");
        let parts = list.finish(&json!({"resourceVersion": "9", "continue": "c", "remainingItemCount": 3})).unwrap();
        let definition = Schema::get().definition("", "v1", "ConfigMapList").unwrap();
        let (version, kind, read) = read(&parts.concat(), definition);
        assert_eq!((&*version, &*kind), ("v1", "ConfigMapList"));
        assert_eq!(read["metadata"], json!({"resourceVersion": "9", "continue": "c", "remainingItemCount": 3}));
        let items = read["items"].as_array().unwrap();
        assert_eq!(items.len(), 2);
        assert_eq!((&items[1]["metadata"]["name"], &items[1]["data"]), (&json!("b"), &json!({"k": "b"})));
    }

    #[test]
    fn a_status_has_upstreams_bytes() {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "m", "reason": "r",
            "details": {"name": "n", "kind": "pods"}, "code": 404,
        });
        let mut out = Vec::new();
        write_value(&mut out, &status).unwrap();
        let list_meta = b"\x0a\x06\x0a\0\x12\0\x1a\0";
        let details = b"\x2a\x0f\x0a\x01n\x12\0\x1a\x04pods\x28\0\x32\0";
        let raw = [list_meta.as_slice(), b"\x12\x07Failure\x1a\x01m\x22\x01r", details, b"\x30\x94\x03"].concat();
        let expected = [b"k8s\0\x0a\x0c\x0a\x02v1\x12\x06Status\x12".as_slice(), &[raw.len() as u8], &raw];
        assert_eq!(out, [expected.concat().as_slice(), b"\x1a\0\x22\0"].concat());
    }

    #[test]
    fn an_event_is_a_frame_around_an_object_in_its_envelope() {
        let mut out = b"before".to_vec();
        write_watch_event(&mut out, "ADDED", b"k8s\0object").unwrap();
        let frame = b"\x0a\x05ADDED\x12\x0c\x0a\x0ak8s\0object";
        assert_eq!(out, [b"before\0\0\0".as_slice(), &[frame.len() as u8], frame].concat());
    }

    #[test]
    fn metadata_is_an_object_without_anything_else() {
        let mut out = Vec::new();
        write_metadata(&mut out, &json!({"name": "n", "namespace": "ns"})).unwrap();
        let definition = Schema::get().definition("", "v1", "ConfigMap").unwrap();
        let (version, kind, read) = read(&out, definition);
        assert_eq!((&*version, &*kind), ("meta.k8s.io/v1", "PartialObjectMetadata"));
        assert_eq!((&read["metadata"]["name"], &read["metadata"]["namespace"]), (&json!("n"), &json!("ns")));
        assert!(read["data"].is_null());
    }
}
