//! NodeResourcesFit: a node must have room for what the pod requests; how much is left (or used) makes the score.

#[cfg(test)]
mod differential_tests;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use bayplan_model::node::Node;
use bayplan_model::pod::Pod;
use bayplan_model::resource_slice::DeviceClass;
use bayplan_model::resources::{Amounts, RequestRules, Resource, is_extended};
use serde_json::Value;

use crate::cluster::{Cluster, DEVICE_CLASS_PREFIX, Headroom, NodeInfo, ResourceHeadroom};
use crate::config::args::{NodeResourcesFitArgs, ResourceSpec, UtilizationShapePoint, read, resources_or_default};
use crate::config::validate_args;
use crate::framework::*;
use crate::plugins::dynamic_resources::Census;

/// Judges and scores room.
pub(super) struct NodeResourcesFit {
    ignored: Vec<String>,
    ignored_groups: Vec<String>,
    strategy: Strategy,
    resources: Vec<ResourceSpec>,
}

#[derive(Clone)]
enum Strategy {
    LeastAllocated,
    MostAllocated,
    /// Points (utilization, score 0..=100).
    RequestedToCapacityRatio(Vec<(i64, i64)>),
}

/// What is prepared for one pod.
#[derive(Clone, Default)]
pub(super) struct State {
    /// What Filter compares.
    request: Amounts,
    /// Resources that devices provide where nodes do not.
    device_backed: BTreeSet<Arc<str>>,
    /// What Score compares: the resources that count, with defaults for cpu and memory.
    scored: Vec<Scored>,
    /// Devices behind scored resources.
    census: Census,
}

/// A resource that counts for the score of a pod.
#[derive(Clone)]
struct Scored {
    resource: Resource,
    wanted: i64,
    weight: i64,
}

impl NodeResourcesFit {
    pub(super) fn new(args: &Value) -> Result<Self, String> {
        if !args.is_null() {
            validate_args("NodeResourcesFit", args)?;
        }
        let args: NodeResourcesFitArgs = read(args)?;
        let given = args.scoring_strategy.unwrap_or_default();
        let strategy = match (given.kind.as_str(), given.requested_to_capacity_ratio) {
            ("MostAllocated", _) => Strategy::MostAllocated,
            ("RequestedToCapacityRatio", Some(ratio)) => {
                let point = |p: &UtilizationShapePoint| (i64::from(p.utilization), i64::from(p.score) * 10);
                Strategy::RequestedToCapacityRatio(ratio.shape.iter().map(point).collect())
            }
            _ => Strategy::LeastAllocated,
        };
        Ok(NodeResourcesFit {
            ignored: args.ignored_resources,
            ignored_groups: args.ignored_resource_groups,
            strategy,
            resources: resources_or_default(&given.resources),
        })
    }

    fn is_ignored(&self, name: &str) -> bool {
        let group = name.split_once('/').map_or(name, |(group, _)| group);
        is_extended(name) && (self.ignored.iter().any(|n| n == name) || self.ignored_groups.iter().any(|g| g == group))
    }
}

/// What counting resources reads of the cluster: more than nodes only where devices stand behind a resource.
pub(super) fn of_devices(cx: &Cycle<'_>) -> (Reads, u64) {
    let scalars = &cx.pod.usage.requested.scalars;
    if scalars.is_empty() {
        return (Reads::Usage, 0);
    }
    let backed = scalars.keys().any(|name| cx.cluster.class_of_extended_resource(name).is_some());
    let reads = if backed { Reads::Cluster } else { Reads::Usage };
    (reads, cx.cluster.objects.device_classes.version())
}

fn request(pod: &Pod) -> Amounts {
    Amounts::of(&RequestRules::default().requests(pod))
}

/// The resources of a request that devices of some class stand behind.
fn device_backed(cluster: &Cluster, request: &Amounts) -> BTreeSet<Arc<str>> {
    let names = request.scalars.keys();
    names.filter(|name| cluster.class_of_extended_resource(name).is_some()).cloned().collect()
}

