//! Stored objects as bytes: encoded once on the way in, and only sliced and joined on the way out.
//!
//! ```text
//!   {"kind":"Pod","apiVersion":"v1","metadata":{ … },"spec":{ … }, … }
//!    └──────────────── head ──────────────────┘   └ metadata_end
//! ```
//!
//! The resource version is not stored (it is the store's revision of the write) but spliced in right after the head.
//! A list item is everything from `"metadata"` on, a `PartialObjectMetadata` everything up to `metadata_end`.

mod shallow;

use std::sync::{Arc, LazyLock};

use bayplan_kinds::{Kind, served};
use bayplan_model::status::Status;
use bayplan_store::Revision;
use bytes::Bytes;
use rustc_hash::FxHashMap;
use serde_json::{Map, Value};

use crate::status_errors;

/// An object encoded as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Encoded {
    bytes: Bytes,
    head: usize,
    metadata_end: usize,
    /// The form it was converted from, if it is of another version than the stored one.
    stored: Option<Arc<Encoded>>,
}

const METADATA: &str = "\"metadata\":{";
const PARTIAL_HEAD: &str = "{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{";

static HEADS: LazyLock<FxHashMap<usize, String>> = LazyLock::new(|| {
    served()
        .map(|r| {
            let head = format!("{{\"kind\":\"{}\",\"apiVersion\":\"{}\",{METADATA}", r.kind, r.api_version());
            (std::ptr::from_ref(r) as usize, head)
        })
        .collect()
});

/// The kinds whose metadata alone is not that of the whole object, by their heads.
static OWN_METADATA: LazyLock<Vec<(&'static str, &'static Kind)>> = LazyLock::new(|| {
    let kinds = served().filter(|kind| kind.annotates_fields());
    kinds.map(|kind| (head_of(kind), kind)).collect()
});

fn head_of(resource: &'static Kind) -> &'static str {
    HEADS.get(&(std::ptr::from_ref(resource) as usize)).expect("every resource is a row of the table")
}

/// False for metadata that is never stored: the version is the store's revision. An empty list of
/// managed fields says nothing.
fn stored_metadata(key: &str, value: &Value) -> bool {
    match key {
        "resourceVersion" | "selfLink" => false,
        "managedFields" => value.as_array().is_some_and(|fields| !fields.is_empty()),
        _ => true,
    }
}

impl Encoded {
    /// Encodes an object; apiVersion and kind are those of the resource, the resource version is omitted.
    pub(crate) fn new(resource: &'static Kind, object: &Value) -> Encoded {
        let head = head_of(resource);
        let mut out = Vec::with_capacity(1024);
        out.extend_from_slice(head.as_bytes());
        let empty = Map::new();
        let metadata = object["metadata"].as_object().unwrap_or(&empty);
        write_members(&mut out, metadata.iter().filter(|(key, value)| stored_metadata(key, value)), false);
        let metadata_end = out.len();
        out.push(b'}');
        let rest = object.as_object().unwrap_or(&empty).iter();
        write_members(
            &mut out,
            rest.filter(|(key, _)| !matches!(key.as_str(), "apiVersion" | "kind" | "metadata")),
            true,
        );
        out.push(b'}');
        Encoded { bytes: Bytes::from(out), head: head.len(), metadata_end, stored: None }
    }

    /// Remembers the stored form of an object of another version.
    pub(crate) fn converted_from(self, stored: Encoded) -> Encoded {
        Encoded { stored: Some(Arc::new(stored)), ..self }
    }

    /// The stored form of an object of another version.
    pub(crate) fn stored_form(&self) -> Option<&Encoded> {
        self.stored.as_deref()
    }

    /// Takes bytes from the store; bytes in another layout, written by another server, are encoded again.
    pub(crate) fn from_store(resource: &'static Kind, bytes: Bytes) -> Result<Encoded, Status> {
        let head = head_of(resource);
        if bytes.starts_with(head.as_bytes())
            && let Some(metadata_end) = end_of_members(&bytes, head.len())
        {
            return Ok(Encoded { bytes, head: head.len(), metadata_end, stored: None });
        }
        let object: Value = serde_json::from_slice(&bytes)
            .map_err(|e| status_errors::internal(format!("a stored {} cannot be read: {e}", resource.kind)))?;
        Ok(Encoded::new(resource, &object))
    }

    /// The stored bytes.
    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The object as JSON, with its resource version.
    pub(crate) fn decode(&self, revision: Option<Revision>) -> Result<Value, Status> {
        let mut object: Value = serde_json::from_slice(&self.bytes)
            .map_err(|e| status_errors::internal(format!("a stored object cannot be read: {e}")))?;
        if let (Some(revision), Some(metadata)) = (revision, object["metadata"].as_object_mut()) {
            metadata.insert("resourceVersion".to_owned(), Value::String(revision.to_string()));
        }
        Ok(object)
    }

    /// The part of the object that selectors may read: its metadata, and fields no deeper than `spec.nodeName`.
    pub(crate) fn decode_shallow(&self) -> Result<Value, Status> {
        shallow::decode(&self.bytes)
            .map_err(|e| status_errors::internal(format!("a stored object cannot be read: {e}")))
    }

    /// The metadata alone, as JSON.
    pub(crate) fn decode_metadata(&self) -> Result<Value, Status> {
        let slice = &self.bytes[self.head - 1..=self.metadata_end];
        serde_json::from_slice(slice)
            .map_err(|e| status_errors::internal(format!("stored metadata cannot be read: {e}")))
    }

    /// The metadata as an answer with metadata alone shows it.
    pub(crate) fn decode_metadata_alone(&self) -> Result<Value, Status> {
        let mut metadata = self.decode_metadata()?;
        if let Some(kind) = self.kind_with_own_metadata() {
            kind.show_metadata_alone(&mut metadata);
        }
        Ok(metadata)
    }

    fn kind_with_own_metadata(&self) -> Option<&'static Kind> {
        let head = &self.bytes[..self.head];
        OWN_METADATA.iter().find(|(of_kind, _)| of_kind.as_bytes() == head).map(|(_, kind)| *kind)
    }

    /// Appends the whole object.
    pub(crate) fn write_object(&self, out: &mut Vec<u8>, revision: Option<Revision>) {
        out.extend_from_slice(&self.bytes[..self.head]);
        self.write_version(out, revision);
        out.extend_from_slice(&self.bytes[self.head..]);
    }

    /// The whole object in parts that share the stored bytes.
    pub(crate) fn object_parts(&self, revision: Option<Revision>) -> [Bytes; 3] {
        let mut version = Vec::new();
        self.write_version(&mut version, revision);
        [self.bytes.slice(..self.head), Bytes::from(version), self.bytes.slice(self.head..)]
    }

    /// Appends the object as an item of a list: without apiVersion and kind.
    pub(crate) fn write_item(&self, out: &mut Vec<u8>, revision: Option<Revision>) {
        out.push(b'{');
        out.extend_from_slice(METADATA.as_bytes());
        self.write_version(out, revision);
        out.extend_from_slice(&self.bytes[self.head..]);
    }

    /// Appends the object's metadata as a `PartialObjectMetadata`.
    pub(crate) fn write_partial(&self, out: &mut Vec<u8>, revision: Option<Revision>) {
        out.extend_from_slice(PARTIAL_HEAD.as_bytes());
        self.write_version(out, revision);
        match self.kind_with_own_metadata().and_then(|_| self.decode_metadata_alone().ok()) {
            Some(Value::Object(metadata)) => {
                write_members(out, metadata.iter(), false);
                out.push(b'}');
            }
            _ => out.extend_from_slice(&self.bytes[self.head..=self.metadata_end]),
        }
        out.push(b'}');
    }

    fn write_version(&self, out: &mut Vec<u8>, revision: Option<Revision>) {
        let Some(revision) = revision else { return };
        out.extend_from_slice(b"\"resourceVersion\":\"");
        out.extend_from_slice(revision.to_string().as_bytes());
        out.push(b'"');
        if self.metadata_end > self.head {
            out.push(b',');
        }
    }

    /// The approximate size of the object on the wire, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len() + 48
    }
}

