//! Metrics: counters, gauges and histograms in Prometheus' text format.
//!
//! ```text
//!   Grid (label values known beforehand, by index) ─┐
//!   Family (label values found later, by name) ─────┼─▶ Registry ─▶ text
//!   one metric without labels ──────────────────────┘
//! ```
//!
//! An observation is one or two relaxed atomic additions: what counts hot loops must not slow them down. Histograms
//! take whole numbers of a small unit (nanoseconds, bytes, counts) and are written in the unit of their name.

mod registry;
pub mod text;
mod zpages;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

pub use registry::Registry;
pub use zpages::{NO_PROFILES, ZPages, is_profile};

/// One series, or the bucketed series of one histogram.
pub trait Metric: Send + Sync + 'static {
    /// The type as the text format names it.
    const TYPE: &'static str;
    /// What all series of a family share.
    type Options: Clone + Send + Sync;

    /// A metric at zero.
    fn new(options: &Self::Options) -> Self;
    /// Whether it was ever observed; a labelled series shows only then.
    fn is_touched(&self) -> bool;
    /// Back to zero.
    fn reset(&self);
    /// Writes its samples; `labels` are rendered already.
    fn write(&self, name: &str, labels: &str, out: &mut String);
}

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub fn inc(&self) {
        self.add(1);
    }

    /// This many more.
    pub fn add(&self, many: u64) {
        self.0.fetch_add(many, Relaxed);
    }

    /// How many.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Metric for Counter {
    const TYPE: &'static str = "counter";
    type Options = ();

    fn new((): &()) -> Self {
        Counter::default()
    }

    fn is_touched(&self) -> bool {
        self.get() > 0
    }

    fn reset(&self) {
        self.0.store(0, Relaxed);
    }

    fn write(&self, name: &str, labels: &str, out: &mut String) {
        text::sample(out, name, "", labels, self.get() as f64);
    }
}

/// A number that is set.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Sets it.
    pub fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Relaxed);
    }

    /// Adds to it; a negative number takes away.
    pub fn add(&self, change: f64) {
        let added = |bits: u64| Some((f64::from_bits(bits) + change).to_bits());
        let _ = self.0.fetch_update(Relaxed, Relaxed, added);
    }

    /// What it was set to.
    pub fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Relaxed))
    }
}

impl Metric for Gauge {
    const TYPE: &'static str = "gauge";
    type Options = ();

    fn new((): &()) -> Self {
        Gauge::default()
    }

    fn is_touched(&self) -> bool {
        true
    }

    /// What is, stays: only what was counted is forgotten.
    fn reset(&self) {}

    fn write(&self, name: &str, labels: &str, out: &mut String) {
        text::sample(out, name, "", labels, self.get());
    }
}

/// The upper bounds of a histogram.
#[derive(Clone, Debug)]
pub struct Buckets(Arc<Bounds>);

#[derive(Debug)]
struct Bounds {
    /// As written.
    shown: Vec<f64>,
    /// The largest observation that falls under each bound.
    limits: Vec<u64>,
    /// Observations of one written unit: a thousand million nanoseconds a second.
    units: f64,
}

/// Nanoseconds in a second: the scale of durations.
pub const SECONDS: f64 = 1e9;
/// The scale of plain counts.
pub const ONES: f64 = 1.0;

impl Buckets {
    /// These bounds, for observations of which `units` make one.
    pub fn new(shown: Vec<f64>, units: f64) -> Self {
        // Go prints 0.1 for a bound of 0.1 s, and 0.1 s must count as at most that.
        let limits = shown.iter().map(|bound| (bound * units + 1e-6).floor() as u64).collect();
        Buckets(Arc::new(Bounds { shown, limits, units }))
    }

    /// `count` bounds, each `factor` times the one before.
    pub fn exponential(start: f64, factor: f64, count: usize, units: f64) -> Self {
        let next = |bound: &f64| Some(bound * factor);
        Buckets::new(std::iter::successors(Some(start), next).take(count).collect(), units)
    }
}

/// How often observations fell under each bound, and their sum.
#[derive(Debug)]
pub struct Histogram {
    bounds: Buckets,
    /// One for each bound, and one for what is above all.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    /// Takes an observation in.
    pub fn observe(&self, value: u64) {
        self.observe_times(value, 1);
    }

    /// Takes an observation in that stands for so many equal ones.
    pub fn observe_times(&self, value: u64, times: u64) {
        let at = self.bounds.0.limits.partition_point(|limit| *limit < value);
        self.counts[at].fetch_add(times, Relaxed);
        self.sum.fetch_add(value.saturating_mul(times), Relaxed);
    }

