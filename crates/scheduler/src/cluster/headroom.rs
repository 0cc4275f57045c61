//! The free resources of a node, in one cache line: what most pods are placed by.

use super::NodeInfo;

/// A resource of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceHeadroom {
    /// How much pods may use.
    pub allocatable: i64,
    /// The sum of the pods' requests.
    pub requested: i64,
    /// The sum of the pods' requests for scoring, where an absent request counts as upstream's default.
    pub non_zero_requested: i64,
}

impl ResourceHeadroom {
    /// The requested fraction after a further request, at most 1.
    pub fn requested_fraction_with(&self, wanted: i64) -> f64 {
        requested_fraction(self.allocatable, self.requested.saturating_add(wanted))
    }
}

/// The requested fraction of an allocatable amount other than 0, at most 1.
pub(crate) fn requested_fraction(allocatable: i64, requested: i64) -> f64 {
    (requested as f64 / allocatable as f64).min(1.0)
}

/// How evenly two resources are used: 100 minus the standard deviation, in percent, of the requested fractions.
pub(crate) fn balance_of_two(a: f64, b: f64) -> i64 {
    ((1.0 - ((a - b) / 2.0).abs()) * 100.0) as i64
}

/// The free resources of a node, without extended resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headroom {
    /// The number of pods that the node can still take; below 0 when it has too many.
    pub pods_left: i32,
    /// How evenly cpu and memory are used, in percent; 100 when the node has none of one of them.
    pub balance: i32,
    /// Cpu, in millicores.
    pub cpu: ResourceHeadroom,
    /// Memory, in bytes.
    pub memory: ResourceHeadroom,
    /// Ephemeral storage that is not requested, in bytes.
    pub ephemeral_storage_left: i64,
}

impl Headroom {
    /// The headroom of a node.
    pub fn of(node: &NodeInfo) -> Self {
        let (total, used) = (&node.allocatable, &node.requested);
        let cpu = ResourceHeadroom {
            allocatable: total.milli_cpu,
            requested: used.milli_cpu,
            non_zero_requested: node.non_zero_milli_cpu,
        };
        let memory = ResourceHeadroom {
            allocatable: total.memory,
            requested: used.memory,
            non_zero_requested: node.non_zero_memory,
        };
        Headroom {
            pods_left: total.pods.saturating_sub(node.pods().len() as i64).clamp(i32::MIN.into(), i32::MAX.into())
                as i32,
            balance: match (cpu.allocatable, memory.allocatable) {
                (0, _) | (_, 0) => 100,
                _ => balance_of_two(cpu.requested_fraction_with(0), memory.requested_fraction_with(0)) as i32,
            },
            cpu,
            memory,
            ephemeral_storage_left: total.ephemeral_storage.saturating_sub(used.ephemeral_storage),
        }
    }
}
