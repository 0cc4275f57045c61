//! Recovery: from the files of a folder back to the index, or a named reason why not.
//!
//! ```text
//!   newest snapshot (state at C) ─▶ segment holding C + 1 ─▶ … ─▶ last segment, cut after its last valid record
//! ```
//!
//! Files that a newer snapshot covers and files that never got their name are leftovers of a crash; they are removed
//! last. Everything is read, and compared with the folder's marker, before the first file is changed.

use std::io::{self, Read};
use std::sync::Arc;

use bytes::Bytes;

use crate::disk::{self, Disk};
use crate::frame::{FORMAT_VERSION, HEADER_BYTES, Header, HeaderFault};
use crate::log::{Log, LogError};
use crate::marker::{self, Marker};
use crate::segment::{self, Record, Segment};
use crate::snapshot::TEMPORARY_SUFFIX;
use crate::{Entry, Expect, Index, Revision, Scan, snapshot};

/// The revision of a store that nothing was written to; never 0, which to a client means "any".
const REVISION_INITIAL: Revision = 1;
/// By how much revisions jump when lost writes are accepted, so that none of the lost ones is given out again: what
/// etcd advises for a restored backup, and more writes than a disk makes durable in a day (86,400 s of 10,000/s).
const REVISION_JUMP: Revision = 1_000_000_000;

/// The largest revision that a file can be named after. No store gets there: at a million writes a second it takes
/// 292,000 years. Whoever counts on from it never comes to the end of the numbers.
pub(crate) const REVISION_MAX: Revision = Revision::MAX / 2;

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
    /// Writes that were acknowledged are not there; nothing was changed.
    #[error("acknowledged writes are missing: {found}, though {known}")]
    Lost {
        /// What is there.
        found: String,
        /// How it is known that there was more.
        known: String,
    },
    /// A store was to be put into a folder that holds something.
    #[error("the folder {folder} is not empty")]
    NotEmpty {
        /// The folder.
        folder: String,
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
    /// Which acknowledged writes are missing, if that was accepted.
    pub lost: Option<String>,
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
        let recovery = Recovery { revision: REVISION_INITIAL, oldest: REVISION_INITIAL, cut: None, lost: None };
        (index, recovery)
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
        let is_ours = |name: &str| {
            name == marker::NAME || segment::first_revision(name).is_some() || snapshot::revision(name).is_some()
        };
        for file in listed {
            let named = segment::first_revision(&file.name).or_else(|| snapshot::revision(&file.name));
            if named.is_some_and(|revision| !(REVISION_INITIAL..=REVISION_MAX).contains(&revision)) {
                let expected = "a revision that a store can have reached in its name".to_owned();
                return Err(OpenError::corrupt(&file.name, 0, expected, "another one".to_owned()));
            }
            if let Some(first) = segment::first_revision(&file.name) {
                files.segments.push(first);
            } else if let Some(revision) = snapshot::revision(&file.name) {
                files.snapshots.push(revision);
            } else if file.name.strip_suffix(TEMPORARY_SUFFIX).is_some_and(is_ours) {
                files.unfinished.push(file.name);
            }
        }
        files.segments.sort_unstable();
        files.snapshots.sort_unstable();
        Ok(files)
    }

    /// The names of the segments and snapshots other than these, which are in order.
    fn others(&self, segments: &[Revision], snapshots: &[Revision]) -> Vec<String> {
        let stale = self.segments.iter().filter(|first| segments.binary_search(first).is_err());
        let old = self.snapshots.iter().filter(|at| snapshots.binary_search(at).is_err());
        stale.map(|first| segment::name(*first)).chain(old.map(|at| snapshot::name(*at))).collect()
    }

    fn is_empty(&self) -> bool {
        self.segments.is_empty() && self.snapshots.is_empty()
    }
}

/// How the log goes on after what was read.
enum Tail {
    /// In the segment with this first revision and salt, after its valid bytes.
    In { first: Revision, salt: u32, valid: u64 },
    /// In a segment that is still to be started.
    New,
}

/// What the files hold.
struct Found {
    index: Index,
    tail: Tail,
    cut: Option<Cut>,
    /// The segments that are still needed.
    segments: Vec<Revision>,
}

/// What must be there.
#[derive(Clone, Copy, Default)]
struct Known {
    marker: Option<Marker>,
    /// The caller knows that the folder was used.
    used: bool,
    /// What is missing is done without.
    lenient: bool,
}

impl Known {
    fn is_used(&self) -> bool {
        self.marker.is_some() || self.used
    }

