//! The store as a server of a world has it: the real one, with the faults of its disk, or of the etcd that it stands
//! for.

use std::sync::Arc;
use std::time::Duration;

use bayplan_store::{Change, Entry, LogStore, Range, ReadError, Revision, Store, Watch, WriteError};
use bytes::Bytes;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use crate::bugs::Bug;
use crate::leases::Leases;
use crate::plan::Form;
use crate::points::Point;
use crate::shared::Shared;
use crate::signal::{Follower, Signal};

/// A store with faults.
#[derive(Clone)]
pub(crate) struct FaultyStore {
    pub(crate) shared: Arc<Shared>,
    pub(crate) inner: Arc<LogStore>,
    /// Wakes the disk.
    pub(crate) bell: Arc<Notify>,
    /// The number of the server that uses it.
    pub(crate) server: usize,
    /// Cancels all watches.
    pub(crate) cancelled: Signal,
    /// Keys that etcd deletes by itself.
    pub(crate) leases: Leases,
}

/// The backend does not answer.
fn no_leader() -> String {
    "etcdserver: no leader".to_owned()
}

impl FaultyStore {
    /// Whether the backend is out of reach.
    fn is_away(&self) -> bool {
        // Faults of one member meet the first server.
        self.shared.lasts(Point::EtcdNoLeader, None)
            || (self.server == 0 && self.shared.lasts(Point::EtcdMemberCutOff, None))
    }

    async fn reads(&self) -> Result<(), ReadError> {
        if self.is_away() {
            sleep(Duration::from_millis(500)).await;
            return Err(ReadError::Unavailable(no_leader()));
        }
        Ok(())
    }

    async fn write(&self, key: &str, value: Option<Bytes>, expected: Option<Revision>) -> Result<Revision, WriteError> {
        if self.is_away() {
            sleep(Duration::from_millis(500)).await;
            return Err(WriteError::Unavailable(no_leader()));
        }
        let fault = self.shared.meet_etcd_write();
        if let Some(fault) = fault {
            self.shared.stress("etcd", format!("the write of {key} meets {}", fault.point.name()), "");
        }
        if fault.is_some_and(|fault| fault.point == Point::EtcdInDoubtLost) {
            sleep(Duration::from_millis(700)).await;
            return Err(WriteError::InDoubt("etcdserver: request timed out".to_owned()));
        }
        if self.shared.bug_strikes(Bug::UnwrittenAck, 150) && expected.is_some() {
            return self.inner.revision().await.map_err(|error| WriteError::Unavailable(error.to_string()));
        }
        let outcome = self.apply(key, value.clone(), expected).await;
        if fault.is_some() && outcome.is_ok() {
            sleep(Duration::from_millis(700)).await;
            return Err(WriteError::InDoubt("etcdserver: request timed out".to_owned()));
        }
        match outcome {
            Err(WriteError::Conflict { found: Some(found) }) if self.shared.plan.bug == Some(Bug::LostUpdate) => {
                self.apply(key, value, Some(found.mod_revision)).await
            }
            outcome => outcome,
        }
    }

    async fn apply(&self, key: &str, value: Option<Bytes>, expected: Option<Revision>) -> Result<Revision, WriteError> {
        let value =
            value.map(|value| if self.shared.plan.bug == Some(Bug::DoubleBinding) { moved(value) } else { value });
        // The disk wakes up once this task waits for it.
        self.bell.notify_one();
        match (value, expected) {
            (Some(value), None) => self.inner.create(key, value).await,
            (Some(value), Some(expected)) => self.inner.update(key, value, expected).await,
            (None, expected) => self.inner.delete(key, expected.unwrap_or_default()).await,
        }
    }
}

/// Planted: a pod that says so is moved to another node.
fn moved(value: Bytes) -> Bytes {
    let Ok(mut pod) = serde_json::from_slice::<Value>(&value) else { return value };
    if pod["metadata"]["annotations"]["bound"] != "again" {
        return value;
    }
    let other = if pod["spec"]["nodeName"] == "node-0001" { "node-0002" } else { "node-0001" };
    pod["spec"]["nodeName"] = json!(other);
    Bytes::from(pod.to_string())
}

