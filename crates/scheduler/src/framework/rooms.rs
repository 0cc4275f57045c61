//! The accelerated form of a plugin that compares what a pod asks for with what is left of nodes.

use crate::cluster::Room;

/// Judges many nodes at once by their room alone, for pods of one shape.
pub trait Rooms: Send + Sync {
    /// Takes the sums of the nodes that do not pass Filter away.
    fn filter(&self, rooms: &[Room], sums: &mut [Option<i64>]);

    /// Adds each node's score, times the weight, to its sum.
    fn score(&self, rooms: &[Room], weight: i64, sums: &mut [Option<i64>]);
}
