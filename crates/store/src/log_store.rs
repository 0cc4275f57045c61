//! The store on an embedded log: the handle that callers hold.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use bytes::Bytes;
use futures::future::BoxFuture;

use crate::commit::{Write, Writer};
use crate::compaction::{Compactor, Files};
use crate::disk::{Disk, FolderDisk};
use crate::engine::Engine;
use crate::recovery::{self, OpenError, Recovery};
use crate::{Entry, Index, Range, ReadError, Revision, Store, Watch, WriteError};

/// What whoever opens a folder knows of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expect {
    /// Nothing beyond what the folder says of itself.
    #[default]
    Anything,
    /// The folder was used before: an empty one has lost what it held.
    Data,
    /// The folder was used before; writes may be missing, and the store goes on with what is left.
    WhatIsLeft,
}

/// Sizes that decide when the store tidies up, and what it expects to find.
#[derive(Clone, Debug)]
pub struct Options {
    /// A segment that has reached this size is followed by a new one. Recovery reads a segment at a time into memory.
    pub segment_bytes: u64,
    /// History beyond this is compacted without a request, oldest first.
    pub history_bytes_max: usize,
    /// Old segments are replaced by a snapshot when they have at least this size, and are larger than the last
    /// snapshot.
    pub garbage_bytes_min: u64,
    /// Less free space than this is warned of.
    pub free_bytes_low: u64,
    /// What is known of the folder.
    pub expect: Expect,
}

impl Default for Options {
    /// 64 MiB segments; 1 GiB of history is ten minutes of 1,400 writes/s of 1 KiB (each counted with 256 bytes of
    /// overhead). Space is low when it may not take the next two segments and a snapshot as large as both: then a
    /// compaction can no longer be relied on to make room.
    fn default() -> Self {
        Options {
            segment_bytes: 64 << 20,
            history_bytes_max: 1 << 30,
            garbage_bytes_min: 64 << 20,
            free_bytes_low: 4 * (64 << 20),
            expect: Expect::Anything,
        }
    }
}

/// A store in memory, with a durable log on a disk or without. Dropping it writes what is waiting and stops its
/// threads.
#[derive(Debug)]
pub struct LogStore {
    engine: Arc<Engine>,
    recovery: Recovery,
    /// `None`: memory only.
    space: Option<Space>,
    writer: Option<JoinHandle<()>>,
    compactor: Option<JoinHandle<()>>,
}

/// What the threads of a store do, for a caller who does it on a thread of its own: in a world with one thread.
pub struct Steps {
    writer: Writer,
    compactor: Compactor,
}

impl Steps {
    /// Writes what waits, in batches as they come, and compacts what is to be compacted.
    pub fn step(&mut self) {
        self.writer.step();
        self.compactor.step();
    }
}

impl std::fmt::Debug for Steps {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Steps")
    }
}

impl LogStore {
    /// Opens the store in a folder, which is created if need be and locked as long as the store is open.
    pub fn open_folder(path: impl Into<PathBuf>) -> Result<Self, OpenError> {
        Self::open_folder_expecting(path, Expect::Anything)
    }

    /// Opens the store in a folder of which something is known.
    pub fn open_folder_expecting(path: impl Into<PathBuf>, expect: Expect) -> Result<Self, OpenError> {
        Self::open(Arc::new(FolderDisk::open(path)?), Options { expect, ..Options::default() })
    }

    /// Opens the store on a disk.
    pub fn open(disk: Arc<dyn Disk>, options: Options) -> Result<Self, OpenError> {
        let (store, steps) = Self::open_stepped(disk, options)?;
        store.start(steps)
    }

    /// Opens the store on a disk without threads: nothing is written until [`Steps::step`] is called. A store whose
    /// steps are dropped is closed as if its process had died.
    pub fn open_stepped(disk: Arc<dyn Disk>, options: Options) -> Result<(Self, Steps), OpenError> {
        let (index, log, recovery) = recovery::recover(disk.clone(), options.segment_bytes, options.expect)?;
        if let Some(cut) = &recovery.cut {
            tracing::warn!(?cut, "cut the bytes of an append that was interrupted; it had not been acknowledged");
        }
        if let Some(lost) = &recovery.lost {
            tracing::warn!(revision = recovery.revision, "{lost}; the store goes on with what is left");
        }
        let space = Space { disk: disk.clone(), low: options.free_bytes_low };
        let files = Files { disk, tail: log.tail(), garbage_bytes_min: options.garbage_bytes_min };
        let (mut store, steps) = Self::assemble(index, recovery, Some((log, files)), &options);
        store.space = Some(space);
        Ok((store, steps))
    }

    /// An empty store that is gone when it is dropped.
    pub fn in_memory() -> Result<Self, OpenError> {
        let (index, recovery) = Recovery::fresh();
        let (store, steps) = Self::assemble(index, recovery, None, &Options::default());
        store.start(steps)
    }

