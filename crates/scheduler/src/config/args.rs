//! The arguments of plugins, with their defaults.

use std::time::Duration;

use bayplan_model::affinity::{NodeAffinity, TopologySpreadConstraint};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::GoDuration;

/// Reads the arguments of a plugin; null means all defaults.
pub fn read<T: DeserializeOwned + Default>(args: &Value) -> Result<T, String> {
    match args {
        Value::Null => Ok(T::default()),
        args => serde_json::from_value(args.clone()).map_err(|error| error.to_string()),
    }
}

/// Arguments of DefaultPreemption.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DefaultPreemptionArgs {
    /// The percentage of candidate nodes that a dry run shortlists.
    pub min_candidate_nodes_percentage: i32,
    /// The number of candidate nodes that a dry run shortlists at least.
    pub min_candidate_nodes_absolute: i32,
}

impl Default for DefaultPreemptionArgs {
    fn default() -> Self {
        DefaultPreemptionArgs { min_candidate_nodes_percentage: 10, min_candidate_nodes_absolute: 100 }
    }
}

impl DefaultPreemptionArgs {
    /// How many candidates suffice, of so many nodes: upstream's `calculateNumCandidates`.
    pub fn candidates_wanted(&self, nodes: usize) -> usize {
        let share = nodes * self.min_candidate_nodes_percentage as usize / 100;
        share.max(self.min_candidate_nodes_absolute as usize).min(nodes)
    }
}

/// Arguments of InterPodAffinity.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InterPodAffinityArgs {
    /// The weight of a placed pod's required affinity terms in scoring.
    pub hard_pod_affinity_weight: i32,
    /// Ignores the preferred terms of placed pods when the incoming pod has none.
    pub ignore_preferred_terms_of_existing_pods: bool,
}

impl Default for InterPodAffinityArgs {
    fn default() -> Self {
        InterPodAffinityArgs { hard_pod_affinity_weight: 1, ignore_preferred_terms_of_existing_pods: false }
    }
}

/// Arguments of NodeAffinity.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAffinityArgs {
    /// Node affinity that is added to every pod of the profile.
    pub added_affinity: Option<NodeAffinity>,
}

/// A resource and its weight.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ResourceSpec {
    /// The resource.
    pub name: String,
    /// Its weight; 0 means 1.
    pub weight: i64,
}

/// Cpu and memory, unless something else was given; weights of 0 become 1.
pub fn resources_or_default(given: &[ResourceSpec]) -> Vec<ResourceSpec> {
    if given.is_empty() {
        return ["cpu", "memory"].map(|name| ResourceSpec { name: name.to_owned(), weight: 1 }).into();
    }
    let weight = |spec: &ResourceSpec| if spec.weight == 0 { 1 } else { spec.weight };
    given.iter().map(|spec| ResourceSpec { name: spec.name.clone(), weight: weight(spec) }).collect()
}

/// Arguments of NodeResourcesFit.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeResourcesFitArgs {
    /// Extended resources that Filter ignores.
    pub ignored_resources: Vec<String>,
    /// Groups of extended resources that Filter ignores, such as `example.com`.
    pub ignored_resource_groups: Vec<String>,
    /// How Score works; required when any arguments are given.
    pub scoring_strategy: Option<ScoringStrategy>,
}

/// How NodeResourcesFit scores.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ScoringStrategy {
    /// `LeastAllocated`, `MostAllocated` or `RequestedToCapacityRatio`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The resources that count, with their weights.
    pub resources: Vec<ResourceSpec>,
    /// The curve of `RequestedToCapacityRatio`.
    pub requested_to_capacity_ratio: Option<RequestedToCapacityRatio>,
}

/// The curve of `RequestedToCapacityRatio`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct RequestedToCapacityRatio {
    /// Points by ascending utilization.
    pub shape: Vec<UtilizationShapePoint>,
}

/// A point of a curve from utilization to score.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct UtilizationShapePoint {
    /// 0 to 100.
    pub utilization: i32,
    /// 0 to 10.
    pub score: i32,
}

/// Arguments of NodeResourcesBalancedAllocation.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeResourcesBalancedAllocationArgs {
    /// The resources to balance.
    pub resources: Vec<ResourceSpec>,
}

/// Arguments of PodTopologySpread.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodTopologySpreadArgs {
    /// The constraints of pods that have none.
    pub default_constraints: Vec<TopologySpreadConstraint>,
    /// `System` (the default) or `List`.
    pub defaulting_type: String,
}

/// Arguments of VolumeBinding.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeBindingArgs {
    /// How long PreBind waits for volumes, in seconds.
    pub bind_timeout_seconds: u64,
}

impl Default for VolumeBindingArgs {
    fn default() -> Self {
        VolumeBindingArgs { bind_timeout_seconds: 600 }
    }
}

/// Arguments of DynamicResources.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DynamicResourcesArgs {
    /// How long the search on one node may take; the core counts it as work. Zero for any time.
    pub filter_timeout: String,
    /// How long PreBind waits for devices with binding conditions.
    pub binding_timeout: String,
}

impl Default for DynamicResourcesArgs {
    fn default() -> Self {
        DynamicResourcesArgs { filter_timeout: "10s".into(), binding_timeout: "600s".into() }
    }
}

impl DynamicResourcesArgs {
    /// The time for the search on one node as a duration.
    pub fn filter_timeout(&self) -> Result<Duration, String> {
        GoDuration::parse(&self.filter_timeout).map(GoDuration::unsigned)
    }

    /// The binding timeout as a duration.
    pub fn binding_timeout(&self) -> Result<Duration, String> {
        GoDuration::parse(&self.binding_timeout).map(GoDuration::unsigned)
    }
}
