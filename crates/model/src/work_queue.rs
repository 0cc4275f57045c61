//! The rate-limited, de-duplicating work queue of control loops (client-go's `workqueue`), as a state machine that
//! takes the time as an argument.
//!
//! ```text
//!   add ───────────────▶ ready (FIFO) ──get──▶ processing ──done──▶ (gone, or ready again when added meanwhile)
//!   add_after ─▶ waiting (by time) ──┘
//!   add_rate_limited = add_after(max(per-key exponential back-off, shared token bucket))
//! ```
//!
//! One key is never handed out twice at once. Times count from any fixed origin (the start of the process or of the
//! simulation) and never go back.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use crate::keyed::{KeyedMap, KeyedSet};

use crate::token_bucket::TokenBucket;

/// How failed keys are slowed down.
#[derive(Clone, Debug)]
pub struct RetryLimits {
    /// The delay after the first failure; it doubles with each further one.
    pub delay_min: Duration,
    /// The delay never exceeds this.
    pub delay_max: Duration,
    /// Retries per second over all keys.
    pub retries_per_second: f64,
    /// Retries that may happen at once over all keys.
    pub burst: u32,
}

/// client-go's default controller rate limiter.
impl Default for RetryLimits {
    fn default() -> Self {
        RetryLimits {
            delay_min: Duration::from_millis(5),
            delay_max: Duration::from_secs(1000),
            retries_per_second: 10.0,
            burst: 100,
        }
    }
}

/// The queue; see the module.
#[derive(Debug)]
pub struct WorkQueue<K> {
    ready: VecDeque<K>,
    /// Keys that need processing: those in `ready`, and those added while in `processing`.
    dirty: KeyedSet<K>,
    processing: KeyedSet<K>,
    /// Entries superseded by an earlier time stay in the heap and are skipped when they come up.
    waiting: BinaryHeap<Reverse<Delayed<K>>>,
    /// The entry of `waiting` that counts, for each waiting key.
    waiting_for: KeyedMap<K, (Duration, u64)>,
    sequence: u64,
    failures: KeyedMap<K, u32>,
    limits: RetryLimits,
    bucket: TokenBucket,
}

impl<K: Clone + Eq + Hash> Default for WorkQueue<K> {
    fn default() -> Self {
        Self::new(RetryLimits::default())
    }
}

impl<K: Clone + Eq + Hash> WorkQueue<K> {
    /// An empty queue.
    pub fn new(limits: RetryLimits) -> Self {
        WorkQueue {
            ready: VecDeque::new(),
            dirty: KeyedSet::default(),
            processing: KeyedSet::default(),
            waiting: BinaryHeap::new(),
            waiting_for: KeyedMap::default(),
            sequence: 0,
            failures: KeyedMap::default(),
            bucket: TokenBucket::new(limits.retries_per_second, limits.burst),
            limits,
        }
    }

    /// Adds a key to be processed; does nothing when it is queued already.
    pub fn add(&mut self, key: K) {
        if !self.dirty.insert(key.clone()) || self.processing.contains(&key) {
            return;
        }
        self.ready.push_back(key);
    }

    /// Asks for the key to be processed after a delay; of two times for one key, the earlier wins.
    pub fn add_after(&mut self, key: K, delay: Duration, now: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        let at = now.saturating_add(delay);
        if self.waiting_for.get(&key).is_some_and(|&(known, _)| known <= at) {
            return;
        }
        self.sequence += 1;
        self.waiting_for.insert(key.clone(), (at, self.sequence));
        self.waiting.push(Reverse(Delayed { at, sequence: self.sequence, key }));
    }

    /// Adds a failed key again, later with each failure; returns the delay.
    pub fn add_rate_limited(&mut self, key: K, now: Duration) -> Duration {
        let failures = self.failures.entry(key.clone()).or_insert(0);
        let factor = 1u32.checked_shl(*failures).unwrap_or(u32::MAX);
        *failures = failures.saturating_add(1);
        let exponential = self.limits.delay_min.saturating_mul(factor).min(self.limits.delay_max);
        let delay = exponential.max(self.bucket.reserve(now));
        self.add_after(key, delay, now);
        delay
    }

