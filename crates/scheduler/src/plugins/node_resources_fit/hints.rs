//! Which changes may let a rejected pod fit.

use std::sync::Arc;

use bayplan_model::node::Node;
use bayplan_model::pod::Pod;
use bayplan_model::resource_slice::DeviceClass;
use bayplan_model::resources::{Amounts, RequestRules};

use super::filtering::{device_backed, is_delegated, request, shortages};
use crate::cluster::{Cluster, DEVICE_CLASS_PREFIX, NodeInfo};

/// Whether a new or changed node fits the pod when it is empty, and has more than before of something the pod requests.
pub(super) fn node_grew_for(cluster: &Cluster, pod: &Pod, old: Option<&Node>, new: &Node) -> bool {
    let wanted = request(pod);
    let empty = NodeInfo::of(Arc::new(new.clone()));
    let device_backed = device_backed(cluster, &wanted);
    let delegated = |name: &str| is_delegated(&device_backed, &empty, name);
    if !shortages(&wanted, &empty, delegated).is_empty() {
        return false;
    }
    let Some(old) = old else { return true };
    let (before, after) = (Amounts::of(&old.status.allocatable), &empty.allocatable);
    let grew = |wanted: i64, before: i64, after: i64| wanted > 0 && after > before;
    after.pods > before.pods
        || grew(wanted.milli_cpu, before.milli_cpu, after.milli_cpu)
        || grew(wanted.memory, before.memory, after.memory)
        || grew(wanted.ephemeral_storage, before.ephemeral_storage, after.ephemeral_storage)
        || wanted
            .scalars
            .iter()
            .any(|(name, &amount)| grew(amount, before.get(name), after.get(name)) || delegated(name))
}

/// Whether a new or changed DeviceClass backs a resource that the pod requests, and did not before.
pub(super) fn class_backs(pod: &Pod, old: Option<&DeviceClass>, new: &DeviceClass) -> bool {
    let name = new.spec.extended_resource_name.as_deref();
    let wanted = request(pod).scalars;
    let wants = |name: &str| wanted.contains_key(name);
    match old {
        Some(old) => old.spec.extended_resource_name != new.spec.extended_resource_name && name.is_some_and(wants),
        None => wants(&format!("{DEVICE_CLASS_PREFIX}{}", new.metadata.name)) || name.is_some_and(wants),
    }
}

/// Whether another pod now requests less of something the pod requests.
pub(super) fn pod_shrank_for(pod: &Pod, old: &Pod, new: &Pod) -> bool {
    let rules = RequestRules { with_status: true, ..RequestRules::default() };
    let (wanted, before, after) = (request(pod), Amounts::of(&rules.requests(old)), Amounts::of(&rules.requests(new)));
    let shrank = |wanted: i64, before: i64, after: i64| wanted > 0 && after < before;
    shrank(wanted.milli_cpu, before.milli_cpu, after.milli_cpu)
        || shrank(wanted.memory, before.memory, after.memory)
        || shrank(wanted.ephemeral_storage, before.ephemeral_storage, after.ephemeral_storage)
        || wanted.scalars.iter().any(|(name, &amount)| shrank(amount, before.get(name), after.get(name)))
}
