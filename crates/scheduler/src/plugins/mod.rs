//! The plugins of this crate: one file or folder each, and one row of [`PLUGINS`].

mod default_binder;
pub(crate) mod default_preemption;
mod dynamic_resources;
#[cfg(test)]
mod example;
pub(crate) mod image_locality;
mod inter_pod_affinity;
mod node_affinity;
mod node_declared_features;
mod node_name;
mod node_ports;
mod node_resources_balanced_allocation;
pub(crate) mod node_resources_fit;
mod node_unschedulable;
mod node_volume_limits;
mod pod_topology_spread;
mod priority_sort;
mod scheduling_gates;
mod taint_toleration;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod volume_binding;
mod volume_restrictions;
mod volume_zone;

use serde_json::Value;

use crate::framework::{AnyPlugin, Registry};

/// Makes a plugin from its arguments.
type Constructor = fn(&Value) -> Result<AnyPlugin, String>;

/// Every plugin that a configuration may name. Which of them run by default is in `config::defaults`.
const PLUGINS: &[(&str, Constructor)] = &[
    ("DefaultBinder", |_| Ok(AnyPlugin::new(default_binder::DefaultBinder))),
    ("DefaultPreemption", |args| default_preemption::DefaultPreemption::new(args).map(AnyPlugin::new)),
    ("DynamicResources", |args| dynamic_resources::DynamicResources::new(args).map(AnyPlugin::new)),
    #[cfg(test)]
    ("Example", |_| Ok(AnyPlugin::new(example::Example))),
    ("ImageLocality", |_| Ok(AnyPlugin::new(image_locality::ImageLocality))),
    ("InterPodAffinity", |args| inter_pod_affinity::InterPodAffinity::new(args).map(AnyPlugin::new)),
    ("NodeAffinity", |args| node_affinity::NodeAffinity::new(args).map(AnyPlugin::new)),
    ("NodeDeclaredFeatures", |_| Ok(AnyPlugin::new(node_declared_features::NodeDeclaredFeatures))),
    ("NodeName", |_| Ok(AnyPlugin::new(node_name::NodeName))),
    ("NodePorts", |_| Ok(AnyPlugin::new(node_ports::NodePorts))),
    ("NodeResourcesBalancedAllocation", |args| {
        node_resources_balanced_allocation::NodeResourcesBalancedAllocation::new(args).map(AnyPlugin::new)
    }),
    ("NodeResourcesFit", |args| node_resources_fit::NodeResourcesFit::new(args).map(AnyPlugin::new)),
    ("NodeUnschedulable", |_| Ok(AnyPlugin::new(node_unschedulable::NodeUnschedulable))),
    ("NodeVolumeLimits", |_| Ok(AnyPlugin::new(node_volume_limits::NodeVolumeLimits))),
    ("PodTopologySpread", |args| pod_topology_spread::PodTopologySpread::new(args).map(AnyPlugin::new)),
    ("PrioritySort", |_| Ok(AnyPlugin::new(priority_sort::PrioritySort))),
    ("SchedulingGates", |_| Ok(AnyPlugin::new(scheduling_gates::SchedulingGates))),
    ("TaintToleration", |_| Ok(AnyPlugin::new(taint_toleration::TaintToleration))),
    ("VolumeBinding", |args| volume_binding::VolumeBinding::new(args).map(AnyPlugin::new)),
    ("VolumeRestrictions", |_| Ok(AnyPlugin::new(volume_restrictions::VolumeRestrictions))),
    ("VolumeZone", |_| Ok(AnyPlugin::new(volume_zone::VolumeZone))),
];

impl Default for Registry {
    /// Every plugin of this crate.
    fn default() -> Self {
        let mut registry = Registry::empty();
        for (name, constructor) in PLUGINS {
            registry.register(name, constructor);
        }
        registry
    }
}
