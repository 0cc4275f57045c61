//! Freshness: which revision a read must see at least. One linearizable read answers all who wait when it starts.

use std::sync::Arc;

use bayplan_store::{ReadError, Revision};
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use crate::client::proto::{RangeRequest, RangeResponse};
use crate::client::{Client, RANGE};
use crate::mirror::{Mirror, went_back};
use crate::values::revision;

/// How many reads may wait: more than an API server lets in at once. Beyond it they are refused, not queued.
const WAITING_READS_MAX: usize = 16_384;
/// The key that is asked for: one that exists in most clusters and is small.
const PROBE_KEY: &[u8] = b"compact_rev_key";

type Answer = oneshot::Sender<Result<Revision, ReadError>>;

/// Where reads ask for the newest revision.
pub(crate) struct Freshness(mpsc::Sender<Answer>);

/// The other end: the task that asks etcd.
pub(crate) struct Asker {
    waiting: mpsc::Receiver<Answer>,
    client: Arc<Client>,
    mirror: Arc<Mirror>,
    cluster: u64,
}

/// The two ends; `cluster` is etcd's id of the cluster that was listed.
pub(crate) fn freshness(client: Arc<Client>, mirror: Arc<Mirror>, cluster: u64) -> (Freshness, Asker) {
    let (sender, waiting) = mpsc::channel(WAITING_READS_MAX);
    (Freshness(sender), Asker { waiting, client, mirror, cluster })
}

impl Freshness {
    /// The newest revision: a read that starts now must see at least this one.
    pub(crate) async fn revision(&self) -> Result<Revision, ReadError> {
        let (answer, answered) = oneshot::channel();
        self.0.try_send(answer).map_err(|_| {
            ReadError::Unavailable(format!("{WAITING_READS_MAX} reads are waiting for etcd, this one was not tried"))
        })?;
        answered.await.unwrap_or_else(|_| Err(ReadError::Unavailable("the store was closed".to_owned())))
    }
}

impl Asker {
    /// Answers until nobody can ask any more.
    pub(crate) async fn run(mut self) {
        while let Some(first) = self.waiting.recv().await {
            // Everybody here arrived before the request starts; whoever comes later waits for the next one.
            let mut answers = vec![first];
            while let Ok(next) = self.waiting.try_recv() {
                answers.push(next);
            }
            let result = self.ask().await;
            // The caller may no longer wait.
            answers.into_iter().for_each(|answer| drop(answer.send(result.clone())));
        }
    }

    async fn ask(&self) -> Result<Revision, ReadError> {
        if let Some(failure) = self.mirror.failure() {
            return Err(ReadError::Unavailable(failure.to_owned()));
        }
        let before = self.mirror.revision();
        let request = RangeRequest { key: Bytes::from_static(PROBE_KEY), keys_only: true, ..RangeRequest::default() };
        let answer: Result<RangeResponse, _> = self.client.call(RANGE.to("ask for the revision"), request).await;
        let header = answer.map_err(|error| ReadError::Unavailable(error.to_string()))?.header.unwrap_or_default();
        let now = revision(header.revision);
        if header.cluster_id != self.cluster {
            self.mirror.fail("etcd is another cluster than the one that was connected to".to_owned());
        } else if now < before {
            self.mirror.fail(went_back(now, before));
        }
        match self.mirror.failure() {
            Some(failure) => Err(ReadError::Unavailable(failure.to_owned())),
            None => Ok(now),
        }
    }
}
