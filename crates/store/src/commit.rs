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
/// The bytes of one batch, so that the first write of a batch does not wait long for the last: 8 MiB at 100 MB/s is 80
/// ms.
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
struct QueueState {
    writes: VecDeque<(Write, Answer)>,
    bytes: usize,
    /// Who asked whether writes are taken.
    checks: Vec<oneshot::Sender<Result<(), String>>>,
    closed: bool,
}

/// What the writer does next.
#[derive(Default)]
struct Batch {
    writes: Vec<(Write, Answer)>,
    checks: Vec<oneshot::Sender<Result<(), String>>>,
}

/// The writes that wait for the writer, in order.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().expect("no code panics while it holds the queue")
    }

    /// Adds a write; its answer comes when it is durable or refused.
    pub(crate) fn push(&self, write: Write) -> Result<oneshot::Receiver<Result<Revision, WriteError>>, WriteError> {
        let bytes = write.bytes();
        if bytes > WRITE_BYTES_MAX {
            return Err(WriteError::TooLarge { bytes, limit: WRITE_BYTES_MAX });
        }
        let mut state = self.state();
        if state.closed {
            return Err(WriteError::Unavailable("the store is closed".to_owned()));
        }
        if state.writes.len() >= WAITING_WRITES_MAX || state.bytes + bytes > WAITING_BYTES_MAX {
            let reason = format!("{} writes are waiting for the disk, nothing was written", state.writes.len());
            return Err(WriteError::Unavailable(reason));
        }
        let (answer, answered) = oneshot::channel();
        state.bytes += bytes;
        state.writes.push_back((write, answer));
        drop(state);
        self.changed.notify_one();
        Ok(answered)
    }

    /// Lets the writer find out whether it can write.
    pub(crate) fn check(&self) -> oneshot::Receiver<Result<(), String>> {
        let (answer, answered) = oneshot::channel();
        let mut state = self.state();
        if !state.closed {
            state.checks.push(answer);
        }
        drop(state);
        self.changed.notify_one();
        answered
    }

    /// Waits for something to do; `None` when the queue is closed and empty.
    fn take(&self) -> Option<Batch> {
        let mut state = self.state();
        while state.is_empty() {
            if state.closed {
                return None;
            }
            state = self.changed.wait(state).expect("no code panics while it holds the queue");
        }
        Some(state.take())
    }

    /// What there is to do now.
    fn try_take(&self) -> Option<Batch> {
        let mut state = self.state();
        (!state.is_empty()).then(|| state.take())
    }

    /// Takes no more writes; those waiting are still written.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.changed.notify_all();
    }
}

impl QueueState {
    fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.checks.is_empty()
    }

    fn take(&mut self) -> Batch {
        let mut batch = Batch { checks: std::mem::take(&mut self.checks), writes: Vec::new() };
        let mut taken = 0;
        while taken < BATCH_BYTES_MAX
            && let Some((write, answer)) = self.writes.pop_front()
        {
            taken += write.bytes();
            batch.writes.push((write, answer));
        }
        self.bytes -= taken;
        batch
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

/// The writer: the only place where revisions are assigned.
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
            self.serve(batch);
        }
        if self.engine.failure().is_none()
            && let Some(Err(error)) = self.log.as_mut().map(Log::seal)
        {
            tracing::warn!(%error, "the log was closed without a seal");
        }
    }

    /// Serves what waits now.
    pub(crate) fn step(&mut self) {
        while let Some(batch) = self.engine.queue.try_take() {
            self.serve(batch);
        }
    }

    fn serve(&mut self, batch: Batch) {
        if !batch.checks.is_empty() {
            let outcome = self.restart();
            // The caller may no longer wait.
            batch.checks.into_iter().for_each(|answer| drop(answer.send(outcome.clone())));
        }
        if !batch.writes.is_empty() {
            self.commit(batch.writes);
        }
    }

    /// No write is answered, not even with a conflict, before the state that the answer depends on is durable.
    fn commit(&mut self, batch: Vec<(Write, Answer)>) {
        let decided = decide(&self.engine.index(), batch.iter().map(|(write, _)| write));
        let changes: Vec<Change> = decided.iter().flatten().cloned().collect();
        if let Err(reason) = self.persist(&changes) {
            let unavailable = WriteError::Unavailable(reason);
            // The caller may no longer wait.
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
        self.restart().map_err(|failure| {
            format!("nothing was written, for the disk takes no writes ({failure}); writing goes on when it does")
        })?;
        if changes.is_empty() {
            return Ok(());
        }
        let Some(log) = &mut self.log else { return Ok(()) };
        log.append(changes).map_err(|error| {
            // After a failed append or sync the content of the disk is unknown, so nothing may follow it.
            self.engine.fail(error.to_string());
            error.to_string()
        })
    }

    /// Makes the log usable again after a failure; nothing to do while all is well.
    fn restart(&mut self) -> Result<(), String> {
        let Some(log) = self.log.as_mut().filter(|_| self.engine.failure().is_some()) else { return Ok(()) };
        match log.restart() {
            Ok(()) => {
                self.engine.recover();
                Ok(())
            }
            Err(error) => {
                self.engine.fail(error.to_string());
                Err(error.to_string())
            }
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Also when unwinding: a write must be refused and not wait for a writer that has ended.
        self.engine.queue.close();
        *self.engine.queue.state() = QueueState { closed: true, ..QueueState::default() };
        self.engine.shared.close();
    }
}
