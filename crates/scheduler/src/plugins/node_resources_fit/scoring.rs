//! How much of a node is used, as a score: the three strategies of `scoringStrategy`.

use bayplan_model::resources::{Amounts, RequestRules, Resource};

use crate::cluster::{Cluster, NodeInfo, PodInfo};
use crate::config::args::{ResourceSpec, ScoringStrategy, UtilizationShapePoint};
use crate::plugins::dynamic_resources::DeviceUsage;

/// `scoringStrategy.type`, with its curve.
#[derive(Clone)]
pub(super) enum Strategy {
    LeastAllocated,
    MostAllocated,
    /// The points of the curve as (utilization, score), both 0 to 100.
    RequestedToCapacityRatio(Vec<(i64, i64)>),
}

/// What PreScore prepares for one pod.
#[derive(Clone, Default)]
pub(super) struct ScoreState {
    /// The resources that count.
    pub(super) resources: Vec<ScoredResource>,
    /// How many devices back the scored resources on each node.
    pub(super) devices: DeviceUsage,
}

/// A resource that counts, and how much the pod requests of it.
#[derive(Clone)]
pub(super) struct ScoredResource {
    pub(super) resource: Resource,
    pub(super) wanted: i64,
    pub(super) weight: i64,
}

/// One resource of one node.
pub(super) struct Share {
    /// What the node has; not 0.
    pub(super) capacity: i64,
    /// What is requested of it, the pod included.
    pub(super) requested: i64,
    pub(super) weight: i64,
}

impl ScoreState {
    pub(super) fn new(cluster: &Cluster, pod: &PodInfo, specs: &[ResourceSpec]) -> Self {
        // Upstream's scorer ignores pod-level resources, and counts 100m and 200Mi for containers without requests.
        let rules = RequestRules {
            without_pod_level: true,
            defaults: RequestRules::scoring_defaults(),
            ..RequestRules::default()
        };
        let request = Amounts::of(&rules.requests(pod));
        let resources = specs.iter().map(|spec| ScoredResource {
            resource: Resource::named(&spec.name),
            wanted: request.get(&spec.name),
            weight: spec.weight,
        });
        ScoreState {
            resources: resources.filter(|scored| scored.wanted != 0 || scored.resource.is_basic()).collect(),
            devices: DeviceUsage::new(cluster, &request, specs.iter().map(|spec| spec.name.as_str())),
        }
    }

    /// The shares of all resources that count on the node; those the node has nothing of do not.
    pub(super) fn shares<'a>(&'a self, node: &'a NodeInfo) -> impl Iterator<Item = Share> + 'a {
        self.resources.iter().filter_map(move |&ScoredResource { ref resource, wanted, weight }| {
            let capacity = node.allocatable.amount(resource);
            if capacity == 0 {
                let counted = self.devices.count(node.node(), resource.name());
                let (capacity, used) = counted.filter(|(total, _)| *total > 0)?;
                return Some(Share { capacity, requested: used.saturating_add(wanted), weight });
            }
            let used = match resource {
                Resource::Cpu => node.non_zero_milli_cpu,
                Resource::Memory => node.non_zero_memory,
                other => node.requested.amount(other),
            };
            Some(Share { capacity, requested: used.saturating_add(wanted), weight })
        })
    }
}

impl Strategy {
    pub(super) fn of(given: &ScoringStrategy) -> Self {
        match (given.kind.as_str(), &given.requested_to_capacity_ratio) {
            ("MostAllocated", _) => Strategy::MostAllocated,
            ("RequestedToCapacityRatio", Some(ratio)) => {
                let point = |p: &UtilizationShapePoint| (i64::from(p.utilization), i64::from(p.score) * 10);
                Strategy::RequestedToCapacityRatio(ratio.shape.iter().map(point).collect())
            }
            _ => Strategy::LeastAllocated,
        }
    }

    /// The score of a node, 0 to 100.
    pub(super) fn score(&self, shares: impl Iterator<Item = Share>) -> i64 {
        match self {
            Strategy::LeastAllocated => {
                weighted_mean(shares.map(|share| (percent_left(share.capacity, share.requested), share.weight)))
            }
            Strategy::MostAllocated => weighted_mean(
                shares.map(|share| (percent(share.requested.min(share.capacity), share.capacity), share.weight)),
            ),
            Strategy::RequestedToCapacityRatio(curve) => {
                let (mut sum, mut weights) = (0i64, 0i64);
                for Share { capacity, requested, weight } in shares {
                    let utilization = if requested > capacity { 100 } else { percent(requested, capacity) };
                    let score = broken_linear(curve, utilization);
                    if score > 0 {
                        sum = score.saturating_mul(weight).saturating_add(sum);
                        weights = weight.saturating_add(weights);
                    }
                }
                if weights == 0 { 0 } else { (sum as f64 / weights as f64).round() as i64 }
            }
        }
    }
}

/// `a * 100 / b` without overflow.
fn percent(a: i64, b: i64) -> i64 {
    // Unsigned 64-bit arithmetic nearly always suffices, and a 128-bit division takes many times as long.
    match (u64::try_from(a), u64::try_from(b)) {
        (Ok(a), Ok(b)) if a <= i64::MAX as u64 / 100 => (a * 100 / b) as i64,
        _ => i64::try_from(i128::from(a) * 100 / i128::from(b)).unwrap_or(i64::MAX),
    }
}

/// How much of a resource is left, in percent.
fn percent_left(capacity: i64, requested: i64) -> i64 {
    let left = capacity.saturating_sub(requested);
    if left < 0 { 0 } else { percent(left, capacity) }
}

/// The mean of (score, weight) pairs, cut off; 0 when there are none.
fn weighted_mean(scores: impl Iterator<Item = (i64, i64)>) -> i64 {
    let (sum, weights) = scores.fold((0i64, 0i64), |(sum, total), (score, weight)| {
        (sum.saturating_add(score.saturating_mul(weight)), total.saturating_add(weight))
    });
    if weights == 0 { 0 } else { sum / weights }
}

/// The value at `x` of the line through the points, flat beyond its ends; divisions truncate as upstream's do.
fn broken_linear(points: &[(i64, i64)], x: i64) -> i64 {
    for (i, &(at, value)) in points.iter().enumerate() {
        if x <= at {
            if i == 0 {
                return value;
            }
            let (x0, y0) = points[i - 1];
            return y0 + (value - y0) * (x - x0) / (at - x0).max(1);
        }
    }
    points.last().map_or(0, |&(_, value)| value)
}
