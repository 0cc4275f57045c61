//! The plugins of this crate, one file each.

mod default_binder;
pub mod default_preemption;
mod dynamic_resources;
mod image_locality;
mod inter_pod_affinity;
mod node_affinity;
mod node_declared_features;
mod node_name;
mod node_ports;
mod node_resources_balanced_allocation;
mod node_resources_fit;
mod node_unschedulable;
mod node_volume_limits;
mod pod_topology_spread;
mod priority_sort;
mod scheduling_gates;
mod taint_toleration;
mod volume_binding;
mod volume_restrictions;
mod volume_zone;

use crate::framework::{AnyPlugin, Registry};

/// Adds every plugin of this crate.
pub(crate) fn register(registry: &mut Registry) {
    registry.register("PrioritySort", |_| Ok(AnyPlugin::new(priority_sort::PrioritySort)));
    registry.register("SchedulingGates", |_| Ok(AnyPlugin::new(scheduling_gates::SchedulingGates)));
    registry.register("NodeUnschedulable", |_| Ok(AnyPlugin::new(node_unschedulable::NodeUnschedulable)));
    registry.register("NodeName", |_| Ok(AnyPlugin::new(node_name::NodeName)));
    registry.register("TaintToleration", |_| Ok(AnyPlugin::new(taint_toleration::TaintToleration)));
    registry.register("NodeAffinity", |args| node_affinity::NodeAffinity::new(args).map(AnyPlugin::new));
    registry.register("NodePorts", |_| Ok(AnyPlugin::new(node_ports::NodePorts)));
    registry.register("NodeResourcesFit", |args| node_resources_fit::NodeResourcesFit::new(args).map(AnyPlugin::new));
    registry.register("NodeResourcesBalancedAllocation", |args| {
        node_resources_balanced_allocation::NodeResourcesBalancedAllocation::new(args).map(AnyPlugin::new)
    });
    registry.register("ImageLocality", |_| Ok(AnyPlugin::new(image_locality::ImageLocality)));
    registry
        .register("PodTopologySpread", |args| pod_topology_spread::PodTopologySpread::new(args).map(AnyPlugin::new));
    registry.register("InterPodAffinity", |args| inter_pod_affinity::InterPodAffinity::new(args).map(AnyPlugin::new));
    registry.register("DefaultPreemption", |args| default_preemption::DefaultPreemption::new(args).map(AnyPlugin::new));
    registry.register("NodeDeclaredFeatures", |_| Ok(AnyPlugin::new(node_declared_features::NodeDeclaredFeatures)));
    registry.register("VolumeRestrictions", |_| Ok(AnyPlugin::new(volume_restrictions::VolumeRestrictions)));
    registry.register("NodeVolumeLimits", |_| Ok(AnyPlugin::new(node_volume_limits::NodeVolumeLimits)));
    registry.register("VolumeBinding", |args| volume_binding::VolumeBinding::new(args).map(AnyPlugin::new));
    registry.register("VolumeZone", |_| Ok(AnyPlugin::new(volume_zone::VolumeZone)));
    registry.register("DynamicResources", |args| dynamic_resources::DynamicResources::new(args).map(AnyPlugin::new));
    registry.register("DefaultBinder", |_| Ok(AnyPlugin::new(default_binder::DefaultBinder)));
}

#[cfg(test)]
mod testing;