    /// What can be said of what was there.
    fn describe(&self) -> String {
        match self.marker {
            Some(Marker { acknowledged, segment }) => format!(
                "the folder's marker says that there was {} and that revision {acknowledged} was acknowledged",
                segment::name(segment)
            ),
            None => "the folder was used before".to_owned(),
        }
    }

    fn lost(&self, found: String) -> OpenError {
        OpenError::Lost { found, known: self.describe() }
    }

    fn check_files(&self, files: &Files) -> Result<(), OpenError> {
        if self.lenient || !self.is_used() {
            return Ok(());
        }
        if files.is_empty() {
            return Err(self.lost("the folder has no log segment and no snapshot".to_owned()));
        }
        let has_tail = |marker: Marker| files.segments.last().is_some_and(|last| *last >= marker.segment);
        match self.marker {
            Some(marker) if !has_tail(marker) => {
                Err(self.lost(format!("the folder has no {} or a later one", segment::name(marker.segment))))
            }
            _ => Ok(()),
        }
    }

    fn check_found(&self, index: &Index) -> Result<(), OpenError> {
        let reached = self.marker.is_none_or(|marker| index.revision() >= marker.acknowledged);
        if reached || self.lenient {
            return Ok(());
        }
        Err(self.lost(format!("the log ends at revision {}", index.revision())))
    }
}

/// Rebuilds the index and opens the log for appending.
pub(crate) fn recover(
    disk: Arc<dyn Disk>,
    segment_bytes: u64,
    expect: Expect,
) -> Result<(Index, Log, Recovery), OpenError> {
    let files = Files::list(&*disk)?;
    let marker = marker::read(&*disk)?;
    let known = Known { marker, used: expect != Expect::Anything, lenient: false };
    let found = match read(&*disk, &files, known) {
        Err(error @ OpenError::Lost { .. }) if expect == Expect::WhatIsLeft => {
            return accept_loss(disk, segment_bytes, &files, known, error.to_string());
        }
        found => found?,
    };
    let Found { index, tail, cut, segments } = found;
    let revision = index.revision();
    let log = match tail {
        Tail::In { first, salt, valid } => Log::resume(disk.clone(), segment_bytes, (first, salt, valid), revision)?,
        Tail::New => Log::create(disk.clone(), segment_bytes, revision)?,
    };
    match files.is_empty() {
        true => write_marker(&*disk, &log)?,
        false => log.mark(),
    }
    // The log may go on in a new segment.
    let segments = [segments, vec![revision + 1]].concat();
    remove(&*disk, files.others(&segments, files.snapshots.last().copied().as_slice()))?;
    remove(&*disk, files.unfinished)?;
    let recovery = Recovery { revision, oldest: index.oldest(), cut, lost: None };
    Ok((index, log, recovery))
}

/// Goes on with what is left: its state becomes a snapshot whose revision is beyond all that can have been given out.
/// So watchers of lost revisions are told to read again, and no revision means two things.
fn accept_loss(
    disk: Arc<dyn Disk>,
    segment_bytes: u64,
    files: &Files,
    known: Known,
    lost: String,
) -> Result<(Index, Log, Recovery), OpenError> {
    let left = read(&*disk, files, Known { lenient: true, ..known })?.index;
    let reached = left.revision().max(known.marker.map_or(0, |marker| marker.acknowledged));
    remove(&*disk, files.unfinished.clone())?;
    let revision = reached + REVISION_JUMP;
    let log = start_from(&disk, segment_bytes, revision, entries(&left))?;
    let index = snapshot::read(&*disk, revision)?;
    remove(&*disk, files.others(&[], &[]))?;
    let recovery = Recovery { revision, oldest: revision, cut: None, lost: Some(lost) };
    Ok((index, log, recovery))
}

/// All entries at the newest revision, in key order.
fn entries(index: &Index) -> Vec<Entry> {
    let mut scan = Scan::new("", None, None, 0);
    while matches!(index.scan(&mut scan, usize::MAX), Ok(false)) {}
    scan.take()
}

/// Makes a snapshot of these entries, a log that goes on after it, and the marker that both are known by.
fn start_from(
    disk: &Arc<dyn Disk>,
    segment_bytes: u64,
    revision: Revision,
    entries: Vec<Entry>,
) -> Result<Log, OpenError> {
    let mut entries = Some(entries);
    let written = snapshot::write(&**disk, revision, || Ok(entries.take()));
    written.map_err(|source| OpenError::Io { step: "write", file: snapshot::name(revision), source })?;
    let log = Log::create(disk.clone(), segment_bytes, revision)?;
    write_marker(&**disk, &log)?;
    Ok(log)
}

