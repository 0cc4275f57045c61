//! What the plugins that read usage say of many nodes at once.

use super::plan::PluginPlan;
use super::scoreboard::{NotCacheable, passes, sum};
use crate::cluster::{Headroom, NodeId};
use crate::framework::{Cycle, CycleStates, HeadroomPlugin};

/// The plugins that read usage, for pods of one signature.
#[derive(Default)]
pub(super) struct UsagePlugins {
    /// Those that room tells all they need.
    headroom_plugins: Vec<WeightedHeadroomPlugin>,
    /// Other filters.
    filters: Vec<usize>,
    /// Other scores, with weights.
    scores: Vec<(usize, i64)>,
}

/// Memory to ask them. One for all scoreboards: it stays in the cache from one to the next.
#[derive(Default)]
pub(super) struct UsageBatch {
    /// Who is asked about.
    pub(super) nodes: Vec<NodeId>,
    headrooms: Vec<Headroom>,
    /// What the nodes' scores come to; none for those that do not pass.
    pub(super) sums: Vec<Option<i64>>,
}

struct WeightedHeadroomPlugin {
    form: Box<dyn HeadroomPlugin>,
    filters: bool,
    /// If it scores.
    weight: Option<i64>,
}

impl UsagePlugins {
    /// Of the plugins of a plan, which are prepared.
    pub(super) fn new(plan: &PluginPlan, states: &CycleStates) -> Self {
        let mut usage = UsagePlugins { scores: plan.usage_scores.clone(), ..UsagePlugins::default() };
        for &plugin in &plan.usage_filters {
            let Some(form) = states.get(plugin).headroom_plugin() else {
                usage.filters.push(plugin);
                continue;
            };
            let scored = usage.scores.iter().position(|(scored, _)| *scored == plugin);
            let weight = scored.map(|at| usage.scores.remove(at).1);
            usage.headroom_plugins.push(WeightedHeadroomPlugin { form, filters: true, weight });
        }
        let headroom_plugins = &mut usage.headroom_plugins;
        usage.scores.retain(|(plugin, weight)| match states.get(*plugin).headroom_plugin() {
            Some(form) => {
                headroom_plugins.push(WeightedHeadroomPlugin { form, filters: false, weight: Some(*weight) });
                false
            }
            None => true,
        });
        usage
    }

    /// Sums up the scores of the nodes that are asked about.
    ///
    /// One thing after the other for all nodes, and not all things for one node after the other: memory is then waited for
    /// together.
    pub(super) fn evaluate(
        &self,
        cx: &Cycle<'_>,
        states: &CycleStates,
        batch: &mut UsageBatch,
    ) -> Result<(), NotCacheable> {
        let UsagePlugins { headroom_plugins, filters, scores } = self;
        let UsageBatch { nodes, headrooms, sums } = batch;
        headrooms.clear();
        headrooms.extend(nodes.iter().map(|node| *cx.cluster.headroom(*node)));
        sums.clear();
        sums.resize(nodes.len(), Some(0));
        for WeightedHeadroomPlugin { form, filters, weight } in headroom_plugins {
            if *filters {
                form.filter(headrooms, sums);
            }
            if let Some(weight) = weight {
                form.score(headrooms, *weight, sums);
            }
        }
        if !filters.is_empty() || !scores.is_empty() {
            for (node, known) in nodes.iter().zip(sums) {
                let Some(headroom_plugins) = *known else { continue };
                *known = match cx.cluster.node_by_id(*node) {
                    Some(node) if passes(states, filters, cx, node)? => {
                        Some(headroom_plugins.saturating_add(sum(states, scores, cx, node)?))
                    }
                    _ => None,
                };
            }
        }
        Ok(())
    }
}
