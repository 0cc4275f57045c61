//! How many replicas a metric asks for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use crate::pod::{Phase, Pod, Readiness};

/// How far from its target a metric may be before anything is changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerances {
    /// Below the target.
    pub scale_down: f64,
    /// Above the target.
    pub scale_up: f64,
}

impl Tolerances {
    fn allow(self, ratio: f64) -> bool {
        (1.0 - self.scale_down) <= ratio && ratio <= (1.0 + self.scale_up)
    }
}

/// What is known of one pod's use of a resource, or of another metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodMetric {
    /// When it was measured.
    pub time: Timestamp,
    /// Over how long.
    pub window: Duration,
    /// Thousandths.
    pub milli: i64,
}

/// The metrics of pods, by name.
pub type PodMetrics = BTreeMap<String, PodMetric>;

/// How long pods may take to start before what they use counts.
#[derive(Clone, Copy, Debug)]
pub struct StartUp {
    /// `--horizontal-pod-autoscaler-cpu-initialization-period`.
    pub cpu_initialization_period: Duration,
    /// `--horizontal-pod-autoscaler-initial-readiness-delay`.
    pub initial_readiness_delay: Duration,
}

/// The pods of a target at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a, P> {
    /// `scale.spec.replicas`.
    pub current: i32,
    /// The pods that its selector selects.
    pub pods: &'a [P],
    /// When changes are too small.
    pub tolerances: Tolerances,
    /// When pods count.
    pub start_up: StartUp,
    /// The time.
    pub now: Timestamp,
}

/// The answer for a target in percent of what pods ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Utilization {
    /// The replicas.
    pub replicas: i32,
    /// The utilization now, in percent.
    pub percent: i32,
    /// The use of a pod on average, in thousandths.
    pub milli: i64,
}

const NO_PODS: &str = "no pods returned by selector while calculating replica count";
const NO_METRICS: &str = "did not receive metrics for targeted pods (pods might be unready)";

/// The pods by what their metrics are worth.
#[derive(Default)]
struct Groups<'a> {
    ready: usize,
    unready: BTreeSet<&'a str>,
    missing: BTreeSet<&'a str>,
    ignored: BTreeSet<&'a str>,
}

impl<P: AsRef<Pod>> Target<'_, P> {
    fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.pods.iter().map(|pod| pod.as_ref())
    }

    /// The replicas for a target in percent of what the pods request of a resource; of one container only, if it is
    /// named.
    pub fn for_utilization(
        &self,
        mut metrics: PodMetrics,
        resource: &str,
        container: &str,
        target: i32,
    ) -> Result<Utilization, String> {
        let groups = self.groups(&mut metrics, resource)?;
        let mut requests = BTreeMap::new();
        for pod in self.pods() {
            requests.insert(pod.metadata.name.as_str(), requested(pod, container, resource)?);
        }
        let (ratio, percent, milli) = utilization(&metrics, &requests, target)?;
        let answer = |replicas| Utilization { replicas, percent, milli };
        if let Some(replicas) = self.without_filling(&groups, ratio) {
            return Ok(answer(replicas));
        }
        // On the way down a pod without metrics is thought to use all it asked for, or what the target allows.
        let full = i64::from(target.max(100));
        let fallback = |name: &str| requests.get(name).copied().unwrap_or(0).saturating_mul(full) / 100;
        self.fill(&mut metrics, &groups, ratio, fallback);
        let (filled, ..) = utilization(&metrics, &requests, target)?;
        Ok(answer(self.after_filling(ratio, filled, metrics.len())))
    }

    /// The replicas for a target per pod, and the use of a pod on average.
    pub fn for_average(&self, mut metrics: PodMetrics, resource: &str, target: i64) -> Result<(i32, i64), String> {
        let groups = self.groups(&mut metrics, resource)?;
        let (ratio, usage) = average(&metrics, target);
        if let Some(replicas) = self.without_filling(&groups, ratio) {
            return Ok((replicas, usage));
        }
        self.fill(&mut metrics, &groups, ratio, |_| target);
        let (filled, _) = average(&metrics, target);
        Ok((self.after_filling(ratio, filled, metrics.len()), usage))
    }

    /// The replicas for a value that all pods share.
    pub fn for_value(&self, usage: i64, target: i64) -> Result<i32, String> {
        let ratio = usage as f64 / target as f64;
        if self.current == 0 {
            return Ok(ratio.ceil() as i32);
        }
        if self.tolerances.allow(ratio) {
            return Ok(self.current);
        }
        if self.pods.is_empty() {
            return Err(format!("unable to calculate ready pods: {NO_PODS}"));
        }
        let is_ready = |pod: &&Pod| pod.phase == Phase::Running && pod.ready;
        let ready = self.pods().filter(is_ready).count();
        Ok((ratio * ready as f64).ceil() as i32)
    }

    /// Groups the pods, and drops the metrics of those that do not count.
    fn groups(&self, metrics: &mut PodMetrics, resource: &str) -> Result<Groups<'_>, String> {
        if self.pods.is_empty() {
            return Err(NO_PODS.to_owned());
        }
        let mut groups = Groups::default();
        for pod in self.pods() {
            let name = pod.metadata.name.as_str();
            if pod.metadata.deletion_timestamp.is_some() || pod.phase == Phase::Failed {
                groups.ignored.insert(name);
            } else if pod.phase == Phase::Pending {
                groups.unready.insert(name);
            } else if let Some(metric) = metrics.get(name) {
                if resource == "cpu" && self.is_unready(pod, metric) {
                    groups.unready.insert(name);
                } else {
                    groups.ready += 1;
                }
            } else {
                groups.missing.insert(name);
            }
        }
        metrics.retain(|name, _| !groups.ignored.contains(name.as_str()) && !groups.unready.contains(name.as_str()));
        if metrics.is_empty() { Err(NO_METRICS.to_owned()) } else { Ok(groups) }
    }

    /// Whether the cpu that a pod uses says nothing yet: it starts, or never was ready.
    fn is_unready(&self, pod: &Pod, metric: &PodMetric) -> bool {
        let (Some(started), true) = (pod.started_at, pod.readiness != Readiness::Absent) else { return true };
        let is_false = pod.readiness == Readiness::False;
        let since = pod.ready_since.unwrap_or(Timestamp::MIN);
        if later(started, self.start_up.cpu_initialization_period) > self.now {
            is_false || metric.time < later(since, metric.window)
        } else {
            is_false && later(started, self.start_up.initial_readiness_delay) > since
        }
    }

    /// The answer if every pod that counts has metrics.
    fn without_filling(&self, groups: &Groups<'_>, ratio: f64) -> Option<i32> {
        if !groups.missing.is_empty() || (!groups.unready.is_empty() && ratio > 1.0) {
            return None;
        }
        if self.tolerances.allow(ratio) {
            return Some(self.current);
        }
        Some((ratio * groups.ready as f64).ceil() as i32)
    }

    /// Assumes what would change least of pods without metrics.
    fn fill(&self, metrics: &mut PodMetrics, groups: &Groups<'_>, ratio: f64, fallback: impl Fn(&str) -> i64) {
        let of = |milli| PodMetric { time: self.now, window: Duration::ZERO, milli };
        if ratio < 1.0 {
            metrics.extend(groups.missing.iter().map(|name| ((*name).to_owned(), of(fallback(name)))));
        } else if ratio > 1.0 {
            let idle = groups.missing.iter().chain(&groups.unready);
            metrics.extend(idle.map(|name| ((*name).to_owned(), of(0))));
        }
    }

    /// The answer with assumptions, which may not turn the direction round.
    fn after_filling(&self, ratio: f64, filled: f64, counted: usize) -> i32 {
        let turned = (ratio < 1.0 && filled > 1.0) || (ratio > 1.0 && filled < 1.0);
        if self.tolerances.allow(filled) || turned {
            return self.current;
        }
        let replicas = (filled * counted as f64).ceil() as i32;
        let against = (filled < 1.0 && replicas > self.current) || (filled > 1.0 && replicas < self.current);
        if against { self.current } else { replicas }
    }
}

