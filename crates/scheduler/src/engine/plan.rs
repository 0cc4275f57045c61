//! How each plugin is evaluated for pods of one signature, by what it reads.

use std::ops::Range;
use std::sync::Arc;

use super::evaluate::NotCacheable;
use super::timing::{PluginWatch, TimedCycle};
use crate::extender::Extender;
use crate::framework::{
    COUNTS_MAX, Code, CountScope, Cycle, CycleStates, Dependencies, DomainCounting, ExtensionPoints, Normalization,
    Reads,
};
use crate::metrics::TimedPoint;
use crate::profile::Profile;

/// A plugin that counts pods by topology domain.
pub(super) struct DomainPlugin {
    pub(super) plugin: usize,
    pub(super) counting: Box<dyn DomainCounting>,
    pub(super) filters: bool,
    pub(super) scores: bool,
    pub(super) weight: i64,
    /// The index of its first count.
    pub(super) first: usize,
}

impl DomainPlugin {
    /// The indexes of its counts.
    pub(super) fn range(&self) -> Range<usize> {
        self.first..self.first + self.counting.scopes().len()
    }
}

/// A plugin whose scores are normalised by the highest one.
pub(super) struct NormalizedScore {
    pub(super) plugin: usize,
    pub(super) weight: i64,
    pub(super) reverse: bool,
    /// True when Score reads usage.
    pub(super) usage: bool,
}

/// How each plugin is evaluated. Plugins are named by their index in the profile.
#[derive(Default)]
pub(super) struct PluginPlan {
    /// What the plugins read, by plugin; the plan holds as long as that stays the same.
    pub(super) dependencies: Vec<Dependencies>,
    pub(super) node_filters: Vec<usize>,
    pub(super) usage_filters: Vec<usize>,
    /// Plugins and their weights.
    pub(super) node_scores: Vec<(usize, i64)>,
    pub(super) usage_scores: Vec<(usize, i64)>,
    pub(super) normalized: Vec<NormalizedScore>,
    /// True when a normalised score reads usage, so that keys of buckets change with usage.
    pub(super) usage_in_keys: bool,
    pub(super) domain_plugins: Vec<DomainPlugin>,
}

/// What the plugins of a profile read for one pod.
pub(super) struct PodDependencies {
    /// By plugin; what uncached filters read is left out.
    dependencies: Vec<Dependencies>,
    /// Plugins whose Filter reads anything and runs for each pod and node.
    pub(super) uncached: Vec<usize>,
    /// True when a PostFilter answer without preemption holds for all pods of the signature.
    pub(super) preemption_failure_is_shared: bool,
}

impl PodDependencies {
    /// Asks all plugins for their dependencies.
    pub(super) fn of(profile: &Profile, cx: &Cycle<'_>) -> Result<Self, NotCacheable> {
        let filters_or_scores = |e: &&Arc<dyn Extender>| e.config().is_filter() || e.config().is_prioritizer();
        if profile.extenders().iter().filter(filters_or_scores).any(|e| e.config().is_interested(cx.pod)) {
            return Err(NotCacheable);
        }
        let mut dependencies = Vec::with_capacity(profile.plugins().len());
        let mut uncached = Vec::new();
        let mut preemption_failure_is_shared = profile.extenders().is_empty();
        for (at, plugin) in profile.plugins().iter().enumerate() {
            let points = profile.points_of(at);
            let filters_or_scores = ExtensionPoints::PRE_FILTER
                .union(ExtensionPoints::FILTER)
                .union(ExtensionPoints::PRE_SCORE)
                .union(ExtensionPoints::SCORE);
            if !points.intersects(filters_or_scores.union(ExtensionPoints::POST_FILTER)) {
                dependencies.push(Dependencies::NOTHING);
                continue;
            }
            let mut own = plugin.dependencies(cx);
            preemption_failure_is_shared &=
                !points.contains(ExtensionPoints::POST_FILTER) || own.post_filter != Reads::Cluster;
            own.post_filter = Reads::Pod;
            if points.intersects(ExtensionPoints::PRE_FILTER.union(ExtensionPoints::FILTER)) {
                if own.filter == Reads::Cluster {
                    uncached.push(at);
                    own.filter = Reads::Pod;
                }
            } else {
                own.filter = Reads::Pod;
            }
            if points.intersects(ExtensionPoints::PRE_SCORE.union(ExtensionPoints::SCORE)) {
                let unknown =
                    own.score != Reads::Pod && own.score != Reads::Domain && own.normalization == Normalization::Own;
                if own.score == Reads::Cluster || unknown {
                    return Err(NotCacheable);
                }
            } else {
                own.score = Reads::Pod;
            }
            dependencies.push(own);
        }
        Ok(PodDependencies { dependencies, uncached, preemption_failure_is_shared })
    }

    /// True when a plan made earlier still holds; it then takes over these dependencies.
    pub(super) fn match_plan(&self, plan: &mut PluginPlan, profile: &Profile, cx: &Cycle<'_>) -> bool {
        if self.dependencies == plan.dependencies {
            return true;
        }
        // ReplicaSets and Services change all the time; the selectors that pods of this signature get from them rarely
        // do.
        let is_alike = |at: usize| {
            let Some(plugin) = plan.domain_plugins.iter().find(|plugin| plugin.plugin == at) else { return false };
            let now = profile.plugin(at).domain_counting(cx);
            let now = now.as_ref().and_then(|counting| counting.selectors());
            self.dependencies[at].at(0) == plan.dependencies[at].at(0)
                && now.is_some()
                && now == plugin.counting.selectors()
        };
        let holds =
            (0..self.dependencies.len()).all(|at| self.dependencies[at] == plan.dependencies[at] || is_alike(at));
        if holds {
            plan.dependencies.clone_from(&self.dependencies);
        }
        holds
    }
}