    /// Forgets the failures of a key.
    pub fn forget(&mut self, key: &K) {
        self.failures.remove(key);
    }

    /// How often the key was added with a rate limit since it was last forgotten.
    pub fn requeues(&self, key: &K) -> u32 {
        self.failures.get(key).copied().unwrap_or(0)
    }

    /// Hands out the next ready key; the caller must call [`done`](Self::done) when it has been processed.
    pub fn get(&mut self, now: Duration) -> Option<K> {
        self.wake(now);
        let key = self.ready.pop_front()?;
        self.dirty.remove(&key);
        self.processing.insert(key.clone());
        Some(key)
    }

    /// The key has been processed; it becomes ready again if it was added meanwhile.
    pub fn done(&mut self, key: &K) {
        if self.processing.remove(key) && self.dirty.contains(key) {
            self.ready.push_back(key.clone());
        }
    }

    /// When the first delayed key becomes ready.
    pub fn next_deadline(&mut self) -> Option<Duration> {
        self.drop_superseded();
        self.waiting.peek().map(|Reverse(w)| w.at)
    }

    /// Moves the delayed keys whose time has come to the ready ones.
    fn wake(&mut self, now: Duration) {
        while self.next_deadline().is_some_and(|at| at <= now) {
            let Some(Reverse(waiting)) = self.waiting.pop() else { return };
            self.waiting_for.remove(&waiting.key);
            self.add(waiting.key);
        }
    }

    fn drop_superseded(&mut self) {
        while let Some(Reverse(first)) = self.waiting.peek()
            && self.waiting_for.get(&first.key) != Some(&(first.at, first.sequence))
        {
            self.waiting.pop();
        }
    }

    /// How many keys are ready.
    pub fn len(&self) -> usize {
        self.ready.len()
    }

    /// True when no key is ready.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// True when no key is ready, waiting or being processed: the loop has come to rest.
    pub fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.waiting_for.is_empty() && self.processing.is_empty()
    }
}

/// A key and the time at which it becomes ready; keys of the same time become ready in the order they were added.
#[derive(Debug)]
struct Delayed<K> {
    at: Duration,
    sequence: u64,
    key: K,
}

impl<K> PartialEq for Delayed<K> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<K> Eq for Delayed<K> {}

impl<K> PartialOrd for Delayed<K> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<K> Ord for Delayed<K> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

#[cfg(test)]
mod tests {
    use bayplan_testkit::Rng;

    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Runs a trace: each line is a command, and `get` lines carry what they must answer after `=>`.
    fn check(trace: &str) {
        let mut queue = WorkQueue::<String>::default();
        let mut now = Duration::ZERO;
        for (number, line) in trace.lines().map(str::trim).enumerate().filter(|(_, l)| !l.is_empty()) {
            let (command, expected) = line.split_once("=>").map_or((line, ""), |(c, e)| (c.trim(), e.trim()));
            let words: Vec<&str> = command.split_whitespace().collect();
            let answer = match words[..] {
                ["at", millis] => {
                    now = ms(millis.parse().unwrap());
                    String::new()
                }
                ["add", key] => {
                    queue.add(key.into());
                    String::new()
                }
                ["after", key, millis] => {
                    queue.add_after(key.into(), ms(millis.parse().unwrap()), now);
                    String::new()
                }
                ["limited", key] => format!("{:?}", queue.add_rate_limited(key.into(), now)),
                ["forget", key] => {
                    queue.forget(&key.to_string());
                    String::new()
                }
                ["done", key] => {
                    queue.done(&key.to_string());
                    String::new()
                }
                ["get"] => queue.get(now).unwrap_or_else(|| "nothing".into()),
                ["deadline"] => queue.next_deadline().map_or("none".into(), |at| format!("{at:?}")),
                ["requeues", key] => queue.requeues(&key.to_string()).to_string(),
                ["idle"] => queue.is_idle().to_string(),
                _ => panic!("line {number}: {line}"),
            };
            assert_eq!(answer, expected, "line {number}: {line}");
        }
    }

