//! What is left of a node, in one cache line: what most pods are placed by.

use super::NodeInfo;

/// How much of a resource a node has, and how much of it is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// What pods may use.
    pub capacity: i64,
    /// What the pods here request.
    pub requested: i64,
    /// What the pods here count for in scoring.
    pub counted: i64,
}

/// What is left of a node, as far as pods go that ask for no extended resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// How many more pods may come; below 0 when there are too many.
    pub pods_left: i64,
    /// Cpu, in thousandths.
    pub cpu: Share,
    /// Memory, in bytes.
    pub memory: Share,
    /// Node-local storage that nobody requests, in bytes.
    pub ephemeral_storage_left: i64,
}

impl Room {
    /// Reads it of a node.
    pub fn of(node: &NodeInfo) -> Self {
        let (total, used) = (&node.allocatable, &node.requested);
        let cpu = Share { capacity: total.milli_cpu, requested: used.milli_cpu, counted: node.non_zero_milli_cpu };
        let memory = Share { capacity: total.memory, requested: used.memory, counted: node.non_zero_memory };
        Room {
            pods_left: total.pods.saturating_sub(node.pods().len() as i64),
            cpu,
            memory,
            ephemeral_storage_left: total.ephemeral_storage.saturating_sub(used.ephemeral_storage),
        }
    }
}