impl PluginPlan {
    pub(super) fn new(profile: &Profile, cx: &Cycle<'_>, dependencies: PodDependencies) -> Result<Self, NotCacheable> {
        let mut plan = PluginPlan::default();
        let mut counts = 0;
        for (at, dependencies) in dependencies.dependencies.iter().enumerate() {
            let points = profile.points_of(at);
            if dependencies.filter == Reads::Domain || dependencies.score == Reads::Domain {
                let (filters, scores) = (dependencies.filter == Reads::Domain, dependencies.score == Reads::Domain);
                // A plugin enabled at only one of two points that belong together is left to the plain cycle.
                let whole = |on: bool, both: ExtensionPoints| !on || points.contains(both);
                if !whole(filters, ExtensionPoints::PRE_FILTER.union(ExtensionPoints::FILTER))
                    || !whole(scores, ExtensionPoints::PRE_SCORE.union(ExtensionPoints::SCORE))
                {
                    return Err(NotCacheable);
                }
                let counting = profile.plugin(at).domain_counting(cx).ok_or(NotCacheable)?;
                let plugin =
                    DomainPlugin { plugin: at, counting, filters, scores, weight: profile.weight(at), first: counts };
                counts = plugin.range().end;
                plan.domain_plugins.push(plugin);
                if counts > COUNTS_MAX {
                    return Err(NotCacheable);
                }
            }
        }
        for &at in profile.at(ExtensionPoints::FILTER) {
            match dependencies.dependencies[at].filter {
                Reads::Node => plan.node_filters.push(at),
                Reads::Usage => plan.usage_filters.push(at),
                _ => {}
            }
        }
        for &at in profile.at(ExtensionPoints::SCORE) {
            let (dependencies, weight) = (dependencies.dependencies[at], profile.weight(at));
            match (dependencies.score, dependencies.normalization) {
                (reads @ (Reads::Node | Reads::Usage), Normalization::Highest { reverse }) => {
                    plan.normalized.push(NormalizedScore { plugin: at, weight, reverse, usage: reads == Reads::Usage });
                }
                (Reads::Node, _) => plan.node_scores.push((at, weight)),
                (Reads::Usage, _) => plan.usage_scores.push((at, weight)),
                _ => {}
            }
        }
        plan.dependencies = dependencies.dependencies;
        Ok(plan)
    }

    /// The labels that pods are counted by.
    pub(super) fn labels(&self) -> impl Iterator<Item = &str> {
        self.domain_plugins.iter().flat_map(|plugin| plugin.counting.scopes()).map(CountScope::label)
    }

    /// True when filters read counts.
    pub(super) fn counts_in_filters(&self) -> bool {
        self.domain_plugins.iter().any(|plugin| plugin.filters && !plugin.range().is_empty())
    }

    /// Runs PreFilter and PreScore of the plugins that are evaluated per node.
    pub(super) fn prepare(
        &self,
        profile: &Profile,
        cx: &TimedCycle<'_>,
        states: &mut CycleStates,
    ) -> Result<SkippedPlugins, NotCacheable> {
        let mut skipped = SkippedPlugins::default();
        let by_node = |reads: Reads| matches!(reads, Reads::Node | Reads::Usage);
        for &at in profile.at(ExtensionPoints::PRE_FILTER).iter().filter(|at| by_node(self.dependencies[**at].filter)) {
            let watch = PluginWatch::start(cx.timing);
            let answer = states.get_mut(at).pre_filter(cx);
            watch.end(at, TimedPoint::PreFilter, answer.status.code);
            match answer.status.code {
                Code::Success if answer.nodes.is_none() => {}
                Code::Skip => skipped.filters.push(at),
                _ => return Err(NotCacheable),
            }
        }
        for &at in profile.at(ExtensionPoints::PRE_SCORE).iter().filter(|at| by_node(self.dependencies[**at].score)) {
            let watch = PluginWatch::start(cx.timing);
            let status = states.get_mut(at).pre_score(cx, &[]);
            watch.end(at, TimedPoint::PreScore, status.code);
            match status.code {
                Code::Success => {}
                Code::Skip => skipped.scores.push(at),
                _ => return Err(NotCacheable),
            }
        }
        Ok(skipped)
    }

    /// Removes the plugins that PreFilter or PreScore skipped.
    pub(super) fn without(&mut self, skipped: &SkippedPlugins) {
        self.node_filters.retain(|at| !skipped.filters.contains(at));
        self.usage_filters.retain(|at| !skipped.filters.contains(at));
        self.node_scores.retain(|(at, _)| !skipped.scores.contains(at));
        self.usage_scores.retain(|(at, _)| !skipped.scores.contains(at));
        self.normalized.retain(|normalized| !skipped.scores.contains(&normalized.plugin));
        self.usage_in_keys = self.normalized.iter().any(|normalized| normalized.usage);
    }
}

/// Plugins whose PreFilter or PreScore answered Skip.
#[derive(Default)]
pub(super) struct SkippedPlugins {
    filters: Vec<usize>,
    scores: Vec<usize>,
}