fn write_members<'a>(out: &mut Vec<u8>, members: impl Iterator<Item = (&'a String, &'a Value)>, mut comma: bool) {
    for (key, value) in members {
        if comma {
            out.push(b',');
        }
        comma = true;
        // Writing JSON values into memory cannot fail: keys are strings and the writer is a vector.
        serde_json::to_writer(&mut *out, key).expect("a string has a JSON form");
        out.push(b':');
        serde_json::to_writer(&mut *out, value).expect("a JSON value has a JSON form");
    }
}

/// The closing brace of the object that opens just before `start`.
fn end_of_members(bytes: &[u8], start: usize) -> Option<usize> {
    let (mut depth, mut in_string, mut at) = (1usize, false, start);
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if in_string => at += 1,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> Value {
        let mut out = Vec::new();
        write(&mut out);
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn one_encoding_serves_object_item_and_metadata() {
        let resource = bayplan_kinds::find("", "v1", "configmaps").unwrap();
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "}\"{"},
            "metadata": {"name": "x", "annotations": {"q": "\\\"}"}, "resourceVersion": "9", "managedFields": []},
        });
        let encoded = Encoded::new(resource, &object);
        let again = Encoded::from_store(resource, encoded.bytes().clone()).unwrap();
        assert_eq!(again, encoded);
        let metadata = json!({"name": "x", "annotations": {"q": "\\\"}"}, "resourceVersion": "7"});
        assert_eq!(
            text(|out| again.write_object(out, Some(7))),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "}\"{"}, "metadata": metadata})
        );
        assert_eq!(text(|out| again.write_item(out, Some(7))), json!({"data": {"a": "}\"{"}, "metadata": metadata}));
        assert_eq!(
            text(|out| again.write_partial(out, Some(7))),
            json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata})
        );
    }

    #[test]
    fn metadata_alone_lacks_the_annotations_that_stand_for_fields() {
        let resource = bayplan_kinds::find("apps", "v1", "daemonsets").unwrap();
        let generation = "deprecated.daemonset.template.generation";
        for (annotations, alone) in [
            (
                json!({ generation: "1", "a": "b" }),
                json!({"name": "x", "resourceVersion": "7", "annotations": {"a": "b"}}),
            ),
            (json!({ generation: "1" }), json!({"name": "x", "resourceVersion": "7"})),
        ] {
            let encoded = Encoded::new(resource, &json!({"metadata": {"name": "x", "annotations": annotations}}));
            assert_eq!(text(|out| encoded.write_partial(out, Some(7)))["metadata"], alone);
            assert_eq!(text(|out| encoded.write_object(out, Some(7)))["metadata"]["annotations"], annotations);
        }
    }

    #[test]
    fn bytes_of_another_writer_are_read_too() {
        let resource = bayplan_kinds::find("", "v1", "configmaps").unwrap();
        let foreign = Bytes::from_static(
            b"{\"apiVersion\":\"v1\",\"data\":{\"a\":\"b\"},\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"x\"}}",
        );
        let encoded = Encoded::from_store(resource, foreign).unwrap();
        assert_eq!(encoded.decode(Some(3)).unwrap()["metadata"], json!({"name": "x", "resourceVersion": "3"}));
        assert!(Encoded::from_store(resource, Bytes::from_static(b"nonsense")).is_err());
    }
}
