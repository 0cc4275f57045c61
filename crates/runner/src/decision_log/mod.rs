//! The decision log: what the scheduler decided, and all that is needed to decide it again, one line of JSON each.
//!
//! ```text
//!   owner task ──records──▶ bounded channel ──▶ writer thread ──lines──▶ FILE, FILE.1, FILE.2 …
//!              ◀─────────────── wants the whole state ──────── when a file is full
//!              ◀─────────────── memory of records ──────────── when they are written
//! ```
//!
//! The owner hands over handles on the objects it has anyway; turning them into text is the writer's work. That work is
//! kept small, because the machine may have little else than the owner's processor for it: pods are written as what
//! they have other than an earlier one of their template. And memory goes back to the owner: what another thread frees
//! stays with that thread, and the owner would have to ask the kernel for fresh memory all the time. When the
//! writer cannot keep up (a slow disk), what does not fit into the channel is left out, and the log says that it has a
//! gap and begins again with the whole state. The scheduler never waits for its log.
//!
//! Objects are written as the scheduler reads them: no environment, no commands, no volumes' secrets. Of annotations
//! only those are kept that Kubernetes' own controllers write.

mod bases;
mod files;
mod lines;
#[cfg(test)]
mod simulated_tests;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bayplan_scheduler::{Record, Scheduler};
use jiff::Timestamp;
use serde_json::Value;

use files::LogFiles;
use lines::Lines;

/// Batches that wait for the writer. A batch is what the owner did between two looks at its inputs, at most about a
/// thousand records; with objects of 1 KiB that is 256 MiB in the worst case and a few KiB as a rule.
const BATCHES_MAX: usize = 256;
/// Empty batches that are kept for the next records. As many are on their way as the writer is behind, a few as a rule;
/// without them the owner would have memory cleared by the kernel whenever the writer is not done in time.
const SPARE_MAX: usize = 8;
/// How long a log that fell behind, or whose disk failed, rests before it begins again: the whole state is large.
const REST: Duration = Duration::from_secs(10);
/// The size at which a file is full, unless it is chosen.
pub const FILE_BYTES: u64 = 256 << 20;
/// How many files are kept, unless it is chosen; the oldest goes first.
pub const FILES: usize = 4;

/// Where the log is written, and how much of it is kept.
#[derive(Clone, Debug)]
pub struct DecisionLogConfig {
    /// The file; older ones have a number behind its name.
    pub path: PathBuf,
    /// A file that is larger is closed, and a new one begun.
    pub file_bytes: u64,
    /// How many files are kept, the one that is written included.
    pub files: usize,
    /// The configuration that decisions are made with, for whoever decides again.
    pub configuration: Value,
}

impl DecisionLogConfig {
    /// A log in this file, with the usual limits.
    pub fn new(path: PathBuf, configuration: Value) -> Self {
        DecisionLogConfig { path, file_bytes: FILE_BYTES, files: FILES, configuration }
    }
}

/// The log cannot be begun.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the decision log {}: {error}", path.display())]
pub struct Error {
    path: PathBuf,
    #[source]
    error: std::io::Error,
}

/// What the writer is told.
enum Message {
    Records(Vec<Record>),
    /// A new file begins with this state; so many records were left out before it.
    State {
        lost: u64,
        state: Vec<Record>,
    },
}

/// Batches on their way back from the writer to the owner, with the memory that is the owner's to free.
type WrittenBatches = Arc<Mutex<Vec<Vec<Record>>>>;

/// The owner's end of the log.
pub struct DecisionLog {
    /// None once the log is closed.
    sender: Option<SyncSender<Message>>,
    writer: Option<JoinHandle<()>>,
    /// The writer waits for the whole state, to begin a new file with it.
    wants_state: Arc<AtomicBool>,
    written: WrittenBatches,
    /// Empty batches, for the next records.
    spare: Vec<Vec<Record>>,
    /// Records left out since the log fell behind.
    lost: u64,
    /// When a log that fell behind begins again.
    restarts: Option<Instant>,
}

impl DecisionLog {
    /// Begins a log. What an earlier process left in the file is kept as an older one.
    pub fn start(config: DecisionLogConfig) -> Result<Self, Error> {
        let (sender, receiver) = mpsc::sync_channel(BATCHES_MAX);
        let path = config.path.clone();
        let failed = |error| Error { path, error };
        let writer = Writer::start(config).map_err(failed.clone())?;
        let (wants_state, written) = (Arc::clone(&writer.wants_state), Arc::clone(&writer.written));
        let thread = std::thread::Builder::new().name("decision-log".into());
        let writer = thread.spawn(move || writer.run(&receiver)).map_err(failed)?;
        let (sender, writer) = (Some(sender), Some(writer));
        Ok(DecisionLog { sender, writer, wants_state, written, spare: Vec::new(), lost: 0, restarts: None })
    }

