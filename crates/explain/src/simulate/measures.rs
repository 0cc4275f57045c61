//! What is measured while a simulation runs: time-weighted sums, samples at even distances, and how long pods waited.

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_model::affinity::TopologySpreadConstraint;
use bayplan_model::label_selector::{LabelSelector, Selector};
use bayplan_model::meta::Map;
use bayplan_model::pod::Pod;
use bayplan_scheduler::Scheduler;
use jiff::{SignedDuration, Timestamp};
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::capacity::{Capacity, Mix, Shares};

/// How many spreading rules are followed; further ones count no violations. A history has one for each workload that
/// spreads, and each is compared with the labels of every template in its namespace.
const SPREAD_RULES_MAX: usize = 1000;

/// For how many templates it is kept which rules count their pods. Pods with labels of their own would fill memory.
const COUNTED_MAX: usize = 10_000;

/// How long pods waited for a node, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Waits {
    /// Half of them waited no longer.
    pub p50: f64,
    /// 99 of 100 waited no longer.
    pub p99: f64,
    /// The longest wait.
    pub max: f64,
}

/// The cluster at one time.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sample {
    /// When.
    pub time: Timestamp,
    /// Nodes with pods of other controllers than DaemonSets.
    pub nodes_in_use: usize,
    /// Pods on nodes.
    pub pods: usize,
    /// Pods without a node.
    pub pending: usize,
    /// What is requested of what can be allocated.
    pub utilisation: Shares,
    /// The share of what is free that no pod of the mix can use.
    pub fragmented: Shares,
}

/// The figures of one configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Metrics {
    /// Nodes with pods of other controllers than DaemonSets, on average over time.
    pub nodes_in_use: f64,
    /// The most of them at one time.
    pub nodes_in_use_max: usize,
    /// How long pods were pending, summed over all pods, in minutes.
    pub pending_pod_minutes: f64,
    /// Pods that were evicted for more important ones.
    pub preemptions: usize,
    /// The share of what is free that no pod of the mix can use, on average over the samples.
    pub fragmented: Shares,
    /// Placements after which a spreading rule of the pod was exceeded.
    pub spread_violations: usize,
    /// What is requested of what can be allocated, on average over the samples.
    pub utilisation: Shares,
    /// How long pods waited for a node.
    pub wait_seconds: Waits,
    /// Pods that were created, those that came back after an eviction included.
    pub pods_created: usize,
    /// Placements.
    pub pods_placed: usize,
    /// Pods that had found no node at the end, or when they were deleted.
    pub pods_never_placed: usize,
    /// The cluster over time.
    pub over_time: Vec<Sample>,
}

/// The pods that one spreading rule counts, by domain.
struct SpreadRule {
    namespace: String,
    topology_key: String,
    selector: Selector,
    counts: FxHashMap<String, u32>,
    /// How many domains have a count, by the count; those with none are not in it.
    histogram: BTreeMap<u32, usize>,
}

impl SpreadRule {
    fn change(&mut self, domain: &str, more: bool) {
        let count = self.counts.entry(domain.to_owned()).or_default();
        if *count > 0
            && let Some(domains) = self.histogram.get_mut(count)
        {
            *domains -= 1;
            if *domains == 0 {
                self.histogram.remove(count);
            }
        }
        *count = if more { *count + 1 } else { count.saturating_sub(1) };
        match *count {
            0 => drop(self.counts.remove(domain)),
            now => *self.histogram.entry(now).or_default() += 1,
        }
    }

    /// How far the domain is above the emptiest of so many.
    fn skew(&self, domain: &str, domains: usize) -> u32 {
        let least = match domains > self.counts.len() {
            true => 0,
            false => self.histogram.keys().next().copied().unwrap_or(0),
        };
        self.counts.get(domain).copied().unwrap_or(0).saturating_sub(least)
    }
}

/// The measures of one configuration while it runs.
pub(super) struct Measures {
    metrics: Metrics,
    mix: Arc<Mix>,
    start: Timestamp,
    sample_every: SignedDuration,
    next_sample: Timestamp,
    node_seconds: f64,
    pending: usize,
    /// Pods by node, without those of DaemonSets.
    in_use: FxHashMap<String, u32>,
    waits: Vec<f32>,
    rules: Vec<SpreadRule>,
    /// The rules by namespace, topology key and what they select.
    rule_of: FxHashMap<(String, String, Option<LabelSelector>), usize>,
    /// The rules that count pods of a namespace with some labels.
    counted_by: FxHashMap<(String, Map), Arc<[usize]>>,
    /// The number of domains by topology key, as long as the nodes stay as they are.
    domains: FxHashMap<String, usize>,
}

