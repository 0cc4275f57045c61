//! The log: appends the records of a batch of changes with one sync, and starts a new segment when one is full.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::disk::{self, Disk, DiskFile};
use crate::frame::{self, HEADER_BYTES, Header};
use crate::marker::{self, Marker};
use crate::segment::{self, Record, Segment};
use crate::snapshot::TEMPORARY_SUFFIX;
use crate::{Change, Revision};

/// Which step of writing the log failed; the log must be restarted before it is used again.
#[derive(Debug, thiserror::Error)]
#[error("could not {step} {file}: {source}")]
pub(crate) struct LogError {
    step: &'static str,
    file: String,
    source: io::Error,
}

/// The segment being written.
pub(crate) struct Log {
    disk: Arc<dyn Disk>,
    segment_bytes: u64,
    file: Box<dyn DiskFile>,
    name: String,
    salt: u32,
    /// How much of the segment is durable.
    len: u64,
    /// The revision of the last durable record.
    revision: Revision,
    /// The first revision of the segment being written, once that segment is durable.
    tail: Arc<AtomicU64>,
    buffer: Vec<u8>,
}

impl Log {
    /// Starts a segment for the records after a revision.
    pub(crate) fn create(disk: Arc<dyn Disk>, segment_bytes: u64, revision: Revision) -> Result<Self, LogError> {
        let (file, name, salt) = start_segment(&*disk, revision + 1)?;
        let tail = Arc::new(AtomicU64::new(revision + 1));
        let len = HEADER_BYTES as u64;
        Ok(Log { disk, segment_bytes, file, name, salt, len, revision, tail, buffer: Vec::new() })
    }

    /// Appends after the last valid byte of the last segment.
    ///
    /// What recovery read may still be in the page cache only, so it is synced before any reader can see it.
    pub(crate) fn resume(
        disk: Arc<dyn Disk>,
        segment_bytes: u64,
        (first, salt, len): (Revision, u32, u64),
        revision: Revision,
    ) -> Result<Self, LogError> {
        let name = segment::name(first);
        let failed = |step| move |source| LogError { step, file: segment::name(first), source };
        let mut file = disk.reopen(&name, len).map_err(failed("reopen"))?;
        file.sync().map_err(failed("sync"))?;
        disk.sync_dir().map_err(failed("sync the folder of"))?;
        let tail = Arc::new(AtomicU64::new(first));
        Ok(Log { disk, segment_bytes, file, name, salt, len, revision, tail, buffer: Vec::new() })
    }

    /// The first revision of the newest durable segment; every segment before that one is complete.
    pub(crate) fn tail(&self) -> Arc<AtomicU64> {
        self.tail.clone()
    }

    /// What the folder must hold from now on.
    pub(crate) fn marker(&self) -> Marker {
        Marker { acknowledged: self.revision, segment: self.first() }
    }

    /// Raises the folder's marker. An older one is true as well, so a full disk is no reason to stop.
    pub(crate) fn mark(&self) {
        if let Err(error) = marker::write(&*self.disk, self.marker()) {
            tracing::warn!(%error, "could not raise the store's marker; the older one stays");
        }
    }

    /// Makes the changes durable.
    pub(crate) fn append(&mut self, changes: &[Change]) -> Result<(), LogError> {
        if self.len >= self.segment_bytes && self.has_records() {
            let started = start_segment(&*self.disk, self.revision + 1)?;
            self.enter(started);
        }
        let records = changes.iter().map(|change| match &change.current {
            Some(entry) => Record::Put { revision: change.revision, key: &change.key, value: &entry.value },
            None => Record::Delete { revision: change.revision, key: &change.key },
        });
        self.write(records)
    }

    /// Marks the log as closed, so that damage to its last records is recognised as damage.
    pub(crate) fn seal(&mut self) -> Result<(), LogError> {
        self.write(std::iter::once(Record::Seal { revision: self.revision }))?;
        self.mark();
        Ok(())
    }

