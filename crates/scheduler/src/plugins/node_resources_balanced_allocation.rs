//! NodeResourcesBalancedAllocation: prefers nodes whose resources the pod brings closer to equal utilization.

use bayplan_model::resources::{Amounts, RequestRules, Resource};
use serde_json::Value;

use crate::cluster::{Headroom, NodeInfo, balance_of_two, requested_fraction};
use crate::config::args::{NodeResourcesBalancedAllocationArgs, ResourceSpec, read, resources_or_default};
use crate::framework::*;
use crate::plugins::dynamic_resources::DeviceUsage;

/// The plugin with the resources it balances.
pub(super) struct NodeResourcesBalancedAllocation {
    resources: Vec<ResourceSpec>,
}

/// What is prepared for one pod.
#[derive(Clone, Default)]
pub(super) struct State {
    /// The resources that count, with what the pod requests of them.
    wanted: Vec<(Resource, i64)>,
    /// How many devices back the scored resources on each node.
    devices: DeviceUsage,
}

impl NodeResourcesBalancedAllocation {
    pub(super) fn new(args: &Value) -> Result<Self, String> {
        let args: NodeResourcesBalancedAllocationArgs = read(args)?;
        Ok(NodeResourcesBalancedAllocation { resources: resources_or_default(&args.resources) })
    }
}

/// 100 minus the standard deviation (in percent) of the used fractions.
fn balance(fractions: &[f64]) -> i64 {
    match fractions {
        [] | [_] => MAX_NODE_SCORE,
        [a, b] => balance_of_two(*a, *b),
        many => {
            let mean = many.iter().sum::<f64>() / many.len() as f64;
            let deviation = (many.iter().map(|f| (f - mean) * (f - mean)).sum::<f64>() / many.len() as f64).sqrt();
            ((1.0 - deviation) * MAX_NODE_SCORE as f64) as i64
        }
    }
}

impl Plugin for NodeResourcesBalancedAllocation {
    type State = State;

    fn name(&self) -> PluginName {
        "NodeResourcesBalancedAllocation"
    }

    fn extension_points(&self) -> ExtensionPoints {
        ExtensionPoints::PRE_SCORE.union(ExtensionPoints::SCORE)
    }

    fn dependencies(&self, cx: &Cycle<'_>) -> Dependencies {
        let (reads, version) = super::node_resources_fit::resource_dependencies(cx);
        Dependencies::score(reads, Normalization::None).at(version)
    }

    fn pre_score(&self, cx: &Cycle<'_>, state: &mut State, _nodes: &[&NodeInfo]) -> Status {
        let rules = RequestRules { with_status: true, ..RequestRules::default() };
        let request = Amounts::of(&rules.requests(cx.pod));
        if self.resources.iter().all(|spec| request.get(&spec.name) == 0) {
            return Status::skip();
        }
        let wanted = self.resources.iter().map(|spec| (Resource::named(&spec.name), request.get(&spec.name)));
        state.wanted = wanted.filter(|(resource, wanted)| *wanted != 0 || resource.is_basic()).collect();
        let names = self.resources.iter().map(|spec| spec.name.as_str());
        state.devices = DeviceUsage::new(cx.cluster, &request, names);
        Status::SUCCESS
    }

    fn score(&self, _cx: &Cycle<'_>, state: &State, node: &NodeInfo) -> Result<i64, Status> {
        let share = |(resource, wanted): &(Resource, i64)| {
            let (capacity, requested) = match node.allocatable.amount(resource) {
                0 => state.devices.count(node.node(), resource.name()).unwrap_or((0, 0)),
                capacity => (capacity, node.requested.amount(resource)),
            };
            fractions(capacity, requested, *wanted)
        };
        Ok(match &state.wanted[..] {
            // Cpu and memory, by default: every node is scored, so this form allocates nothing.
            [a, b] => of_two(share(a), share(b)),
            more => {
                let (with, without): (Vec<f64>, Vec<f64>) = more.iter().filter_map(share).unzip();
                gain(balance(&with), balance(&without))
            }
        })
    }

    fn headroom_plugin(&self, state: &State) -> Option<Box<dyn HeadroomPlugin>> {
        match state.wanted[..] {
            [(Resource::Cpu, cpu), (Resource::Memory, memory)] if state.devices.is_empty() => {
                Some(Box::new(BalanceByHeadroom { cpu, memory }))
            }
            _ => None,
        }
    }
}

