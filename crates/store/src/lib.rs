//! A revisioned multi-version key-value store with etcd's semantics.
//!
//! ```text
//!   create/update/delete ──▶ commit queue ──▶ one writer: check preconditions, append, one fsync for all
//!                                                 │
//!                      memory index (key → versions) ◀── apply in revision order ──▶ watchers ──▶ acknowledge
//! ```
//!
//! One global revision counts the writes. Only this crate assigns revisions. What a reader or a watcher sees is
//! durable.

pub mod backup;
mod commit;
mod compaction;
pub mod disk;
mod engine;
mod frame;
mod index;
mod log;
mod log_store;
mod marker;
mod recovery;
mod segment;
mod shared_index;
mod snapshot;
mod value_codec;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;

pub use index::{Effect, Index, Observed, Scan};
pub use log_store::{Expect, LogStore, Options, Steps};
pub use recovery::{Cut, OpenError, Recovery};
pub use shared_index::SharedIndex;
pub use value_codec::{IdentityCodec, ValueCodec};

/// The global count of writes; the first write of an empty store gets 1 + the revision it starts at.
pub type Revision = u64;

/// A value together with when it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Arc<str>,
    /// The bytes; shared, never copied.
    pub value: Bytes,
    /// The revision of the key's creation.
    pub create_revision: Revision,
    /// The revision of this write.
    pub mod_revision: Revision,
}

/// One change of one key, as watchers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The revision of the change.
    pub revision: Revision,
    /// The key.
    pub key: Arc<str>,
    /// The new entry; `None` when the key was deleted.
    pub current: Option<Entry>,
    /// What was there before; `None` when the key was created.
    pub previous: Option<Entry>,
}

/// A key whose value is there, but cannot be read: damaged, or encrypted with a key that is not at hand.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the value of {key} at revision {mod_revision} cannot be read: {reason}")]
pub struct Unreadable {
    /// The key.
    pub key: Arc<str>,
    /// The revision of its last write; who knows it can delete the key.
    pub mod_revision: Revision,
    /// Why the value cannot be read.
    pub reason: Arc<str>,
}

/// A part of the key space at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The revision the range was read at.
    pub revision: Revision,
    /// The entries, in key order.
    pub entries: Vec<Entry>,
    /// How many more entries lie behind the limit.
    pub remaining: usize,
    /// The keys that were left out because their values cannot be read, in key order.
    pub unreadable: Vec<Unreadable>,
}

/// Why a read or a watch could not be answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The history before `oldest` has been compacted.
    #[error("revision {requested} has been compacted, the oldest still known is {oldest}")]
    Compacted {
        /// The revision that was asked for.
        requested: Revision,
        /// The oldest revision that can still be read.
        oldest: Revision,
    },
    /// The revision has not happened yet.
    #[error("revision {requested} is in the future, the store is at {current}")]
    Future {
        /// The revision that was asked for.
        requested: Revision,
        /// The newest revision.
        current: Revision,
    },
    /// The value cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// The backend failed; the message names the step.
    #[error("store unavailable: {0}")]
    Unavailable(String),
}

/// Why a write did not happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The precondition did not hold; here is what is there instead.
    #[error("the key is at another revision")]
    Conflict {
        /// The entry found, `None` when the key does not exist.
        found: Option<Entry>,
    },
    /// The key and value together are larger than the store takes; nothing was written.
    #[error("the write has {bytes} bytes, the store takes at most {limit}")]
    TooLarge {
        /// The bytes of key and value.
        bytes: usize,
        /// The most a write may have.
        limit: usize,
    },
    /// The value that is there cannot be read, so it is not replaced; it can be deleted.
    #[error("{0}; it is not overwritten")]
    Unreadable(#[from] Unreadable),
    /// The backend takes no writes; the message names the step.
    #[error("store unavailable: {0}")]
    Unavailable(String),
    /// The backend did not answer: whether the write happened is unknown.
    #[error("{0}; whether the write happened is unknown")]
    InDoubt(String),
}

/// The changes of a key range in revision order, without gaps or repetitions. A store that others write to may have
/// several changes of one revision; they come in one answer.
pub trait Watch: Send {
    /// Waits for the next changes, at least one; `Compacted` when the watcher fell behind what history keeps.
    fn next(&mut self) -> BoxFuture<'_, Result<Vec<Change>, ReadError>>;
    /// The revision up to which everything matching has been delivered: what a bookmark may promise.
    fn progress(&self) -> Revision;
}