/// Whether DynamicResources answers for a resource on a node: devices stand behind it and the node has none itself.
fn is_delegated(device_backed: &BTreeSet<Arc<str>>, node: &NodeInfo, name: &str) -> bool {
    device_backed.contains(name) && node.allocatable.get(name) == 0
}

/// Why a node has no room; `true` beside a reason when the whole node is too small.
fn shortages(request: &Amounts, node: &NodeInfo, ignored: impl Fn(&str) -> bool) -> Vec<(Cow<'static, str>, bool)> {
    let mut reasons = Vec::new();
    if node.pods().len() as i64 + 1 > node.allocatable.pods {
        reasons.push(("Too many pods".into(), false));
    }
    let is_short = |wanted: i64, total: i64, used: i64| wanted > 0 && wanted > total.saturating_sub(used);
    let (total, used) = (&node.allocatable, &node.requested);
    for (reason, wanted, total, used) in [
        ("Insufficient cpu", request.milli_cpu, total.milli_cpu, used.milli_cpu),
        ("Insufficient memory", request.memory, total.memory, used.memory),
        ("Insufficient ephemeral-storage", request.ephemeral_storage, total.ephemeral_storage, used.ephemeral_storage),
    ] {
        if is_short(wanted, total, used) {
            reasons.push((reason.into(), wanted > total));
        }
    }
    for (name, &wanted) in request.scalars.iter().filter(|(name, _)| !ignored(name)) {
        if is_short(wanted, total.get(name), used.get(name)) {
            reasons.push((format!("Insufficient {name}").into(), wanted > total.get(name)));
        }
    }
    reasons
}

/// The value at `x` of a line through the points, flat beyond the ends; divisions truncate as upstream's do.
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

impl State {
    /// (capacity, requested with the pod, weight) of every resource that counts on the node.
    fn shares<'a>(&'a self, node: &'a NodeInfo) -> impl Iterator<Item = (i64, i64, i64)> + 'a {
        self.scored.iter().filter_map(move |Scored { resource, wanted, weight }| {
            let capacity = node.allocatable.amount(resource);
            if capacity == 0 {
                let counted = self.census.count(node.node(), resource.name());
                let (capacity, used) = counted.filter(|(total, _)| *total > 0)?;
                return Some((capacity, used.saturating_add(*wanted), *weight));
            }
            let used = match resource {
                Resource::Cpu => node.non_zero_milli_cpu,
                Resource::Memory => node.non_zero_memory,
                other => node.requested.amount(other),
            };
            Some((capacity, used.saturating_add(*wanted), *weight))
        })
    }
}

/// `a * 100 / b` without overflow.
fn percent(a: i64, b: i64) -> i64 {
    // Nearly always 64 bits without a sign will do, and dividing 128 takes many times as long.
    match (u64::try_from(a), u64::try_from(b)) {
        (Ok(a), Ok(b)) if a <= i64::MAX as u64 / 100 => (a * 100 / b) as i64,
        _ => i64::try_from(i128::from(a) * 100 / i128::from(b)).unwrap_or(i64::MAX),
    }
}

/// How much of a resource is left, in percent.
fn left_over(capacity: i64, requested: i64) -> i64 {
    let left = capacity.saturating_sub(requested);
    if left < 0 { 0 } else { percent(left, capacity) }
}

fn weighted(scores: impl Iterator<Item = (i64, i64)>) -> i64 {
    let (sum, weights) = scores.fold((0i64, 0i64), |(sum, total), (score, w)| {
        (sum.saturating_add(score.saturating_mul(w)), total.saturating_add(w))
    });
    if weights == 0 { 0 } else { sum / weights }
}

impl Plugin for NodeResourcesFit {
    type State = State;

    fn name(&self) -> PluginName {
        "NodeResourcesFit"
    }