impl Measures {
    /// Begins to measure, with a sample at every `sample_every`.
    pub(super) fn new(start: Timestamp, sample_every: SignedDuration, mix: Arc<Mix>) -> Self {
        Measures {
            metrics: Metrics::default(),
            mix,
            start,
            sample_every,
            next_sample: start,
            node_seconds: 0.0,
            pending: 0,
            in_use: FxHashMap::default(),
            waits: Vec::new(),
            rules: Vec::new(),
            rule_of: FxHashMap::default(),
            counted_by: FxHashMap::default(),
            domains: FxHashMap::default(),
        }
    }

    /// Time passes, in which nothing changes.
    pub(super) fn pass(&mut self, from: Timestamp, to: Timestamp, scheduler: &Scheduler) {
        while self.next_sample < to {
            self.sample(self.next_sample, scheduler);
            self.next_sample = self.next_sample.checked_add(self.sample_every).unwrap_or(to);
        }
        let seconds = to.duration_since(from).as_secs_f64();
        self.node_seconds += seconds * self.in_use.len() as f64;
        self.metrics.pending_pod_minutes += seconds * self.pending as f64 / 60.0;
    }

    fn sample(&mut self, time: Timestamp, scheduler: &Scheduler) {
        let Capacity { pods, utilisation, fragmented, .. } = Capacity::of(scheduler.cluster(), self.pending, &self.mix);
        let (nodes_in_use, pending) = (self.in_use.len(), self.pending);
        self.metrics.over_time.push(Sample { time, nodes_in_use, pods, pending, utilisation, fragmented });
    }

    pub(super) fn nodes_changed(&mut self) {
        self.domains.clear();
    }

    pub(super) fn arrived(&mut self) {
        self.metrics.pods_created += 1;
        self.pending += 1;
    }

    pub(super) fn waited(&mut self, time: SignedDuration) {
        self.pending = self.pending.saturating_sub(1);
        self.metrics.pods_placed += 1;
        self.waits.push(time.as_secs_f32());
    }

    /// A pod goes that found no node.
    pub(super) fn gave_up(&mut self, waited: SignedDuration) {
        self.pending = self.pending.saturating_sub(1);
        self.metrics.pods_never_placed += 1;
        self.waits.push(waited.as_secs_f32());
    }

    pub(super) fn preempted(&mut self) {
        self.metrics.preemptions += 1;
    }

    /// A pod is on a node now.
    pub(super) fn placed(&mut self, pod: &Pod, node: &str, scheduler: &Scheduler) {
        if !is_daemon(pod) {
            *self.in_use.entry(node.to_owned()).or_default() += 1;
            self.metrics.nodes_in_use_max = self.metrics.nodes_in_use_max.max(self.in_use.len());
        }
        self.count_for_rules(pod, node, true, scheduler);
    }

    /// A pod has left its node.
    pub(super) fn left(&mut self, pod: &Pod, scheduler: &Scheduler) {
        let node = &pod.spec.node_name;
        if !is_daemon(pod)
            && let Some(count) = self.in_use.get_mut(node)
        {
            *count -= 1;
            if *count == 0 {
                self.in_use.remove(node);
            }
        }
        self.count_for_rules(pod, node, false, scheduler);
    }

    fn count_for_rules(&mut self, pod: &Pod, node: &str, more: bool, scheduler: &Scheduler) {
        if self.rules.is_empty() {
            return;
        }
        let rules = self.rules_counting(pod);
        let node = if rules.is_empty() { None } else { scheduler.cluster().node(node) };
        for at in rules.iter() {
            let rule = &mut self.rules[*at];
            if let Some(domain) = node.and_then(|node| node.label(&rule.topology_key)) {
                rule.change(domain, more);
            }
        }
    }

    /// The rules that count pods like this one.
    fn rules_counting(&mut self, pod: &Pod) -> Arc<[usize]> {
        let meta = &pod.metadata;
        let key = (meta.namespace.clone(), meta.labels.clone());
        if let Some(known) = self.counted_by.get(&key) {
            return known.clone();
        }
        let counts = |rule: &SpreadRule| rule.namespace == meta.namespace && rule.selector.matches(&meta.labels);
        let rules: Arc<[usize]> = (0..self.rules.len()).filter(|at| counts(&self.rules[*at])).collect();
        if self.counted_by.len() >= COUNTED_MAX {
            self.counted_by.clear();
        }
        self.counted_by.insert(key, rules.clone());
        rules
    }

