//! An etcd snapshot or database file: the objects of a cluster that may not run any more.
//!
//! ```text
//!   bbolt file: pages ─ tree of the bucket "key" ─▶ revision → mvccpb.KeyValue { key, value }
//!                                                    the latest revision of each key ─▶ object, as it was stored
//! ```
//!
//! Only what is reached from the newest meta page is read; pages that were freed hold what was deleted.

mod bbolt;
#[cfg(test)]
mod stored_values;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io::{Read, Seek, SeekFrom};

use aws_lc_rs::digest;
use bayplan_kinds::codec::{self, Encoding, FieldValidation};
use bayplan_kinds::{GroupVersionKind, Scheme};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::to_raw_value;

use crate::attempts;
use crate::cluster_objects::{Origin, OriginKind};
use crate::collector::Collector;
use crate::document::Sink;
use crate::resources::version_of;

pub(crate) use bbolt::is_database;

/// The bucket of etcd's revisions.
const REVISIONS: &[u8] = b"key";

/// `etcdctl snapshot save` appends a SHA-256. A database is a whole number of blocks of this size.
const CHECKSUM_BYTES: u64 = 32;
const BLOCK_BYTES: u64 = 512;

/// A revision: `main`, `_`, `sub`, and `t` for a deletion.
const REVISION_BYTES: usize = 17;

/// The latest stored version of an object.
struct Stored {
    revision: (u64, u64),
    value: Vec<u8>,
}

/// Reads the objects of a database. The error says where it is broken; what was read before that is collected.
pub(crate) fn read(file: &mut (impl Read + Seek), collector: &mut Collector) -> Result<(), String> {
    let length = file.seek(SeekFrom::End(0)).map_err(|error| error.to_string())?;
    let length = check_sum(file, length, collector).map_err(|error| error.to_string())?;
    let mut latest: HashMap<Vec<u8>, Stored> = HashMap::new();
    let mut newest = 0;
    let walked = bbolt::walk(file, length, REVISIONS, &mut |key, value| {
        let Some(revision) = revision(key) else { return };
        newest = newest.max(revision.0);
        let Some(pair) = KeyValue::decode(value) else { return };
        if latest.get(pair.key).is_some_and(|known| known.revision > revision) {
            return;
        }
        if key.len() > REVISION_BYTES {
            latest.remove(pair.key);
        } else if encoding_of(pair.value).is_some() {
            latest.insert(pair.key.to_vec(), Stored { revision, value: pair.value.to_vec() });
        }
    });
    collector.origin =
        Origin { kind: OriginKind::Etcd, time: None, resource_version: (newest > 0).then(|| newest.to_string()) };
    collect(latest, walked.is_ok(), collector);
    walked
}

/// Hands on the objects by their keys.
fn collect(latest: HashMap<Vec<u8>, Stored>, complete: bool, collector: &mut Collector) {
    let mut latest: Vec<(Vec<u8>, Stored)> = latest.into_iter().collect();
    latest.sort_by(|(one, _), (other, _)| one.cmp(other));
    for (key, stored) in latest {
        match object(&stored) {
            Ok(object) => collector.object(object),
            Err(error) => {
                let key = String::from_utf8_lossy(&key);
                collector.notes.add(format!("{key} cannot be read and is left out: {error}"));
            }
        }
    }
    if complete {
        // A database holds all that there was.
        crate::RESOURCES.iter().for_each(|resource| collector.list(resource));
    }
}

