//! Which node was chosen, how close the others came, and which plugin decided it.

use bayplan_scheduler::PluginName;
use bayplan_scheduler::inspect::Scores;

use super::explanation::{NodeAnswer, PluginScore};

/// How many nodes the ranking shows: the chosen one and enough others to see why.
const RANKING_MAX: usize = 5;

/// What the node at an index of the scores was scored.
pub(super) fn answer(scores: &Scores, at: usize) -> NodeAnswer {
    let by_plugin = |plugin: &bayplan_scheduler::inspect::PluginScores| PluginScore {
        plugin: plugin.plugin,
        raw: plugin.raw[at],
        score: plugin.weighted[at],
        weight: plugin.weight,
    };
    NodeAnswer {
        node: scores.nodes[at].to_string(),
        scores: scores.plugins.iter().map(by_plugin).collect(),
        total: Some(scores.totals[at]),
        ..NodeAnswer::default()
    }
}

/// The first node, and the best of the others by total and name.
pub(super) fn ranking(scores: &Scores, first: usize) -> Vec<NodeAnswer> {
    let mut order: Vec<usize> = (0..scores.nodes.len()).collect();
    order.sort_by_key(|&at| (at != first, std::cmp::Reverse(scores.totals[at]), &scores.nodes[at]));
    order.into_iter().take(RANKING_MAX).map(|at| answer(scores, at)).collect()
}

/// The plugin without whose scores the node would not be among the best, or more would be. Of several, the one with the
/// greatest lead over the best of the other nodes. None when all nodes are equally good.
pub(super) fn decided_by(scores: &Scores, chosen: usize) -> Option<PluginName> {
    let best = scores.totals[chosen];
    let runner_up =
        (0..scores.totals.len()).filter(|at| scores.totals[*at] < best).max_by_key(|at| scores.totals[*at])?;
    let changes_best = |weighted: &[i64]| {
        let without = |at: usize| scores.totals[at].saturating_sub(weighted[at]);
        let is_beaten = |at: usize| scores.totals[at] < best && without(at) >= without(chosen);
        (0..scores.totals.len()).any(is_beaten)
    };
    let lead = |weighted: &[i64]| weighted[chosen].saturating_sub(weighted[runner_up]);
    let deciding = scores.plugins.iter().filter(|plugin| lead(&plugin.weighted) > 0);
    deciding.max_by_key(|plugin| (changes_best(&plugin.weighted), lead(&plugin.weighted))).map(|plugin| plugin.plugin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bayplan_scheduler::inspect::PluginScores;

    fn scores(plugins: &[(&'static str, [i64; 3])]) -> Scores {
        let one = |(plugin, weighted): &(&'static str, [i64; 3])| PluginScores {
            plugin,
            raw: weighted.to_vec(),
            weighted: weighted.to_vec(),
            weight: 1,
        };
        let total = |at: usize| plugins.iter().map(|(_, weighted)| weighted[at]).sum();
        Scores {
            nodes: ["a", "b", "c"].map(Into::into).into(),
            plugins: plugins.iter().map(one).collect(),
            totals: (0..3).map(total).collect(),
        }
    }

    #[test]
    fn the_deciding_plugin_is_the_one_without_which_another_node_would_win() {
        for (plugins, chosen, expected) in [
            (vec![("Fit", [10, 5, 0]), ("Spread", [10, 10, 10])], 0, Some("Fit")),
            (vec![("Fit", [50, 40, 0]), ("Spread", [30, 35, 0])], 0, Some("Fit")),
            (vec![("Fit", [40, 50, 0]), ("Spread", [30, 10, 0])], 0, Some("Spread")),
            (vec![("Fit", [5, 5, 5])], 1, None),
            (vec![("Fit", [7, 7, 1])], 1, Some("Fit")),
        ] {
            assert_eq!(decided_by(&scores(&plugins), chosen), expected, "{plugins:?}");
        }
    }

    #[test]
    fn the_chosen_node_stands_first_even_among_equals() {
        let names: Vec<String> =
            ranking(&scores(&[("Fit", [7, 7, 9])]), 1).into_iter().map(|answer| answer.node).collect();
        assert_eq!(names, ["b", "c", "a"]);
    }
}