    /// The rule of a constraint; none when its selector is invalid or there are too many.
    fn rule(&mut self, pod: &Pod, constraint: &TopologySpreadConstraint, scheduler: &Scheduler) -> Option<usize> {
        let (namespace, selector) = (&pod.metadata.namespace, &constraint.label_selector);
        let key = (namespace.clone(), constraint.topology_key.clone(), selector.clone());
        if let Some(at) = self.rule_of.get(&key) {
            return Some(*at);
        }
        let selector = Selector::of(selector.as_ref()).ok()?;
        if self.rules.len() >= SPREAD_RULES_MAX {
            return None;
        }
        self.rules.push(new_rule(pod, constraint.topology_key.clone(), selector, scheduler));
        self.rule_of.insert(key, self.rules.len() - 1);
        self.counted_by.clear();
        Some(self.rules.len() - 1)
    }

    /// Counts the rules of a pod that its placement exceeds.
    pub(super) fn check_spread(&mut self, pod: &Pod, node: &str, scheduler: &Scheduler) {
        for constraint in &pod.spec.topology_spread_constraints {
            let Some(at) = self.rule(pod, constraint, scheduler) else { continue };
            let key = &constraint.topology_key;
            let Some(domain) = scheduler.cluster().node(node).and_then(|node| node.label(key)) else { continue };
            let domains = *self.domains.entry(key.clone()).or_insert_with(|| count_domains(scheduler, key));
            let allowed = u32::try_from(constraint.max_skew).unwrap_or(0);
            if self.rules[at].skew(domain, domains) > allowed {
                self.metrics.spread_violations += 1;
            }
        }
    }

    /// Ends measuring.
    pub(super) fn end(&mut self, now: Timestamp, scheduler: &Scheduler) {
        self.sample(now, scheduler);
        let seconds = now.duration_since(self.start).as_secs_f64();
        self.metrics.nodes_in_use = match seconds > 0.0 {
            true => rounded(self.node_seconds / seconds),
            false => self.in_use.len() as f64,
        };
        self.metrics.pending_pod_minutes = rounded(self.metrics.pending_pod_minutes);
        self.metrics.utilisation = average(self.metrics.over_time.iter().map(|sample| &sample.utilisation));
        self.metrics.fragmented = average(self.metrics.over_time.iter().map(|sample| &sample.fragmented));
        self.waits.sort_by(f32::total_cmp);
        let at = |share: f64| {
            let index = ((self.waits.len() as f64 * share).ceil() as usize).clamp(1, self.waits.len().max(1)) - 1;
            self.waits.get(index).map_or(0.0, |wait| rounded(f64::from(*wait)))
        };
        self.metrics.wait_seconds = Waits { p50: at(0.5), p99: at(0.99), max: at(1.0) };
    }

    /// The figures.
    pub(super) fn into_metrics(self) -> Metrics {
        self.metrics
    }
}

fn new_rule(pod: &Pod, topology_key: String, selector: Selector, scheduler: &Scheduler) -> SpreadRule {
    let namespace = pod.metadata.namespace.clone();
    let (counts, histogram) = (FxHashMap::default(), BTreeMap::new());
    let mut rule = SpreadRule { namespace, topology_key, selector, counts, histogram };
    for node in scheduler.cluster().nodes() {
        let Some(domain) = node.label(&rule.topology_key).map(str::to_owned) else { continue };
        let same = node.pods().iter().filter(|other| other.metadata.namespace == rule.namespace);
        let count = same.filter(|other| rule.selector.matches(&other.metadata.labels)).count();
        (0..count).for_each(|_| rule.change(&domain, true));
    }
    rule
}

fn count_domains(scheduler: &Scheduler, key: &str) -> usize {
    let values: rustc_hash::FxHashSet<&str> = scheduler.cluster().nodes().filter_map(|node| node.label(key)).collect();
    values.len()
}

fn is_daemon(pod: &Pod) -> bool {
    pod.metadata.controller().is_some_and(|owner| owner.kind == "DaemonSet")
}

fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

/// The mean of shares, each over the samples that have it.
fn average<'s>(all: impl Iterator<Item = &'s Shares>) -> Shares {
    let mut sums: BTreeMap<&str, (f64, usize)> = BTreeMap::new();
    for shares in all {
        for (name, share) in shares {
            let (sum, count) = sums.entry(name).or_default();
            *sum += share;
            *count += 1;
        }
    }
    let mean = |(name, (sum, count)): (&str, (f64, usize))| (name.to_owned(), (sum / count as f64 * 1e6).round() / 1e6);
    sums.into_iter().map(mean).collect()
}
