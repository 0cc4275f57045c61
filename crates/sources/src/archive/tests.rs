//! Archives that support tools write, and archives that nobody should send.

use std::io::Write;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder};

use crate::{ClusterObjects, Given, OriginKind, SourceReader};

const NODES: &str = "apiVersion: v1\nkind: NodeList\nitems:\n- metadata:\n    name: n1\n";
const PODS: &str = r#"{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"namespace":"a","name":"p"}}]}"#;

fn read(bytes: &[u8]) -> ClusterObjects {
    let mut reader = SourceReader::default();
    reader.read("x", &mut &*bytes, Given::Directly);
    reader.finish()
}

fn names(objects: &ClusterObjects) -> Vec<&str> {
    objects.objects.iter().map(|object| &*object.name).collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn entry(name: &str, kind: u8, content: &[u8]) -> Vec<u8> {
    let mut header = [0; 512];
    header[..name.len().min(100)].copy_from_slice(&name.as_bytes()[..name.len().min(100)]);
    header[124..136].copy_from_slice(format!("{:011o}\0", content.len()).as_bytes());
    header[156] = kind;
    header[257..265].copy_from_slice(b"ustar\x0000");
    let mut out = header.to_vec();
    out.extend_from_slice(content);
    out.resize(out.len().next_multiple_of(512), 0);
    out
}

fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out: Vec<u8> = files.iter().flat_map(|(name, content)| entry(name, b'0', content)).collect();
    out.extend_from_slice(&[0; 1024]);
    out
}

/// A ZIP as Go's writer makes it: sizes after the content.
fn zip(name: &str, content: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(content).unwrap();
    let packed = encoder.finish().unwrap();
    let mut out = b"PK\x03\x04\x14\0\x08\0\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0".to_vec();
    out.extend_from_slice(&u16::try_from(name.len()).unwrap().to_le_bytes());
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(&packed);
    out.extend_from_slice(b"PK\x07\x08");
    out.extend_from_slice(&[0; 12]);
    out.extend_from_slice(b"PK\x01\x02and the rest of the index");
    out
}

#[test]
fn archives_are_read_whatever_they_lie_in() {
    let bundle = tar(&[
        ("must-gather/cluster-scoped-resources/core/nodes.yaml", NODES.as_bytes()),
        ("must-gather/version", b"must-gather 4.16"),
        ("must-gather/pods/logs/current.log", b"{\"level\":\"info\"}\n{\"level\""),
        ("bundle/cluster-resources/pods/a.json", PODS.as_bytes()),
    ]);
    for (name, bytes) in [
        ("tar", bundle.clone()),
        ("tar.gz", gzip(&bundle)),
        ("gz in tar.gz", gzip(&tar(&[("a.yaml.gz", &gzip(NODES.as_bytes())), ("b.json", PODS.as_bytes())]))),
        ("zip", zip("b.tar", &bundle)),
    ] {
        let objects = read(&bytes);
        assert_eq!(names(&objects), ["n1", "p"], "{name}");
        assert_eq!(objects.notes, Vec::<String>::new(), "{name}");
        assert_eq!(objects.origin.kind, OriginKind::Bundle);
        assert!(objects.listed.contains("pods"));
    }
    assert_eq!(names(&read(&gzip(PODS.as_bytes()))), ["p"]);
}

#[test]
fn long_names_are_read_in_both_forms() {
    let long = format!("{}/nodes.yaml", "d".repeat(120));
    let mut gnu = entry("././@LongLink", b'L', format!("{long}\0").as_bytes());
    gnu.extend(entry(&long[..99], b'0', b"{\"apiVersion\":\"v1\",\"kind\":\"Node\""));
    let attributes = format!("{} path={long}\n", long.len() + 10);
    let mut posix = entry("PaxHeaders/x", b'x', attributes.as_bytes());
    posix.extend(entry("short", b'0', b"{\"apiVersion\":\"v1\",\"kind\":\"Node\""));
    for archive in [gnu, posix] {
        let notes = read(&archive).notes;
        assert!(notes[0].starts_with(&format!("x:{long} is left out: ")), "{notes:?}");
    }
}

#[test]
fn a_cut_archive_gives_what_came_before_the_cut() {
    let whole = tar(&[("n.yaml", NODES.as_bytes()), ("p.json", PODS.as_bytes())]);
    let cut = &whole[..1024 + 512 + 30];
    let objects = read(cut);
    assert_eq!(names(&objects), ["n1"]);
    assert!(objects.notes.iter().any(|note| note.contains("the archive was cut")), "{:?}", objects.notes);
    let packed = gzip(&whole);
    let objects = read(&packed[..packed.len() - 20]);
    assert!(!objects.notes.is_empty());
    assert!(!read(&zip("p.json", PODS.as_bytes())[..40]).notes.is_empty());
}

#[test]
fn names_that_climb_out_are_only_names() {
    let archive = tar(&[("../../etc/cron.d/n.yaml", NODES.as_bytes()), ("/root/p.json", PODS.as_bytes())]);
    let objects = read(&archive);
    assert_eq!(names(&objects), ["n1", "p"]);
    let expected = "x holds names that lead out of it, such as \"../../etc/cron.d/n.yaml\"; nothing is unpacked";
    assert_eq!(objects.notes, [expected]);
}

#[test]
fn bombs_are_refused_by_name() {
    let mut endless = GzEncoder::new(Vec::new(), Compression::best());
    let separators = "---\n".repeat(1 << 18);
    for _ in 0..80 {
        endless.write_all(separators.as_bytes()).unwrap();
    }
    let bomb = endless.finish().unwrap();
    let objects = read(&bomb);
    assert!(objects.notes[0].contains("more than 500 times as large"), "{:?}", objects.notes);
    let objects = read(&tar(&[("bomb.yaml.gz", &bomb), ("p.json", PODS.as_bytes())]));
    assert_eq!(names(&objects), ["p"], "what lies beside a bomb is read");

    let mut nested = PODS.as_bytes().to_vec();
    for _ in 0..8 {
        nested = gzip(&nested);
    }
    let objects = read(&nested);
    assert_eq!(objects.notes, ["x is left out: archives lie in each other more than 4 deep"]);
}

#[test]
fn broken_archives_are_refused_in_words() {
    let mut wrong_size = entry("a", b'0', b"x");
    wrong_size[124..136].copy_from_slice(b"zzzzzzzzzzz\0");
    let mut negative = entry("a", b'0', b"x");
    negative[124..136].copy_from_slice(&[0xff; 12]);
    let mut huge = entry("a.yaml", b'0', NODES.as_bytes());
    huge[124..136].copy_from_slice(&[0x80, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    let mut encrypted = zip("a", b"x");
    encrypted[6] |= 1;
    for (bytes, text) in [
        (wrong_size, "a size is none"),
        (negative, "a size is none"),
        (huge, "the archive was cut"),
        (encrypted, "is encrypted"),
        ([entry("a", b'0', b""), vec![7; 512]].concat(), "a header is none"),
    ] {
        let notes = read(&bytes).notes;
        assert!(notes.iter().any(|note| note.contains(text)), "{text}: {notes:?}");
    }
}
