//! Conditional writes: one transaction each, never sent twice unless it is known not to have happened.

use std::time::Duration;

use bayplan_store::{Entry, ReadError, Revision, WriteError};
use bytes::Bytes;
use prost::Message;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::client::proto::{
    Compare, CompareTarget, CompareWith, DeleteRangeRequest, Operation, PutRequest, RangeRequest, TxnRequest,
    TxnResponse,
};
use crate::client::{CallError, TXN};
use crate::store::Inner;
use crate::values::{etcd_revision, revision};

/// The bytes of writes that may wait for etcd, in KiB: a second or two of a good disk.
const WAITING_KIB_MAX: usize = 256 << 10;
/// What a write counts at least, in KiB, so that at most 16,384 wait.
const WRITE_KIB_MIN: usize = 16;
/// The largest key and value that are sent at all, as in the embedded store; etcd's own limit is usually 1.5 MiB.
const WRITE_BYTES_MAX: usize = 16 << 20;
/// What etcd takes unless `--max-request-bytes` says otherwise.
const ETCD_REQUEST_BYTES: usize = 1_572_864;
/// How long the answer to a write waits for the mirror, so that this process reads what it wrote. Reads that must be
/// fresh wait by themselves in any case.
const MIRROR_WAIT_MAX: Duration = Duration::from_secs(1);

/// A write and what must hold for it.
pub(crate) struct Write<'a> {
    pub(crate) key: &'a str,
    /// `None` deletes the key.
    pub(crate) value: Option<Bytes>,
    /// The revision the key must be at; `None`: it must not exist.
    pub(crate) expected: Option<Revision>,
    pub(crate) time_to_live: Option<Duration>,
}

/// How much may wait for etcd.
pub(crate) struct WaitingWrites(Semaphore);

impl Default for WaitingWrites {
    fn default() -> Self {
        WaitingWrites(Semaphore::new(WAITING_KIB_MAX))
    }
}

impl WaitingWrites {
    fn enter(&self, bytes: usize) -> Result<SemaphorePermit<'_>, WriteError> {
        let kib = u32::try_from((bytes >> 10).max(WRITE_KIB_MIN)).unwrap_or(u32::MAX);
        self.0.try_acquire_many(kib).map_err(|_| {
            WriteError::Unavailable("too many writes are waiting for etcd; nothing was written".to_owned())
        })
    }
}

fn nothing_written(reason: impl std::fmt::Display) -> WriteError {
    WriteError::Unavailable(format!("{reason}; nothing was written"))
}

impl Inner {
    /// Carries out a write and waits until the mirror has it.
    pub(crate) async fn write(&self, write: Write<'_>) -> Result<Revision, WriteError> {
        if let Some(failure) = self.mirror.failure() {
            return Err(nothing_written(failure));
        }
        let stored_key = self.values.keys.stored(write.key).map_err(nothing_written)?;
        if write.expected == Some(0) {
            // For etcd a key that does not exist is at 0; here it is at none.
            let found = self.get(write.key).await.map_err(refused_read)?;
            return Err(WriteError::Conflict { found });
        }
        if let (Some(_), Some(expected)) = (&write.value, write.expected) {
            self.refuse_unreadable(write.key, expected).await?;
        }
        let value =
            match write.value {
                None => None,
                Some(value) => Some(self.values.codec.write(write.key, value).map_err(|reason| {
                    nothing_written(format!("the value of {} cannot be stored: {reason}", write.key))
                })?),
            };
        let bytes = stored_key.len() + value.as_ref().map_or(0, Bytes::len);
        if bytes > WRITE_BYTES_MAX {
            return Err(WriteError::TooLarge { bytes, limit: WRITE_BYTES_MAX });
        }
        let _waiting = self.waiting_writes.enter(bytes)?;
        let answer = self.transact(&stored_key, value, write.expected, write.time_to_live).await;
        let answer = answer.map_err(|error| write_error(error, bytes))?;
        let at = answer.header.as_ref().map_or(0, |header| revision(header.revision));
        if !answer.succeeded {
            return Err(self.conflict(answer).await);
        }
        self.mirror.reach(at, MIRROR_WAIT_MAX).await;
        Ok(at)
    }

    /// A value that cannot be read must not be replaced, whoever told the caller its revision.
    async fn refuse_unreadable(&self, key: &str, expected: Revision) -> Result<(), WriteError> {
        if expected > self.mirror.revision() {
            // A revision that this process has not seen comes from elsewhere: look at it first.
            self.fresh().await.map_err(nothing_written)?;
        }
        match self.mirror.shared.index().lookup(key) {
            Err(unreadable) if unreadable.mod_revision == expected => Err(unreadable.into()),
            _ => Ok(()),
        }
    }

