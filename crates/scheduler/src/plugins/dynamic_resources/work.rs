//! How much work the search for devices may be: selectors and searches come from users, and one thread decides for all.
//!
//! ```text
//!   allowance of all pods ──refilled with time──▶ an attempt ──▶ a node (filterTimeout) ──▶ one evaluation
//! ```
//!
//! An attempt that has used its share up ends as upstream's does when `filterTimeout` is over, and is tried again
//! after a backoff. What selectors answered until then is kept with the slices, so that the next attempt goes on from
//! there. The core has no clock: work is counted in the units of CEL's cost, and is the same on every machine.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;

/// A unit of cost takes about so long upstream, and less here.
const UNIT: Duration = Duration::from_nanos(50);

/// The units that all attempts together get back in a second: a quarter of the thread that decides.
const REFILL: u64 = (Duration::from_secs(1).as_nanos() / UNIT.as_nanos()) as u64 / 4;

/// What one attempt may use at most: a quarter of a second. It is enough to ask a selector about 80,000 devices.
pub(super) const ATTEMPT_MAX: u64 = REFILL;

/// What each attempt may use although others have used everything up, 2.5 ms: so a pod with ordinary claims is placed
/// beside any number of expensive ones, which each take this long once in a backoff.
pub(super) const ATTEMPT_MIN: u64 = ATTEMPT_MAX / 100;

/// What an evaluation costs besides its expression: the device is made a value.
pub(super) const EVALUATION: u64 = 50;

/// What compiling costs for each byte of an expression.
pub(super) const COMPILED_BYTE: u64 = 20;

/// What choosing a device costs: its taints, counters and constraints are looked at.
pub(super) const CHOICE: u64 = 20;

/// What all attempts have left.
#[derive(Debug)]
pub(super) struct Allowance {
    left: u64,
    /// When it was refilled.
    at: Timestamp,
}

impl Default for Allowance {
    fn default() -> Self {
        Allowance { left: ATTEMPT_MAX, at: Timestamp::MIN }
    }
}

impl Allowance {
    /// What an attempt may use now.
    pub(super) fn attempt(&mut self, now: Timestamp) -> AttemptWork {
        let passed = now.duration_since(self.at).as_nanos().max(0) / UNIT.as_nanos() as i128 / 4;
        if passed > 0 {
            self.left = self.left.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX)).min(ATTEMPT_MAX);
            self.at = now;
        }
        AttemptWork { left: AtomicU64::new(self.left.max(ATTEMPT_MIN)) }
    }

    pub(super) fn spend(&mut self, units: u64) {
        self.left = self.left.saturating_sub(units);
    }
}

/// What one attempt has left, on all nodes together.
#[derive(Debug)]
pub(super) struct AttemptWork {
    left: AtomicU64,
}

impl AttemptWork {
    /// All that an attempt may ever use.
    pub(super) fn whole() -> Self {
        AttemptWork { left: AtomicU64::new(ATTEMPT_MAX) }
    }

    /// What the search on one node may use.
    pub(super) fn node(&self, filter_timeout: Duration) -> Work {
        let left = self.left.load(Ordering::Relaxed);
        let timeout = u64::try_from(filter_timeout.as_nanos() / UNIT.as_nanos()).unwrap_or(u64::MAX);
        // A timeout of zero is none.
        let granted = if filter_timeout.is_zero() { left } else { left.min(timeout) };
        Work { granted, left: granted }
    }

    pub(super) fn spend(&self, units: u64) {
        // Plugins of one attempt run one after the other.
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(units), Ordering::Relaxed);
    }
}

/// What a search has left.
#[derive(Debug)]
pub(super) struct Work {
    granted: u64,
    left: u64,
}

impl Work {
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    pub(super) fn spent(&self) -> u64 {
        self.granted - self.left
    }

    /// Counts work; false when nothing is left.
    #[must_use]
    pub(super) fn spend(&mut self, units: u64) -> bool {
        self.left = self.left.saturating_sub(units);
        self.left > 0
    }
}
