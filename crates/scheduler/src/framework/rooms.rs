//! The accelerated form of a plugin that compares what a pod asks for with what is left of nodes.

use crate::cluster::Room;

/// Judges many nodes at once by their room alone, for pods of one shape.
pub trait Rooms: Send + Sync {
    /// Takes the sums of the nodes that do not pass Filter away.
    fn filter(&self, rooms: &[Room], sums: &mut [Option<i64>]);

    /// Adds each node's score, times the weight, to its sum.
    fn score(&self, rooms: &[Room], weight: i64, sums: &mut [Option<i64>]);
}

/// Adds the scores of the nodes that pass, times the weight, to their sums.
pub(crate) fn add_scores(rooms: &[Room], weight: i64, sums: &mut [Option<i64>], score: impl Fn(&Room) -> i64) {
    for (sum, room) in sums.iter_mut().zip(rooms) {
        if let Some(sum) = sum {
            *sum = sum.saturating_add(score(room).saturating_mul(weight));
        }
    }
}
