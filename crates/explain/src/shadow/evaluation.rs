//! How a node compares with the others for a pod, in one state.

use std::sync::Arc;

use bayplan_scheduler::inspect::{Attempt, Profile, Scores, Search, image_locality_score};
use bayplan_scheduler::{NodeInfo, PodInfo};
use jiff::Timestamp;
use serde::Serialize;

use super::timeline::Timeline;

const IMAGE_LOCALITY: &str = "ImageLocality";

/// Upstream's `minFeasibleNodesToFind`.
const MIN_FEASIBLE_NODES: usize = 100;
/// Upstream's least adaptive percentage.
const MIN_PERCENTAGE: usize = 5;
/// Samples that are scored for a binding that nothing else explains: some hundred thousand scores of nodes where there
/// are thousands, and every sample where a hundred nodes are scored.
const SAMPLES_MAX: usize = 100;

/// What the state says about the node that was chosen.
#[derive(Clone, Debug)]
pub(super) struct Evaluation {
    /// The score of their node; none when it does not fit. With one node that fits, nothing is scored.
    pub(super) theirs: Option<i64>,
    /// The highest score.
    pub(super) best: i64,
    /// The nodes with the highest score.
    pub(super) tied: usize,
    /// The nodes with a higher score than theirs.
    pub(super) better: Vec<Arc<str>>,
    /// All nodes that fit.
    pub(super) feasible: Vec<Arc<str>>,
    /// All nodes.
    pub(super) nodes: usize,
}

/// The scores of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeScores {
    /// The node.
    pub node: String,
    /// What each plugin gave it.
    pub scores: Vec<PluginScore>,
    /// Their sum.
    pub total: i64,
}

/// What one plugin gave a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PluginScore {
    /// The plugin.
    pub plugin: &'static str,
    /// Its own value.
    pub raw: i64,
    /// Normalised and weighted.
    pub score: i64,
}

/// Asks every plugin about every node, in the state of a timeline. None when a plugin fails.
fn scores(profile: &Profile, timeline: &Timeline, pod: &PodInfo, now: Timestamp) -> Option<(Vec<Arc<str>>, Scores)> {
    let mut attempt = Attempt::new(profile, timeline.cluster(), timeline.nominator(), pod, now);
    let found = attempt.find(Search::ALL).ok()?;
    let nodes = found.nodes();
    let names = nodes.iter().map(|node| node.name.clone()).collect();
    let scores = if nodes.len() > 1 { attempt.score(&nodes).ok()? } else { Scores::default() };
    Some((names, scores))
}

/// The least and the highest sum that kube-scheduler may have given each node: it counts the nodes with an image as of
/// when it copied each node.
fn totals(timeline: &Timeline, pod: &PodInfo, scores: &Scores) -> Vec<(i64, i64)> {
    let images = scores.plugins.iter().find(|plugin| plugin.plugin == IMAGE_LOCALITY);
    let adjusted = |at: usize| {
        let (name, total) = (&scores.nodes[at], scores.totals[at]);
        let Some(plugin) = images else { return (total, total) };
        let Some(node) = timeline.cluster().node(name) else { return (total, total) };
        let score = |highest: bool| {
            image_locality_score(pod, node, timeline.cluster(), &|image| {
                timeline.image_counts(name, image).map(|(least, most)| if highest { most } else { least })
            })
        };
        let rest = total - plugin.weighted[at];
        (rest + score(false) * plugin.weight, rest + score(true) * plugin.weight)
    };
    (0..scores.nodes.len()).map(adjusted).collect()
}

impl Evaluation {
    pub(super) fn of(
        profile: &Profile,
        timeline: &Timeline,
        pod: &PodInfo,
        node: &str,
        now: Timestamp,
    ) -> Option<Self> {
        let (feasible, scores) = scores(profile, timeline, pod, now)?;
        let nodes = timeline.cluster().node_count();
        if feasible.len() < 2 {
            let theirs = feasible.iter().any(|name| **name == *node).then_some(0);
            let better = if theirs.is_some() { Vec::new() } else { feasible.clone() };
            return Some(Evaluation { theirs, best: 0, tied: feasible.len(), better, feasible, nodes });
        }
        let totals = totals(timeline, pod, &scores);
        let all = || scores.nodes.iter().zip(&totals);
        let theirs = all().find(|(name, _)| ***name == *node).map(|(_, (_, most))| *most);
        let others = all().filter(|(name, _)| ***name != *node);
        let best = others.clone().map(|(_, (least, _))| *least).chain(theirs).max().unwrap_or_default();
        let tied = others.filter(|(_, (_, most))| *most >= best).count() + usize::from(theirs == Some(best));
        let is_better = |total: i64| theirs.is_none_or(|theirs| total > theirs);
        let better = all().filter(|(_, (least, _))| is_better(*least)).map(|(name, _)| name.clone()).collect();
        Some(Evaluation { theirs, best, tied, better, feasible, nodes })
    }

    /// Their node has the highest score.
    pub(super) fn is_best(&self) -> bool {
        self.theirs == Some(self.best)
    }

    /// Our best score minus theirs; none when their node does not fit.
    pub(super) fn regret(&self) -> Option<i64> {
        self.theirs.map(|theirs| self.best - theirs)
    }

    /// Whether the better nodes may all be among those that upstream did not score. It stops searching once it has
    /// found enough nodes that fit, so as many as that must not be better than theirs.
    pub(super) fn may_be_sampled(&self, percentage: Option<i32>) -> bool {
        let enough = enough(self.nodes, percentage);
        self.theirs.is_some() && self.feasible.len() > enough && self.better.len() <= self.feasible.len() - enough
    }
}

