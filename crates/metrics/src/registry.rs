//! All metrics of a process by name, and the text that is scraped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Closed, Dimension, Family, Grid, Metric, Open, text};

/// What a family shows of itself.
trait Collect: Send + Sync {
    /// Writes the samples of all series.
    fn collect(&self, name: &str, out: &mut String);
    fn reset(&self);
}

struct Entry {
    help: &'static str,
    kind: &'static str,
    source: Box<dyn Collect>,
}

/// All metrics of a process; clones are the same registry.
#[derive(Clone, Default)]
pub struct Registry(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    entries: BTreeMap<&'static str, Entry>,
    disabled: BTreeSet<String>,
}

impl Registry {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, name: &'static str, help: &'static str, kind: &'static str, source: Box<dyn Collect>) {
        self.state().entries.insert(name, Entry { help, kind, source });
    }

    /// A metric without labels; it shows from the start.
    pub fn one<M: Metric>(&self, name: &'static str, help: &'static str, options: M::Options) -> Arc<M> {
        let metric = Arc::new(M::new(&options));
        self.add(name, help, M::TYPE, Box::new(One(Arc::clone(&metric))));
        metric
    }

    /// Series whose label values are not known beforehand.
    pub fn family<M: Metric>(
        &self,
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        options: M::Options,
    ) -> Family<M> {
        let family = Family::new(labels, options);
        self.add(name, help, M::TYPE, Box::new(family.0.clone()));
        family
    }

    /// Series whose label values are known beforehand.
    pub fn grid<M: Metric>(
        &self,
        name: &'static str,
        help: &'static str,
        dimensions: Vec<Dimension>,
        options: M::Options,
    ) -> Grid<M> {
        let grid = Grid::new(dimensions, options);
        self.add(name, help, M::TYPE, Box::new(grid.0.clone()));
        grid
    }

    /// A number that a function returns at each scrape; `kind` is `gauge` or `counter`.
    pub fn callback(
        &self,
        name: &'static str,
        help: &'static str,
        kind: &'static str,
        read: impl Fn() -> Option<f64> + Send + Sync + 'static,
    ) {
        self.add(name, help, kind, Box::new(Callback(read)));
    }

    /// Leaves metrics of these names out from now on.
    pub fn disable(&self, names: impl IntoIterator<Item = String>) {
        self.state().disabled.extend(names);
    }

    /// The text of all metrics, by name. A family without series is left out.
    pub fn render(&self) -> String {
        let state = self.state();
        let (mut out, mut samples) = (String::new(), String::new());
        for (name, entry) in state.entries.iter().filter(|(name, _)| !state.disabled.contains(**name)) {
            samples.clear();
            entry.source.collect(name, &mut samples);
            if !samples.is_empty() {
                text::head(&mut out, name, entry.help, entry.kind);
                out.push_str(&samples);
            }
        }
        out
    }

    /// Resets all metrics.
    pub fn reset(&self) {
        self.state().entries.values().for_each(|entry| entry.source.reset());
    }
}

struct One<M>(Arc<M>);

impl<M: Metric> Collect for One<M> {
    fn collect(&self, name: &str, out: &mut String) {
        self.0.write(name, "", out);
    }

    fn reset(&self) {
        self.0.reset();
    }
}

impl<M: Metric> Collect for Arc<Open<M>> {
    fn collect(&self, name: &str, out: &mut String) {
        let series = self.series.read().unwrap_or_else(PoisonError::into_inner);
        for (values, metric) in series.iter().filter(|(_, metric)| metric.is_touched()) {
            let pairs = self.labels.iter().copied().zip(values.iter().map(String::as_str));
            metric.write(name, &text::labels(pairs), out);
        }
    }

    fn reset(&self) {
        let series = self.series.read().unwrap_or_else(PoisonError::into_inner);
        series.iter().for_each(|(_, metric)| metric.reset());
    }
}

impl<M: Metric> Collect for Arc<Closed<M>> {
    fn collect(&self, name: &str, out: &mut String) {
        let known = self.series.iter().enumerate().filter_map(|(at, metric)| Some((at, metric.get()?)));
        let mut lines: Vec<(String, &M)> = known
            .filter(|(_, metric)| metric.is_touched())
            .map(|(mut at, metric)| {
                let mut pairs = Vec::new();
                for (label, values) in self.dimensions.iter().rev() {
                    pairs.push((*label, values[at % values.len()].as_str()));
                    at /= values.len();
                }
                (text::labels(pairs.into_iter()), metric)
            })
            .collect();
        lines.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        lines.iter().for_each(|(labels, metric)| metric.write(name, labels, out));
    }

    fn reset(&self) {
        self.series.iter().filter_map(|metric| metric.get()).for_each(Metric::reset);
    }
}

struct Callback<F>(F);

impl<F: Fn() -> Option<f64> + Send + Sync> Collect for Callback<F> {
    fn collect(&self, name: &str, out: &mut String) {
        if let Some(value) = (self.0)() {
            text::sample(out, name, "", "", value);
        }
    }

    fn reset(&self) {}
}
