//! PreScore, Score and normalisation of the feasible nodes. Upstream's `prioritizeNodes`.

use std::sync::Arc;

use crate::cluster::NodeInfo;
use crate::framework::{Code, Cycle, CycleStates, ExtensionPoints, MAX_NODE_SCORE, NodeScore, PluginName, Status};
use crate::metrics::{Evaluated, TimedPoint};
use crate::profile::Profile;

use super::extenders;

/// The scores of the feasible nodes.
#[derive(Clone, Debug, Default)]
pub struct Scores {
    /// The names of the nodes, in the order of all lists of scores.
    pub nodes: Vec<Arc<str>>,
    /// The scores of each plugin.
    pub plugins: Vec<PluginScores>,
    /// The sum of the weighted scores of each node.
    pub totals: Vec<i64>,
}

/// The scores of one plugin.
#[derive(Clone, Debug)]
pub struct PluginScores {
    /// The plugin's name.
    pub plugin: PluginName,
    /// The scores before normalisation.
    pub raw: Vec<i64>,
    /// The scores after normalisation, times the plugin's weight.
    pub weighted: Vec<i64>,
    /// The plugin's weight.
    pub weight: i64,
}

impl Scores {
    /// The indexes of the nodes with the highest sum.
    pub fn best(&self) -> Vec<usize> {
        let highest = self.totals.iter().max();
        self.totals.iter().enumerate().filter(|(_, total)| Some(*total) == highest).map(|(i, _)| i).collect()
    }
}

/// Scores nodes. An error ends the cycle.
pub(crate) fn score(
    profile: &Profile,
    cycle: &Cycle<'_>,
    states: &mut CycleStates,
    nodes: &[&NodeInfo],
) -> Result<Scores, Status> {
    let watch = profile.stopwatch();
    let prepared = pre_score(profile, cycle, states, nodes);
    watch.point(TimedPoint::PreScore, prepared.as_ref().err().map_or(Code::Success, |status| status.code));
    prepared?;
    let watch = profile.stopwatch();
    let scores = score_all(profile, cycle, states, nodes);
    watch.point(TimedPoint::Score, scores.as_ref().err().map_or(Code::Success, |status| status.code));
    scores
}

fn pre_score(
    profile: &Profile,
    cycle: &Cycle<'_>,
    states: &mut CycleStates,
    nodes: &[&NodeInfo],
) -> Result<(), Status> {
    for &plugin in profile.at(ExtensionPoints::PRE_SCORE) {
        let watch = profile.stopwatch_if(states.sampled);
        let status = states.get_mut(plugin).pre_score(cycle, nodes);
        watch.plugin(plugin, TimedPoint::PreScore, status.code);
        if let Some(metrics) = profile.metrics.as_ref().filter(|_| !status.is_skip()) {
            metrics.evaluated(plugin, Evaluated::PreScore, 1);
        }
        if status.is_skip() {
            states.skip_score[plugin] = true;
        } else if !status.is_success() {
            let name = status.plugin;
            return Err(Status::error(format!("running PreScore plugin {name:?}: {status}")).by(name));
        }
    }
    Ok(())
}

fn score_all(
    profile: &Profile,
    cycle: &Cycle<'_>,
    states: &CycleStates,
    nodes: &[&NodeInfo],
) -> Result<Scores, Status> {
    let mut scores = Scores {
        nodes: nodes.iter().map(|n| n.name.clone()).collect(),
        plugins: Vec::new(),
        totals: vec![
            i64::from(profile.at(ExtensionPoints::SCORE).is_empty() && profile.extenders().is_empty());
            nodes.len()
        ],
    };
    for &plugin in profile.at(ExtensionPoints::SCORE) {
        if !states.skip_score[plugin] {
            let one = score_by(profile, cycle, states, plugin, nodes)?;
            for (total, score) in scores.totals.iter_mut().zip(&one.weighted) {
                *total = total.saturating_add(*score);
            }
            scores.plugins.push(one);
        }
    }
    if !profile.extenders().is_empty() {
        extenders::prioritize(profile.extenders(), cycle.pod, nodes, &mut scores.totals);
    }
    Ok(scores)
}

fn score_by(
    profile: &Profile,
    cycle: &Cycle<'_>,
    states: &CycleStates,
    plugin: usize,
    nodes: &[&NodeInfo],
) -> Result<PluginScores, Status> {
    let name = profile.plugin(plugin).name();
    let state = states.get(plugin);
    if let Some(metrics) = &profile.metrics {
        metrics.evaluated(plugin, Evaluated::Score, 1);
    }
    let watch = profile.stopwatch_if(states.sampled);
    let mut scored = Vec::with_capacity(nodes.len());
    for node in nodes {
        let score = state.score(cycle, node).map_err(|status| {
            Status::error(format!("running Score plugins: plugin {name:?} failed with: {status}")).by(name)
        })?;
        scored.push(NodeScore { node: node.name.clone(), score });
    }
    watch.plugin(plugin, TimedPoint::Score, Code::Success);
    let raw = scored.iter().map(|s| s.score).collect();
    let watch = profile.stopwatch_if(states.sampled);
    let status = state.normalize(cycle, &mut scored);
    watch.plugin(plugin, TimedPoint::Normalize, status.code);
    if !status.is_success() {
        let text = format!("running Normalize on Score plugins: plugin {name:?} failed with: {status}");
        return Err(Status::error(text).by(name));
    }
    if let Some(bad) = scored.iter().find(|s| !(0..=MAX_NODE_SCORE).contains(&s.score)) {
        return Err(Status::error(format!(
            "applying score defaultWeights on Score plugins: plugin {name:?} returns an invalid score {}, it should in \
             the range of [0, {MAX_NODE_SCORE}] after normalizing",
            bad.score
        ))
        .by(name));
    }
    let weight = profile.weight(plugin);
    Ok(PluginScores { plugin: name, raw, weighted: scored.iter().map(|s| s.score * weight).collect(), weight })
}
