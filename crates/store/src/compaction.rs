//! The compactor: forgets history in memory, and writes snapshots so that old segments can go.
//!
//! It alone moves the oldest readable revision, so the state it writes to a snapshot cannot be freed under it.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use futures::channel::oneshot;

use crate::disk::{Disk, FileInfo};
use crate::engine::Engine;
use crate::index::Scan;
use crate::{ReadError, Revision, segment, snapshot};

/// How many keys a snapshot reads before it lets writers through.
const SCANNED_KEYS_MAX: usize = 512;

#[derive(Debug, Default)]
struct RequestState {
    compactions: Vec<(Revision, oneshot::Sender<Result<(), ReadError>>)>,
    trim: bool,
    closed: bool,
}

/// What the compactor has been asked to do.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    waiting: Mutex<RequestState>,
    changed: Condvar,
}

impl Requests {
    fn waiting(&self) -> MutexGuard<'_, RequestState> {
        self.waiting.lock().expect("no code panics while it holds the requests")
    }

    /// Asks for a compaction.
    pub(crate) fn compact(&self, oldest: Revision) -> oneshot::Receiver<Result<(), ReadError>> {
        let (answer, answered) = oneshot::channel();
        let mut waiting = self.waiting();
        if !waiting.closed {
            waiting.compactions.push((oldest, answer));
        }
        self.changed.notify_all();
        answered
    }

    /// Requests a trim: the history has grown beyond its limit.
    pub(crate) fn trim(&self) {
        self.waiting().trim = true;
        self.changed.notify_all();
    }

    /// Ends the compactor, in the middle of a snapshot if need be.
    pub(crate) fn close(&self) {
        let mut waiting = self.waiting();
        waiting.closed = true;
        waiting.compactions.clear();
        self.changed.notify_all();
    }

    fn closed(&self) -> bool {
        self.waiting().closed
    }

    fn try_take(&self) -> Option<RequestState> {
        let mut waiting = self.waiting();
        let asked = !waiting.closed && (waiting.trim || !waiting.compactions.is_empty());
        asked.then(|| std::mem::take(&mut *waiting))
    }

    fn take(&self) -> Option<RequestState> {
        let mut waiting = self.waiting();
        loop {
            if waiting.closed {
                return None;
            }
            if waiting.trim || !waiting.compactions.is_empty() {
                return Some(std::mem::take(&mut *waiting));
            }
            waiting = self.changed.wait(waiting).expect("no code panics while it holds the requests");
        }
    }
}

/// The files the compactor works on.
pub(crate) struct Files {
    pub(crate) disk: Arc<dyn Disk>,
    /// The first revision of the segment being written.
    pub(crate) tail: Arc<AtomicU64>,
    /// Segments together smaller than this are not worth a snapshot.
    pub(crate) garbage_bytes_min: u64,
}

/// Moves the oldest readable revision, in memory and on disk.
pub(crate) struct Compactor {
    pub(crate) engine: Arc<Engine>,
    /// `None`: memory only.
    pub(crate) files: Option<Files>,
    pub(crate) history_bytes_max: usize,
}

impl Compactor {
    /// Serves requests until they are closed.
    pub(crate) fn run(self) {
        while let Some(requested) = self.engine.requests.take() {
            self.serve(requested);
        }
    }

    /// Serves what is asked for now.
    pub(crate) fn step(&self) {
        if let Some(requested) = self.engine.requests.try_take() {
            self.serve(requested);
        }
    }

    fn serve(&self, requested: RequestState) {
        let answers: Vec<_> =
            requested.compactions.into_iter().map(|(oldest, answer)| (answer, self.engine.compact(oldest))).collect();
        if requested.trim {
            self.engine.shared.trim(self.history_bytes_max);
        }
        if let Err(error) = self.files.as_ref().map_or(Ok(()), |files| self.shrink(files)) {
            // The segments are still there, so nothing is lost; the next compaction tries again.
            tracing::error!(%error, "could not replace old log segments by a snapshot");
        }
        for (answer, result) in answers {
            let _ = answer.send(result);
        }
    }

    /// Writes a snapshot once the segments it replaces are larger than the last one, so that all snapshots together
    /// cost about as much writing as the log did, not more.
    fn shrink(&self, files: &Files) -> io::Result<()> {
        let oldest = self.engine.index().oldest();
        let listed = files.disk.list()?;
        let replaced = replaced_segments(&listed, oldest, files.tail.load(Ordering::Acquire));
        let garbage: u64 = replaced.iter().map(|file| file.len).sum();
        let snapshots = || listed.iter().filter(|file| snapshot::revision(&file.name).is_some());
        let snapshot_bytes = snapshots().map(|file| file.len).max().unwrap_or(0);
        if replaced.is_empty() || garbage < files.garbage_bytes_min.max(snapshot_bytes) {
            return Ok(());
        }
        self.write_snapshot(&*files.disk, &listed, oldest)?;
        let stale = snapshots().filter(|file| snapshot::revision(&file.name) != Some(oldest));
        for file in replaced.iter().copied().chain(stale) {
            files.disk.remove(&file.name)?;
        }
        files.disk.sync_dir()
    }

    fn write_snapshot(&self, disk: &dyn Disk, listed: &[FileInfo], oldest: Revision) -> io::Result<()> {
        // A snapshot that failed half-way may have left its file behind.
        for file in listed.iter().filter(|file| snapshot::is_unfinished(&file.name)) {
            disk.remove(&file.name)?;
        }
        let mut scan = Some(Scan::new("", None, Some(oldest), 0));
        snapshot::write(disk, oldest, || {
            if self.engine.requests.closed() {
                return Err(io::Error::new(io::ErrorKind::Interrupted, "the store is being closed"));
            }
            let Some(current) = &mut scan else { return Ok(None) };
            let complete = self.engine.index().scan(current, SCANNED_KEYS_MAX).map_err(io::Error::other)?;
            let entries = current.take();
            if complete {
                scan = None;
            }
            Ok(Some(entries))
        })
    }
}

/// The segments that end at or before a revision; the one being written and those behind it are never among them.
fn replaced_segments(listed: &[FileInfo], oldest: Revision, tail: Revision) -> Vec<&FileInfo> {
    let mut segments: Vec<_> = listed
        .iter()
        .filter_map(|file| Some((segment::first_revision(&file.name)?, file)))
        .filter(|(first, _)| *first <= tail)
        .collect();
    segments.sort_unstable_by_key(|(first, _)| *first);
    segments.windows(2).filter(|pair| pair[1].0 <= oldest + 1).map(|pair| pair[0].1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_replaced_when_its_last_record_is_and_it_is_not_the_tail() {
        let listed = [2, 10, 20, 30].map(|first| FileInfo { name: segment::name(first), len: 1 });
        // oldest, tail → how many of the first segments go
        for (oldest, tail, replaced) in
            [(1, 30, 0), (8, 30, 0), (9, 30, 1), (18, 30, 1), (19, 30, 2), (99, 30, 3), (99, 20, 2)]
        {
            let names: Vec<_> = replaced_segments(&listed, oldest, tail).iter().map(|file| &file.name).collect();
            assert!(
                names.iter().copied().eq(listed[..replaced].iter().map(|file| &file.name)),
                "{oldest} {tail}: {names:?}"
            );
        }
    }
}
