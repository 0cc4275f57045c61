//! How fast nodes of a zone may be tainted. The more of them are unreachable, the more likely it is that this process
//! is cut off, and the slower they are tainted.

use std::collections::BTreeMap;
use std::time::Duration;

use bayplan_model::token_bucket::TokenBucket;
use jiff::Timestamp;

use super::NodeLifecycleConfig;

/// The state of a zone; upstream's `ZoneState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ZoneState {
    /// Just seen.
    Initial,
    /// Most nodes are ready.
    Normal,
    /// Too many are not ready.
    Partial,
    /// No node is ready.
    Full,
}

/// The nodes of a zone that wait to be tainted, and the rate at which they are.
#[derive(Debug)]
struct Zone {
    state: ZoneState,
    rate: f64,
    /// Absent when nothing may be tainted.
    bucket: Option<TokenBucket>,
    /// By the turn of each.
    waiting: BTreeMap<u64, String>,
    /// Nodes that wait, or were tainted since they were last ready, and the turn that each was given.
    known: BTreeMap<String, u64>,
    next_turn: u64,
}

impl Zone {
    fn new(rate: f64) -> Self {
        let (waiting, known) = Default::default();
        Zone { state: ZoneState::Initial, rate, bucket: bucket(rate), waiting, known, next_turn: 0 }
    }

    /// An exhausted limiter is replaced by an exhausted one; otherwise each change of the rate would let one more node
    /// through.
    fn set_rate(&mut self, rate: f64, now: Duration) {
        if self.rate == rate {
            return;
        }
        self.rate = rate;
        let spent = !self.bucket.as_mut().is_some_and(|bucket| bucket.try_take(now));
        self.bucket = bucket(rate);
        if let Some(bucket) = self.bucket.as_mut().filter(|_| spent) {
            bucket.try_take(now);
        }
    }

    fn forget(&mut self, node: &str) {
        if let Some(turn) = self.known.remove(node) {
            self.waiting.remove(&turn);
        }
    }

    /// Gives a node the last turn, unless it had one.
    fn enqueue(&mut self, node: &str) {
        if !self.known.contains_key(node) {
            self.known.insert(node.into(), self.next_turn);
            self.waiting.insert(self.next_turn, node.into());
            self.next_turn += 1;
        }
    }
}

/// One node at a time, at this rate.
fn bucket(rate: f64) -> Option<TokenBucket> {
    (rate > 0.0).then(|| TokenBucket::new(rate, 1))
}

fn since_epoch(now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(Timestamp::UNIX_EPOCH)).unwrap_or_default()
}

/// What one pass over all nodes means for the cluster as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClusterHealth {
    /// Some node is ready.
    Normal,
    /// No node is ready any more: nothing is evicted, and nodes lose their NoExecute taints.
    FullDisruption,
    /// The first nodes are ready again after full disruption: every node's grace period starts again.
    Recovered,
}

/// All zones.
#[derive(Debug, Default)]
pub(super) struct Zones {
    zones: BTreeMap<String, Zone>,
}

impl Zones {
    /// Makes sure that a zone is known.
    pub(super) fn add(&mut self, zone: &str, config: &NodeLifecycleConfig) {
        if !self.zones.contains_key(zone) {
            self.zones.insert(zone.into(), Zone::new(config.eviction_rate));
        }
    }

    /// Queues a node to be tainted, unless it has its taint already.
    pub(super) fn enqueue(&mut self, zone: &str, node: &str, tainted: bool) {
        let Some(zone) = self.zones.get_mut(zone) else { return };
        if !tainted {
            zone.forget(node);
        }
        zone.enqueue(node);
    }

    /// A node is ready again.
    pub(super) fn forget(&mut self, zone: &str, node: &str) {
        if let Some(zone) = self.zones.get_mut(zone) {
            zone.forget(node);
        }
    }

    /// The nodes whose turn it is.
    pub(super) fn due(&mut self, now: Timestamp) -> Vec<String> {
        let now = since_epoch(now);
        let mut due = Vec::new();
        for zone in self.zones.values_mut() {
            while !zone.waiting.is_empty() && zone.bucket.as_mut().is_some_and(|bucket| bucket.try_take(now)) {
                due.extend(zone.waiting.pop_first().map(|(_, node)| node));
            }
        }
        due
    }

    /// Whether some node waits in a zone whose nodes may be tainted.
    pub(super) fn is_waiting(&self) -> bool {
        self.zones.values().any(|zone| !zone.waiting.is_empty() && zone.bucket.is_some())
    }

