//! Which resources a node lacks for a pod.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use bayplan_model::pod::Pod;
use bayplan_model::resources::{Amounts, CPU, EPHEMERAL_STORAGE, MEMORY, PODS, RequestRules};

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
pub(super) struct Shortage<'r> {
    reason: Cow<'static, str>,
    /// The pod requests more than the whole node has: preemption cannot help.
    is_unresolvable: bool,
    resource: &'r str,
    /// How much more the node would have to have free.
    missing: i64,
}

/// All shortages of a node, in upstream's order.
pub(super) fn shortages<'r>(
    request: &'r Amounts,
    node: &NodeInfo,
    ignored: impl Fn(&str) -> bool,
) -> Vec<Shortage<'r>> {
    let mut all = Vec::new();
    let mut add = |reason: Cow<'static, str>, is_unresolvable, resource, missing| {
        all.push(Shortage { reason, is_unresolvable, resource, missing });
    };
    let pods = node.pods().len() as i64 + 1;
    if pods > node.allocatable.pods {
        add("Too many pods".into(), false, PODS, pods.saturating_sub(node.allocatable.pods));
    }
    let missing = |wanted: i64, total: i64, used: i64| {
        let free = total.saturating_sub(used);
        (wanted > 0 && wanted > free).then(|| wanted.saturating_sub(free))
    };
    let (total, used) = (&node.allocatable, &node.requested);
    let storage = (request.ephemeral_storage, total.ephemeral_storage, used.ephemeral_storage);
    for (reason, resource, (wanted, total, used)) in [
        ("Insufficient cpu", CPU, (request.milli_cpu, total.milli_cpu, used.milli_cpu)),
        ("Insufficient memory", MEMORY, (request.memory, total.memory, used.memory)),
        ("Insufficient ephemeral-storage", EPHEMERAL_STORAGE, storage),
    ] {
        if let Some(missing) = missing(wanted, total, used) {
            add(reason.into(), wanted > total, resource, missing);
        }
    }
    for (name, &wanted) in request.scalars.iter().filter(|(name, _)| !ignored(name)) {
        if let Some(missing) = missing(wanted, total.get(name), used.get(name)) {
            add(format!("Insufficient {name}").into(), wanted > total.get(name), name, missing);
        }
    }
    all
}

/// How much more a node would have to have free for a pending pod, by the reason that Filter gives: the name of the
/// resource, and thousandths of a cpu or units of all else. Resources that a profile ignores or devices
/// back count, too.
pub fn missing_resources(pod: &Pod, node: &NodeInfo) -> Vec<(Cow<'static, str>, String, i64)> {
    let request = request(pod);
    let all = shortages(&request, node, |_| false);
    all.into_iter().map(|short| (short.reason, short.resource.to_owned(), short.missing)).collect()
}

/// The answer of Filter: every shortage is a reason, and one that cannot be resolved decides the code.
pub(super) fn status(shortages: Vec<Shortage<'_>>) -> Status {
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