    fn start(mut self, Steps { writer, compactor }: Steps) -> Result<Self, OpenError> {
        // The handle exists before the threads, so that one of them is stopped if the other cannot start.
        self.writer = Some(spawn("store-writer", || writer.run())?);
        self.compactor = Some(spawn("store-compactor", || compactor.run())?);
        Ok(self)
    }

    fn assemble(
        index: Index,
        recovery: Recovery,
        durable: Option<(crate::log::Log, Files)>,
        options: &Options,
    ) -> (Self, Steps) {
        let engine = Arc::new(Engine::new(index));
        let (log, files) = durable.unzip();
        let writer = Writer::new(engine.clone(), log, options.history_bytes_max);
        let compactor = Compactor { engine: engine.clone(), files, history_bytes_max: options.history_bytes_max };
        (LogStore { engine, recovery, space: None, writer: None, compactor: None }, Steps { writer, compactor })
    }

    /// What opening found.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// Why no write can be taken at present; `None` while all is well.
    pub fn failure(&self) -> Option<String> {
        self.engine.failure()
    }

    async fn write(&self, write: Write) -> Result<Revision, WriteError> {
        let answered = self.engine.queue.push(write)?.await;
        answered.unwrap_or_else(|_| Err(WriteError::Unavailable("the store was closed before it answered".to_owned())))
    }
}

/// How much the disk can still take.
struct Space {
    disk: Arc<dyn Disk>,
    low: u64,
}

impl Space {
    fn warning(&self) -> Option<String> {
        match self.disk.free_bytes() {
            Ok(free) if free >= self.low => None,
            Ok(free) => Some(format!(
                "the disk of the store has {} MiB left, less than {} MiB: free some, or writing will stop",
                free >> 20,
                self.low >> 20
            )),
            Err(error) => Some(format!("cannot tell how much space the disk of the store has left: {error}")),
        }
    }
}

impl std::fmt::Debug for Space {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Space").field("low", &self.low).finish_non_exhaustive()
    }
}

fn spawn(name: &'static str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, OpenError> {
    let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    spawned.map_err(|source| OpenError::Io { step: "start the thread", file: name.to_owned(), source })
}

impl Drop for LogStore {
    fn drop(&mut self) {
        self.engine.queue.close();
        self.engine.requests.close();
        for thread in [self.writer.take(), self.compactor.take()].into_iter().flatten() {
            if thread.join().is_err() {
                tracing::error!("a thread of the store panicked");
            }
        }
    }
}

impl Store for LogStore {
    fn revision(&self) -> BoxFuture<'_, Result<Revision, ReadError>> {
        Box::pin(async { Ok(self.engine.index().revision()) })
    }

    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Entry>, ReadError>> {
        Box::pin(async move { Ok(self.engine.index().get(key)) })
    }

    fn range<'a>(
        &'a self,
        start: &'a str,
        end: &'a str,
        at: Option<Revision>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Range, ReadError>> {
        Box::pin(self.engine.shared.range(start, end, at, limit))
    }

    fn create<'a>(&'a self, key: &'a str, value: Bytes) -> BoxFuture<'a, Result<Revision, WriteError>> {
        Box::pin(self.write(Write { key: key.into(), value: Some(value), expected: None }))
    }

    fn update<'a>(
        &'a self,
        key: &'a str,
        value: Bytes,
        expected: Revision,
    ) -> BoxFuture<'a, Result<Revision, WriteError>> {
        Box::pin(self.write(Write { key: key.into(), value: Some(value), expected: Some(expected) }))
    }

    fn delete<'a>(&'a self, key: &'a str, expected: Revision) -> BoxFuture<'a, Result<Revision, WriteError>> {
        Box::pin(self.write(Write { key: key.into(), value: None, expected: Some(expected) }))
    }

    fn watch<'a>(
        &'a self,
        start: &'a str,
        end: &'a str,
        after: Revision,
    ) -> BoxFuture<'a, Result<Box<dyn Watch>, ReadError>> {
        Box::pin(async move { self.engine.shared.watch(start, end, after) })
    }

    fn compact(&self, oldest: Revision) -> BoxFuture<'_, Result<(), ReadError>> {
        Box::pin(async move {
            self.engine.index().check(oldest)?;
            let answered = self.engine.requests.compact(oldest).await;
            answered
                .unwrap_or_else(|_| Err(ReadError::Unavailable("the store was closed before it answered".to_owned())))
        })
    }

    fn writable(&self) -> BoxFuture<'_, Result<(), WriteError>> {
        Box::pin(async move {
            if self.engine.failure().is_none() {
                return Ok(());
            }
            let closed = |_| Err("the store was closed before it answered".to_owned());
            self.engine.queue.check().await.unwrap_or_else(closed).map_err(WriteError::Unavailable)
        })
    }

    fn warning(&self) -> Option<String> {
        self.space.as_ref()?.warning()
    }

    fn stored_bytes(&self) -> BoxFuture<'_, Option<u64>> {
        // Listing a handful of files takes no longer than asking how much space is left.
        Box::pin(async { Some(self.space.as_ref()?.disk.list().ok()?.iter().map(|file| file.len).sum()) })
    }
}