    fn extension_points(&self) -> ExtensionPoints {
        ExtensionPoints::PRE_FILTER
            .union(ExtensionPoints::FILTER)
            .union(ExtensionPoints::PRE_SCORE)
            .union(ExtensionPoints::SCORE)
            .union(ExtensionPoints::PLACEMENT_SCORE)
    }

    fn dependencies(&self, cx: &Cycle<'_>) -> Dependencies {
        let (reads, version) = of_devices(cx);
        Dependencies { filter: reads, score: reads, version, ..Dependencies::NOTHING }
    }

    fn events_to_register(&self) -> Vec<EventRegistration> {
        vec![
            EventRegistration::with_hint(EventResource::Pod, action::DELETE | action::UPDATE_POD_SCALE_DOWN),
            EventRegistration::with_hint(EventResource::Node, action::ADD | action::UPDATE_NODE_ALLOCATABLE),
            EventRegistration::with_hint(EventResource::DeviceClass, action::ADD | action::UPDATE),
        ]
    }

    fn hint_reads_signature(&self, _event: &ClusterEvent) -> bool {
        true
    }

    fn queueing_hint(
        &self,
        cx: &Cycle<'_>,
        event: &ClusterEvent,
        changed: &ObjectChange<'_>,
    ) -> Result<QueueingHint, String> {
        let worth = if event.resource == EventResource::Node {
            let (old, new) = changed.nodes();
            new.is_none_or(|new| grown_for(cx.cluster, cx.pod, old, new))
        } else if let (old, Some(class)) = changed.device_classes() {
            stands_behind(cx.pod, old, class)
        } else {
            match changed.pods() {
                (Some(deleted), None) => deleted.is_assigned() || deleted.is_nominated(),
                (Some(old), Some(new)) => {
                    new.metadata.uid == cx.pod.metadata.uid || (new.is_assigned() && shrunk_for(cx.pod, old, new))
                }
                _ => true,
            }
        };
        Ok(if worth { QueueingHint::Queue } else { QueueingHint::Skip })
    }

    fn pre_filter(&self, cx: &Cycle<'_>, state: &mut State) -> PreFilter {
        state.request = request(cx.pod);
        state.device_backed = device_backed(cx.cluster, &state.request);
        PreFilter::default()
    }

    fn filter(&self, _cx: &Cycle<'_>, state: &State, node: &NodeInfo) -> Status {
        let delegated = |name: &str| is_delegated(&state.device_backed, node, name);
        let reasons = shortages(&state.request, node, |name| self.is_ignored(name) || delegated(name));
        if reasons.is_empty() {
            return Status::SUCCESS;
        }
        let hopeless = reasons.iter().any(|(_, too_small)| *too_small);
        Status {
            code: if hopeless { Code::UnschedulableAndUnresolvable } else { Code::Unschedulable },
            reasons: reasons.into_iter().map(|(reason, _)| reason).collect(),
            plugin: "",
        }
    }

    fn pre_score(&self, cx: &Cycle<'_>, state: &mut State, _nodes: &[&NodeInfo]) -> Status {
        // Upstream's scorer never learns of pod-level resources.
        let rules = RequestRules {
            without_pod_level: true,
            defaults: RequestRules::scoring_defaults(),
            ..RequestRules::default()
        };
        let request = Amounts::of(&rules.requests(cx.pod));
        let scored = self.resources.iter().map(|spec| Scored {
            resource: Resource::named(&spec.name),
            wanted: request.get(&spec.name),
            weight: spec.weight,
        });
        state.scored = scored.filter(|scored| scored.wanted != 0 || scored.resource.is_basic()).collect();
        let names = self.resources.iter().map(|spec| spec.name.as_str());
        state.census = Census::new(cx.cluster, &request, names);
        Status::SUCCESS
    }

