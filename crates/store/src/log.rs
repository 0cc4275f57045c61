//! The log: appends the records of a batch of changes with one sync, and starts a new segment when one is full.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::disk::{Disk, DiskFile};
use crate::frame::{self, HEADER_BYTES, Header};
use crate::segment::{self, Record};
use crate::{Change, Revision};

/// Which step of writing the log failed; the log must not be used after that.
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
    len: u64,
    /// The revision of the last record.
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

    /// Makes the changes durable.
    pub(crate) fn append(&mut self, changes: &[Change]) -> Result<(), LogError> {
        let has_changes = self.revision >= self.tail.load(Ordering::Relaxed);
        if self.len >= self.segment_bytes && has_changes {
            self.rotate()?;
        }
        let records = changes.iter().map(|change| match &change.current {
            Some(entry) => Record::Put { revision: change.revision, key: &change.key, value: &entry.value },
            None => Record::Delete { revision: change.revision, key: &change.key },
        });
        self.write(records)
    }

    /// Marks the log as closed, so that damage to its last records is recognised as damage.
    pub(crate) fn seal(&mut self) -> Result<(), LogError> {
        self.write(std::iter::once(Record::Seal { revision: self.revision }))
    }

    fn write<'a>(&mut self, records: impl Iterator<Item = Record<'a>>) -> Result<(), LogError> {
        self.buffer.clear();
        for record in records {
            let gap = record.revision() - self.revision;
            assert!(gap == 1 || matches!(record, Record::Seal { .. }) && gap == 0, "records are in revision order");
            self.revision = record.revision();
            segment::push(&mut self.buffer, self.salt, self.len, &record);
        }
        let failed = |step, source| LogError { step, file: self.name.clone(), source };
        self.file.append(&self.buffer).map_err(|error| failed("append to", error))?;
        self.file.sync().map_err(|error| failed("sync", error))?;
        self.len += self.buffer.len() as u64;
        // One large batch must not hold its memory for ever.
        if self.buffer.capacity() > BUFFER_BYTES_KEPT {
            self.buffer = Vec::new();
        }
        Ok(())
    }

    fn rotate(&mut self) -> Result<(), LogError> {
        let first = self.revision + 1;
        (self.file, self.name, self.salt) = start_segment(&*self.disk, first)?;
        self.len = HEADER_BYTES as u64;
        self.tail.store(first, Ordering::Release);
        Ok(())
    }
}

/// The encoding buffer kept between batches: room for 256 writes of 4 KiB.
const BUFFER_BYTES_KEPT: usize = 1 << 20;

/// Creates a segment durably, name and header, before anything is appended to it.
fn start_segment(disk: &dyn Disk, first: Revision) -> Result<(Box<dyn DiskFile>, String, u32), LogError> {
    let (name, salt) = (segment::name(first), frame::salt());
    let failed = |step| move |source| LogError { step, file: segment::name(first), source };
    let mut file = disk.create(&name).map_err(failed("create"))?;
    let header = Header { magic: segment::MAGIC, salt, revision: first };
    file.append(&header.encode()).map_err(failed("write the header of"))?;
    file.sync().map_err(failed("sync"))?;
    disk.sync_dir().map_err(failed("sync the folder of"))?;
    Ok((file, name, salt))
}