    /// Sets the state and the rate of each zone from the number of its nodes that are ready and that are not.
    pub(super) fn decide(
        &mut self,
        counts: &BTreeMap<String, (usize, usize)>,
        config: &NodeLifecycleConfig,
        now: Timestamp,
    ) -> ClusterHealth {
        let now = since_epoch(now);
        let states: BTreeMap<&str, ZoneState> =
            counts.iter().map(|(zone, count)| (zone.as_str(), state(*count, config))).collect();
        for zone in states.keys() {
            self.add(zone, config);
        }
        self.zones.retain(|zone, _| states.contains_key(zone.as_str()));
        let all_are_lost = states.values().all(|state| *state == ZoneState::Full);
        let all_were_lost = self.zones.values().all(|zone| zone.state == ZoneState::Full);
        if all_are_lost && all_were_lost {
            return ClusterHealth::Normal;
        }
        if all_are_lost {
            for zone in self.zones.values_mut() {
                zone.set_rate(0.0, now);
                zone.state = ZoneState::Full;
            }
            return ClusterHealth::FullDisruption;
        }
        for (name, zone) in &mut self.zones {
            let Some(&state) = states.get(name.as_str()) else { continue };
            if state != zone.state || all_were_lost {
                let size = counts.get(name).map_or(0, |(ready, not_ready)| ready + not_ready);
                zone.set_rate(rate(state, size, config), now);
                zone.state = state;
            }
        }
        if all_were_lost { ClusterHealth::Recovered } else { ClusterHealth::Normal }
    }
}

fn state((ready, not_ready): (usize, usize), config: &NodeLifecycleConfig) -> ZoneState {
    let share = not_ready as f64 / (ready + not_ready).max(1) as f64;
    match () {
        () if ready == 0 && not_ready > 0 => ZoneState::Full,
        () if not_ready > 2 && share >= config.unhealthy_zone_threshold => ZoneState::Partial,
        () => ZoneState::Normal,
    }
}

fn rate(state: ZoneState, size: usize, config: &NodeLifecycleConfig) -> f64 {
    match state {
        ZoneState::Partial if size > config.large_cluster_size_threshold => config.secondary_eviction_rate,
        ZoneState::Partial => 0.0,
        ZoneState::Initial | ZoneState::Normal | ZoneState::Full => config.eviction_rate,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_780_000_000 + second).unwrap()
    }

    fn counts(zones: &[(&str, usize, usize)]) -> BTreeMap<String, (usize, usize)> {
        zones.iter().map(|(zone, ready, not)| ((*zone).to_owned(), (*ready, *not))).collect()
    }

    #[test]
    fn a_zone_is_emptied_the_slower_the_more_of_it_is_away() {
        let config = NodeLifecycleConfig::default();
        // Ready nodes, others, and how many of them are tainted within 100 seconds.
        for (ready, not_ready, tainted) in [(9, 3, 3), (4, 6, 0), (40, 60, 2), (0, 3, 3), (1, 2, 2)] {
            let mut zones = Zones::default();
            let counts = counts(&[("a", ready, not_ready), ("other", 1, 0)]);
            zones.decide(&counts, &config, at(0));
            (0..not_ready).for_each(|node| zones.enqueue("a", &format!("n{node}"), false));
            let due: usize = (0..=100).map(|second| zones.due(at(second)).len()).sum();
            assert_eq!(due, tainted, "{ready} ready, {not_ready} not");
        }
    }

    #[test]
    fn nothing_is_emptied_while_every_node_is_away() {
        let config = NodeLifecycleConfig::default();
        let mut zones = Zones::default();
        let well = counts(&[("a", 3, 0), ("b", 3, 0)]);
        let lost = counts(&[("a", 0, 3), ("b", 0, 3)]);
        assert_eq!(zones.decide(&well, &config, at(0)), ClusterHealth::Normal);
        assert_eq!(zones.decide(&lost, &config, at(5)), ClusterHealth::FullDisruption);
        zones.enqueue("a", "n", false);
        assert!(!zones.is_waiting() && zones.due(at(500)).is_empty());
        assert_eq!(zones.decide(&lost, &config, at(505)), ClusterHealth::Normal);
        assert_eq!(zones.decide(&counts(&[("a", 1, 2), ("b", 0, 3)]), &config, at(510)), ClusterHealth::Recovered);
        assert!(zones.is_waiting());
    }

    #[test]
    fn a_node_waits_once_and_is_tainted_once() {
        let config = NodeLifecycleConfig::default();
        let mut zones = Zones::default();
        zones.decide(&counts(&[("a", 3, 1)]), &config, at(0));
        zones.enqueue("a", "n", false);
        zones.enqueue("a", "n", false);
        assert_eq!(zones.due(at(0)), ["n"]);
        zones.enqueue("a", "n", true);
        assert_eq!(zones.due(at(60)), [""; 0]);
        zones.forget("a", "n");
        zones.enqueue("a", "n", false);
        assert_eq!(zones.due(at(120)), ["n"]);
    }
}
