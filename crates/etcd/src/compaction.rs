//! Compaction of etcd's history, shared with other API servers by upstream's protocol.
//!
//! All servers count their turns in the version of one key. Whoever finds the version it knows may write the next one
//! and compacts to the revision it saw a turn ago; the others only learn where the count is.

use bayplan_store::{CompactionTurn, ReadError, Revision};
use bytes::Bytes;

use crate::client::proto::{
    CompactionRequest, Compare, CompareTarget, CompareWith, HeaderResponse, KeyValue, Operation, PutRequest,
    RangeRequest, RangeResponse, TxnRequest, TxnResponse,
};
use crate::client::{COMPACT, CallError, RANGE, TXN};
use crate::direct::read_error;
use crate::store::Inner;
use crate::values::{etcd_revision, revision};

/// The key that kube-apiserver counts its turns with; it is outside every prefix.
const COMPACT_KEY: &[u8] = b"compact_rev_key";

impl Inner {
    /// Compacts etcd to a revision, and the mirror with it.
    pub(crate) async fn compact(&self, oldest: Revision) -> Result<(), ReadError> {
        let current = self.freshness.revision().await?;
        if oldest > current {
            return Err(ReadError::Future { requested: oldest, current });
        }
        let request = CompactionRequest { revision: etcd_revision(oldest) };
        let answer: Result<HeaderResponse, _> = self.client.call(COMPACT, request).await;
        match answer {
            Ok(_) => {}
            // Compacting to where it is already is fine: then this revision can still be read.
            Err(CallError::Compacted) => self.probe(oldest, current).await?,
            Err(error) => return Err(read_error(error, oldest, self.mirror.compacted(), current)),
        }
        self.mirror.follow_compaction(oldest);
        Ok(())
    }

    /// Whether etcd can read a revision.
    pub(crate) async fn probe(&self, at: Revision, current: Revision) -> Result<(), ReadError> {
        let request = RangeRequest {
            key: Bytes::from_static(COMPACT_KEY),
            keys_only: true,
            revision: etcd_revision(at),
            ..RangeRequest::default()
        };
        let answer: Result<RangeResponse, _> = self.client.call(RANGE.to("read at a revision"), request).await;
        answer.map(|_| ()).map_err(|error| read_error(error, at, self.mirror.compacted(), current))
    }

    /// One turn of the shared protocol.
    pub(crate) async fn compact_turn(&self, last: CompactionTurn) -> Result<CompactionTurn, ReadError> {
        let key = Bytes::from_static(COMPACT_KEY);
        let value = Bytes::from(last.revision.unwrap_or(0).to_string());
        let request = TxnRequest {
            compare: vec![Compare {
                target: CompareTarget::Version as i32,
                key: key.clone(),
                with: Some(CompareWith::Version(last.count)),
            }],
            success: vec![Operation::Put(PutRequest { key: key.clone(), value, lease: 0 }).into()],
            failure: vec![Operation::Range(RangeRequest { key, ..RangeRequest::default() }).into()],
        };
        let answer: Result<TxnResponse, _> = self.client.call(TXN.to("take a turn of compaction"), request).await;
        let answer = answer.map_err(|error| ReadError::Unavailable(error.to_string()))?;
        let current = answer.header.as_ref().map_or(0, |header| revision(header.revision));
        if answer.succeeded {
            if let Some(oldest) = last.revision {
                self.compact(oldest).await?;
            }
            return Ok(CompactionTurn { revision: Some(current), count: last.count + 1 });
        }
        let mut found = answer.responses.into_iter().filter_map(|response| response.range).flat_map(|range| range.kvs);
        let Some(KeyValue { version, value, .. }) = found.next() else {
            return Ok(CompactionTurn { revision: Some(current), count: 0 });
        };
        // Another server's turn: it compacted to the revision it wrote.
        if let Some(oldest) = std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok()) {
            self.mirror.follow_compaction(oldest);
        }
        Ok(CompactionTurn { revision: Some(current), count: version })
    }
}
