//! The store on etcd: the handle that callers hold.

use std::sync::Arc;
use std::time::Duration;

use bayplan_store::{CompactionTurn, Entry, Range, ReadError, Revision, Store, Watch, WriteError};
use bytes::Bytes;
use futures::future::BoxFuture;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::catch_up::CatchUp;
use crate::client::proto::{Empty, StatusResponse};
use crate::client::{CallError, Client, STATUS};
use crate::direct;
use crate::freshness::{Freshness, freshness};
use crate::health::Health;
use crate::keys::Keys;
use crate::leases::Leases;
use crate::mirror::Mirror;
use crate::options::{ConnectError, Options};
use crate::values::Values;
use crate::write::{WaitingWrites, Write};

/// How long a read waits for the mirror before it asks etcd itself, as upstream's watch cache.
const MIRROR_WAIT_MAX: Duration = Duration::from_secs(3);
/// Reads that ask etcd itself at the same time; they hold their answers in memory, and others wait.
const DIRECT_READS_MAX: usize = 16;
/// The oldest version that has everything the store needs.
const VERSION_MIN: (u64, u64, u64) = (3, 5, 0);
/// From here on a progress notification never overtakes an event.
const PROGRESS_IN_ORDER: (u64, u64, u64) = (3, 5, 13);

/// A store on etcd. It needs a tokio runtime, and stops its tasks when it is dropped.
pub struct EtcdStore {
    inner: Arc<Inner>,
    /// Ended when the store is dropped.
    _tasks: JoinSet<()>,
}

/// What the parts of a store share.
pub(crate) struct Inner {
    pub(crate) client: Arc<Client>,
    pub(crate) values: Values,
    pub(crate) mirror: Arc<Mirror>,
    pub(crate) freshness: Freshness,
    pub(crate) leases: Leases,
    pub(crate) health: Health,
    pub(crate) waiting_writes: WaitingWrites,
    pub(crate) old_version: Option<String>,
    direct_reads: Semaphore,
    description: String,
}

impl std::fmt::Debug for EtcdStore {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("EtcdStore").field("etcd", &self.inner.description).finish_non_exhaustive()
    }
}

impl EtcdStore {
    /// Connects, checks the version and reads all keys. Each member is tried once: a wrong address or certificate is
    /// an error at once, not a wait.
    pub async fn connect(options: Options) -> Result<Self, ConnectError> {
        let values = Values { keys: Keys::new(&options.prefix)?, codec: options.codec };
        let client = Arc::new(Client::new(&options.endpoints, options.tls.as_ref())?);
        let found = check_members(&client, &options.endpoints).await?;
        let mirror =
            Mirror::load(client.clone(), values.clone(), options.history_bytes_max, found.version >= PROGRESS_IN_ORDER);
        // A member may have answered the first question and be too busy, or gone, at the second.
        let mirror = mirror.await.map_err(|error| match error.passes() {
            true => ConnectError::Unreachable(error.to_string()),
            false => ConnectError::List(error.to_string()),
        });
        let mirror = Arc::new(mirror?);
        let (freshness, asker) = freshness(client.clone(), mirror.clone(), found.cluster);
        let mut tasks = JoinSet::new();
        tasks.spawn(asker.run());
        tasks.spawn(mirror.clone().run());
        let inner = Inner {
            client,
            values,
            mirror,
            freshness,
            leases: Leases::default(),
            health: Health::default(),
            waiting_writes: WaitingWrites::default(),
            old_version: (found.version < PROGRESS_IN_ORDER).then(|| {
                format!("etcd has version {}, which is known to lose watch events; use 3.5.13 or newer", found.named)
            }),
            direct_reads: Semaphore::new(DIRECT_READS_MAX),
            description: format!("etcd {} at {}", found.named, options.endpoints.join(", ")),
        };
        Ok(EtcdStore { inner: Arc::new(inner), _tasks: tasks })
    }

    /// Writes one key, which must be below `/registry/`, until etcd is at a revision: the next write is after it. The
    /// key's value is what was written last; how far etcd is, is told after each round. Answers the revision of the
    /// last of these writes, if any was needed.
    pub async fn raise_revision(
        &self,
        to: Revision,
        key: &str,
        value: Bytes,
        mut told: impl FnMut(Revision),
    ) -> Result<Option<Revision>, WriteError> {
        self.inner.raise_revision(to, key, value, &mut told).await
    }

    /// Which etcd this is, for a log.
    pub fn describe(&self) -> &str {
        &self.inner.description
    }
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        self.inner.mirror.shared.close();
    }
}