impl Store for FaultyStore {
    fn revision(&self) -> BoxFuture<'_, Result<Revision, ReadError>> {
        Box::pin(async {
            self.reads().await?;
            self.inner.revision().await
        })
    }

    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Entry>, ReadError>> {
        Box::pin(async {
            self.reads().await?;
            self.inner.get(key).await
        })
    }

    fn range<'a>(
        &'a self,
        start: &'a str,
        end: &'a str,
        at: Option<Revision>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Range, ReadError>> {
        Box::pin(async move {
            self.reads().await?;
            self.inner.range(start, end, at, limit).await
        })
    }

    fn get_recent<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Entry>, ReadError>> {
        self.inner.get(key)
    }

    fn range_recent<'a>(
        &'a self,
        start: &'a str,
        end: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, Result<Range, ReadError>> {
        self.inner.range(start, end, None, limit)
    }

    fn create<'a>(&'a self, key: &'a str, value: Bytes) -> BoxFuture<'a, Result<Revision, WriteError>> {
        Box::pin(self.write(key, Some(value), None))
    }

    fn update<'a>(
        &'a self,
        key: &'a str,
        value: Bytes,
        expected: Revision,
    ) -> BoxFuture<'a, Result<Revision, WriteError>> {
        Box::pin(self.write(key, Some(value), Some(expected)))
    }

    fn delete<'a>(&'a self, key: &'a str, expected: Revision) -> BoxFuture<'a, Result<Revision, WriteError>> {
        Box::pin(self.write(key, None, Some(expected)))
    }

    fn watch<'a>(
        &'a self,
        start: &'a str,
        end: &'a str,
        after: Revision,
    ) -> BoxFuture<'a, Result<Box<dyn Watch>, ReadError>> {
        Box::pin(async move {
            self.reads().await?;
            let inner = self.inner.watch(start, end, after).await?;
            let cancelled = self.cancelled.follow();
            let late = SlowWatch { inner, held: Vec::new(), due: None, store: self.clone(), cancelled, spoilt: false };
            Ok(Box::new(late) as Box<dyn Watch>)
        })
    }

    fn create_expiring<'a>(
        &'a self,
        key: &'a str,
        value: Bytes,
        time_to_live: Duration,
    ) -> BoxFuture<'a, Result<Revision, WriteError>> {
        Box::pin(async move {
            let revision = self.write(key, Some(value), None).await?;
            self.leases.grant(key, revision, time_to_live);
            Ok(revision)
        })
    }

    fn update_expiring<'a>(
        &'a self,
        key: &'a str,
        value: Bytes,
        expected: Revision,
        time_to_live: Duration,
    ) -> BoxFuture<'a, Result<Revision, WriteError>> {
        Box::pin(async move {
            let revision = self.write(key, Some(value), Some(expected)).await?;
            self.leases.grant(key, revision, time_to_live);
            Ok(revision)
        })
    }

    fn expires_keys(&self) -> bool {
        self.shared.plan.form == Form::Etcd
    }

    fn compact(&self, oldest: Revision) -> BoxFuture<'_, Result<(), ReadError>> {
        self.bell.notify_one();
        self.inner.compact(oldest)
    }

    fn writable(&self) -> BoxFuture<'_, Result<(), WriteError>> {
        self.bell.notify_one();
        self.inner.writable()
    }

    fn warning(&self) -> Option<String> {
        self.inner.warning()
    }

    fn stored_bytes(&self) -> BoxFuture<'_, Option<u64>> {
        self.inner.stored_bytes()
    }
}

/// A watch whose changes may come late.
struct SlowWatch {
    inner: Box<dyn Watch>,
    /// Changes that are under way.
    held: Vec<Change>,
    due: Option<Instant>,
    store: FaultyStore,
    cancelled: Follower,
    spoilt: bool,
}

impl SlowWatch {
    async fn changes(&mut self) -> Result<Vec<Change>, ReadError> {
        if self.held.is_empty() && !self.spoilt {
            tokio::select! {
                biased;
                () = self.cancelled.raised() => self.spoilt = true,
                changes = self.inner.next() => self.held = changes?,
            }
            let shared = &self.store.shared;
            let lags = shared.lasts(Point::CachesLag, None)
                || (self.store.server == 0 && shared.lasts(Point::EtcdMemberLags, None));
            self.due = lags.then(|| Instant::now() + Duration::from_millis(100 + shared.draw(1500)));
        }
        if self.spoilt {
            return Err(ReadError::Unavailable("the watch was cancelled".to_owned()));
        }
        if let Some(due) = self.due {
            sleep_until(due).await;
        }
        Ok(std::mem::take(&mut self.held))
    }
}

impl Watch for SlowWatch {
    fn next(&mut self) -> BoxFuture<'_, Result<Vec<Change>, ReadError>> {
        Box::pin(self.changes())
    }

    fn progress(&self) -> Revision {
        self.held.first().map_or_else(|| self.inner.progress(), |change| change.revision - 1)
    }
}
