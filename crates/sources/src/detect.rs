//! Tells what a file is by its first bytes.

use crate::reader::Given;

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
    /// None of these.
    Unknown,
}

/// The form of a file that begins like this.
pub(crate) fn form_of(head: &[u8], given: Given) -> Form {
    let text = head.strip_prefix("\u{feff}".as_bytes()).unwrap_or(head);
    match text.iter().find(|byte| !byte.is_ascii_whitespace()) {
        None => Form::Empty,
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
