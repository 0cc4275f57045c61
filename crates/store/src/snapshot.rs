//! Snapshots: the state at the oldest readable revision, which stands in for the segments before it.

use std::io::{self, BufReader, Read};
use std::sync::Arc;

use bytes::Bytes;

use crate::disk::Disk;
use crate::frame::{self, HEADER_BYTES, Header, u32_at, u64_at};
use crate::recovery::OpenError;
use crate::{Entry, Index, Revision};

const MAGIC: [u8; 8] = *b"bayplsnp";
/// The kind of a body that holds an entry.
pub(crate) const KIND_ENTRY: u8 = 1;
/// The kind of the last body.
pub(crate) const KIND_END: u8 = 2;
/// kind 1 | create revision 8 | mod revision 8 | key length 4
const FIXED_BYTES: usize = 21;
/// kind 1 | entries 8
const END_BYTES: usize = 9;
/// A snapshot is written in pieces of about this size.
pub(crate) const WRITE_BYTES: usize = 1 << 20;
/// What a file is called until it is complete.
pub(crate) const TEMPORARY_SUFFIX: &str = ".tmp";

/// The name of the snapshot of a revision.
pub(crate) fn name(revision: Revision) -> String {
    format!("snapshot-{revision:020}.state")
}

/// The revision of the snapshot with this name.
pub(crate) fn revision(name: &str) -> Option<Revision> {
    name.strip_prefix("snapshot-")?.strip_suffix(".state").filter(|digits| digits.len() == 20)?.parse().ok()
}

/// Whether this is the name of a snapshot that is not complete.
pub(crate) fn is_unfinished(name: &str) -> bool {
    name.strip_suffix(TEMPORARY_SUFFIX).and_then(revision).is_some()
}

/// Writes a snapshot; `more` returns the next entries in key order, `None` after the last.
///
/// It gets its name when it is complete and durable, so a snapshot with a name is never half of one.
pub(crate) fn write(
    disk: &dyn Disk,
    revision: Revision,
    mut more: impl FnMut() -> io::Result<Option<Vec<Entry>>>,
) -> io::Result<()> {
    let name = name(revision);
    let temporary = format!("{name}{TEMPORARY_SUFFIX}");
    let salt = frame::salt();
    let mut file = disk.create(&temporary)?;
    let mut buffer = Header { magic: MAGIC, salt, revision }.encode().to_vec();
    let mut count = 0u64;
    while let Some(entries) = more()? {
        for entry in &entries {
            push_entry(&mut buffer, salt, entry);
            count += 1;
            if buffer.len() >= WRITE_BYTES {
                file.append(&buffer)?;
                buffer.clear();
            }
        }
    }
    frame::push(&mut buffer, salt, |body| {
        body.push(KIND_END);
        body.extend_from_slice(&count.to_le_bytes());
    });
    file.append(&buffer)?;
    file.sync()?;
    disk.rename(&temporary, &name)?;
    disk.sync_dir()
}

/// Appends the frame of an entry.
pub(crate) fn push_entry(buffer: &mut Vec<u8>, salt: u32, entry: &Entry) {
    frame::push(buffer, salt, |body| {
        body.push(KIND_ENTRY);
        body.extend_from_slice(&entry.create_revision.to_le_bytes());
        body.extend_from_slice(&entry.mod_revision.to_le_bytes());
        body.extend_from_slice(&(entry.key.len() as u32).to_le_bytes());
        body.extend_from_slice(entry.key.as_bytes());
        body.extend_from_slice(&entry.value);
    });
}

/// Reads the snapshot of a revision into an index.
pub(crate) fn read(disk: &dyn Disk, revision: Revision) -> Result<Index, OpenError> {
    let name = name(revision);
    let unreadable = |source| OpenError::Io { step: "read", file: name.clone(), source };
    let mut reader = BufReader::with_capacity(WRITE_BYTES, disk.read(&name).map_err(unreadable)?);
    let mut header = Vec::with_capacity(HEADER_BYTES);
    reader.by_ref().take(HEADER_BYTES as u64).read_to_end(&mut header).map_err(unreadable)?;
    let header =
        Header::decode(&header, MAGIC).map_err(|fault| OpenError::header(&name, "the header of a snapshot", fault))?;
    if header.revision != revision {
        let found = format!("one of revision {}", header.revision);
        return Err(OpenError::corrupt(&name, 0, format!("a snapshot of revision {revision}"), found));
    }
    let mut index = Index::new(revision);
    let mut at = HEADER_BYTES;
    let (mut count, mut previous) = (0u64, None::<Arc<str>>);
    loop {
        let corrupt =
            |found: String| OpenError::corrupt(&name, at, "the next entry in key order or the end".to_owned(), found);
        let body = match read_body(&mut reader, header.salt) {
            Ok(Ok(body)) => body,
            Ok(Err(fault)) => return Err(corrupt(fault.to_string())),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(corrupt("the file ends".to_owned()));
            }
            Err(error) => return Err(unreadable(error)),
        };
        if body[0] == KIND_END && body.len() == END_BYTES {
            let expected = u64_at(&body, 1);
            if expected != count {
                return Err(corrupt(format!("the end after {count} of {expected} entries")));
            }
            break;
        }
        let entry =
            parse_entry(&body).filter(|entry| entry.mod_revision <= revision && previous.as_ref() < Some(&entry.key));
        let entry = entry.ok_or_else(|| corrupt("fields that fit no entry".to_owned()))?;
        previous = Some(entry.key.clone());
        count += 1;
        at += frame::ENVELOPE_BYTES + body.len();
        index.load(entry);
    }
    at += frame::ENVELOPE_BYTES + END_BYTES;
    match reader.read(&mut [0]).map_err(unreadable)? {
        0 => Ok(index),
        _ => Err(OpenError::corrupt(&name, at, "the end of the file".to_owned(), "more bytes".to_owned())),
    }
}

/// The body of the next frame, or what is wrong with it.
pub(crate) fn read_body(reader: &mut impl Read, salt: u32) -> io::Result<Result<Vec<u8>, frame::Fault>> {
    let mut envelope = [0; frame::ENVELOPE_BYTES];
    reader.read_exact(&mut envelope)?;
    let len = match frame::body_len(envelope) {
        Ok(len) => len,
        Err(fault) => return Ok(Err(fault)),
    };
    // Grows as bytes arrive: a damaged length must not reserve what the file does not have.
    let mut body = Vec::new();
    reader.take(len as u64).read_to_end(&mut body)?;
    if body.len() < len {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(frame::verify(envelope, &body, salt).map(|()| body))
}

/// The entry that a body holds.
pub(crate) fn parse_entry(body: &[u8]) -> Option<Entry> {
    if body.len() < FIXED_BYTES || body[0] != KIND_ENTRY {
        return None;
    }
    let (key, value) = body[FIXED_BYTES..].split_at_checked(u32_at(body, 17) as usize)?;
    Some(Entry {
        key: std::str::from_utf8(key).ok()?.into(),
        value: Bytes::copy_from_slice(value),
        create_revision: u64_at(body, 1),
        mod_revision: u64_at(body, 9),
    })
}