/// The replicas for a value per replica, and the value of one on average.
pub fn for_value_per_replica(replicas: i32, usage: i64, target: i64, tolerances: Tolerances) -> (i32, i64) {
    let (usage, target, count) = (usage as f64, target as f64, f64::from(replicas));
    let within = tolerances.allow(usage / (target * count));
    let wanted = if within { replicas } else { (usage / target).ceil() as i32 };
    (wanted, (usage / count).ceil() as i64)
}

fn later(time: Timestamp, duration: Duration) -> Timestamp {
    time.checked_add(duration).unwrap_or(Timestamp::MAX)
}

/// The ratio of utilization to its target, the utilization in percent, and the average use.
fn utilization(metrics: &PodMetrics, requests: &BTreeMap<&str, i64>, target: i32) -> Result<(f64, i32, i64), String> {
    let (mut used, mut requested, mut count) = (0_i128, 0_i128, 0_i128);
    for (name, metric) in metrics {
        // Metrics of pods that are not there are none of this target's.
        let Some(request) = requests.get(name.as_str()) else { continue };
        used += i128::from(metric.milli);
        requested += i128::from(*request);
        count += 1;
    }
    if requested == 0 {
        return Err("no metrics returned matched known pods".to_owned());
    }
    let percent = i32::try_from(used * 100 / requested).unwrap_or(i32::MAX);
    let average = i64::try_from(used / count).unwrap_or(i64::MAX);
    Ok((f64::from(percent) / f64::from(target), percent, average))
}

fn average(metrics: &PodMetrics, target: i64) -> (f64, i64) {
    let used: i128 = metrics.values().map(|metric| i128::from(metric.milli)).sum();
    let usage = i64::try_from(used / metrics.len().max(1) as i128).unwrap_or(i64::MAX);
    (usage as f64 / target as f64, usage)
}

/// What a pod requests of a resource, in thousandths.
fn requested(pod: &Pod, container: &str, resource: &str) -> Result<i64, String> {
    let name = &pod.metadata.name;
    if container.is_empty() && pod.requests.of_pod.is_some() {
        let whole = pod.requests.of_pod.as_ref().and_then(|requests| requests.get(resource));
        let parts = pod.requests.containers.iter().filter_map(|container| container.requests.get(resource));
        let parts = parts.copied().reduce(i64::saturating_add);
        return whole
            .copied()
            .or(parts)
            .ok_or_else(|| format!("missing pod-level request for {resource} in Pod {name}"));
    }
    let mut sum = 0_i64;
    for known in pod.requests.containers.iter().filter(|known| container.is_empty() || known.name == container) {
        let request = known
            .requests
            .get(resource)
            .ok_or_else(|| format!("missing request for {resource} in container {} of Pod {name}", known.name))?;
        sum = sum.saturating_add(*request);
        if known.name == container {
            return Ok(sum);
        }
    }
    if container.is_empty() { Ok(sum) } else { Err(format!("container {container} not found in Pod {name}")) }
}