/// What the members said.
struct Found {
    version: (u64, u64, u64),
    named: String,
    cluster: u64,
}

/// Asks every member once; one that answers is enough, but none may be too old.
async fn check_members(client: &Client, addresses: &[String]) -> Result<Found, ConnectError> {
    let answers: Vec<Result<StatusResponse, _>> = client.call_each(STATUS, Empty {}).await;
    let mut found: Option<Found> = None;
    let mut reasons = Vec::new();
    let mut untrusted = false;
    for (answer, address) in answers.into_iter().zip(addresses) {
        let status = match answer {
            Ok(status) => status,
            Err(error) => {
                untrusted |= matches!(error, CallError::Untrusted(_));
                reasons.push(error.to_string());
                continue;
            }
        };
        let version = parse_version(&status.version).filter(|version| *version >= VERSION_MIN);
        let Some(version) = version else {
            return Err(ConnectError::Version { address: address.clone(), version: status.version });
        };
        if found.as_ref().is_none_or(|oldest| version < oldest.version) {
            let cluster = status.header.map_or(0, |header| header.cluster_id);
            found = Some(Found { version, named: status.version, cluster });
        }
    }
    if !reasons.is_empty() && found.is_some() {
        tracing::warn!(unreachable = %reasons.join("; "), "not all members of etcd answer");
    }
    let reasons = reasons.join("; ");
    found.ok_or(if untrusted { ConnectError::Untrusted(reasons) } else { ConnectError::Unreachable(reasons) })
}

fn parse_version(version: &str) -> Option<(u64, u64, u64)> {
    let mut numbers = version.split(['-', '+']).next()?.split('.').map(str::parse);
    let mut number = || numbers.next()?.ok();
    Some((number()?, number()?, number()?))
}

impl Inner {
    /// Whether what is in memory is still true.
    fn check_failure(&self) -> Result<(), ReadError> {
        match self.mirror.failure() {
            Some(failure) => Err(ReadError::Unavailable(failure.to_owned())),
            None => Ok(()),
        }
    }

    /// Waits until the mirror has everything that etcd has acknowledged by now; false when it does not come that far.
    pub(crate) async fn fresh(&self) -> Result<bool, ReadError> {
        let revision = self.freshness.revision().await?;
        Ok(self.mirror.reach(revision, MIRROR_WAIT_MAX).await)
    }

    /// A range as etcd itself has it.
    pub(crate) async fn range_from_etcd(
        &self,
        start: &str,
        end: &str,
        at: Option<Revision>,
        limit: usize,
    ) -> Result<Range, ReadError> {
        let Some(bounds) = self.values.keys.stored_range(start, end) else {
            let revision = at.unwrap_or(self.mirror.revision());
            return Ok(Range { revision, entries: Vec::new(), remaining: 0, unreadable: Vec::new() });
        };
        let _turn = self.direct_reads.acquire().await.expect("the semaphore is never closed");
        let read = direct::range(&self.client, &self.values, bounds, at, limit).await;
        let known = (self.mirror.compacted(), self.mirror.revision());
        read.map_err(|error| direct::read_error(error, at.unwrap_or(known.1), known.0, known.1))
    }

    async fn range(&self, start: &str, end: &str, at: Option<Revision>, limit: usize) -> Result<Range, ReadError> {
        self.check_failure()?;
        let known = at.is_some_and(|at| at <= self.mirror.revision());
        if !known && !self.fresh().await? {
            return self.range_from_etcd(start, end, at, limit).await;
        }
        self.check_compacted(at)?;
        match self.mirror.shared.range(start, end, at, limit).await {
            // The mirror may have forgotten what etcd still knows.
            Err(ReadError::Compacted { .. }) => self.range_from_etcd(start, end, at, limit).await,
            result => result,
        }
    }

    /// Refuses what etcd is known to have forgotten.
    fn check_compacted(&self, at: Option<Revision>) -> Result<(), ReadError> {
        let oldest = self.mirror.compacted();
        match at {
            Some(requested) if requested < oldest => Err(ReadError::Compacted { requested, oldest }),
            _ => Ok(()),
        }
    }
}

impl Inner {
    async fn watch(self: &Arc<Self>, start: &str, end: &str, after: Revision) -> Result<Box<dyn Watch>, ReadError> {
        self.check_failure()?;
        if after > self.mirror.revision() {
            self.fresh().await?;
        }
        self.check_compacted(Some(after))?;
        match self.mirror.shared.watch(start, end, after) {
            // Without progress in order, nobody could tell when the mirror has the rest.
            Err(ReadError::Compacted { .. }) if self.old_version.is_none() => {
                self.probe(after, self.mirror.revision()).await?;
                Ok(Box::new(CatchUp::open(self, start, end, after)))
            }
            result => result,
        }
    }
}

