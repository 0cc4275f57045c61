//! What this process did and saw of each volume on each node, which no object tells.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

/// Upstream's first and longest delay after an operation that failed.
const DELAY_MIN: Duration = Duration::from_millis(500);
const DELAY_MAX: Duration = Duration::from_secs(122);

/// What is known of one volume on one node.
#[derive(Clone, Debug, Default)]
pub(super) struct Operation {
    /// Its VolumeAttachment was created, and the cache does not have it yet.
    pub(super) is_created: bool,
    /// The UID of the VolumeAttachment that was deleted. It is on its way out whatever the cache says.
    pub(super) deleted: Option<String>,
    /// Since when nobody needs it there.
    pub(super) unneeded_since: Option<Timestamp>,
    /// Since when an external attacher is waited for.
    pub(super) waits_since: Option<Timestamp>,
    /// It is not reported as attached any more, whether or not it could be detached then.
    pub(super) is_withdrawn: bool,
    /// Its pods were told that it is attached.
    pub(super) success_told: bool,
    /// Its pods were told that another node has it.
    pub(super) refusal_told: bool,
    /// The delay after the last failure.
    delay: Duration,
    /// Not before then is it tried again.
    pub(super) not_before: Option<Timestamp>,
}

impl Operation {
    /// It failed: it is tried again after a while.
    pub(super) fn fail(&mut self, now: Timestamp) {
        self.delay = (self.delay * 2).clamp(DELAY_MIN, DELAY_MAX);
        self.not_before = now.checked_add(self.delay).ok();
        self.waits_since = None;
    }

    /// It went well.
    pub(super) fn succeed(&mut self) {
        self.delay = Duration::ZERO;
        self.not_before = None;
        self.waits_since = None;
    }

    /// How long it rests after a failure.
    pub(super) fn rests(&self, now: Timestamp) -> Option<Duration> {
        let left = Duration::try_from(self.not_before?.duration_since(now)).ok()?;
        (!left.is_zero()).then_some(left)
    }

    /// Whether it is under way, and not resting after a failure.
    pub(super) fn is_pending(&self, now: Timestamp) -> bool {
        self.not_before.is_none() || self.rests(now).is_none()
    }
}

/// All operations, by volume and node.
#[derive(Debug, Default)]
pub(super) struct Operations {
    by_volume: BTreeMap<String, BTreeMap<String, Operation>>,
    by_node: BTreeMap<String, BTreeSet<String>>,
}

impl Operations {
    /// What is known of a volume on a node.
    pub(super) fn of(&mut self, volume: &str, node: &str) -> &mut Operation {
        if !self.by_node.get(node).is_some_and(|volumes| volumes.contains(volume)) {
            self.by_node.entry(node.to_owned()).or_default().insert(volume.to_owned());
        }
        self.by_volume.entry(volume.to_owned()).or_default().entry(node.to_owned()).or_default()
    }

    /// The nodes of a volume, with what is known of it there.
    pub(super) fn elsewhere(&self, volume: &str, node: &str) -> impl Iterator<Item = (&String, &Operation)> {
        self.by_volume.get(volume).into_iter().flatten().filter(move |(other, _)| *other != node)
    }

    /// The volumes of a node of which something is known.
    pub(super) fn on(&self, node: &str) -> impl Iterator<Item = &String> {
        self.by_node.get(node).into_iter().flatten()
    }

    /// Forgets what is over: the volumes of the node that are not among these.
    pub(super) fn keep(&mut self, node: &str, volumes: &BTreeSet<String>) {
        let Some(known) = self.by_node.get_mut(node) else { return };
        let gone: Vec<String> = known.difference(volumes).cloned().collect();
        for volume in &gone {
            known.remove(volume);
            if let Some(nodes) = self.by_volume.get_mut(volume) {
                nodes.remove(node);
                if nodes.is_empty() {
                    self.by_volume.remove(volume);
                }
            }
        }
        if known.is_empty() {
            self.by_node.remove(node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_further_and_further_apart() {
        let (now, mut operation) = (Timestamp::UNIX_EPOCH, Operation::default());
        assert!(operation.is_pending(now));
        let mut delays = Vec::new();
        for _ in 0..10 {
            operation.fail(now);
            delays.push(operation.rests(now).unwrap().as_millis());
        }
        assert_eq!(delays, [500, 1000, 2000, 4000, 8000, 16000, 32000, 64000, 122_000, 122_000]);
        assert!(!operation.is_pending(now) && operation.is_pending(now + DELAY_MAX));
        operation.succeed();
        assert_eq!(operation.rests(now), None);
    }

    #[test]
    fn what_is_over_is_forgotten() {
        let mut operations = Operations::default();
        for (volume, node) in [("v", "a"), ("v", "b"), ("w", "a")] {
            operations.of(volume, node).is_created = true;
        }
        assert_eq!(operations.elsewhere("v", "a").map(|(node, _)| node.as_str()).collect::<Vec<_>>(), ["b"]);
        operations.keep("a", &["w".to_owned()].into());
        assert_eq!(operations.on("a").collect::<Vec<_>>(), ["w"]);
        operations.keep("b", &BTreeSet::new());
        operations.keep("a", &BTreeSet::new());
        assert!(operations.by_volume.is_empty() && operations.by_node.is_empty());
    }
}
