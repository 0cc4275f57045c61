//! Tells what a file is by its first bytes.

use crate::archive::tar;
use crate::reader::Given;
use crate::{etcd, snapshot};

/// How much of a file is looked at. Comments may stand before a YAML document.
pub(crate) const HEAD_BYTES: u64 = 8 << 10;

/// The forms of sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Nothing but white space.
    Empty,
    /// One or several JSON documents.
    Json,
    /// One or several YAML documents.
    Yaml,
    /// A gzip stream, of whatever form.
    Gzip,
    /// A tar archive.
    Tar,
    /// A ZIP archive.
    Zip,
    /// What `bayplan snapshot` wrote, decompressed.
    Snapshot,
    /// A database of etcd's.
    Etcd,
    /// None of these.
    Unknown,
}

/// The form of a file that begins like this.
pub(crate) fn form_of(head: &[u8], given: Given) -> Form {
    if head.starts_with(&[0x1f, 0x8b]) {
        return Form::Gzip;
    }
    if head.starts_with(b"PK\x03\x04") {
        return Form::Zip;
    }
    if etcd::is_database(head) {
        return Form::Etcd;
    }
    if tar::is_header(head) {
        return Form::Tar;
    }
    if snapshot::is_snapshot(head) {
        return Form::Snapshot;
    }
    let text = head.strip_prefix("\u{feff}".as_bytes()).unwrap_or(head);
    match text.iter().find(|byte| !byte.is_ascii_whitespace()) {
        None => Form::Empty,
        // An empty list as Go writes it.
        Some(_) if text.trim_ascii() == b"null" => Form::Empty,
        Some(b'{' | b'[') => Form::Json,
        Some(_) if text.contains(&0) => Form::Unknown,
        // Among other files a log may well be YAML by its letters; objects say what they are.
        Some(_) if given == Given::Directly || says_kind(text) => Form::Yaml,
        Some(_) => Form::Unknown,
    }
}

/// Whether a line begins as the lines of objects and lists do.
fn says_kind(text: &[u8]) -> bool {
    let keys: [&[u8]; 5] = [b"apiVersion:", b"kind:", b"items:", b"metadata:", b"- apiVersion:"];
    text.split(|byte| *byte == b'\n').any(|line| keys.iter().any(|key| line.starts_with(key)))
}
