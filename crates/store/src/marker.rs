//! The marker: what a folder is known to hold, so that a folder that lost it is not taken for a new one.
//!
//! It is raised when the store is opened, starts a segment or is closed, never with a write: a second sync for every
//! batch would halve what a disk can take.

use std::io::{self, Read};

use crate::disk::{self, Disk};
use crate::frame::{self, HEADER_BYTES, Header, u64_at};
use crate::recovery::OpenError;
use crate::{Revision, snapshot};

/// The file's name.
pub(crate) const NAME: &str = "marker";
const MAGIC: [u8; 8] = *b"bayplmrk";
/// A header, and a frame with one number.
const FILE_BYTES: usize = HEADER_BYTES + frame::ENVELOPE_BYTES + 8;

/// What a folder must hold at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marker {
    /// A revision that was acknowledged.
    pub(crate) acknowledged: Revision,
    /// The first revision of a segment that was made durable; it, or one after it, is there.
    pub(crate) segment: Revision,
}

/// The folder's marker; `None` in a new folder, and in one that a build without markers wrote.
pub(crate) fn read(disk: &dyn Disk) -> Result<Option<Marker>, OpenError> {
    let mut bytes = Vec::with_capacity(FILE_BYTES);
    match disk.read(NAME).and_then(|reader| reader.take(2 * FILE_BYTES as u64).read_to_end(&mut bytes)) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(OpenError::Io { step: "read", file: NAME.to_owned(), source }),
    }
    let header =
        Header::decode(&bytes, MAGIC).map_err(|fault| OpenError::header(NAME, "the header of a marker", fault))?;
    let corrupt =
        |found: String| OpenError::corrupt(NAME, HEADER_BYTES, "the first revision of a segment".to_owned(), found);
    let body = frame::body(&bytes[HEADER_BYTES..], header.salt).map_err(|fault| corrupt(fault.to_string()))?;
    if bytes.len() != FILE_BYTES || body.len() != 8 {
        return Err(corrupt(format!("a file of {} bytes", bytes.len())));
    }
    Ok(Some(Marker { acknowledged: header.revision, segment: u64_at(body, 0) }))
}

/// Replaces the folder's marker; a crash leaves the old one or the new one.
pub(crate) fn write(disk: &dyn Disk, marker: Marker) -> io::Result<()> {
    let salt = frame::salt();
    let mut bytes = Header { magic: MAGIC, salt, revision: marker.acknowledged }.encode().to_vec();
    frame::push(&mut bytes, salt, |body| body.extend_from_slice(&marker.segment.to_le_bytes()));
    let temporary = format!("{NAME}{}", snapshot::TEMPORARY_SUFFIX);
    disk::remove_if_there(disk, &temporary)?;
    let mut file = disk.create(&temporary)?;
    file.append(&bytes)?;
    file.sync()?;
    disk.rename(&temporary, NAME)?;
    disk.sync_dir()
}
