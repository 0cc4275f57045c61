//! Evaluates the plain forms of plugins on one node, for the scoreboard.

use super::timing::{PluginWatch, TimedCycle};
use crate::cluster::NodeInfo;
use crate::framework::{Code, CycleStates, MAX_NODE_SCORE};
use crate::metrics::TimedPoint;

/// The scoreboard cannot give the exact answer; the plain cycle can.
pub(crate) struct NotCacheable;

/// True when a node passes all these filters. Errors are left to the plain cycle to report.
pub(super) fn passes_filters(
    states: &CycleStates,
    filters: &[usize],
    cx: &TimedCycle<'_>,
    node: &NodeInfo,
) -> Result<bool, NotCacheable> {
    for &plugin in filters {
        let watch = PluginWatch::start(cx.timing);
        let status = states.get(plugin).filter(cx, node);
        watch.end(plugin, TimedPoint::Filter, status.code);
        if status.is_rejected() {
            return Ok(false);
        }
        if !status.is_success() {
            return Err(NotCacheable);
        }
    }
    Ok(true)
}

/// The sum of weighted scores. A score out of bounds is an error, which the plain cycle reports.
pub(super) fn sum_scores(
    states: &CycleStates,
    scores: &[(usize, i64)],
    cx: &TimedCycle<'_>,
    node: &NodeInfo,
) -> Result<i64, NotCacheable> {
    let mut sum = 0i64;
    for &(plugin, weight) in scores {
        let score = timed_score(states, plugin, cx, node)?;
        if !(0..=MAX_NODE_SCORE).contains(&score) {
            return Err(NotCacheable);
        }
        sum = sum.saturating_add(score.saturating_mul(weight));
    }
    Ok(sum)
}

/// A score before normalisation. One below 0 is an error, which the plain cycle reports.
pub(super) fn raw_score(
    states: &CycleStates,
    plugin: usize,
    cx: &TimedCycle<'_>,
    node: &NodeInfo,
) -> Result<i32, NotCacheable> {
    to_i32(timed_score(states, plugin, cx, node)?)
}

fn timed_score(states: &CycleStates, plugin: usize, cx: &TimedCycle<'_>, node: &NodeInfo) -> Result<i64, NotCacheable> {
    let watch = PluginWatch::start(cx.timing);
    let score = states.get(plugin).score(cx, node).map_err(|_| NotCacheable)?;
    watch.end(plugin, TimedPoint::Score, Code::Success);
    Ok(score)
}

/// Scores are stored as 32 bits, because there is one for every node of every signature; weights that exceed that are
/// left to the plain cycle.
pub(super) fn to_i32(score: i64) -> Result<i32, NotCacheable> {
    i32::try_from(score).ok().filter(|score| *score >= 0).ok_or(NotCacheable)
}
