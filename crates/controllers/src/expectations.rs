//! Creations and deletions that a controller requested and its cache does not have yet: while some are open, the cache
//! lags and a count of pods would be wrong. Upstream's `ControllerExpectations`.

use bayplan_model::keyed::{KeyedMap, KeyedSet};
use jiff::{SignedDuration, Timestamp};

/// After this an open expectation is given up: the event may be lost, and waiting for ever is worse than acting on an
/// old count.
pub(crate) const EXPECTATION_TIMEOUT: SignedDuration = SignedDuration::from_mins(5);

/// Open expectations of all keys of one controller.
#[derive(Debug, Default)]
pub(crate) struct Expectations {
    by_key: KeyedMap<String, Expected>,
}

#[derive(Debug)]
struct Expected {
    creations: i64,
    /// Keys of the pods whose deletion was requested; each counts once, whether observed as terminating or as deleted.
    deletions: KeyedSet<String>,
    since: Timestamp,
}

impl Expectations {
    /// Replaces the expectations of a key by a number of creations and the deletion of these pods.
    pub(crate) fn expect(
        &mut self,
        key: &str,
        creations: usize,
        deletions: impl IntoIterator<Item = String>,
        now: Timestamp,
    ) {
        let creations = i64::try_from(creations).unwrap_or(i64::MAX);
        self.by_key.insert(key.into(), Expected { creations, deletions: deletions.into_iter().collect(), since: now });
    }

    /// Replaces the expectations of a key by a number of creations.
    pub(crate) fn expect_creations(&mut self, key: &str, count: usize, now: Timestamp) {
        self.expect(key, count, [], now);
    }

    /// Replaces the expectations of a key by the deletion of these pods.
    pub(crate) fn expect_deletions(&mut self, key: &str, pods: impl IntoIterator<Item = String>, now: Timestamp) {
        self.expect(key, 0, pods, now);
    }

    /// A creation was observed, or will not happen.
    pub(crate) fn creation_observed(&mut self, key: &str) {
        if let Some(expected) = self.by_key.get_mut(key) {
            expected.creations -= 1;
        }
    }

    /// A deletion was observed, or will not happen.
    pub(crate) fn deletion_observed(&mut self, key: &str, pod: &str) {
        if let Some(expected) = self.by_key.get_mut(key) {
            expected.deletions.remove(pod);
        }
    }

    /// The owner was deleted.
    pub(crate) fn forget(&mut self, key: &str) {
        self.by_key.remove(key);
    }

    /// Whether no expectation is open, or the open ones have expired.
    pub(crate) fn satisfied(&self, key: &str, now: Timestamp) -> bool {
        self.by_key.get(key).is_none_or(|expected| {
            (expected.creations <= 0 && expected.deletions.is_empty())
                || now.duration_since(expected.since) > EXPECTATION_TIMEOUT
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn creations_are_counted() {
        let mut expectations = Expectations::default();
        assert!(expectations.satisfied("a/b", at(0)));
        expectations.expect_creations("a/b", 2, at(0));
        expectations.creation_observed("a/b");
        assert!(!expectations.satisfied("a/b", at(1)));
        expectations.creation_observed("a/b");
        assert!(expectations.satisfied("a/b", at(1)));
    }

    #[test]
    fn a_deletion_seen_twice_counts_once() {
        let mut expectations = Expectations::default();
        expectations.expect_deletions("a/b", ["a/x".into(), "a/y".into()], at(0));
        expectations.deletion_observed("a/b", "a/x");
        expectations.deletion_observed("a/b", "a/x");
        expectations.deletion_observed("a/b", "a/foreign");
        assert!(!expectations.satisfied("a/b", at(1)));
        expectations.deletion_observed("a/b", "a/y");
        assert!(expectations.satisfied("a/b", at(1)));
    }

    #[test]
    fn unmet_expectations_expire_after_five_minutes() {
        let mut expectations = Expectations::default();
        expectations.expect_creations("a/b", 1, at(0));
        assert!(!expectations.satisfied("a/b", at(300)));
        assert!(expectations.satisfied("a/b", at(301)));
    }
}
