//! How long a Job waits before it replaces failed pods: 10 s after the first failure, doubling up to 10 minutes.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::pod::Pod;

/// The wait after the first failure.
pub const BACKOFF_MIN: Duration = Duration::from_secs(10);

/// The longest wait.
pub const BACKOFF_MAX: Duration = Duration::from_secs(600);

/// The failures of a Job since its last success. Kept in memory only, as upstream's: a restart begins anew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// How many there were.
    pub failures: i32,
    /// When the last one was.
    pub last_failure: Option<Timestamp>,
}

impl Record {
    /// The record with the pods that ended since.
    #[must_use]
    pub fn with(&self, succeeded: &[Arc<Pod>], failed: &[Arc<Pod>]) -> Self {
        let mut ends: Vec<Timestamp> = failed.iter().map(|pod| finished_at(pod)).collect();
        ends.sort_unstable();
        match succeeded.iter().map(|pod| finished_at(pod)).max() {
            None if ends.is_empty() => self.clone(),
            None => Record {
                failures: self.failures.saturating_add(saturate(ends.len())),
                last_failure: ends.last().copied(),
            },
            Some(success) => {
                let since = &ends[ends.partition_point(|end| *end <= success)..];
                Record { failures: saturate(since.len()), last_failure: since.last().copied() }
            }
        }
    }

    /// How long to wait still.
    pub fn remaining(&self, now: Timestamp) -> Duration {
        self.last_failure.map_or(Duration::ZERO, |last| remaining(self.failures, last, now))
    }
}

fn saturate(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// How long to wait still after so many failures, the last at this time.
pub(super) fn remaining(failures: i32, last: Timestamp, now: Timestamp) -> Duration {
    let Some(doublings) = failures.checked_sub(1).filter(|doublings| *doublings >= 0) else { return Duration::ZERO };
    let factor = 1_u32.checked_shl(doublings.unsigned_abs()).unwrap_or(u32::MAX);
    let wait = BACKOFF_MIN.saturating_mul(factor).min(BACKOFF_MAX);
    let left = SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX).saturating_sub(now.duration_since(last));
    Duration::try_from(left).unwrap_or(Duration::ZERO)
}

/// When a pod ended, as well as can be known: its containers say so, or it stopped being ready, or it was deleted.
pub(super) fn finished_at(pod: &Pod) -> Timestamp {
    let end = pod.termination.as_deref();
    let deleted = pod.metadata.deletion_timestamp.map(|at| {
        let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
        at.saturating_sub(SignedDuration::from_secs(grace)).unwrap_or(at)
    });
    end.and_then(|end| end.finished_at.or(end.not_ready_since))
        .or(deleted)
        .or(pod.metadata.creation_timestamp)
        .unwrap_or(Timestamp::UNIX_EPOCH)
}
