//! Recovery: from the files of a folder back to the index, or a named reason why not.
//!
//! ```text
//!   newest snapshot (state at C) ─▶ segment holding C + 1 ─▶ … ─▶ last segment, cut after its last valid record
//! ```
//!
//! Files that a newer snapshot covers and files that never got their name are leftovers of a crash; they are removed
//! last.

use std::io::{self, Read};
use std::sync::Arc;

use bytes::Bytes;

use crate::disk::Disk;
use crate::frame::{FORMAT_VERSION, HEADER_BYTES, Header, HeaderFault};
use crate::log::{Log, LogError};
use crate::segment::{self, Record, Segment};
use crate::{Index, Revision, snapshot};

/// The revision of a store that nothing was written to; never 0, which to a client means "any".
const REVISION_INITIAL: Revision = 1;

/// The largest revision that a file can be named after. No store gets there: at a million writes a second it takes
/// 292,000 years. Whoever counts on from it never comes to the end of the numbers.
const REVISION_MAX: Revision = Revision::MAX / 2;

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A file operation failed.
    #[error("could not {step} {file}: {source}")]
    Io {
        /// What was being done.
        step: &'static str,
        /// To which file or folder.
        file: String,
        /// Why it failed.
        source: io::Error,
    },
    /// Another process has the folder open.
    #[error("the folder {folder} is in use by another process")]
    Locked {
        /// The folder.
        folder: String,
        /// The process id of the one that has it open, as that one wrote it down.
        holder: Option<u32>,
    },
    /// The folder was written by a newer build.
    #[error("{file} has format version {found}, this build reads up to {supported}: use the newer build that wrote it")]
    NewerFormat {
        /// The file.
        file: String,
        /// Its format version.
        found: u32,
        /// The newest version this build reads.
        supported: u32,
    },
    /// Stored data is damaged or missing; nothing was changed.
    #[error("{file} is damaged at byte {offset}: expected {expected}, found {found}")]
    Corrupt {
        /// The file.
        file: String,
        /// Where in the file.
        offset: usize,
        /// What should be there.
        expected: String,
        /// What is there.
        found: String,
    },
    /// The log could not be prepared for writing.
    #[error("{0}")]
    Log(String),
}

impl OpenError {
    pub(crate) fn corrupt(file: &str, offset: usize, expected: String, found: String) -> Self {
        OpenError::Corrupt { file: file.to_owned(), offset, expected, found }
    }

    pub(crate) fn header(file: &str, expected: &str, fault: HeaderFault) -> Self {
        match fault {
            HeaderFault::Newer(found) => {
                OpenError::NewerFormat { file: file.to_owned(), found, supported: FORMAT_VERSION }
            }
            HeaderFault::Invalid(found) => OpenError::corrupt(file, 0, expected.to_owned(), found.to_owned()),
        }
    }
}

impl From<LogError> for OpenError {
    fn from(error: LogError) -> Self {
        OpenError::Log(error.to_string())
    }
}

/// What opening a store found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// The newest revision.
    pub revision: Revision,
    /// The oldest revision that can be read.
    pub oldest: Revision,
    /// The torn tail that was cut, if there was one.
    pub cut: Option<Cut>,
}

/// A torn tail: the bytes of an append that a crash interrupted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The file.
    pub file: String,
    /// Where the valid bytes end.
    pub offset: u64,
    /// How many bytes followed.
    pub bytes: u64,
}

impl Recovery {
    pub(crate) fn fresh() -> (Index, Recovery) {
        let index = Index::new(REVISION_INITIAL);
        (index, Recovery { revision: REVISION_INITIAL, oldest: REVISION_INITIAL, cut: None })
    }
}

/// The store's files, by what their names say.
#[derive(Default)]
struct Files {
    snapshots: Vec<Revision>,
    /// The first revision of each segment.
    segments: Vec<Revision>,
    unfinished: Vec<String>,
}

impl Files {
    fn list(disk: &dyn Disk) -> Result<Self, OpenError> {
        let listed =
            disk.list().map_err(|source| OpenError::Io { step: "list", file: "the folder".to_owned(), source })?;
        let mut files = Files::default();
        for file in listed {
            let named = segment::first_revision(&file.name).or_else(|| snapshot::revision(&file.name));
            if named.is_some_and(|revision| revision > REVISION_MAX) {
                let expected = "a revision that a store can have reached in its name".to_owned();
                return Err(OpenError::corrupt(&file.name, 0, expected, "a larger one".to_owned()));
            }
            if let Some(first) = segment::first_revision(&file.name) {
                files.segments.push(first);
            } else if let Some(revision) = snapshot::revision(&file.name) {
                files.snapshots.push(revision);
            } else if file.name.strip_suffix(snapshot::TEMPORARY_SUFFIX).and_then(snapshot::revision).is_some() {
                files.unfinished.push(file.name);
            }
        }
        files.segments.sort_unstable();
        files.snapshots.sort_unstable();
        Ok(files)
    }
}

