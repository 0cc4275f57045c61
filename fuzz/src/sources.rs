//! Sources of clusters: any file, databases of etcd's, and the lines of snapshots.

use std::collections::BTreeSet;
use std::io::Cursor;

use bayplan_sources::{ClusterObjects, Given, Redaction, SourceReader, manifests, write_snapshot};

use crate::bounded;

/// Bytes allocated for each byte of a source: as text, as YAML, as a value and as text again.
const FACTOR: u64 = 8192;

/// Buffers of readers and compressors, whatever the input.
const BUFFERS: usize = 4096;

/// A file of any form, on its own and as one among others.
pub(crate) fn any(data: &[u8]) {
    let read = |given| {
        let mut reader = SourceReader::default();
        reader.read("x", &mut &*data, given);
        reader.finish()
    };
    // What is compressed may well be a thousand times as large; the reader's own limits hold there.
    let compressed = data.starts_with(&[0x1f, 0x8b]) || data.windows(4).any(|window| window == b"PK\x03\x04");
    let objects = match compressed {
        true => read(Given::Directly),
        false => bounded::work(data.len() + BUFFERS, FACTOR, "a source", || read(Given::Directly)),
    };
    check(data, &objects);
    let within = read(Given::Within);
    assert!(within.objects.len() <= objects.objects.len(), "a file holds more among others than on its own");
    if let Err(error) = manifests(data) {
        bounded::text(data.len(), "manifests", &error.to_string());
    }
}

/// A database, with and without what says that it is one.
pub(crate) fn etcd(data: &[u8]) {
    let mut database = data.to_vec();
    if database.len() > 24 {
        database[16..24].copy_from_slice(&[0xed, 0xda, 0x0c, 0xed, 2, 0, 0, 0]);
    }
    for bytes in [data, &database] {
        let objects = bounded::work(bytes.len() + BUFFERS, FACTOR, "a database", || {
            let mut reader = SourceReader::default();
            reader.read_seekable("x", &mut Cursor::new(bytes), Given::Directly).expect("memory can be read");
            reader.finish()
        });
        check(bytes, &objects);
    }
}

/// The lines of a snapshot: what is read of them is in the next snapshot too.
pub(crate) fn snapshot(data: &[u8]) {
    let mut lines = br#"{"apiVersion":"bayplan.dev/v1","kind":"Snapshot","format":1}"#.to_vec();
    lines.push(b'\n');
    lines.extend_from_slice(data);
    let read = |bytes: &[u8]| {
        let mut reader = SourceReader::default();
        reader.read("x", &mut &*bytes, Given::Directly);
        reader.finish()
    };
    let objects = bounded::work(lines.len() + BUFFERS, FACTOR, "a snapshot", || read(&lines));
    check(&lines, &objects);
    let mut names = BTreeSet::new();
    let are_unique = objects.objects.iter().all(|one| names.insert((one.resource.name, &one.namespace, &one.name)));
    for redaction in [Redaction::None, Redaction::Names] {
        let mut again = Vec::new();
        let count = write_snapshot(&objects, redaction, &mut again).expect("memory takes everything");
        let next = read(&again);
        // What two objects of one name differ in may be what a snapshot does not hold: then they are copies.
        if !are_unique {
            assert!(next.objects.len() <= count, "{:?}", next.notes);
            continue;
        }
        assert_eq!(next.objects.len(), count, "{:?}", next.notes);
        if redaction == Redaction::None {
            let same = objects.objects.iter().filter(|object| is_value(object.json.get())).map(|object| &object.name);
            assert!(next.objects.iter().map(|object| &object.name).eq(same), "another order");
        }
    }
}

/// Whether an object can be a value; what nests deeper than that is left out of snapshots.
fn is_value(text: &str) -> bool {
    serde_json::from_str::<serde_json::Value>(text).is_ok()
}

fn check(data: &[u8], objects: &ClusterObjects) {
    for note in &objects.notes {
        bounded::text(data.len(), "a source", note);
        assert!(!note.trim().is_empty());
    }
    for object in &objects.objects {
        assert!(!object.name.is_empty());
        assert_eq!(object.namespace.is_empty(), !object.resource.namespaced, "{object:?}");
    }
}
