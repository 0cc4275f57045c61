//! Which resources a node lacks for a pod.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use bayplan_model::pod::Pod;
use bayplan_model::resources::{Amounts, RequestRules};

use crate::cluster::{Cluster, NodeInfo};
use crate::framework::{Code, Status};

/// What a pending pod requests, as upstream's `PodRequests` computes it without status resources.
pub(super) fn request(pod: &Pod) -> Amounts {
    Amounts::of(&RequestRules::default().requests(pod))
}

/// The requested resources that a DeviceClass maps to devices (`DRAExtendedResource`).
pub(super) fn device_backed(cluster: &Cluster, request: &Amounts) -> BTreeSet<Arc<str>> {
    let names = request.scalars.keys();
    names.filter(|name| cluster.class_of_extended_resource(name).is_some()).cloned().collect()
}

/// Whether DynamicResources answers for a resource on a node: devices back it, and the node itself has none of it.
pub(super) fn is_delegated(device_backed: &BTreeSet<Arc<str>>, node: &NodeInfo, name: &str) -> bool {
    device_backed.contains(name) && node.allocatable.get(name) == 0
}

/// A resource of which a node has too little left.
pub(super) struct Shortage {
    reason: Cow<'static, str>,
    /// The pod requests more than the whole node has: preemption cannot help.
    is_unresolvable: bool,
}

/// All shortages of a node, in upstream's order.
pub(super) fn shortages(request: &Amounts, node: &NodeInfo, ignored: impl Fn(&str) -> bool) -> Vec<Shortage> {
    let mut all = Vec::new();
    let mut add = |reason: Cow<'static, str>, is_unresolvable| all.push(Shortage { reason, is_unresolvable });
    if node.pods().len() as i64 + 1 > node.allocatable.pods {
        add("Too many pods".into(), false);
    }
    let is_short = |wanted: i64, total: i64, used: i64| wanted > 0 && wanted > total.saturating_sub(used);
    let (total, used) = (&node.allocatable, &node.requested);
    for (reason, wanted, total, used) in [
        ("Insufficient cpu", request.milli_cpu, total.milli_cpu, used.milli_cpu),
        ("Insufficient memory", request.memory, total.memory, used.memory),
        ("Insufficient ephemeral-storage", request.ephemeral_storage, total.ephemeral_storage, used.ephemeral_storage),
    ] {
        if is_short(wanted, total, used) {
            add(reason.into(), wanted > total);
        }
    }
    for (name, &wanted) in request.scalars.iter().filter(|(name, _)| !ignored(name)) {
        if is_short(wanted, total.get(name), used.get(name)) {
            add(format!("Insufficient {name}").into(), wanted > total.get(name));
        }
    }
    all
}

/// The answer of Filter: every shortage is a reason, and one that cannot be resolved decides the code.
pub(super) fn status(shortages: Vec<Shortage>) -> Status {
    if shortages.is_empty() {
        return Status::SUCCESS;
    }
    let is_unresolvable = shortages.iter().any(|shortage| shortage.is_unresolvable);
    Status {
        code: if is_unresolvable { Code::UnschedulableAndUnresolvable } else { Code::Unschedulable },
        reasons: shortages.into_iter().map(|shortage| shortage.reason).collect(),
        plugin: "",
    }
}