/// Rebuilds the index and opens the log for appending.
pub(crate) fn recover(disk: Arc<dyn Disk>, segment_bytes: u64) -> Result<(Index, Log, Recovery), OpenError> {
    let files = Files::list(&*disk)?;
    let mut index = match files.snapshots.last() {
        Some(revision) => snapshot::read(&*disk, *revision)?,
        None => Index::new(REVISION_INITIAL),
    };
    let covered = covered_segments(&files, index.revision())?;
    let (log, cut) = replay(disk.clone(), segment_bytes, &files.segments[covered..], &mut index)?;
    let stale = files.segments[..covered].iter().map(|first| segment::name(*first));
    let stale = stale.chain(files.snapshots.iter().rev().skip(1).map(|revision| snapshot::name(*revision)));
    for name in stale.chain(files.unfinished) {
        disk.remove(&name).map_err(|source| OpenError::Io { step: "remove", file: name, source })?;
    }
    let recovery = Recovery { revision: index.revision(), oldest: index.oldest(), cut };
    Ok((index, log, recovery))
}

/// How many of the first segments end before the revision the snapshot is of.
fn covered_segments(files: &Files, revision: Revision) -> Result<usize, OpenError> {
    let needed = files.segments.partition_point(|first| *first <= revision + 1);
    match (needed.checked_sub(1), files.segments.first()) {
        (Some(covered), _) => Ok(covered),
        (None, Some(first)) => Err(missing_segment(revision + 1, &format!("{} as the first", segment::name(*first)))),
        (None, None) if files.snapshots.is_empty() => Ok(0),
        (None, None) => Err(missing_segment(revision + 1, "no segment")),
    }
}

fn missing_segment(revision: Revision, found: &str) -> OpenError {
    let expected = format!("a segment holding revision {revision}");
    OpenError::corrupt("the folder", 0, expected, found.to_owned())
}

/// Applies the segments in order, each of which must go on where the one before it ended.
fn replay(
    disk: Arc<dyn Disk>,
    segment_bytes: u64,
    segments: &[Revision],
    index: &mut Index,
) -> Result<(Log, Option<Cut>), OpenError> {
    let snapshot = index.revision();
    let mut next = segments.first().copied().unwrap_or(snapshot + 1);
    for (position, first) in segments.iter().enumerate() {
        let name = segment::name(*first);
        if *first != next {
            return Err(missing_segment(next, &name));
        }
        let last = position + 1 == segments.len();
        let bytes = read_file(&*disk, &name)?;
        if last && bytes.len() <= HEADER_BYTES && !newer_or_valid(&bytes) {
            // The crash came while the segment was being created: nothing was appended before its header was durable.
            check_reached(snapshot, next)?;
            disk.remove(&name).map_err(|source| OpenError::Io { step: "remove", file: name.clone(), source })?;
            let cut = Cut { file: name, offset: 0, bytes: bytes.len() as u64 };
            return Ok((Log::create(disk, segment_bytes, next - 1)?, Some(cut)));
        }
        let segment = Segment::open(&name, &bytes, *first)?;
        let valid = segment.replay(last, |record| apply(index, snapshot, &mut next, record))?;
        if last {
            check_reached(snapshot, next)?;
            let torn = (bytes.len() - valid) as u64;
            let log = Log::resume(disk, segment_bytes, (*first, segment.salt, valid as u64), index.revision())?;
            return Ok((log, (torn > 0).then_some(Cut { file: name, offset: valid as u64, bytes: torn })));
        }
    }
    Ok((Log::create(disk, segment_bytes, snapshot)?, None))
}

/// The log must reach the snapshot's revision, which was durable when the snapshot was taken.
fn check_reached(snapshot: Revision, next: Revision) -> Result<(), OpenError> {
    if next > snapshot {
        Ok(())
    } else {
        Err(missing_segment(snapshot, &format!("a log that ends before revision {next}")))
    }
}

fn newer_or_valid(header: &[u8]) -> bool {
    matches!(Header::decode(header, segment::MAGIC), Ok(_) | Err(HeaderFault::Newer(_)))
}

fn read_file(disk: &dyn Disk, name: &str) -> Result<Bytes, OpenError> {
    let mut bytes = Vec::new();
    let read = disk.read(name).and_then(|mut reader| reader.read_to_end(&mut bytes));
    read.map_err(|source| OpenError::Io { step: "read", file: name.to_owned(), source })?;
    Ok(bytes.into())
}

/// Applies a record to the index; the error is what was expected instead.
fn apply(index: &mut Index, snapshot: Revision, next: &mut Revision, record: Record<'_>) -> Result<(), String> {
    let (revision, key, value) = match record {
        Record::Seal { revision } if revision == *next - 1 => return Ok(()),
        Record::Seal { .. } => return Err(format!("a seal of revision {}", *next - 1)),
        Record::Put { revision, key, value } => (revision, key, Some(Bytes::copy_from_slice(value))),
        Record::Delete { revision, key } => (revision, key, None),
    };
    if revision != *next {
        return Err(format!("the record of revision {next}"));
    }
    *next += 1;
    if revision <= snapshot {
        return Ok(());
    }
    let found = index.get(key);
    if value.is_none() && found.is_none() {
        return Err(format!("no deletion of {key:?}, which does not exist"));
    }
    index.apply(Index::change(&key.into(), value, found, revision));
    Ok(())
}