    /// How many observations there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Relaxed)).sum()
    }
}

impl Metric for Histogram {
    const TYPE: &'static str = "histogram";
    type Options = Buckets;

    fn new(bounds: &Buckets) -> Self {
        let counts = (0..=bounds.0.limits.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram { bounds: bounds.clone(), counts, sum: AtomicU64::new(0) }
    }

    fn is_touched(&self) -> bool {
        self.counts.iter().any(|count| count.load(Relaxed) > 0)
    }

    fn reset(&self) {
        self.counts.iter().chain([&self.sum]).for_each(|count| count.store(0, Relaxed));
    }

    fn write(&self, name: &str, labels: &str, out: &mut String) {
        let separator = if labels.is_empty() { "" } else { "," };
        let bounds = &self.bounds.0;
        let mut total = 0;
        for (count, bound) in self.counts.iter().zip(bounds.shown.iter().copied().chain([f64::INFINITY])) {
            total += count.load(Relaxed);
            let labels = format!("{labels}{separator}le=\"{}\"", text::number(bound));
            text::sample(out, name, "_bucket", &labels, total as f64);
        }
        text::sample(out, name, "_sum", labels, self.sum.load(Relaxed) as f64 / bounds.units);
        text::sample(out, name, "_count", labels, total as f64);
    }
}

/// Series by label values that are not known beforehand; look a series up once and keep it where it is used often.
pub struct Family<M: Metric>(Arc<Open<M>>);

impl<M: Metric> Clone for Family<M> {
    fn clone(&self) -> Self {
        Family(Arc::clone(&self.0))
    }
}

struct Open<M: Metric> {
    labels: &'static [&'static str],
    options: M::Options,
    /// In the order of their label values: an API server has a thousand, and looks them up at every request.
    series: RwLock<Vec<Labelled<M>>>,
}

/// The values of the labels, and the series that has them.
type Labelled<M> = (Vec<String>, Arc<M>);

impl<M: Metric> Family<M> {
    fn new(labels: &'static [&'static str], options: M::Options) -> Self {
        Family(Arc::new(Open { labels, options, series: RwLock::default() }))
    }

    /// The series of these label values, in the order of the label names.
    pub fn get(&self, values: &[&str]) -> Arc<M> {
        debug_assert_eq!(values.len(), self.0.labels.len());
        // Comparing label values is cheaper than copying them.
        let find = |series: &[Labelled<M>]| {
            series.binary_search_by(|(key, _)| key.iter().map(String::as_str).cmp(values.iter().copied()))
        };
        let series = self.0.series.read().unwrap_or_else(PoisonError::into_inner);
        if let Ok(at) = find(&series) {
            return Arc::clone(&series[at].1);
        }
        drop(series);
        let mut series = self.0.series.write().unwrap_or_else(PoisonError::into_inner);
        let at = find(&series).unwrap_or_else(|at| {
            let key = values.iter().map(ToString::to_string).collect();
            series.insert(at, (key, Arc::new(M::new(&self.0.options))));
            at
        });
        Arc::clone(&series[at].1)
    }

    /// Removes all series, for gauges that are set from scratch.
    pub fn clear(&self) {
        self.0.series.write().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Series by label values that are known beforehand, reached by index: no lock, no hash, no allocation after
/// the first observation.
pub struct Grid<M: Metric>(Arc<Closed<M>>);

impl<M: Metric> Clone for Grid<M> {
    fn clone(&self) -> Self {
        Grid(Arc::clone(&self.0))
    }
}

/// A label and the values it may have.
pub type Dimension = (&'static str, Vec<String>);

struct Closed<M: Metric> {
    dimensions: Vec<Dimension>,
    options: M::Options,
    series: Box<[OnceLock<M>]>,
}

impl<M: Metric> Grid<M> {
    fn new(dimensions: Vec<Dimension>, options: M::Options) -> Self {
        let many = dimensions.iter().map(|(_, values)| values.len()).product();
        Grid(Arc::new(Closed { dimensions, options, series: (0..many).map(|_| OnceLock::new()).collect() }))
    }

    /// The series at these indexes, one for each label.
    pub fn at<const N: usize>(&self, places: [usize; N]) -> &M {
        debug_assert_eq!(N, self.0.dimensions.len());
        let at = places.iter().zip(&self.0.dimensions).fold(0, |at, (place, (_, values))| {
            debug_assert!(*place < values.len());
            at * values.len() + place
        });
        self.0.series[at].get_or_init(|| M::new(&self.0.options))
    }
}

#[cfg(test)]
mod tests;
