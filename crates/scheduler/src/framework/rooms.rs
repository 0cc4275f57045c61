//! The accelerated form of a plugin that compares what a pod asks for with what is left of nodes.

use crate::cluster::Room;

/// Judges many nodes at once by their room alone, for pods of one shape.
pub trait Rooms: Send + Sync {
    /// Takes out the nodes that do not pass Filter.
    fn filter(&self, rooms: &[Room], passes: &mut [bool]);

    /// Adds each node's score, times the weight.
    fn score(&self, rooms: &[Room], weight: i64, sums: &mut [i64]);
}
