//! Filters that read anything (volumes, devices): they run for each pod, after the scoreboard's cached filters.

use super::DecisionInput;
use super::evaluate::NotCacheable;
use super::scoreboard::Scoreboard;
use super::timing::{PluginWatch, TimedCycle};
use crate::cluster::NodeInfo;
use crate::framework::{Code, CycleStates, ExtensionPoints, PluginWithState};
use crate::metrics::TimedPoint;
use crate::profile::Profile;

/// Plugins whose Filter cannot be cached, prepared for one pod.
pub(super) struct UncachedFilters {
    plugins: Vec<UncachedPlugin>,
}

struct UncachedPlugin {
    /// The plugin's index in the profile.
    index: usize,
    /// False when the plugin does not filter this pod; its state is then only kept for Reserve.
    filters: bool,
    state: Box<dyn PluginWithState>,
}

impl UncachedFilters {
    /// Runs PreFilter of these plugins. One that rejects the pod or narrows the nodes is left to the plain cycle.
    pub(super) fn prepare(input: &DecisionInput<'_>, indexes: &[usize]) -> Result<Self, NotCacheable> {
        let profile = input.profile;
        let mut plugins = Vec::with_capacity(indexes.len());
        for &index in indexes {
            let mut state = profile.plugin(index).start();
            let points = profile.points_of(index);
            let mut filters = points.contains(ExtensionPoints::FILTER);
            if points.contains(ExtensionPoints::PRE_FILTER) {
                let watch = PluginWatch::start(input.timing);
                let answer = state.pre_filter(&input.cycle());
                watch.end(index, TimedPoint::PreFilter, answer.status.code);
                match answer.status.code {
                    Code::Success if answer.nodes.is_none() => {}
                    Code::Skip => filters = false,
                    _ => return Err(NotCacheable),
                }
            }
            plugins.push(UncachedPlugin { index, filters, state });
        }
        // In the order in which filters run.
        let order = profile.at(ExtensionPoints::FILTER);
        plugins.sort_by_key(|plugin| order.iter().position(|index| *index == plugin.index));
        Ok(UncachedFilters { plugins })
    }

    /// True when no plugin filters.
    pub(super) fn is_empty(&self) -> bool {
        !self.plugins.iter().any(|plugin| plugin.filters)
    }

    /// True when the node passes all filters.
    pub(super) fn pass(&self, cx: &TimedCycle<'_>, node: &NodeInfo) -> Result<bool, NotCacheable> {
        for plugin in self.plugins.iter().filter(|plugin| plugin.filters) {
            let watch = PluginWatch::start(cx.timing);
            let status = plugin.state.filter(cx, node);
            watch.end(plugin.index, TimedPoint::Filter, status.code);
            if status.is_rejected() {
                return Ok(false);
            }
            if !status.is_success() {
                return Err(NotCacheable);
            }
        }
        Ok(true)
    }

    /// The states of the plugins that run after the decision: Reserve, Permit and the binding cycle.
    pub(super) fn states_for_reserve(&self, profile: &Profile, scoreboard: &Scoreboard) -> CycleStates {
        let later = profile.plugins_after_decision().iter().map(|&index| {
            let uncached = self.plugins.iter().find(|plugin| plugin.index == index);
            (index, uncached.map_or_else(|| scoreboard.states.get(index).copy(), |plugin| plugin.state.copy()))
        });
        CycleStates::of(profile.plugins().len(), later)
    }
}