/// The utilization of a resource with the pod and without it; none when the node has nothing of it.
fn fractions(capacity: i64, requested: i64, wanted: i64) -> Option<(f64, f64)> {
    (capacity != 0).then(|| {
        (requested_fraction(capacity, requested.saturating_add(wanted)), requested_fraction(capacity, requested))
    })
}

/// The score: 75 when the pod does not change the balance, more when it improves it.
fn gain(with: i64, without: i64) -> i64 {
    let half = MAX_NODE_SCORE / 2;
    half + (half + with - without) / 2
}

fn of_two(a: Option<(f64, f64)>, b: Option<(f64, f64)>) -> i64 {
    match (a, b) {
        (Some(a), Some(b)) => gain(balance(&[a.0, b.0]), balance(&[a.1, b.1])),
        // A single resource is always balanced.
        _ => gain(balance(&[]), balance(&[])),
    }
}

/// The batch form, for cpu and memory.
struct BalanceByHeadroom {
    cpu: i64,
    memory: i64,
}

impl HeadroomPlugin for BalanceByHeadroom {
    fn filter(&self, _headrooms: &[Headroom], _sums: &mut [Option<i64>]) {}

    fn score(&self, headrooms: &[Headroom], weight: i64, sums: &mut [Option<i64>]) {
        add_scores(headrooms, weight, sums, |headroom| {
            let with = match (headroom.cpu.allocatable, headroom.memory.allocatable) {
                (0, _) | (_, 0) => MAX_NODE_SCORE,
                _ => balance_of_two(
                    headroom.cpu.requested_fraction_with(self.cpu),
                    headroom.memory.requested_fraction_with(self.memory),
                ),
            };
            gain(with, headroom.balance.into())
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::plugins::testing::plugin;

    const NODE: &str = "Node a {allocatable: {cpu: 4, memory: 8Gi, ephemeral-storage: 100Gi, pods: 10}}";

    #[test]
    fn a_node_scores_by_how_much_better_balanced_it_becomes() {
        plugin("NodeResourcesBalancedAllocation").given(NODE).scores(&[
            ("a pod that requests nothing", "{requests: {}}", "", &["Skip"]),
            ("equal shares leave the balance as it is: 75", "{requests: {cpu: 1, memory: 2Gi}}", "", &["a: 75 -> 75"]),
            // Deviation of (1/2, 0) is 1/4: 50 + (50 + 75 - 100) / 2.
            ("cpu alone puts the node out of balance", "{requests: {cpu: 2}}", "", &["a: 62 -> 62"]),
            (
                "the other resource brings it back",
                "{requests: {memory: 4Gi}}",
                "Pod x {nodeName: a, requests: {cpu: 2}}",
                &["a: 87 -> 87"],
            ),
            ("more than all there is counts as all", "{requests: {cpu: 40, memory: 8Gi}}", "", &["a: 75 -> 75"]),
            (
                "unlike in NodeResourcesFit, pods without requests count as nothing",
                "{requests: {cpu: 1, memory: 2Gi}}",
                "Pod x {nodeName: a, requests: {}}",
                &["a: 75 -> 75"],
            ),
        ]);
    }

    #[test]
    fn the_configuration_names_the_resources() {
        let three = "{resources: [{name: cpu}, {name: memory}, {name: ephemeral-storage}]}";
        plugin("NodeResourcesBalancedAllocation").args(three).given(NODE).scores(&[
            // The standard deviation of (1/2, 1/2, 0) is 0.2357: 50 + (50 + 76 - 100) / 2.
            ("of three shares, the standard deviation", "{requests: {cpu: 2, memory: 4Gi}}", "", &["a: 63 -> 63"]),
        ]);
        let one = "{resources: [{name: cpu}]}";
        plugin("NodeResourcesBalancedAllocation").args(one).given(NODE).scores(&[
            ("one share is always in balance", "{requests: {cpu: 2}}", "", &["a: 75 -> 75"]),
            ("a resource that is not named does not count", "{requests: {memory: 4Gi}}", "", &["Skip"]),
        ]);
    }
}