/// The state of a folder that another process may be writing in, as recovery would find it; changes nothing.
///
/// What was appended but not acknowledged yet may be in it, as after a crash at this moment.
pub(crate) fn look(disk: &dyn Disk) -> Result<(Revision, Vec<Entry>), OpenError> {
    // The marker first: what it says is true of every later list of files.
    let marker = marker::read(disk)?;
    let files = Files::list(disk)?;
    let found = read(disk, &files, Known { marker, used: true, lenient: false })?;
    Ok((found.index.revision(), entries(&found.index)))
}

/// Fills an empty folder with these entries, as of a revision beyond all that the store they come from can have given
/// out since; answers that revision.
pub(crate) fn fill(
    disk: &Arc<dyn Disk>,
    segment_bytes: u64,
    revision: Revision,
    entries: Vec<Entry>,
) -> Result<Revision, OpenError> {
    let revision = revision + REVISION_JUMP;
    start_from(disk, segment_bytes, revision, entries)?;
    Ok(revision)
}

fn write_marker(disk: &dyn Disk, log: &Log) -> Result<(), OpenError> {
    let written = marker::write(disk, log.marker());
    written.map_err(|source| OpenError::Io { step: "write", file: marker::NAME.to_owned(), source })
}

fn remove(disk: &dyn Disk, names: Vec<String>) -> Result<(), OpenError> {
    for name in names {
        let removed = disk::remove_if_there(disk, &name);
        removed.map_err(|source| OpenError::Io { step: "remove", file: name, source })?;
    }
    Ok(())
}

/// Reads the newest snapshot and the segments after it; changes nothing.
fn read(disk: &dyn Disk, files: &Files, known: Known) -> Result<Found, OpenError> {
    known.check_files(files)?;
    let index = match files.snapshots.last() {
        Some(revision) => snapshot::read(disk, *revision)?,
        None => Index::new(REVISION_INITIAL),
    };
    let covered = covered_segments(files, index.revision(), known)?;
    let found = replay(disk, &files.segments[covered..], index, known)?;
    known.check_found(&found.index)?;
    Ok(found)
}

/// How many of the first segments end before the revision the snapshot is of.
fn covered_segments(files: &Files, revision: Revision, known: Known) -> Result<usize, OpenError> {
    let needed = files.segments.partition_point(|first| *first <= revision + 1);
    match (needed.checked_sub(1), files.segments.first()) {
        (Some(covered), _) => Ok(covered),
        (None, Some(first)) => Err(missing_segment(revision + 1, &format!("{} as the first", segment::name(*first)))),
        (None, None) if files.snapshots.is_empty() || known.lenient => Ok(0),
        (None, None) => Err(missing_segment(revision + 1, "no segment")),
    }
}

fn missing_segment(revision: Revision, found: &str) -> OpenError {
    let expected = format!("a segment holding revision {revision}");
    OpenError::corrupt("the folder", 0, expected, found.to_owned())
}

/// Applies the segments in order, each of which must go on where the one before it ended.
fn replay(disk: &dyn Disk, segments: &[Revision], mut index: Index, known: Known) -> Result<Found, OpenError> {
    let snapshot = index.revision();
    let mut next = segments.first().copied().unwrap_or(snapshot + 1);
    let (mut tail, mut cut, mut needed) = (Tail::New, None, segments);
    for (position, first) in segments.iter().enumerate() {
        let name = segment::name(*first);
        if *first != next {
            return Err(missing_segment(next, &name));
        }
        let last = position + 1 == segments.len();
        let bytes = read_file(disk, &name)?;
        if last && bytes.len() <= HEADER_BYTES && !newer_or_valid(&bytes) {
            // Builds before the marker gave a segment its name before its header was durable; a crash then leaves this.
            if known.is_used() && !known.lenient {
                return Err(known.lost(format!("{name} is cut to {} bytes", bytes.len())));
            }
            cut = Some(Cut { file: name, offset: 0, bytes: bytes.len() as u64 });
            needed = &segments[..position];
            break;
        }
        let segment = Segment::open(&name, &bytes, *first)?;
        let valid = segment.replay(last, |record| apply(&mut index, snapshot, &mut next, record))?;
        if last {
            let torn = (bytes.len() - valid) as u64;
            tail = Tail::In { first: *first, salt: segment.salt, valid: valid as u64 };
            cut = (torn > 0).then_some(Cut { file: name, offset: valid as u64, bytes: torn });
        }
    }
    // The log must reach the snapshot's revision, which was durable when the snapshot was taken.
    if next <= snapshot && !known.lenient {
        let found = format!("the log ends at revision {}", next - 1);
        return Err(OpenError::Lost { found, known: format!("there is a snapshot of revision {snapshot}") });
    }
    Ok(Found { index, tail, cut, segments: needed.to_vec() })
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
