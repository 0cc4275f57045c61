//! The commit queue and its writer: many writes, checked in order, made durable with one sync.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use bytes::Bytes;
use futures::channel::oneshot;

use crate::engine::Engine;
use crate::frame::WRITE_BYTES_MAX;
use crate::log::Log;
use crate::{Change, Entry, Index, Revision, WriteError};

/// The writes that may wait: far more than the requests an API server lets in at once.
const WAITING_WRITES_MAX: usize = 65_536;
/// The bytes that may wait: a second or two of a slow disk.
const WAITING_BYTES_MAX: usize = 256 << 20;
/// The bytes of one batch, so that the first write of a batch does not wait long for the last: 8 MiB at 100 MB/s is 80 ms.
const BATCH_BYTES_MAX: usize = 8 << 20;

/// A write and what must hold for it.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) key: Arc<str>,
    /// `None` deletes the key.
    pub(crate) value: Option<Bytes>,
    /// The revision the key must be at; `None`: it must not exist.
    pub(crate) expected: Option<Revision>,
}

impl Write {
    fn bytes(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, Bytes::len)
    }
}

type Answer = oneshot::Sender<Result<Revision, WriteError>>;

#[derive(Debug, Default)]
struct Waiting {
    writes: VecDeque<(Write, Answer)>,
    bytes: usize,
    closed: bool,
}

/// The writes that wait for the writer, in order.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().expect("no code panics while it holds the queue")
    }

    /// Adds a write; its answer comes when it is durable or refused.
    pub(crate) fn push(&self, write: Write) -> Result<oneshot::Receiver<Result<Revision, WriteError>>, WriteError> {
        let bytes = write.bytes();
        if bytes > WRITE_BYTES_MAX {
            return Err(WriteError::TooLarge { bytes, limit: WRITE_BYTES_MAX });
        }
        let mut waiting = self.waiting();
        if waiting.closed {
            return Err(WriteError::Unavailable("the store is closed".to_owned()));
        }
        if waiting.writes.len() >= WAITING_WRITES_MAX || waiting.bytes + bytes > WAITING_BYTES_MAX {
            let reason = format!("{} writes are waiting for the disk, nothing was written", waiting.writes.len());
            return Err(WriteError::Unavailable(reason));
        }
        let (answer, answered) = oneshot::channel();
        waiting.bytes += bytes;
        waiting.writes.push_back((write, answer));
        drop(waiting);
        self.changed.notify_one();
        Ok(answered)
    }

    /// Waits for writes; `None` when the queue is closed and empty.
    fn take(&self) -> Option<Vec<(Write, Answer)>> {
        let mut waiting = self.waiting();
        while waiting.writes.is_empty() {
            if waiting.closed {
                return None;
            }
            waiting = self.changed.wait(waiting).expect("no code panics while it holds the queue");
        }
        let (mut batch, mut taken) = (Vec::new(), 0);
        while taken < BATCH_BYTES_MAX
            && let Some((write, answer)) = waiting.writes.pop_front()
        {
            taken += write.bytes();
            batch.push((write, answer));
        }
        waiting.bytes -= taken;
        Some(batch)
    }

    /// Takes no more writes; those waiting are still written.
    pub(crate) fn close(&self) {
        self.waiting().closed = true;
        self.changed.notify_all();
    }
}

/// Decides a batch: each write against the index and the writes before it.
fn decide<'a>(index: &Index, writes: impl Iterator<Item = &'a Write>) -> Vec<Result<Change, Option<Entry>>> {
    let mut revision = index.revision();
    let mut staged: HashMap<&str, Option<Entry>> = HashMap::new();
    writes
        .map(|write| {
            let found = staged.get(&*write.key).cloned().unwrap_or_else(|| index.get(&write.key));
            if found.as_ref().map(|entry| entry.mod_revision) != write.expected {
                return Err(found);
            }
            revision += 1;
            let change = Index::change(&write.key, write.value.clone(), found, revision);
            staged.insert(&write.key, change.current.clone());
            Ok(change)
        })
        .collect()
}

/// The one that writes: the only place where revisions are made.
pub(crate) struct Writer {
    engine: Arc<Engine>,
    /// `None`: memory only.
    log: Option<Log>,
    history_bytes_max: usize,
}

impl Writer {
    pub(crate) fn new(engine: Arc<Engine>, log: Option<Log>, history_bytes_max: usize) -> Self {
        Writer { engine, log, history_bytes_max }
    }

    /// Serves the queue until it is closed and empty.
    pub(crate) fn run(mut self) {
        while let Some(batch) = self.engine.queue.take() {
            self.commit(batch);
        }
        if self.engine.failure().is_none()
            && let Some(Err(error)) = self.log.as_mut().map(Log::seal)
        {
            tracing::warn!(%error, "the log was closed without a seal");
        }
    }

    /// Nothing is answered, not even a conflict, before what the answer rests on is durable.
    fn commit(&mut self, batch: Vec<(Write, Answer)>) {
        let decided = decide(&self.engine.index(), batch.iter().map(|(write, _)| write));
        let changes: Vec<Change> = decided.iter().flatten().cloned().collect();
        if let Err(reason) = self.persist(&changes) {
            let unavailable = WriteError::Unavailable(reason);
            // A caller that no longer waits is not told.
            batch.into_iter().for_each(|(_, answer)| drop(answer.send(Err(unavailable.clone()))));
            return;
        }
        self.engine.publish(&changes);
        for ((_, answer), decided) in batch.into_iter().zip(decided) {
            let result = decided.map(|change| change.revision).map_err(|found| WriteError::Conflict { found });
            let _ = answer.send(result);
        }
        if self.engine.index().history_bytes() > self.history_bytes_max {
            self.engine.requests.trim();
        }
    }

    fn persist(&mut self, changes: &[Change]) -> Result<(), String> {
        if let Some(failure) = self.engine.failure() {
            return Err(format!(
                "nothing was written, for an earlier write failed ({failure}); reopen the store to go on"
            ));
        }
        if changes.is_empty() {
            return Ok(());
        }
        let Some(log) = &mut self.log else { return Ok(()) };
        log.append(changes).map_err(|error| {
            // After a failed append or sync nobody knows what is on the disk, so nothing may follow it.
            self.engine.fail(error.to_string());
            error.to_string()
        })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Also when unwinding: a write must be refused, not wait for a writer that is gone.
        self.engine.queue.close();
        self.engine.queue.waiting().writes.clear();
        self.engine.watchers.close();
    }
}