/// Compares the checksum at the end, if there is one, and returns the length of the database.
fn check_sum(file: &mut (impl Read + Seek), length: u64, collector: &mut Collector) -> std::io::Result<u64> {
    if length % BLOCK_BYTES != CHECKSUM_BYTES {
        return Ok(length);
    }
    let length = length - CHECKSUM_BYTES;
    file.seek(SeekFrom::Start(0))?;
    let mut context = digest::Context::new(&digest::SHA256);
    let mut left = length;
    let mut buffer = vec![0; 1 << 20];
    while left > 0 {
        let room = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let count = file.read(&mut buffer[..room])?;
        if count == 0 {
            break;
        }
        context.update(&buffer[..count]);
        left -= count as u64;
    }
    let mut stored = Vec::new();
    file.take(CHECKSUM_BYTES).read_to_end(&mut stored)?;
    if context.finish().as_ref() != stored {
        collector.notes.add("the etcd snapshot's checksum is wrong: it is damaged or was changed".to_owned());
    }
    Ok(length)
}

fn revision(key: &[u8]) -> Option<(u64, u64)> {
    let main = u64::from_be_bytes(key.get(..8)?.try_into().ok()?);
    let sub = u64::from_be_bytes(key.get(9..REVISION_BYTES)?.try_into().ok()?);
    (key.get(8) == Some(&b'_')).then_some((main, sub))
}

/// `mvccpb.KeyValue`: key is field 1, value field 5; all others are numbers.
struct KeyValue<'b> {
    key: &'b [u8],
    value: &'b [u8],
}

impl<'b> KeyValue<'b> {
    fn decode(mut bytes: &'b [u8]) -> Option<Self> {
        let mut pair = KeyValue { key: &[], value: &[] };
        while !bytes.is_empty() {
            let tag = varint(&mut bytes)?;
            match tag & 7 {
                0 => _ = varint(&mut bytes)?,
                2 => {
                    let length = usize::try_from(varint(&mut bytes)?).ok()?;
                    let (content, rest) = bytes.split_at_checked(length)?;
                    bytes = rest;
                    match tag >> 3 {
                        1 => pair.key = content,
                        5 => pair.value = content,
                        _ => {}
                    }
                }
                _ => return None,
            }
        }
        (!pair.key.is_empty()).then_some(pair)
    }
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[derive(Deserialize)]
struct TypeMeta {
    #[serde(default, rename = "apiVersion")]
    api_version: String,
    #[serde(default)]
    kind: String,
}

/// How a stored object is encoded; none for what nobody reads.
fn encoding_of(value: &[u8]) -> Option<Encoding> {
    if let Some((api_version, kind)) = codec::protobuf_kind(value) {
        return is_read(api_version, kind, value).then_some(Encoding::Protobuf);
    }
    if value.first() != Some(&b'{') {
        return None;
    }
    let own: TypeMeta = serde_json::from_slice(value).ok()?;
    is_read(&own.api_version, &own.kind, value).then_some(Encoding::Json)
}

/// Whether an object is one that decisions read, or an event about a failed attempt: most events are others.
fn is_read(api_version: &str, kind: &str, value: &[u8]) -> bool {
    let reason = attempts::REASON.as_bytes();
    version_of(api_version, kind).is_some()
        || (attempts::is_event(api_version, kind) && value.windows(reason.len()).any(|part| part == reason))
}

/// The object as the API server would serve it: its `resourceVersion` is the revision of its last write.
fn object(stored: &Stored) -> Result<Box<serde_json::value::RawValue>, String> {
    let mut object: Value = match encoding_of(&stored.value).ok_or("it is no object")? {
        Encoding::Protobuf => {
            let (api_version, kind) = codec::protobuf_kind(&stored.value).ok_or("it is no object")?;
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            let kind = GroupVersionKind { group, version, kind };
            let decoded = codec::decode(kind, Encoding::Protobuf, &stored.value, FieldValidation::Ignore);
            let mut object = decoded.map_err(|status| status.message)?.object;
            // What is read from the store is defaulted, as by an API server: older servers stored less.
            if let Some(kind) = Scheme::built_in().by_kind(group, version, kind.kind) {
                kind.default(&mut object);
            }
            object
        }
        _ => serde_json::from_slice(&stored.value).map_err(|error| error.to_string())?,
    };
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("resourceVersion".to_owned(), stored.revision.0.to_string().into());
    }
    to_raw_value(&object).map_err(|error| error.to_string())
}
