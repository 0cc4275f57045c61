//! The accelerated form of a plugin that compares what a pod asks for with what is left of nodes.

use crate::cluster::Headroom;

/// Judges many nodes at once by their room alone, for pods of one signature.
pub trait HeadroomPlugin: Send + Sync {
    /// Takes the sums of the nodes that do not pass Filter away.
    fn filter(&self, headrooms: &[Headroom], sums: &mut [Option<i64>]);

    /// Adds each node's score, times the weight, to its sum.
    fn score(&self, headrooms: &[Headroom], weight: i64, sums: &mut [Option<i64>]);
}

/// Adds the scores of the nodes that pass, times the weight, to their sums.
pub(crate) fn add_scores(
    headrooms: &[Headroom],
    weight: i64,
    sums: &mut [Option<i64>],
    score: impl Fn(&Headroom) -> i64,
) {
    for (sum, headroom) in sums.iter_mut().zip(headrooms) {
        if let Some(sum) = sum {
            *sum = sum.saturating_add(score(headroom).saturating_mul(weight));
        }
    }
}
