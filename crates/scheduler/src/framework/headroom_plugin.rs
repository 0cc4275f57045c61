//! The batch form of plugins that compare a pod's requests with the headroom of nodes.

use crate::cluster::Headroom;

/// Filters and scores many nodes at once by their headroom, for pods of one signature.
pub trait HeadroomPlugin: Send + Sync {
    /// Sets the sums of the nodes that fail Filter to none.
    fn filter(&self, headrooms: &[Headroom], sums: &mut [Option<i64>]);

    /// Adds each node's score, times the weight, to its sum; nodes without a sum are skipped.
    fn score(&self, headrooms: &[Headroom], weight: i64, sums: &mut [Option<i64>]);
}

/// Adds the scores of the nodes that have a sum, times the weight, to their sums.
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