/// What the API server asks of a store; the embedded log and etcd both answer it.
pub trait Store: Send + Sync {
    /// The newest durable revision.
    fn revision(&self) -> BoxFuture<'_, Result<Revision, ReadError>>;
    /// The newest entry of a key.
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Entry>, ReadError>>;
    /// The entries with `start <= key < end`, at a revision (`None`: the newest), at most `limit` (0: all).
    fn range<'a>(
        &'a self,
        start: &'a str,
        end: &'a str,
        at: Option<Revision>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Range, ReadError>>;
    /// Writes a key that must not exist.
    fn create<'a>(&'a self, key: &'a str, value: Bytes) -> BoxFuture<'a, Result<Revision, WriteError>>;
    /// Replaces a key that must be at `expected`.
    fn update<'a>(
        &'a self,
        key: &'a str,
        value: Bytes,
        expected: Revision,
    ) -> BoxFuture<'a, Result<Revision, WriteError>>;
    /// Deletes a key that must be at `expected`; returns the revision of the deletion.
    fn delete<'a>(&'a self, key: &'a str, expected: Revision) -> BoxFuture<'a, Result<Revision, WriteError>>;
    /// Watches the keys with `start <= key < end` for changes after revision `after`.
    fn watch<'a>(
        &'a self,
        start: &'a str,
        end: &'a str,
        after: Revision,
    ) -> BoxFuture<'a, Result<Box<dyn Watch>, ReadError>>;
    /// Forgets history so that `oldest` is the oldest revision that can be read.
    fn compact(&self, oldest: Revision) -> BoxFuture<'_, Result<(), ReadError>>;
    /// The newest entry of a key that is known here, perhaps a moment old: without a round trip to a backend.
    fn get_recent<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Entry>, ReadError>> {
        self.get(key)
    }
    /// The entries with `start <= key < end` as they are known here, perhaps a moment old, at most `limit` (0: all).
    fn range_recent<'a>(
        &'a self,
        start: &'a str,
        end: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, Result<Range, ReadError>> {
        self.range(start, end, None, limit)
    }
    /// Writes a key that must not exist, and that a store with a clock deletes after its time to live. One without
    /// keeps it until its caller deletes it.
    fn create_expiring<'a>(
        &'a self,
        key: &'a str,
        value: Bytes,
        _time_to_live: Duration,
    ) -> BoxFuture<'a, Result<Revision, WriteError>> {
        self.create(key, value)
    }
    /// Replaces a key that must be at `expected`; its time to live begins again, as in `create_expiring`.
    fn update_expiring<'a>(
        &'a self,
        key: &'a str,
        value: Bytes,
        expected: Revision,
        _time_to_live: Duration,
    ) -> BoxFuture<'a, Result<Revision, WriteError>> {
        self.update(key, value, expected)
    }
    /// Whether the store deletes what was written with a time to live by itself.
    fn expires_keys(&self) -> bool {
        false
    }
    /// One turn of periodic compaction: forgets what was history at the last turn already. Servers that share a store
    /// take turns, and each calls this once in an interval.
    fn compact_turn(&self, last: CompactionTurn) -> BoxFuture<'_, Result<CompactionTurn, ReadError>> {
        Box::pin(async move {
            let revision = self.revision().await?;
            if let Some(oldest) = last.revision {
                self.compact(oldest).await?;
            }
            Ok(CompactionTurn { revision: Some(revision), ..last })
        })
    }
    /// Whether writes are taken; the error says why not. A store that had to stop tries again when it is asked.
    fn writable(&self) -> BoxFuture<'_, Result<(), WriteError>> {
        Box::pin(async { Ok(()) })
    }
    /// What will stop writes if nobody acts, in a sentence for the person who can.
    fn warning(&self) -> Option<String> {
        None
    }
    /// The bytes that the store takes on disk, if it has one and can tell.
    fn stored_bytes(&self) -> BoxFuture<'_, Option<u64>> {
        Box::pin(async { None })
    }
}

/// What a turn of periodic compaction leaves for the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionTurn {
    /// The newest revision at that turn; `None` before the first.
    pub revision: Option<Revision>,
    /// How many turns all servers that share the store had taken.
    pub count: i64,
}