    async fn transact(
        &self,
        key: &Bytes,
        value: Option<Bytes>,
        expected: Option<Revision>,
        time_to_live: Option<Duration>,
    ) -> Result<TxnResponse, CallError> {
        let mut lease = match time_to_live {
            Some(time_to_live) => self.leases.lease(&self.client, time_to_live).await?,
            None => 0,
        };
        let answer = self.client.call(TXN, transaction(key, value.clone(), expected, lease)).await;
        match (answer, time_to_live) {
            // It expired between being chosen and being used: nothing was written, so another one may be tried.
            (Err(CallError::LeaseNotFound), Some(time_to_live)) => {
                self.leases.forget(lease).await;
                lease = self.leases.lease(&self.client, time_to_live).await?;
                self.client.call(TXN, transaction(key, value, expected, lease)).await
            }
            (answer, _) => answer,
        }
    }

    async fn conflict(&self, answer: TxnResponse) -> WriteError {
        let found = answer.responses.into_iter().filter_map(|response| response.range).flat_map(|range| range.kvs);
        let at = answer.header.as_ref().map_or(0, |header| revision(header.revision));
        // Who is told of a revision may ask for it next.
        self.mirror.reach(at, MIRROR_WAIT_MAX).await;
        match found.filter_map(|kv| self.values.entry(kv)).next() {
            None => WriteError::Conflict { found: None },
            Some(Ok(found)) => WriteError::Conflict { found: Some(found) },
            Some(Err(unreadable)) => WriteError::Unreadable(unreadable),
        }
    }
}

/// Puts on their way at a time while the revision is raised: as many as etcd takes in one write to its disk.
const RAISING_AT_ONCE: usize = 256;

impl Inner {
    /// Puts a key, whatever is there, until etcd is at a revision.
    pub(crate) async fn raise_revision(
        &self,
        to: Revision,
        key: &str,
        value: Bytes,
        told: &mut dyn FnMut(Revision),
    ) -> Result<Option<Revision>, WriteError> {
        let key = self.values.keys.stored(key).map_err(nothing_written)?;
        let put = TxnRequest {
            success: vec![Operation::Put(PutRequest { key, value, lease: 0 }).into()],
            ..TxnRequest::default()
        };
        let mut at = self.freshness.revision().await.map_err(refused_read)?;
        let mut last = None;
        while at < to {
            let puts = (at..to).take(RAISING_AT_ONCE).map(|_| self.client.call(TXN, put.clone()));
            for answer in futures::future::join_all(puts).await {
                let answer: TxnResponse = answer.map_err(|error| write_error(error, put.encoded_len()))?;
                at = at.max(answer.header.map_or(0, |header| revision(header.revision)));
            }
            last = Some(at);
            told(at);
        }
        Ok(last)
    }
}

fn transaction(key: &Bytes, value: Option<Bytes>, expected: Option<Revision>, lease: i64) -> TxnRequest {
    let write = match value {
        Some(value) => Operation::Put(PutRequest { key: key.clone(), value, lease }),
        None => Operation::Delete(DeleteRangeRequest { key: key.clone() }),
    };
    let found = Operation::Range(RangeRequest { key: key.clone(), ..RangeRequest::default() });
    TxnRequest {
        compare: vec![Compare {
            target: CompareTarget::Mod as i32,
            key: key.clone(),
            with: Some(CompareWith::ModRevision(expected.map_or(0, etcd_revision))),
        }],
        success: vec![write.into()],
        failure: vec![found.into()],
    }
}

fn write_error(error: CallError, bytes: usize) -> WriteError {
    match error {
        CallError::TooLarge => WriteError::TooLarge { bytes, limit: ETCD_REQUEST_BYTES.min(bytes.saturating_sub(1)) },
        CallError::Unknown(_) | CallError::NoSpace => WriteError::InDoubt(error.to_string()),
        error => nothing_written(error),
    }
}

fn refused_read(error: ReadError) -> WriteError {
    match error {
        ReadError::Unreadable(unreadable) => WriteError::Unreadable(unreadable),
        error => nothing_written(error),
    }
}

/// What a conflict found, for callers that look at it first.
impl Inner {
    /// The newest entry of a key.
    pub(crate) async fn get(&self, key: &str) -> Result<Option<Entry>, ReadError> {
        if self.fresh().await? {
            return Ok(self.mirror.shared.index().lookup(key)?);
        }
        let end = format!("{key}\0");
        let mut range = self.range_from_etcd(key, &end, None, 1).await?;
        if let Some(unreadable) = range.unreadable.pop() {
            return Err(unreadable.into());
        }
        Ok(range.entries.pop())
    }
}
