//! Values as kube-apiserver stores them, and the JSON that the registry keeps.
//!
//! ```text
//!   "k8s\0" + protobuf ─┐                                             ┌─▶ protobuf in the envelope
//!   JSON of any writer ─┴─ read ─▶ {"kind":…,"apiVersion":…,"metadata":{…},…} ─ write ─┴─▶ JSON
//! ```
//!
//! The key says which kind a value is of. What is read has the storage version of that kind, canonical and defaulted,
//! as upstream decodes it: older servers stored less. An older version with the same fields is read as the storage
//! version; any other is an error that names it.
//!
//! Fields that the schema does not know are dropped when a value is read, as by every kube-apiserver of the schema's
//! version: its generated code keeps no unknown protobuf fields, and its JSON decoder no unknown members. The stored
//! value itself keeps them until somebody writes the object. Managed fields are known, whoever wrote them.
//!
//! Values under keys of kinds that are not served are passed through as they are.

mod key;
mod range;
#[cfg(test)]
mod tests;
mod versions;

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::codec::{self, FieldValidation};
use crate::group_version_kind::GroupVersionKind;
use crate::kind::Kind;

use key::{Content, content_of};
pub use key::{NODE_PORTS_KEY, SERVER_LEASES, kind_of_key};

/// The first bytes of a value that an encryption provider of kube-apiserver wrote.
pub const ENCRYPTED: &[u8] = b"k8s:enc:";

/// The form in which values are written; both are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoredForm {
    /// JSON as the registry has it: nothing to do for a write.
    #[default]
    Json,
    /// Protobuf in upstream's envelope: a third smaller, and what kube-apiserver writes by default.
    Protobuf,
}

/// Reads stored values, and writes them in one form.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoredValues {
    form: StoredForm,
}

impl StoredValues {
    /// Writes values in this form.
    pub fn new(form: StoredForm) -> StoredValues {
        StoredValues { form }
    }

    /// The registry's JSON of the value that is stored under a key. The error says why it cannot be read; it does not
    /// name the key.
    pub fn read(&self, key: &str, stored: Bytes) -> Result<Bytes, String> {
        let kind = match content_of(key) {
            Content::Foreign => return Ok(stored),
            Content::Range => return range::read(&stored).map(Bytes::from),
            Content::Object(kind) => kind,
        };
        let mut object = match stored.first() {
            Some(b'{') => read_json(kind, &stored)?,
            _ => read_protobuf(kind, &stored)?,
        };
        kind.default(&mut object);
        Ok(Bytes::from(layout(kind, &object)))
    }

    /// What is stored under a key for the registry's JSON.
    pub fn write(&self, key: &str, value: Bytes) -> Result<Bytes, String> {
        if self.form == StoredForm::Json {
            return Ok(value);
        }
        let kind = match content_of(key) {
            Content::Foreign => return Ok(value),
            Content::Range => return range::write(&value).map(Bytes::from),
            Content::Object(kind) => kind,
        };
        let object: Map<String, Value> =
            serde_json::from_slice(&value).map_err(|error| format!("it is no JSON object: {error}"))?;
        codec::write_stored(kind.group_version_kind(), &object).map(Bytes::from)
    }
}

/// What is wrong with a value that is neither protobuf nor JSON.
fn unreadable(stored: &[u8]) -> String {
    if stored.starts_with(ENCRYPTED) {
        let named = stored.splitn(6, |byte| *byte == b':').take(5).collect::<Vec<_>>().join(&b':');
        return format!("it is encrypted ({}), and no key for it is configured", String::from_utf8_lossy(&named));
    }
    "it is neither protobuf in Kubernetes' envelope nor JSON".to_owned()
}

fn read_protobuf(kind: &'static Kind, stored: &[u8]) -> Result<Value, String> {
    let (api_version, own) = codec::protobuf_kind(stored).ok_or_else(|| unreadable(stored))?;
    let source = versions::source(kind, api_version, own)?;
    let mut object = codec::read_stored(source.group_version_kind(), stored)?;
    source.convert_to_storage(&mut object);
    Ok(object)
}

fn read_json(kind: &'static Kind, stored: &[u8]) -> Result<Value, String> {
    let mut object: Value = serde_json::from_slice(stored).map_err(|error| format!("it is no JSON: {error}"))?;
    let text = |name: &str| object[name].as_str().unwrap_or_default();
    let source = versions::source(kind, text("apiVersion"), text("kind"))?;
    let expected: GroupVersionKind<'_> = source.group_version_kind();
    object["apiVersion"] = expected.api_version().into();
    let decoded = codec::canonical(expected, object, FieldValidation::Ignore).map_err(|status| status.message)?;
    let mut object = decoded.object;
    source.convert_to_storage(&mut object);
    Ok(object)
}

/// The JSON of an object as the registry lays it out: kind, version and metadata first, without what is not stored.
fn layout(kind: &Kind, object: &Value) -> Vec<u8> {
    let empty = Map::new();
    let mut out = Vec::with_capacity(1024);
    out.extend_from_slice(b"{\"kind\":\"");
    out.extend_from_slice(kind.kind.as_bytes());
    out.extend_from_slice(b"\",\"apiVersion\":\"");
    out.extend_from_slice(kind.api_version().as_bytes());
    out.extend_from_slice(b"\",\"metadata\":{");
    let metadata = object["metadata"].as_object().unwrap_or(&empty);
    let kept = metadata.iter().filter(|(key, _)| !matches!(key.as_str(), "resourceVersion" | "selfLink"));
    members(&mut out, kept, false);
    out.push(b'}');
    let rest = object.as_object().unwrap_or(&empty).iter();
    members(&mut out, rest.filter(|(key, _)| !matches!(key.as_str(), "apiVersion" | "kind" | "metadata")), true);
    out.push(b'}');
    out
}

fn members<'a>(out: &mut Vec<u8>, members: impl Iterator<Item = (&'a String, &'a Value)>, mut comma: bool) {
    for (key, value) in members {
        if comma {
            out.push(b',');
        }
        comma = true;
        serde_json::to_writer(&mut *out, key).expect("a string has a JSON form");
        out.push(b':');
        serde_json::to_writer(&mut *out, value).expect("a JSON value has a JSON form");
    }
}
