//! The recorded etcd of an upstream cluster, whole and damaged.

use std::collections::BTreeMap;
use std::io::{Cursor, Read};

use flate2::read::GzDecoder;
use serde_json::Value;

use crate::{ClusterObjects, Given, OriginKind, RESOURCES, SourceReader};

pub(super) const PACKED: &[u8] = include_bytes!("../../tests/etcd/snapshot.db.gz");
pub(super) const SERVED: &[u8] = include_bytes!("../../tests/etcd/objects.jsonl.gz");

pub(super) fn database() -> Vec<u8> {
    let mut bytes = Vec::new();
    GzDecoder::new(PACKED).read_to_end(&mut bytes).unwrap();
    bytes
}

fn read(bytes: Vec<u8>) -> ClusterObjects {
    let mut reader = SourceReader::default();
    reader.read_seekable("x", &mut Cursor::new(bytes), Given::Directly).unwrap();
    reader.finish()
}

type Named = BTreeMap<(String, String, String), Value>;

fn named(object: Value) -> ((String, String, String), Value) {
    let text = |at: &str| object.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
    ((text("/kind"), text("/metadata/namespace"), text("/metadata/name")), object)
}

fn served() -> Named {
    let mut text = String::new();
    GzDecoder::new(SERVED).read_to_string(&mut text).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["object"].take());
    let known = |object: &Value| {
        let text = |at: &str| object[at].as_str().unwrap_or_default();
        crate::resource_of(text("apiVersion"), text("kind")).is_some()
    };
    lines.filter(known).map(named).collect()
}

#[test]
fn the_recorded_database_holds_what_the_api_served() {
    let objects = read(database());
    assert_eq!(objects.notes, Vec::<String>::new());
    assert_eq!(objects.origin.kind, OriginKind::Etcd);
    assert_eq!(objects.missing(), Vec::<&str>::new());
    let stored: Named =
        objects.objects.iter().map(|object| named(serde_json::from_str(object.json.get()).unwrap())).collect();
    let served = served();
    assert_eq!(stored.keys().collect::<Vec<_>>(), served.keys().collect::<Vec<_>>());
    assert!(stored.len() > 150, "{}", stored.len());
    for (name, object) in &served {
        assert_eq!(&stored[name], object, "{name:?}");
    }
    let pending = served.values().filter(|o| o["kind"] == "Pod" && o["spec"]["nodeName"].is_null()).count();
    assert_eq!(pending, 15);
    assert!(RESOURCES.iter().filter(|r| served.keys().any(|(kind, ..)| kind == r.kind)).count() > 8);
}

#[test]
fn a_compressed_database_is_read_from_a_stream() {
    let mut reader = SourceReader::default();
    reader.read("x", &mut &*PACKED, Given::Directly);
    assert_eq!(reader.finish().objects.len(), served().len());
}

#[test]
fn a_database_without_a_checksum_is_read_and_a_wrong_one_is_noted() {
    let mut bytes = database();
    bytes.truncate(bytes.len() - 32);
    assert_eq!(read(bytes.clone()).notes, Vec::<String>::new());
    bytes.extend_from_slice(&[7; 32]);
    let objects = read(bytes);
    assert_eq!(objects.notes, ["the etcd snapshot's checksum is wrong: it is damaged or was changed"]);
    assert_eq!(objects.objects.len(), served().len());
}

#[test]
fn damage_is_one_line_and_never_a_panic() {
    let whole = database();
    let cut = read(whole[..whole.len() / 2].to_vec());
    assert!(cut.notes.iter().any(|note| note.contains("was cut")), "{:?}", cut.notes);
    for (from, to) in [(16, 40), (4096, 8192), (0, 16), (8192, 8208)] {
        let mut bytes = whole.clone();
        bytes[from..to].fill(0xff);
        let objects = read(bytes);
        assert!(objects.notes.len() < 10, "{:?}", objects.notes);
    }
    let mut seed = 1_u64;
    for _ in 0..200 {
        let mut bytes = whole.clone();
        for _ in 0..20 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = usize::try_from(seed >> 33).unwrap() % bytes.len();
            bytes[at] ^= u8::try_from(seed >> 24 & 0xff).unwrap();
        }
        read(bytes);
    }
}