    #[test]
    fn keys_come_out_once_each_and_in_order() {
        check(
            "add a
             add b
             add a
             get => a
             get => b
             get => nothing
             done a
             done b
             get => nothing
             idle => true",
        );
    }

    #[test]
    fn a_key_added_while_processed_comes_again_only_after_it_is_done() {
        check(
            "add a
             get => a
             add a
             add a
             add b
             get => b
             get => nothing
             done a
             get => a
             done a
             get => nothing
             idle => false
             done b
             idle => true",
        );
    }

    #[test]
    fn done_without_get_changes_nothing() {
        check(
            "add a
             done a
             get => a
             get => nothing",
        );
    }

    #[test]
    fn the_earlier_of_two_times_wins() {
        check(
            "after a 100
             after b 70
             after a 50
             after a 200
             deadline => 50ms
             get => nothing
             at 50
             get => a
             done a
             deadline => 70ms
             at 100
             get => b
             get => nothing
             deadline => none",
        );
    }

    #[test]
    fn no_delay_is_an_add() {
        check("after a 0\n get => a");
    }

    #[test]
    fn a_key_may_be_ready_and_waiting_at_once() {
        check(
            "add a
             after a 10
             get => a
             done a
             at 10
             get => a
             done a
             idle => true",
        );
    }

    #[test]
    fn each_failure_doubles_the_delay_until_it_is_forgotten() {
        check(
            "limited a => 5ms
             limited a => 10ms
             limited a => 20ms
             requeues a => 3
             limited b => 5ms
             forget a
             requeues a => 0
             limited a => 5ms",
        );
    }

    #[test]
    fn delays_are_capped_however_often_a_key_fails() {
        let mut queue = WorkQueue::default();
        let day = Duration::from_secs(86_400);
        let delays: Vec<Duration> = (0..100).map(|i| queue.add_rate_limited("a", day * i)).collect();
        assert_eq!(delays[17], ms(5 << 17));
        assert!(delays[18..].iter().all(|d| *d == Duration::from_secs(1000)));
    }

    #[test]
    fn all_keys_share_the_retry_budget() {
        let mut queue = WorkQueue::default();
        let delays: Vec<Duration> = (0..102).map(|key| queue.add_rate_limited(key, Duration::ZERO)).collect();
        assert!(delays[..100].iter().all(|d| *d == ms(5)));
        assert_eq!(delays[100..], [ms(100), ms(200)]);
    }

    /// Random histories against the two promises: never twice at once, and nothing asked for is lost.
    #[test]
    fn no_history_loses_a_key_or_hands_it_out_twice_at_once() {
        for seed in 1..200u64 {
            let mut rng = Rng::new(seed);
            let mut queue = WorkQueue::default();
            let (mut now, mut held, mut owed) = (Duration::ZERO, Vec::new(), KeyedSet::default());
            for _ in 0..300 {
                let key = rng.below(6);
                match rng.below(6) {
                    0 => {
                        queue.add(key);
                        owed.insert(key);
                    }
                    1 => {
                        queue.add_after(key, ms(rng.below(40) as u64), now);
                        owed.insert(key);
                    }
                    2 => {
                        queue.add_rate_limited(key, now);
                        owed.insert(key);
                    }
                    3 if !held.is_empty() => {
                        let done = held.swap_remove(rng.below(held.len()));
                        queue.done(&done);
                        queue.forget(&done);
                    }
                    4 => now += ms(rng.below(20) as u64),
                    _ => {
                        if let Some(got) = queue.get(now) {
                            assert!(!held.contains(&got), "seed {seed}: {got} handed out twice");
                            held.push(got);
                            owed.remove(&got);
                        }
                    }
                }
            }
            now += Duration::from_secs(5000);
            held.drain(..).for_each(|key| queue.done(&key));
            while let Some(key) = queue.get(now) {
                owed.remove(&key);
                queue.done(&key);
            }
            assert!(owed.is_empty(), "seed {seed}: {owed:?} lost");
            assert!(queue.is_idle(), "seed {seed}");
        }
    }
}