    /// Hands over what the scheduler recorded since the last call.
    pub fn write(&mut self, scheduler: &mut Scheduler) {
        let records = self.take_records(scheduler);
        let count = records.len() as u64;
        match self.restarts {
            None if records.is_empty() => {}
            None => self.send(Message::Records(records), count),
            Some(at) => {
                self.lost += count;
                if Instant::now() >= at {
                    self.wants_state.store(true, Ordering::Relaxed);
                }
            }
        }
        if self.wants_state.load(Ordering::Relaxed) {
            self.wants_state.store(false, Ordering::Relaxed);
            let state = scheduler.state_records(Timestamp::now());
            self.send(Message::State { lost: self.lost, state }, 0);
        }
    }

    /// Takes the records, and has the next ones kept in memory that the writer gave back.
    fn take_records(&mut self, scheduler: &mut Scheduler) -> Vec<Record> {
        // The writer has the lock for the blink of an eye; the owner does not wait even for that.
        let written = self.written.try_lock().map(|mut written| std::mem::take(&mut *written));
        for mut batch in written.unwrap_or_default() {
            batch.clear();
            if self.spare.len() < SPARE_MAX {
                self.spare.push(batch);
            }
        }
        // The one that came back last is the likeliest to be in a cache.
        if scheduler.has_records() { scheduler.swap_records(self.spare.pop().unwrap_or_default()) } else { Vec::new() }
    }

    fn send(&mut self, message: Message, records: u64) {
        let is_state = matches!(message, Message::State { .. });
        match self.sender.as_ref().map(|sender| sender.try_send(message)) {
            Some(Ok(())) if is_state => (self.lost, self.restarts) = (0, None),
            Some(Err(TrySendError::Full(_))) => {
                if self.restarts.is_none() {
                    tracing::warn!("the decision log cannot keep up; it begins anew in {} s", REST.as_secs());
                }
                self.lost += records;
                self.restarts = Some(Instant::now() + REST);
            }
            // A writer that ended has said why.
            Some(Ok(()) | Err(TrySendError::Disconnected(_))) | None => {}
        }
    }
}

impl Drop for DecisionLog {
    /// Waits until what was handed over is written.
    fn drop(&mut self) {
        self.sender = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

/// The writer's end of the log.
struct Writer {
    files: LogFiles,
    lines: Lines,
    wants_state: Arc<AtomicBool>,
    written: WrittenBatches,
    /// While the disk fails: when it is tried again, and the records left out.
    failing: Option<(Instant, u64)>,
}

impl Writer {
    fn start(config: DecisionLogConfig) -> std::io::Result<Self> {
        let DecisionLogConfig { path, file_bytes, files, configuration } = config;
        let mut writer = Writer {
            files: LogFiles::new(path, file_bytes, files),
            lines: Lines::new(&configuration),
            wants_state: Arc::default(),
            written: Arc::default(),
            failing: None,
        };
        writer.begin_file(0, Vec::new())?;
        Ok(writer)
    }

    /// Begins a new file with the whole state.
    fn begin_file(&mut self, lost: u64, state: Vec<Record>) -> std::io::Result<()> {
        self.lines.finish(&mut self.files)?;
        self.files.rotate()?;
        self.lines.header(self.files.output()?, Timestamp::now(), lost)?;
        for record in state {
            self.lines.state(self.files.output()?, &record.what)?;
        }
        self.files.state_is_written();
        self.files.flush()
    }

    fn run(mut self, receiver: &Receiver<Message>) {
        let mut next = receiver.recv().ok();
        while let Some(message) = next {
            self.handle_or_rest(message);
            next = receiver.try_recv().ok().or_else(|| {
                // Nothing waits: let readers see what there is.
                let _ = self.files.flush();
                receiver.recv().ok()
            });
        }
        let _ = self.lines.finish(&mut self.files).and_then(|()| self.files.flush());
    }

    /// Writes; after a failure nothing until the disk is tried again, with the whole state.
    fn handle_or_rest(&mut self, message: Message) {
        let count = if let Message::Records(records) = &message { records.len() as u64 } else { 0 };
        if let Some((at, lost)) = &mut self.failing
            && count > 0
        {
            *lost += count;
            if Instant::now() >= *at {
                *at = Instant::now() + REST;
                self.wants_state.store(true, Ordering::Relaxed);
            }
            return;
        }
        if let Err(error) = self.handle(message) {
            self.lines.forget();
            if self.failing.is_none() {
                let path = self.files.path().display();
                tracing::warn!(%path, "the decision log cannot be written and gets a gap: {error}");
            }
            let (_, lost) = self.failing.unwrap_or((Instant::now(), 0));
            self.failing = Some((Instant::now() + REST, lost + count));
        }
    }

    fn handle(&mut self, message: Message) -> std::io::Result<()> {
        match message {
            Message::State { lost, state } => {
                let unwritten = self.failing.map_or(0, |(_, lost)| lost);
                self.begin_file(lost + unwritten, state)?;
                if self.failing.take().is_some() {
                    tracing::warn!("the decision log can be written again");
                }
            }
            Message::Records(mut records) => {
                for record in &records {
                    self.lines.record(&mut self.files, record)?;
                }
                records.retain(Record::holds_memory);
                if let Ok(mut written) = self.written.lock() {
                    written.push(records);
                }
                if self.files.is_full() {
                    self.wants_state.store(true, Ordering::Relaxed);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