    /// Goes on after a step that failed, in a new segment.
    ///
    /// A failed sync does not tell what reached the disk, and the next sync of that file may succeed without having
    /// written it. So the bytes that were never acknowledged are cut and not synced again, and what is left is read
    /// back before anything follows it.
    pub(crate) fn restart(&mut self) -> Result<(), LogError> {
        let failed = |step, source| LogError { step, file: self.name.clone(), source };
        if self.has_records() {
            let mut file = self.disk.reopen(&self.name, self.len).map_err(|error| failed("cut", error))?;
            file.sync().map_err(|error| failed("sync the cut of", error))?;
        }
        // A segment without records is replaced: what it holds beside its header was never acknowledged.
        let started = start_segment(&*self.disk, self.revision + 1)?;
        if self.has_records() {
            self.read_back().map_err(|error| failed("read back", error))?;
        }
        self.enter(started);
        Ok(())
    }

    fn first(&self) -> Revision {
        self.tail.load(Ordering::Relaxed)
    }

    fn has_records(&self) -> bool {
        self.revision >= self.first()
    }

    fn enter(&mut self, (file, name, salt): (Box<dyn DiskFile>, String, u32)) {
        (self.file, self.name, self.salt) = (file, name, salt);
        self.len = HEADER_BYTES as u64;
        self.tail.store(self.revision + 1, Ordering::Release);
        self.mark();
    }

    /// Checks that the segment holds exactly the records that were acknowledged.
    fn read_back(&self) -> io::Result<()> {
        let mut bytes = Vec::new();
        self.disk.read(&self.name)?.read_to_end(&mut bytes)?;
        let bytes = bytes.into();
        let mut next = self.first();
        let segment = Segment::open(&self.name, &bytes, next).map_err(io::Error::other)?;
        let read = segment.replay(false, |record| {
            let sealed = u64::from(!matches!(record, Record::Seal { .. }));
            let expected = next - (1 - sealed);
            next += sealed;
            (record.revision() == expected).then_some(()).ok_or_else(|| format!("the record of revision {expected}"))
        });
        let read = read.map_err(io::Error::other)? as u64;
        if read == self.len && next == self.revision + 1 {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "found {read} bytes up to revision {}, though {} up to {} were durable",
            next - 1,
            self.len,
            self.revision
        )))
    }

    fn write<'a>(&mut self, records: impl Iterator<Item = Record<'a>>) -> Result<(), LogError> {
        self.buffer.clear();
        let mut revision = self.revision;
        for record in records {
            let gap = record.revision() - revision;
            assert!(gap == 1 || matches!(record, Record::Seal { .. }) && gap == 0, "records are in revision order");
            revision = record.revision();
            segment::push(&mut self.buffer, self.salt, self.len, &record);
        }
        let failed = |step, source| LogError { step, file: self.name.clone(), source };
        self.file.append(&self.buffer).map_err(|error| failed("append to", error))?;
        self.file.sync().map_err(|error| failed("sync", error))?;
        self.len += self.buffer.len() as u64;
        self.revision = revision;
        // One large batch must not hold its memory for ever.
        if self.buffer.capacity() > BUFFER_BYTES_KEPT {
            self.buffer = Vec::new();
        }
        Ok(())
    }
}

/// The encoding buffer kept between batches: room for 256 writes of 4 KiB.
const BUFFER_BYTES_KEPT: usize = 1 << 20;

/// Creates a segment durably, name and header, before anything is appended to it. One that has the name is replaced, so
/// the name is never missing once it was there.
fn start_segment(disk: &dyn Disk, first: Revision) -> Result<(Box<dyn DiskFile>, String, u32), LogError> {
    let (name, salt) = (segment::name(first), frame::salt());
    let temporary = format!("{name}{TEMPORARY_SUFFIX}");
    let failed = |step| move |source| LogError { step, file: segment::name(first), source };
    disk::remove_if_there(disk, &temporary).map_err(failed("remove the unfinished"))?;
    let mut file = disk.create(&temporary).map_err(failed("create"))?;
    let header = Header { magic: segment::MAGIC, salt, revision: first };
    file.append(&header.encode()).map_err(failed("write the header of"))?;
    file.sync().map_err(failed("sync"))?;
    disk.rename(&temporary, &name).map_err(failed("name"))?;
    disk.sync_dir().map_err(failed("sync the folder of"))?;
    Ok((file, name, salt))
}
