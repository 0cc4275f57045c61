//! Backups: the state of a store at one revision, and the files that belong to it, in one checked file.
//!
//! ```text
//!   header (magic `bayplbak`, the revision) | frames: files, then entries in key order, then the end with both numbers
//! ```
//!
//! Header and frames are those of the store's own files, so a cut, a changed byte and a newer format are all noticed.

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use crate::disk::{Disk, FolderDisk};
use crate::frame::{self, HEADER_BYTES, Header, u32_at, u64_at};
use crate::recovery::{self, OpenError, REVISION_MAX};
use crate::snapshot::{self, KIND_END, WRITE_BYTES};
use crate::{Entry, Options, Revision};

const MAGIC: [u8; 8] = *b"bayplbak";
const KIND_FILE: u8 = 3;
/// kind 1 | length of the name 4
const FILE_FIXED_BYTES: usize = 5;
/// kind 1 | entries 8 | files 8
const END_BYTES: usize = 17;
/// How often a folder is read again that a compaction changed meanwhile: each try takes seconds at most, and
/// compactions are minutes apart.
const ATTEMPTS: usize = 5;

/// A file that belongs to a store but is not in it, such as a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Its name, without a folder.
    pub name: String,
    /// What is in it.
    pub content: Bytes,
}

/// The state of a store at one revision, and what belongs to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backup {
    /// The revision.
    pub revision: Revision,
    /// All entries, in key order.
    pub entries: Vec<Entry>,
    /// The files.
    pub files: Vec<Attachment>,
}