    fn score(&self, _cx: &Cycle<'_>, state: &State, node: &NodeInfo) -> Result<i64, Status> {
        Ok(self.strategy.score(state.shares(node)))
    }

    fn headroom_plugin(&self, state: &State) -> Option<Box<dyn HeadroomPlugin>> {
        let basic = |scored: &Scored| matches!(scored.resource, Resource::Cpu | Resource::Memory);
        let is_told_by_room =
            state.request.scalars.is_empty() && state.census.is_empty() && state.scored.iter().all(basic);
        is_told_by_room.then(|| {
            let Amounts { milli_cpu, memory, ephemeral_storage, .. } = state.request;
            let [milli_cpu, memory, ephemeral_storage] = [milli_cpu, memory, ephemeral_storage].map(or_anything);
            let scored = |scored: &Scored| (scored.resource == Resource::Cpu, scored.wanted, scored.weight);
            let (scored, strategy) = (state.scored.iter().map(scored).collect(), self.strategy.clone());
            Box::new(FitByRoom { milli_cpu, memory, ephemeral_storage, scored, strategy }) as Box<dyn HeadroomPlugin>
        })
    }
}

impl Strategy {
    /// The score of a node by (capacity, requested with the pod, weight) of the resources that count.
    fn score(&self, shares: impl Iterator<Item = (i64, i64, i64)>) -> i64 {
        match self {
            Strategy::LeastAllocated => {
                weighted(shares.map(|(capacity, requested, weight)| (left_over(capacity, requested), weight)))
            }
            Strategy::MostAllocated => weighted(
                shares.map(|(capacity, requested, weight)| (percent(requested.min(capacity), capacity), weight)),
            ),
            Strategy::RequestedToCapacityRatio(shape) => {
                let (mut sum, mut weights) = (0i64, 0i64);
                for (capacity, requested, weight) in shares {
                    let used = if requested > capacity { 100 } else { percent(requested, capacity) };
                    let score = broken_linear(shape, used);
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

/// What has to be left of a resource: anything, when nothing of it is wanted.
fn or_anything(wanted: i64) -> i64 {
    if wanted > 0 { wanted } else { i64::MIN }
}

/// The form for pods that ask for cpu, memory and node-local storage only.
struct FitByRoom {
    /// This and the next two have to be left.
    milli_cpu: i64,
    memory: i64,
    ephemeral_storage: i64,
    /// Whether it is cpu (or memory), what is wanted, and the weight.
    scored: Vec<(bool, i64, i64)>,
    strategy: Strategy,
}

impl HeadroomPlugin for FitByRoom {
    fn filter(&self, headrooms: &[Headroom], sums: &mut [Option<i64>]) {
        let left = |share: &ResourceHeadroom| share.allocatable.saturating_sub(share.requested);
        for (sum, headroom) in sums.iter_mut().zip(headrooms) {
            // All of it, whatever the first says: nearly all nodes pass.
            let passes = (headroom.pods_left > 0)
                & (self.milli_cpu <= left(&headroom.cpu))
                & (self.memory <= left(&headroom.memory))
                & (self.ephemeral_storage <= headroom.ephemeral_storage_left);
            if !passes {
                *sum = None;
            }
        }
    }

    fn score(&self, headrooms: &[Headroom], weight: i64, sums: &mut [Option<i64>]) {
        let by_strategy = |headroom: &Headroom| {
            let share = |&(is_cpu, wanted, weight): &(bool, i64, i64)| {
                let ResourceHeadroom { allocatable, non_zero_requested, .. } =
                    if is_cpu { headroom.cpu } else { headroom.memory };
                (allocatable != 0).then(|| (allocatable, non_zero_requested.saturating_add(wanted), weight))
            };
            self.strategy.score(self.scored.iter().filter_map(share))
        };
        match (&self.strategy, &self.scored[..]) {
            // The default, of which there are more than of all others together.
            (Strategy::LeastAllocated, &[(true, cpu, 1), (false, memory, 1)]) if are_ordinary([cpu, memory]) => {
                add_scores(headrooms, weight, sums, |headroom| {
                    let Headroom { cpu: has_cpu, memory: has_memory, .. } = headroom;
                    let amounts = [
                        has_cpu.allocatable,
                        has_cpu.non_zero_requested,
                        has_memory.allocatable,
                        has_memory.non_zero_requested,
                    ];
                    if !are_ordinary(amounts) || has_cpu.allocatable == 0 || has_memory.allocatable == 0 {
                        return by_strategy(headroom);
                    }
                    let left = |share: &ResourceHeadroom, wanted: i64| {
                        let left = share.allocatable - (share.non_zero_requested + wanted);
                        left.max(0) as u64 * 100 / share.allocatable as u64
                    };
                    ((left(has_cpu, cpu) + left(has_memory, memory)) / 2) as i64
                })
            }
            _ => add_scores(headrooms, weight, sums, by_strategy),
        }
    }
}

/// Whether a sum of two of these amounts, and a hundred times the difference, fit into 64 bits.
fn are_ordinary<const N: usize>(amounts: [i64; N]) -> bool {
    amounts.into_iter().fold(0, |bits, amount| bits | amount) as u64 >> 56 == 0
}

/// Whether a new or changed node has room for the pod if it were empty, and more than before of something it wants.
fn grown_for(cluster: &Cluster, pod: &Pod, old: Option<&Node>, new: &Node) -> bool {
    let wanted = request(pod);
    let empty = NodeInfo::of(Arc::new(new.clone()));
    let device_backed = device_backed(cluster, &wanted);
    let delegated = |name: &str| is_delegated(&device_backed, &empty, name);
    if !shortages(&wanted, &empty, delegated).is_empty() {
        return false;
    }
    let Some(old) = old else { return true };
    let (before, after) = (Amounts::of(&old.status.allocatable), &empty.allocatable);
    let grown = |wanted: i64, before: i64, after: i64| wanted > 0 && after > before;
    after.pods > before.pods
        || grown(wanted.milli_cpu, before.milli_cpu, after.milli_cpu)
        || grown(wanted.memory, before.memory, after.memory)
        || grown(wanted.ephemeral_storage, before.ephemeral_storage, after.ephemeral_storage)
        || wanted
            .scalars
            .iter()
            .any(|(name, &amount)| grown(amount, before.get(name), after.get(name)) || delegated(name))
}

/// Whether a new or changed class now stands behind a resource the pod wants.
fn stands_behind(pod: &Pod, old: Option<&DeviceClass>, new: &DeviceClass) -> bool {
    let name = new.spec.extended_resource_name.as_deref();
    let wanted = request(pod).scalars;
    let wants = |name: &str| wanted.contains_key(name);
    match old {
        Some(old) => old.spec.extended_resource_name != new.spec.extended_resource_name && name.is_some_and(wants),
        None => wants(&format!("{DEVICE_CLASS_PREFIX}{}", new.metadata.name)) || name.is_some_and(wants),
    }
}

/// Whether another pod now requests less of something the pod wants.
fn shrunk_for(pod: &Pod, old: &Pod, new: &Pod) -> bool {
    let rules = RequestRules { with_status: true, ..RequestRules::default() };
    let (wanted, before, after) = (request(pod), Amounts::of(&rules.requests(old)), Amounts::of(&rules.requests(new)));
    let shrunk = |wanted: i64, before: i64, after: i64| wanted > 0 && after < before;
    shrunk(wanted.milli_cpu, before.milli_cpu, after.milli_cpu)
        || shrunk(wanted.memory, before.memory, after.memory)
        || shrunk(wanted.ephemeral_storage, before.ephemeral_storage, after.ephemeral_storage)
        || wanted.scalars.iter().any(|(name, &amount)| shrunk(amount, before.get(name), after.get(name)))
}
