//! The work queue for tokio workers: [`bayplan_model::work_queue`] with a clock and notifications.

use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bayplan_model::work_queue::{self, RetryLimits};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::metrics::{QueueMetrics, QueueRecorder};

/// A queue shared by any number of workers and producers; clones are the same queue.
#[derive(Clone)]
pub struct WorkQueue<K>(Arc<Shared<K>>);

struct Shared<K> {
    state: Mutex<State<K>>,
    /// Rung when a sleeping worker may have something to do.
    bell: Notify,
    origin: Instant,
}

struct State<K> {
    queue: work_queue::WorkQueue<K>,
    shut_down: bool,
    metrics: Option<QueueRecorder<K>>,
}

impl<K: Clone + Eq + Hash> Default for WorkQueue<K> {
    fn default() -> Self {
        Self::new(RetryLimits::default())
    }
}

impl<K: Clone + Eq + Hash> WorkQueue<K> {
    /// An empty queue.
    pub fn new(limits: RetryLimits) -> Self {
        let state = State { queue: work_queue::WorkQueue::new(limits), shut_down: false, metrics: None };
        WorkQueue(Arc::new(Shared { state: Mutex::new(state), bell: Notify::new(), origin: Instant::now() }))
    }

    /// Reports metrics under this name.
    pub fn record_metrics(&self, name: &str, metrics: &QueueMetrics) {
        self.state().metrics = Some(metrics.of(name));
    }

    /// Brings the gauges (depth, unfinished work) up to date.
    pub fn publish(&self) {
        let state = self.state();
        if let Some(metrics) = &state.metrics {
            metrics.publish(state.queue.len(), self.now());
        }
    }

    fn state(&self) -> MutexGuard<'_, State<K>> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.0.origin.elapsed()
    }

    /// Asks for the key to be processed.
    pub fn add(&self, key: K) {
        self.change(|state, now| {
            if let Some(metrics) = &mut state.metrics {
                metrics.added(&key, now);
            }
            state.queue.add(key);
        });
    }

    /// Asks for the key to be processed after a delay.
    pub fn add_after(&self, key: K, delay: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        self.change(|state, now| state.queue.add_after(key, delay, now));
    }

    /// Asks for a failed key to be processed again, later with each failure.
    pub fn add_rate_limited(&self, key: K) {
        self.change(|state, now| {
            if let Some(metrics) = &state.metrics {
                metrics.retried();
            }
            state.queue.add_rate_limited(key, now);
        });
    }

    /// Forgets the failures of a key.
    pub fn forget(&self, key: &K) {
        self.state().queue.forget(key);
    }

    /// How often the key failed since it was last forgotten.
    pub fn requeues(&self, key: &K) -> u32 {
        self.state().queue.requeues(key)
    }

    /// How many keys are ready.
    pub fn len(&self) -> usize {
        self.state().queue.len()
    }

    /// True when no key is ready.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits for the next key; `None` once the queue is shut down and drained.
    pub async fn get(&self) -> Option<K> {
        loop {
            let bell = self.0.bell.notified();
            let deadline = {
                let mut state = self.state();
                let now = self.now();
                if let Some(key) = state.queue.get(now) {
                    if let Some(metrics) = &mut state.metrics {
                        metrics.taken(&key, now);
                    }
                    // Wake another worker for what is left: this one is busy now.
                    if !state.queue.is_empty() || state.queue.next_deadline().is_some() {
                        self.0.bell.notify_one();
                    }
                    return Some(key);
                }
                if state.shut_down {
                    self.0.bell.notify_one();
                    return None;
                }
                state.queue.next_deadline()
            };
            match deadline {
                Some(at) => {
                    let _ = tokio::time::timeout_at(self.0.origin + at, bell).await;
                }
                None => bell.await,
            }
        }
    }

    /// The key has been processed.
    pub fn done(&self, key: &K) {
        self.record_done(key);
        self.release(key);
    }

    /// The key has been processed, and is not processed again before this rest is over, even if it is added.
    pub fn done_resting(&self, key: K, rest: Duration)
    where
        K: Send + 'static,
    {
        self.record_done(&key);
        let queue = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(rest).await;
            queue.release(&key);
        });
    }

    fn record_done(&self, key: &K) {
        let now = self.now();
        if let Some(metrics) = &mut self.state().metrics {
            metrics.done(key, now);
        }
    }

    fn release(&self, key: &K) {
        self.state().queue.done(key);
        self.0.bell.notify_one();
    }

    /// Ends the queue: what is ready is still handed out, what waits is not.
    pub fn shut_down(&self) {
        self.state().shut_down = true;
        self.0.bell.notify_one();
    }

    fn change(&self, change: impl FnOnce(&mut State<K>, Duration)) {
        let mut state = self.state();
        if !state.shut_down {
            change(&mut state, self.now());
            drop(state);
            self.0.bell.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_worker_wakes_at_the_time_of_a_delayed_key() {
        let queue = WorkQueue::default();
        let start = Instant::now();
        queue.add_after("late", Duration::from_secs(60));
        queue.add_after("early", Duration::from_secs(5));
        assert_eq!(queue.get().await, Some("early"));
        assert_eq!(start.elapsed().as_secs(), 5);
        assert_eq!(queue.get().await, Some("late"));
        assert_eq!(start.elapsed().as_secs(), 60);
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_worker_does_not_keep_a_deadline_to_itself() {
        let queue = WorkQueue::default();
        let start = Instant::now();
        let worker = |busy| {
            let queue = queue.clone();
            tokio::spawn(async move {
                let key = queue.get().await;
                let at = start.elapsed();
                tokio::time::sleep(busy).await;
                (key, at)
            })
        };
        let hour = Duration::from_secs(3600);
        let workers = [worker(hour), worker(hour)];
        tokio::task::yield_now().await;
        queue.add_after("x", Duration::from_secs(10));
        tokio::task::yield_now().await;
        queue.add("y");
        let mut got = Vec::new();
        for worker in workers {
            got.push(worker.await.unwrap());
        }
        got.sort();
        assert_eq!(got, [(Some("x"), Duration::from_secs(10)), (Some("y"), Duration::ZERO)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_resting_key_waits_for_the_end_of_its_rest_and_keeps_nobody_else() {
        let queue = WorkQueue::default();
        let start = Instant::now();
        queue.add("a");
        assert_eq!(queue.get().await, Some("a"));
        queue.done_resting("a", Duration::from_millis(20));
        queue.add("a");
        queue.add("b");
        queue.add("a");
        assert_eq!(queue.get().await, Some("b"));
        assert_eq!(start.elapsed(), Duration::ZERO);
        assert_eq!(queue.get().await, Some("a"));
        assert_eq!(start.elapsed().as_millis(), 20);
        queue.done(&"a");
        assert!(queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn shutting_down_hands_out_what_is_ready_and_releases_every_worker() {
        let queue = WorkQueue::default();
        queue.add("a");
        queue.add_after("b", Duration::from_secs(1));
        queue.shut_down();
        queue.add("c");
        assert_eq!(queue.get().await, Some("a"));
        let others = [tokio::spawn({
            let queue = queue.clone();
            async move { queue.get().await }
        })];
        assert_eq!(queue.get().await, None);
        for other in others {
            assert_eq!(other.await.unwrap(), None);
        }
    }
}
