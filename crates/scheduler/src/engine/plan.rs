//! Which plugin is asked how about pods of one signature, by what each says it reads.

use std::ops::Range;
use std::sync::Arc;

use super::scoreboard::NotCacheable;
use crate::extender::Extender;
use crate::framework::{Code, Cycle, CycleStates, Dependencies, DomainCounting, ExtensionPoints, Normalization, Reads};
use crate::profile::Profile;

/// A plugin that counts by domain.
pub(super) struct DomainPlugin {
    plugin: usize,
    pub(super) form: Box<dyn DomainCounting>,
    pub(super) filters: bool,
    pub(super) scores: bool,
    pub(super) weight: i64,
    /// The first of its counts.
    pub(super) first: usize,
}

impl DomainPlugin {
    /// Its counts.
    pub(super) fn range(&self) -> Range<usize> {
        self.first..self.first + self.form.scopes().len()
    }
}

/// A plugin whose scores are normalised by the highest.
pub(super) struct NormalizedScore {
    pub(super) plugin: usize,
    pub(super) weight: i64,
    pub(super) reverse: bool,
    /// It reads usage.
    pub(super) usage: bool,
}

/// Which plugin is asked how.
#[derive(Default)]
pub(super) struct PluginPlan {
    /// What the plugins said they read; the plan holds as long as they say the same.
    pub(super) dependencies: Vec<Dependencies>,
    pub(super) node_filters: Vec<usize>,
    pub(super) usage_filters: Vec<usize>,
    /// With weights.
    pub(super) node_scores: Vec<(usize, i64)>,
    pub(super) usage_scores: Vec<(usize, i64)>,
    pub(super) normalized: Vec<NormalizedScore>,
    /// Some of the normalised scores read usage.
    pub(super) usage_in_keys: bool,
    pub(super) domain_plugins: Vec<DomainPlugin>,
}

/// What the plugins say about a pod, with those that read anything set apart.
pub(super) struct PodDependencies {
    /// By plugin.
    dependencies: Vec<Dependencies>,
    /// Plugins whose filters are asked for each pod and node anew.
    pub(super) uncached: Vec<usize>,
    /// What PostFilter says when it can do nothing holds for all pods of the signature.
    pub(super) preemption_failure_is_shared: bool,
}

impl PodDependencies {
    /// Asks all plugins; none when only the plain form will do.
    pub(super) fn of(profile: &Profile, cx: &Cycle<'_>) -> Option<Self> {
        let batch = |e: &&Arc<dyn Extender>| e.config().is_filter() || e.config().is_prioritizer();
        if profile.extenders().iter().filter(batch).any(|e| e.config().is_interested(cx.pod)) {
            return None;
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
                    return None;
                }
            } else {
                own.score = Reads::Pod;
            }
            dependencies.push(own);
        }
        Some(PodDependencies { dependencies, uncached, preemption_failure_is_shared })
    }

    /// Whether a plan made earlier still holds. The plan takes over what was said, if so.
    pub(super) fn matches_plan(&self, plan: &mut PluginPlan, profile: &Profile, cx: &Cycle<'_>) -> bool {
        if self.dependencies == plan.dependencies {
            return true;
        }
        // Replica sets and services change all the time; what pods of this signature make of them, hardly ever.
        let is_alike = |at: usize| {
            let Some(plugin) = plan.domain_plugins.iter().find(|plugin| plugin.plugin == at) else { return false };
            let now = profile.plugin(at).domain_counting(cx);
            let now = now.as_ref().and_then(|form| form.selectors());
            self.dependencies[at].at(0) == plan.dependencies[at].at(0)
                && now.is_some()
                && now == plugin.form.selectors()
        };
        let matches_plan =
            (0..self.dependencies.len()).all(|at| self.dependencies[at] == plan.dependencies[at] || is_alike(at));
        if matches_plan {
            plan.dependencies.clone_from(&self.dependencies);
        }
        matches_plan
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
                // Half a plugin is left to the plain form.
                let whole = |on: bool, both: ExtensionPoints| !on || points.contains(both);
                if !whole(filters, ExtensionPoints::PRE_FILTER.union(ExtensionPoints::FILTER))
                    || !whole(scores, ExtensionPoints::PRE_SCORE.union(ExtensionPoints::SCORE))
                {
                    return Err(NotCacheable);
                }
                let form = profile.plugin(at).domain_counting(cx).ok_or(NotCacheable)?;
                let plugin =
                    DomainPlugin { plugin: at, form, filters, scores, weight: profile.weight(at), first: counts };
                counts = plugin.range().end;
                plan.domain_plugins.push(plugin);
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

    /// Whether filters ask for counts.
    pub(super) fn counts_in_filters(&self) -> bool {
        self.domain_plugins.iter().any(|plugin| plugin.filters && !plugin.range().is_empty())
    }

    /// Runs PreFilter and PreScore of the plugins that are asked per node.
    pub(super) fn prepare(
        &self,
        profile: &Profile,
        cx: &Cycle<'_>,
        states: &mut CycleStates,
    ) -> Result<SkippedPlugins, NotCacheable> {
        let mut skipped = SkippedPlugins::default();
        let by_node = |reads: Reads| matches!(reads, Reads::Node | Reads::Usage);
        for &at in profile.at(ExtensionPoints::PRE_FILTER).iter().filter(|at| by_node(self.dependencies[**at].filter)) {
            let answer = states.get_mut(at).pre_filter(cx);
            match answer.status.code {
                Code::Success if answer.nodes.is_none() => {}
                Code::Skip => skipped.filters.push(at),
                _ => return Err(NotCacheable),
            }
        }
        for &at in profile.at(ExtensionPoints::PRE_SCORE).iter().filter(|at| by_node(self.dependencies[**at].score)) {
            let status = states.get_mut(at).pre_score(cx, &[]);
            match status.code {
                Code::Success => {}
                Code::Skip => skipped.scores.push(at),
                _ => return Err(NotCacheable),
            }
        }
        Ok(skipped)
    }

    /// Leaves plugins out that have nothing to say.
    pub(super) fn without(&mut self, skipped: &SkippedPlugins) {
        self.node_filters.retain(|at| !skipped.filters.contains(at));
        self.usage_filters.retain(|at| !skipped.filters.contains(at));
        self.node_scores.retain(|(at, _)| !skipped.scores.contains(at));
        self.usage_scores.retain(|(at, _)| !skipped.scores.contains(at));
        self.normalized.retain(|normalized| !skipped.scores.contains(&normalized.plugin));
        self.usage_in_keys = self.normalized.iter().any(|normalized| normalized.usage);
    }
}

/// Plugins that PreFilter or PreScore left out.
#[derive(Default)]
pub(super) struct SkippedPlugins {
    filters: Vec<usize>,
    scores: Vec<usize>,
}
