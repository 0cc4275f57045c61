//! Metrics of clients, work queues and leader elections, under client-go's names.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bayplan_metrics::{Buckets, Counter, Family, Gauge, Histogram, ONES, Registry, SECONDS};

/// The status code of a request that got no answer.
const NO_ANSWER: &str = "<error>";

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Requests to an API server.
#[derive(Clone)]
pub struct RequestMetrics {
    requests: Family<Counter>,
    duration: Family<Histogram>,
    waited: Family<Histogram>,
    sent_bytes: Family<Histogram>,
    received_bytes: Family<Histogram>,
}

impl RequestMetrics {
    /// Registers `rest_client_*`.
    pub fn new(registry: &Registry) -> Self {
        let times = || Buckets::new(vec![0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0], SECONDS);
        let kibi = 1024.0;
        let bounds = [0.0625, 0.25, 0.5, 1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0];
        let sizes = || Buckets::new(bounds.iter().map(|size| size * kibi).collect(), ONES);
        RequestMetrics {
            requests: registry.family(
                "rest_client_requests_total",
                "[ALPHA] Requests, by status code, method and host.",
                &["code", "method", "host"],
                (),
            ),
            duration: registry.family(
                "rest_client_request_duration_seconds",
                "[ALPHA] Time until the head of an answer, by verb and host.",
                &["verb", "host"],
                times(),
            ),
            waited: registry.family(
                "rest_client_rate_limiter_duration_seconds",
                "[ALPHA] Time that requests were held back by their own budget, by verb and host.",
                &["verb", "host"],
                times(),
            ),
            sent_bytes: registry.family(
                "rest_client_request_size_bytes",
                "[ALPHA] Size of request bodies, by verb and host.",
                &["verb", "host"],
                sizes(),
            ),
            received_bytes: registry.family(
                "rest_client_response_size_bytes",
                "[ALPHA] Size of whole answers, by verb and host.",
                &["verb", "host"],
                sizes(),
            ),
        }
    }

    pub(crate) fn waited(&self, verb: &str, host: &str, since: Instant) {
        self.waited.get(&[verb, host]).observe(nanos(since.elapsed()));
    }

    pub(crate) fn answered(&self, verb: &str, host: &str, code: Option<u16>, sent: usize, since: Instant) {
        self.duration.get(&[verb, host]).observe(nanos(since.elapsed()));
        self.sent_bytes.get(&[verb, host]).observe(sent as u64);
        let code = code.map(|code| code.to_string());
        self.requests.get(&[code.as_deref().unwrap_or(NO_ANSWER), verb, host]).inc();
    }

    pub(crate) fn received(&self, verb: &str, host: &str, bytes: usize) {
        self.received_bytes.get(&[verb, host]).observe(bytes as u64);
    }
}

/// Leader elections.
#[derive(Clone)]
pub struct ElectionMetrics {
    leading: Family<Gauge>,
}

impl ElectionMetrics {
    /// Registers `leader_election_*`.
    pub fn new(registry: &Registry) -> Self {
        ElectionMetrics {
            leading: registry.family(
                "leader_election_master_status",
                "[ALPHA] Whether this process leads, by the name of the lease.",
                &["name"],
                (),
            ),
        }
    }

    pub(crate) fn set_leading(&self, name: &str, leading: bool) {
        self.leading.get(&[name]).set(f64::from(u8::from(leading)));
    }
}

/// Work queues.
#[derive(Clone)]
pub struct QueueMetrics {
    depth: Family<Gauge>,
    adds: Family<Counter>,
    waited: Family<Histogram>,
    worked: Family<Histogram>,
    retries: Family<Counter>,
    unfinished: Family<Gauge>,
    longest: Family<Gauge>,
}

impl QueueMetrics {
    /// Registers `workqueue_*`.
    pub fn new(registry: &Registry) -> Self {
        let times = || Buckets::new((-8..=3).map(|exponent| 10f64.powi(exponent)).collect(), SECONDS);
        let gauge = |name, help| registry.family(name, help, &["name"], ());
        let counter = |name, help| registry.family(name, help, &["name"], ());
        let histogram = |name, help| registry.family(name, help, &["name"], times());
        QueueMetrics {
            depth: gauge("workqueue_depth", "[ALPHA] Keys that are ready."),
            adds: counter("workqueue_adds_total", "[ALPHA] Keys added."),
            waited: histogram("workqueue_queue_duration_seconds", "[ALPHA] Time that keys waited for a worker."),
            worked: histogram("workqueue_work_duration_seconds", "[ALPHA] Time that reconciling a key took."),
            retries: counter("workqueue_retries_total", "[ALPHA] Keys put back after a failure."),
            unfinished: gauge("workqueue_unfinished_work_seconds", "[ALPHA] Time spent so far on keys not done yet."),
            longest: gauge(
                "workqueue_longest_running_processor_seconds",
                "[ALPHA] Time spent so far on the key that has taken longest.",
            ),
        }
    }

    /// The metrics of the queue of this name.
    pub(crate) fn of<K>(&self, name: &str) -> QueueRecorder<K> {
        QueueRecorder {
            depth: self.depth.get(&[name]),
            adds: self.adds.get(&[name]),
            waited: self.waited.get(&[name]),
            worked: self.worked.get(&[name]),
            retries: self.retries.get(&[name]),
            unfinished: self.unfinished.get(&[name]),
            longest: self.longest.get(&[name]),
            added: HashMap::new(),
            started: HashMap::new(),
        }
    }
}

/// The metrics of one work queue, and the times they are measured from.
pub(crate) struct QueueRecorder<K> {
    depth: Arc<Gauge>,
    adds: Arc<Counter>,
    waited: Arc<Histogram>,
    worked: Arc<Histogram>,
    retries: Arc<Counter>,
    unfinished: Arc<Gauge>,
    longest: Arc<Gauge>,
    added: HashMap<K, Duration>,
    started: HashMap<K, Duration>,
}

impl<K: Clone + Eq + Hash> QueueRecorder<K> {
    /// A key was added; one that is queued already is not counted again.
    pub(crate) fn added(&mut self, key: &K, now: Duration) {
        if !self.added.contains_key(key) {
            self.added.insert(key.clone(), now);
            self.adds.inc();
        }
    }

    pub(crate) fn retried(&self) {
        self.retries.inc();
    }

    pub(crate) fn taken(&mut self, key: &K, now: Duration) {
        // A key that came due by itself was added when it did.
        let since = self.added.remove(key).unwrap_or_else(|| {
            self.adds.inc();
            now
        });
        self.waited.observe(nanos(now.saturating_sub(since)));
        self.started.insert(key.clone(), now);
    }

    pub(crate) fn done(&mut self, key: &K, now: Duration) {
        if let Some(since) = self.started.remove(key) {
            self.worked.observe(nanos(now.saturating_sub(since)));
        }
    }

    /// Brings the gauges up to date.
    pub(crate) fn publish(&self, depth: usize, now: Duration) {
        let ages = || self.started.values().map(|since| now.saturating_sub(*since).as_secs_f64());
        self.depth.set(depth as f64);
        self.unfinished.set(ages().sum());
        self.longest.set(ages().fold(0.0, f64::max));
    }
}