impl Store for EtcdStore {
    fn revision(&self) -> BoxFuture<'_, Result<Revision, ReadError>> {
        Box::pin(self.inner.freshness.revision())
    }

    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Entry>, ReadError>> {
        Box::pin(self.inner.get(key))
    }

    fn range<'a>(
        &'a self,
        start: &'a str,
        end: &'a str,
        at: Option<Revision>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Range, ReadError>> {
        Box::pin(self.inner.range(start, end, at, limit))
    }

    fn create<'a>(&'a self, key: &'a str, value: Bytes) -> BoxFuture<'a, Result<Revision, WriteError>> {
        Box::pin(self.inner.write(Write { key, value: Some(value), expected: None, time_to_live: None }))
    }

    fn update<'a>(
        &'a self,
        key: &'a str,
        value: Bytes,
        expected: Revision,
    ) -> BoxFuture<'a, Result<Revision, WriteError>> {
        Box::pin(self.inner.write(Write { key, value: Some(value), expected: Some(expected), time_to_live: None }))
    }

    fn delete<'a>(&'a self, key: &'a str, expected: Revision) -> BoxFuture<'a, Result<Revision, WriteError>> {
        Box::pin(self.inner.write(Write { key, value: None, expected: Some(expected), time_to_live: None }))
    }

    fn watch<'a>(
        &'a self,
        start: &'a str,
        end: &'a str,
        after: Revision,
    ) -> BoxFuture<'a, Result<Box<dyn Watch>, ReadError>> {
        Box::pin(self.inner.watch(start, end, after))
    }

    fn compact(&self, oldest: Revision) -> BoxFuture<'_, Result<(), ReadError>> {
        Box::pin(self.inner.compact(oldest))
    }

    fn get_recent<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Entry>, ReadError>> {
        Box::pin(async move {
            self.inner.check_failure()?;
            Ok(self.inner.mirror.shared.index().lookup(key)?)
        })
    }

    fn range_recent<'a>(
        &'a self,
        start: &'a str,
        end: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, Result<Range, ReadError>> {
        Box::pin(async move {
            self.inner.check_failure()?;
            self.inner.mirror.shared.range(start, end, None, limit).await
        })
    }

    fn create_expiring<'a>(
        &'a self,
        key: &'a str,
        value: Bytes,
        time_to_live: Duration,
    ) -> BoxFuture<'a, Result<Revision, WriteError>> {
        let time_to_live = Some(time_to_live);
        Box::pin(self.inner.write(Write { key, value: Some(value), expected: None, time_to_live }))
    }

    fn update_expiring<'a>(
        &'a self,
        key: &'a str,
        value: Bytes,
        expected: Revision,
        time_to_live: Duration,
    ) -> BoxFuture<'a, Result<Revision, WriteError>> {
        let (expected, time_to_live) = (Some(expected), Some(time_to_live));
        Box::pin(self.inner.write(Write { key, value: Some(value), expected, time_to_live }))
    }

    fn expires_keys(&self) -> bool {
        true
    }

    fn compact_turn(&self, last: CompactionTurn) -> BoxFuture<'_, Result<CompactionTurn, ReadError>> {
        Box::pin(self.inner.compact_turn(last))
    }

    fn writable(&self) -> BoxFuture<'_, Result<(), WriteError>> {
        Box::pin(self.inner.writable())
    }

    fn warning(&self) -> Option<String> {
        self.inner.warning()
    }

    fn stored_bytes(&self) -> BoxFuture<'_, Option<u64>> {
        Box::pin(async {
            let status: StatusResponse = self.inner.client.call(STATUS, Empty {}).await.ok()?;
            u64::try_from(status.db_size).ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_and_an_old_one_is_told_from_a_new_one() {
        for (version, expected) in [
            ("3.6.16", Some((3, 6, 16))),
            ("3.5.0-rc.1", Some((3, 5, 0))),
            ("3.10.0+dirty", Some((3, 10, 0))),
            ("3.4.37", Some((3, 4, 37))),
            ("3.6", None),
            ("", None),
        ] {
            assert_eq!(parse_version(version), expected, "{version}");
        }
        assert!(parse_version("3.4.37").unwrap() < VERSION_MIN && parse_version("3.10.0").unwrap() > PROGRESS_IN_ORDER);
    }
}
