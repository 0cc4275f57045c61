//! Which taints a node's conditions ask for.

use std::collections::BTreeMap;

use crate::node::{Node, Taint};

const NO_SCHEDULE: &str = "NoSchedule";
const NO_EXECUTE: &str = "NoExecute";
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Condition, its status, and the taint that goes with it.
const BY_CONDITION: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];

/// Labels, and the deprecated ones that old clients still read.
const FORMER_LABELS: [(&str, &str); 2] =
    [("kubernetes.io/os", "beta.kubernetes.io/os"), ("kubernetes.io/arch", "beta.kubernetes.io/arch")];

/// The taint that evicts pods from a node that is not ready.
pub(super) fn not_ready() -> Taint {
    Taint::new(NOT_READY, NO_EXECUTE)
}

/// The taint that evicts pods from a node whose kubelet posts nothing.
pub(super) fn unreachable() -> Taint {
    Taint::new(UNREACHABLE, NO_EXECUTE)
}

/// The NoSchedule taints to add and to remove so that they match the conditions.
pub(super) fn by_condition(node: &Node) -> (Vec<Taint>, Vec<Taint>) {
    let asked = |condition: &crate::node::NodeCondition| {
        let row = BY_CONDITION.iter().find(|row| row.0 == condition.condition_type && row.1 == condition.status)?;
        Some(Taint::new(row.2, NO_SCHEDULE))
    };
    let mut wanted: Vec<Taint> = node.status.conditions.iter().filter_map(asked).collect();
    wanted.extend(node.spec.unschedulable.then(|| Taint::new(UNSCHEDULABLE, NO_SCHEDULE)));
    let ours = |taint: &&Taint| {
        taint.effect == NO_SCHEDULE && (taint.key == UNSCHEDULABLE || BY_CONDITION.iter().any(|row| row.2 == taint.key))
    };
    let has: Vec<Taint> = node.spec.taints.iter().filter(ours).cloned().collect();
    let missing = |from: &[Taint], taint: &&Taint| !from.iter().any(|known| known.is(taint));
    let add = wanted.iter().filter(|taint| missing(&has, taint)).cloned().collect();
    let remove = has.iter().filter(|taint| missing(&wanted, taint)).cloned().collect();
    (add, remove)
}

/// The deprecated labels that differ from their successors.
pub(super) fn deprecated_labels(node: &Node) -> BTreeMap<&'static str, String> {
    let labels = &node.metadata.labels;
    FORMER_LABELS
        .iter()
        .filter_map(|(present, former)| {
            let value = labels.get(present)?;
            (labels.get(former) != Some(value)).then(|| (*former, value.clone()))
        })
        .collect()
}
