//! Segments: the files of the log, each a header and the records of consecutive revisions.
//!
//! A record says up to which offset its segment was synced when it was appended. That decides what an unreadable
//! record is: if a later record knows the place to have been synced, stored data was damaged; otherwise the bytes
//! belong to the last append before a crash, which was never acknowledged, and are cut.

use bytes::Bytes;

use crate::Revision;
use crate::frame::{self, Fault, HEADER_BYTES, Header, u32_at, u64_at};
use crate::recovery::OpenError;

pub(crate) const MAGIC: [u8; 8] = *b"baypllog";

/// kind 1 | revision 8 | synced 8 | key length 4
const FIXED_BYTES: usize = 21;
const KIND_PUT: u8 = 1;
const KIND_DELETE: u8 = 2;
const KIND_SEAL: u8 = 3;

/// A record of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    /// The key has this value since this revision.
    Put { revision: Revision, key: &'a str, value: &'a [u8] },
    /// The key was deleted at this revision.
    Delete { revision: Revision, key: &'a str },
    /// The log was closed at this revision, everything before is synced.
    Seal { revision: Revision },
}

impl Record<'_> {
    pub(crate) fn revision(&self) -> Revision {
        match self {
            Record::Put { revision, .. } | Record::Delete { revision, .. } | Record::Seal { revision } => *revision,
        }
    }
}

/// The name of the segment whose first record has this revision.
pub(crate) fn name(first: Revision) -> String {
    format!("log-{first:020}.segment")
}

/// The first revision of the segment with this name.
pub(crate) fn first_revision(name: &str) -> Option<Revision> {
    name.strip_prefix("log-")?.strip_suffix(".segment").filter(|digits| digits.len() == 20)?.parse().ok()
}

/// Appends a record to a buffer; `synced` is how much of the segment was durable before.
pub(crate) fn push(buffer: &mut Vec<u8>, salt: u32, synced: u64, record: &Record<'_>) {
    let (kind, key, value): (u8, &str, &[u8]) = match record {
        Record::Put { key, value, .. } => (KIND_PUT, key, value),
        Record::Delete { key, .. } => (KIND_DELETE, key, &[]),
        Record::Seal { .. } => (KIND_SEAL, "", &[]),
    };
    frame::push(buffer, salt, |body| {
        body.push(kind);
        body.extend_from_slice(&record.revision().to_le_bytes());
        body.extend_from_slice(&synced.to_le_bytes());
        body.extend_from_slice(&(key.len() as u32).to_le_bytes());
        body.extend_from_slice(key.as_bytes());
        body.extend_from_slice(value);
    });
}

fn parse(body: &[u8]) -> Option<Record<'_>> {
    if body.len() < FIXED_BYTES {
        return None;
    }
    let revision = u64_at(body, 1);
    let (key, value) = body[FIXED_BYTES..].split_at_checked(u32_at(body, 17) as usize)?;
    let key = std::str::from_utf8(key).ok()?;
    match body[0] {
        KIND_PUT => Some(Record::Put { revision, key, value }),
        KIND_DELETE => value.is_empty().then_some(Record::Delete { revision, key }),
        KIND_SEAL => Some(Record::Seal { revision }),
        _ => None,
    }
}

/// A segment's bytes as recovery walks them.
pub(crate) struct Segment<'a> {
    pub(crate) name: &'a str,
    pub(crate) bytes: &'a Bytes,
    pub(crate) salt: u32,
}

impl<'a> Segment<'a> {
    /// Reads the header of a segment that must start with revision `first`.
    pub(crate) fn open(name: &'a str, bytes: &'a Bytes, first: Revision) -> Result<Self, OpenError> {
        let header = Header::decode(bytes, MAGIC)
            .map_err(|fault| OpenError::header(name, "the header of a log segment", fault))?;
        if header.revision != first {
            let expected = format!("a segment that starts with revision {first}");
            return Err(OpenError::corrupt(name, 0, expected, format!("one that starts with {}", header.revision)));
        }
        Ok(Segment { name, bytes, salt: header.salt })
    }

    /// Hands every record to `apply`, which returns what it expected if the record is not the next one.
    ///
    /// Returns how many bytes are valid: all of them, or in the `last` segment those before a torn tail.
    pub(crate) fn replay(
        &self,
        last: bool,
        mut apply: impl FnMut(Record<'_>) -> Result<(), String>,
    ) -> Result<usize, OpenError> {
        let mut at = HEADER_BYTES;
        while at < self.bytes.len() {
            let body = match frame::body(&self.bytes[at..], self.salt) {
                Ok(body) => body,
                Err(fault) if last => return self.torn(at, &fault).map(|()| at),
                Err(fault) => return Err(OpenError::corrupt(self.name, at, "a record".to_owned(), fault.to_string())),
            };
            let record = parse(body).ok_or_else(|| {
                OpenError::corrupt(self.name, at, "a record".to_owned(), "fields that fit no kind of record".to_owned())
            })?;
            let found = format!("a record of revision {}", record.revision());
            apply(record).map_err(|expected| OpenError::corrupt(self.name, at, expected, found))?;
            at += frame::ENVELOPE_BYTES + body.len();
        }
        Ok(at)
    }

    /// Whether the unreadable bytes from `at` on may be cut: no record after them says that they had been synced.
    fn torn(&self, at: usize, fault: &Fault) -> Result<(), OpenError> {
        for later in at + 1..self.bytes.len() {
            let rest = &self.bytes[later..];
            if rest.len() < frame::ENVELOPE_BYTES + FIXED_BYTES {
                break;
            }
            // The offset is looked at before the checksum: it rules out almost every place for the price of one
            // comparison.
            let synced = u64_at(rest, frame::ENVELOPE_BYTES + 9);
            if synced <= at as u64 || synced > later as u64 {
                continue;
            }
            let Some(record) = frame::body(rest, self.salt).ok().and_then(parse) else { continue };
            let found =
                format!("{fault}, though the record of revision {} at {later} was stored after it", record.revision());
            return Err(OpenError::corrupt(self.name, at, "a record".to_owned(), found));
        }
        Ok(())
    }
}
