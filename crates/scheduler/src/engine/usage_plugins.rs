//! Evaluates the plugins that read usage for many nodes at once.

use super::evaluate::{NotCacheable, passes_filters, sum_scores};
use super::plan::PluginPlan;
use super::timing::{PluginWatch, TimedCycle};
use crate::cluster::{Headroom, NodeId};
use crate::framework::{Code, CycleStates, HeadroomPlugin};
use crate::metrics::TimedPoint;

/// The plugins that read usage, for pods of one signature.
#[derive(Default)]
pub(super) struct UsagePlugins {
    /// Plugins with a batch form that reads only headroom.
    headroom_plugins: Vec<WeightedHeadroomPlugin>,
    /// The other filters.
    filters: Vec<usize>,
    /// The other scores, with weights.
    scores: Vec<(usize, i64)>,
}

/// Scratch space for a batch of nodes. All scoreboards share one, so that it stays in the CPU's cache.
#[derive(Default)]
pub(super) struct UsageBatch {
    /// The nodes to evaluate.
    pub(super) nodes: Vec<NodeId>,
    headrooms: Vec<Headroom>,
    /// The sum of each node's scores; none for a node that fails a filter.
    pub(super) sums: Vec<Option<i64>>,
}

struct WeightedHeadroomPlugin {
    /// The plugin's index in the profile.
    index: usize,
    plugin: Box<dyn HeadroomPlugin>,
    filters: bool,
    /// The plugin's weight, when it scores.
    weight: Option<i64>,
}

impl UsagePlugins {
    /// The plugins of a plan, after PreFilter and PreScore.
    pub(super) fn new(plan: &PluginPlan, states: &CycleStates) -> Self {
        let mut usage = UsagePlugins { scores: plan.usage_scores.clone(), ..UsagePlugins::default() };
        for &plugin in &plan.usage_filters {
            let Some(batched) = states.get(plugin).headroom_plugin() else {
                usage.filters.push(plugin);
                continue;
            };
            let scored = usage.scores.iter().position(|(scored, _)| *scored == plugin);
            let weight = scored.map(|at| usage.scores.remove(at).1);
            usage.headroom_plugins.push(WeightedHeadroomPlugin {
                index: plugin,
                plugin: batched,
                filters: true,
                weight,
            });
        }
        let headroom_plugins = &mut usage.headroom_plugins;
        usage.scores.retain(|(plugin, weight)| match states.get(*plugin).headroom_plugin() {
            Some(batched) => {
                let weight = Some(*weight);
                headroom_plugins.push(WeightedHeadroomPlugin {
                    index: *plugin,
                    plugin: batched,
                    filters: false,
                    weight,
                });
                false
            }
            None => true,
        });
        usage
    }

    /// Sums up the scores of the nodes of a batch.
    ///
    /// Runs one plugin on all nodes before the next, so that the memory accesses of the nodes overlap.
    pub(super) fn evaluate(
        &self,
        cx: &TimedCycle<'_>,
        states: &CycleStates,
        batch: &mut UsageBatch,
    ) -> Result<(), NotCacheable> {
        let UsagePlugins { headroom_plugins, filters, scores } = self;
        let UsageBatch { nodes, headrooms, sums } = batch;
        headrooms.clear();
        headrooms.extend(nodes.iter().map(|node| *cx.cluster.headroom(*node)));
        sums.clear();
        sums.resize(nodes.len(), Some(0));
        for WeightedHeadroomPlugin { index, plugin, filters, weight } in headroom_plugins {
            if *filters {
                let watch = PluginWatch::start(cx.timing);
                plugin.filter(headrooms, sums);
                watch.end_many(*index, TimedPoint::Filter, Code::Success, headrooms.len());
            }
            if let Some(weight) = weight {
                let watch = PluginWatch::start(cx.timing);
                plugin.score(headrooms, *weight, sums);
                watch.end_many(*index, TimedPoint::Score, Code::Success, headrooms.len());
            }
        }
        if !filters.is_empty() || !scores.is_empty() {
            for (node, known) in nodes.iter().zip(sums) {
                let Some(score) = *known else { continue };
                *known = match cx.cluster.node_by_id(*node) {
                    Some(node) if passes_filters(states, filters, cx, node)? => {
                        Some(score.saturating_add(sum_scores(states, scores, cx, node)?))
                    }
                    _ => None,
                };
            }
        }
        Ok(())
    }
}