impl Backup {
    /// Reads the store in a folder, which another process may be writing to: the state at one revision, without files.
    pub fn of_folder(path: impl Into<PathBuf>) -> Result<Self, OpenError> {
        let disk = FolderDisk::unlocked(path);
        let mut attempt = 1;
        loop {
            match recovery::look(&disk) {
                Ok((revision, entries)) => return Ok(Backup { revision, entries, files: Vec::new() }),
                Err(error @ OpenError::NewerFormat { .. }) => return Err(error),
                // A compaction may have removed what was listed.
                Err(_) if attempt < ATTEMPTS => attempt += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes the backup; answers how many bytes it has.
    pub fn write(&self, out: &mut impl Write) -> io::Result<u64> {
        let salt = frame::salt();
        let mut buffer = Header { magic: MAGIC, salt, revision: self.revision }.encode().to_vec();
        let mut bytes = 0;
        for file in &self.files {
            frame::push(&mut buffer, salt, |body| {
                body.push(KIND_FILE);
                body.extend_from_slice(&(file.name.len() as u32).to_le_bytes());
                body.extend_from_slice(file.name.as_bytes());
                body.extend_from_slice(&file.content);
            });
        }
        for entry in &self.entries {
            snapshot::push_entry(&mut buffer, salt, entry);
            if buffer.len() >= WRITE_BYTES {
                out.write_all(&buffer)?;
                bytes += buffer.len() as u64;
                buffer.clear();
            }
        }
        frame::push(&mut buffer, salt, |body| {
            body.push(KIND_END);
            body.extend_from_slice(&(self.entries.len() as u64).to_le_bytes());
            body.extend_from_slice(&(self.files.len() as u64).to_le_bytes());
        });
        out.write_all(&buffer)?;
        Ok(bytes + buffer.len() as u64)
    }

    /// Reads a backup to its end; `name` names the file in errors.
    pub fn read(name: &str, mut reader: impl Read) -> Result<Self, OpenError> {
        let unreadable = |source| OpenError::Io { step: "read", file: name.to_owned(), source };
        let mut header = Vec::with_capacity(HEADER_BYTES);
        reader.by_ref().take(HEADER_BYTES as u64).read_to_end(&mut header).map_err(unreadable)?;
        let header =
            Header::decode(&header, MAGIC).map_err(|fault| OpenError::header(name, "the header of a backup", fault))?;
        let mut backup = Backup { revision: header.revision, ..Backup::default() };
        let mut at = HEADER_BYTES;
        loop {
            let corrupt =
                |found: String| OpenError::corrupt(name, at, "the next entry of a backup or its end".to_owned(), found);
            let body = match snapshot::read_body(&mut reader, header.salt) {
                Ok(Ok(body)) => body,
                Ok(Err(fault)) => return Err(corrupt(fault.to_string())),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(corrupt("the file ends".to_owned()));
                }
                Err(error) => return Err(unreadable(error)),
            };
            if let Some((entries, files)) = parse_end(&body) {
                let found = (backup.entries.len() as u64, backup.files.len() as u64);
                if found != (entries, files) {
                    return Err(corrupt(format!("the end after {} of {entries} entries", found.0)));
                }
                break;
            }
            if !backup.take(&body) {
                return Err(corrupt("fields that fit no entry".to_owned()));
            }
            at += frame::ENVELOPE_BYTES + body.len();
        }
        match reader.read(&mut [0]).map_err(unreadable)? {
            0 => Ok(backup),
            _ => Err(OpenError::corrupt(name, at, "the end of the file".to_owned(), "more bytes".to_owned())),
        }
    }

    /// Adds what a body holds; false if it fits neither file nor entry, or not here.
    fn take(&mut self, body: &[u8]) -> bool {
        if let Some(file) = parse_file(body) {
            self.files.push(file);
            return true;
        }
        let last = self.entries.last();
        let fits = |entry: &Entry| {
            entry.mod_revision <= self.revision
                && self.revision <= REVISION_MAX
                && last.is_none_or(|last| last.key < entry.key)
        };
        let entry = snapshot::parse_entry(body).filter(fits);
        let is_entry = entry.is_some();
        self.entries.extend(entry);
        is_entry
    }
}

fn parse_end(body: &[u8]) -> Option<(u64, u64)> {
    (body[0] == KIND_END && body.len() == END_BYTES).then(|| (u64_at(body, 1), u64_at(body, 9)))
}

fn parse_file(body: &[u8]) -> Option<Attachment> {
    if body.len() < FILE_FIXED_BYTES || body[0] != KIND_FILE {
        return None;
    }
    let (name, content) = body[FILE_FIXED_BYTES..].split_at_checked(u32_at(body, 1) as usize)?;
    let name = std::str::from_utf8(name).ok().filter(|name| is_plain(name))?.to_owned();
    Some(Attachment { name, content: Bytes::copy_from_slice(content) })
}

/// Whether this is a name in one folder: a backup must not write elsewhere.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0'])
}

/// A folder that a store is about to be put into, locked.
pub struct EmptyFolder(Arc<dyn Disk>);

impl EmptyFolder {
    /// Locks a folder that holds no store, creating it if need be.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, OpenError> {
        let path = path.into();
        let folder = path.display().to_string();
        let disk = FolderDisk::open(path)?;
        let files = disk.list().map_err(|source| OpenError::Io { step: "list", file: folder.clone(), source })?;
        if !files.is_empty() {
            return Err(OpenError::NotEmpty { folder });
        }
        Ok(EmptyFolder(Arc::new(disk)))
    }

    /// Makes a store of these entries, each at the revision it has. The store itself begins 1,000,000,000 revisions
    /// after the one given, which is answered: whatever the cluster gave out after the backup was taken, no revision
    /// means two things, and watchers are told to list again.
    ///
    /// A crash before the end leaves a folder that is refused as damaged, never one that seems whole.
    pub fn fill(self, revision: Revision, entries: Vec<Entry>) -> Result<Revision, OpenError> {
        recovery::fill(&self.0, Options::default().segment_bytes, revision, entries)
    }
}

impl std::fmt::Debug for EmptyFolder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("EmptyFolder").finish_non_exhaustive()
    }
}
