//! How long a pod waits after a failed attempt; upstream's `backoffQ`.

use jiff::{SignedDuration, Timestamp};

use crate::framework::QueuedPod;

/// The limits of the exponential backoff.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    /// `podInitialBackoffSeconds`: the backoff after the first failure.
    pub(crate) initial: SignedDuration,
    /// `podMaxBackoffSeconds`: the longest backoff.
    pub(crate) max: SignedDuration,
}

impl Backoff {
    /// 1 s, 2 s, 4 s, … up to the limit; nothing for a pod that never failed.
    fn duration(self, pod: &QueuedPod) -> SignedDuration {
        let count = if pod.consecutive_errors > 0 { pod.consecutive_errors } else { pod.unschedulable_count };
        if count == 0 || self.max.is_zero() {
            return SignedDuration::ZERO;
        }
        let factor = 1i32.checked_shl(count - 1).filter(|factor| *factor > 0).unwrap_or(i32::MAX);
        self.initial.checked_mul(factor).unwrap_or(self.max).min(self.max)
    }

    /// The second in which a pod's backoff ends. Whole seconds let pods that failed together be tried together.
    pub(super) fn expiry(self, pod: &QueuedPod) -> Timestamp {
        let end = pod.timestamp.saturating_add(self.duration(pod)).unwrap_or(pod.timestamp);
        Timestamp::from_second(end.as_second()).unwrap_or(end)
    }

    /// True while a pod's backoff has not ended.
    pub(super) fn is_backing_off(self, pod: &QueuedPod, now: Timestamp) -> bool {
        !self.duration(pod).is_zero() && self.expiry(pod).as_second() >= now.as_second()
    }
}