/// How many nodes that fit upstream looks for; its `numFeasibleNodesToFind`.
fn enough(nodes: usize, percentage: Option<i32>) -> usize {
    if nodes < MIN_FEASIBLE_NODES {
        return nodes;
    }
    let percentage = match percentage.and_then(|percentage| usize::try_from(percentage).ok()) {
        None | Some(0) => 50usize.saturating_sub(nodes / 125).max(MIN_PERCENTAGE),
        Some(percentage) => percentage,
    };
    if percentage >= 100 { nodes } else { (nodes * percentage / 100).max(MIN_FEASIBLE_NODES) }
}

/// Whether the node is one of the best when upstream scores only some of the nodes. Scores are normalised over the
/// nodes that are scored, so a node can win there without being among the best of all. What several workers find first
/// is no certain part of the nodes: tried are those that come one after the other, and those that are left when the
/// best are not found.
pub(super) fn is_best_of_a_sample(
    profile: &Profile,
    percentage: Option<i32>,
    timeline: &Timeline,
    pod: &PodInfo,
    node: &str,
    now: Timestamp,
) -> bool {
    let mut attempt = Attempt::new(profile, timeline.cluster(), timeline.nominator(), pod, now);
    let Ok(found) = attempt.find(Search::ALL) else { return false };
    let feasible = found.nodes();
    let enough = enough(timeline.cluster().node_count(), percentage);
    let Some(theirs) = feasible.iter().position(|found| *found.name == *node) else { return false };
    if feasible.len() <= enough {
        return false;
    }
    // By how much each node of a sample is certainly better than theirs.
    let mut leads = |sample: &[&NodeInfo]| -> Option<Vec<i64>> {
        let totals = totals(timeline, pod, &attempt.score(sample).ok()?);
        let at = sample.iter().position(|found| *found.name == *node)?;
        Some(totals.iter().map(|(least, _)| least - totals[at].1).collect())
    };
    let is_best = |leads: &[i64]| leads.iter().all(|lead| *lead <= 0);
    let mut sample = feasible.to_vec();
    for _ in 0..SAMPLES_MAX {
        let Some(leads) = leads(&sample) else { return false };
        if is_best(&leads) {
            return true;
        }
        let mut by_lead: Vec<(i64, &NodeInfo)> = leads.into_iter().zip(sample).collect();
        by_lead.sort_by_key(|(lead, _)| *lead);
        let better = by_lead.iter().filter(|(lead, _)| *lead > 0).count();
        let kept = enough.max(by_lead.len() - better);
        if kept == by_lead.len() {
            break;
        }
        sample = by_lead.into_iter().take(kept).map(|(_, found)| found).collect();
    }
    let step = enough.div_ceil(SAMPLES_MAX);
    (0..enough).step_by(step).any(|before| {
        let first = (theirs + feasible.len() - before) % feasible.len();
        let sample: Vec<_> = feasible.iter().cycle().skip(first).take(enough).copied().collect();
        leads(&sample).is_some_and(|leads| is_best(&leads))
    })
}

/// The scores of their node and of the best one, for a case.
pub(super) fn compared(
    profile: &Profile,
    timeline: &Timeline,
    pod: &PodInfo,
    theirs: &str,
    now: Timestamp,
) -> (Option<String>, Vec<NodeScores>) {
    let Some((feasible, scores)) = scores(profile, timeline, pod, now) else { return (None, Vec::new()) };
    let best = scores.best().first().copied();
    let ours = best.map(|at| scores.nodes[at].to_string()).or_else(|| feasible.first().map(|name| name.to_string()));
    let theirs = scores.nodes.iter().position(|name| **name == *theirs);
    let of = |at: usize| NodeScores {
        node: scores.nodes[at].to_string(),
        scores: scores
            .plugins
            .iter()
            .map(|plugin| PluginScore { plugin: plugin.plugin, raw: plugin.raw[at], score: plugin.weighted[at] })
            .collect(),
        total: scores.totals[at],
    };
    let mut compared: Vec<NodeScores> =
        theirs.into_iter().chain(best.filter(|at| Some(*at) != theirs)).map(of).collect();
    compared.sort_by_key(|node| std::cmp::Reverse(node.total));
    (ours, compared)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstream_looks_for_as_many_nodes_as_its_percentage_says() {
        for (nodes, percentage, expected) in [
            (99, None, 99),
            (100, None, 100),
            (1000, None, 420),
            (5000, None, 500),
            (10_000, Some(0), 500),
            (1000, Some(10), 100),
            (1000, Some(50), 500),
            (1000, Some(100), 1000),
        ] {
            assert_eq!(enough(nodes, percentage), expected, "{nodes} nodes, {percentage:?} %");
        }
    }

    #[test]
    fn a_worse_node_is_explained_by_sampling_only_when_enough_nodes_are_no_better() {
        let names = |count: usize| (0..count).map(|i| Arc::from(format!("n{i}"))).collect::<Vec<Arc<str>>>();
        let evaluation = |feasible: usize, better: usize, nodes: usize| Evaluation {
            theirs: Some(10),
            best: 20,
            tied: 1,
            better: names(better),
            feasible: names(feasible),
            nodes,
        };
        assert!(!evaluation(90, 1, 90).may_be_sampled(None), "all of 90 nodes are scored");
        assert!(!evaluation(400, 1, 1000).may_be_sampled(None), "fewer fit than are looked for");
        assert!(evaluation(1000, 580, 1000).may_be_sampled(None));
        assert!(!evaluation(1000, 581, 1000).may_be_sampled(None), "420 nodes that are no better were not there");
        assert!(!evaluation(1000, 1, 1000).may_be_sampled(Some(100)));
    }
}
