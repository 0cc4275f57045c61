//! Scores of nodes, and upstream's default normalisation.

use std::sync::Arc;

/// The highest score a plugin may give, after normalisation.
pub const MAX_NODE_SCORE: i64 = 100;

/// A node and its score.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeScore {
    /// The node's name.
    pub node: Arc<str>,
    /// The plugin's score of it.
    pub score: i64,
}

/// Upstream's `DefaultNormalizeScore`: the highest score becomes 100 and the others follow in proportion; `reverse`
/// turns the order around.
pub fn default_normalize(scores: &mut [NodeScore], reverse: bool) {
    let highest = scores.iter().map(|s| s.score).max().unwrap_or(0).max(0);
    for entry in scores {
        entry.score = normalized_by_highest(entry.score, highest, reverse);
    }
}

/// What [`default_normalize`] makes of one score when `highest` is the highest of all (0 when none is above 0).
pub(crate) fn normalized_by_highest(score: i64, highest: i64, reverse: bool) -> i64 {
    match (highest, reverse) {
        (0, true) => MAX_NODE_SCORE,
        (0, false) => score,
        (_, true) => MAX_NODE_SCORE - MAX_NODE_SCORE * score / highest,
        (_, false) => MAX_NODE_SCORE * score / highest,
    }
}
