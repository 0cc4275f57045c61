//! Which plugin is asked how about pods of one shape, by what each says it reads.

use std::ops::Range;
use std::sync::Arc;

use super::board::Unsuited;
use crate::extender::Extender;
use crate::framework::{Code, Cycle, CycleStates, Dependencies, Domains, Normalization, Points, Reads};
use crate::profile::Profile;

/// A plugin that counts by domain.
pub(super) struct Part {
    plugin: usize,
    pub(super) form: Box<dyn Domains>,
    pub(super) filters: bool,
    pub(super) scores: bool,
    pub(super) weight: i64,
    /// The first of its counts.
    pub(super) first: usize,
}

impl Part {
    /// Its counts.
    pub(super) fn range(&self) -> Range<usize> {
        self.first..self.first + self.form.scopes().len()
    }
}

/// A plugin whose scores are normalised by the highest.
pub(super) struct Normalized {
    pub(super) plugin: usize,
    pub(super) weight: i64,
    pub(super) reverse: bool,
    /// It reads usage.
    pub(super) usage: bool,
}

/// Which plugin is asked how.
#[derive(Default)]
pub(super) struct Plan {
    /// What the plugins said they read; the plan holds as long as they say the same.
    pub(super) said: Vec<Dependencies>,
    pub(super) node_filters: Vec<usize>,
    pub(super) usage_filters: Vec<usize>,
    /// With weights.
    pub(super) node_scores: Vec<(usize, i64)>,
    pub(super) usage_scores: Vec<(usize, i64)>,
    pub(super) normalized: Vec<Normalized>,
    /// Some of the normalised scores read usage.
    pub(super) usage_in_keys: bool,
    pub(super) parts: Vec<Part>,
}

/// What the plugins say about a pod, with those that read anything set apart.
pub(super) struct Survey {
    /// By plugin.
    said: Vec<Dependencies>,
    /// Plugins whose filters are asked for each pod and node anew.
    pub(super) late: Vec<usize>,
    /// What PostFilter says when it can do nothing holds for all pods of the shape.
    pub(super) helpless_together: bool,
}

impl Survey {
    /// Asks all plugins; none when only the plain form will do.
    pub(super) fn of(profile: &Profile, cx: &Cycle<'_>) -> Option<Self> {
        let asked = |e: &&Arc<dyn Extender>| e.config().is_filter() || e.config().is_prioritizer();
        if profile.extenders().iter().filter(asked).any(|e| e.config().is_interested(cx.pod)) {
            return None;
        }
        let mut said = Vec::with_capacity(profile.plugins().len());
        let mut late = Vec::new();
        let mut helpless_together = profile.extenders().is_empty();
        for (at, plugin) in profile.plugins().iter().enumerate() {
            let points = profile.points_of(at);
            let filters_or_scores = Points::PRE_FILTER.and(Points::FILTER).and(Points::PRE_SCORE).and(Points::SCORE);
            if !points.any(filters_or_scores.and(Points::POST_FILTER)) {
                said.push(Dependencies::NOTHING);
                continue;
            }
            let mut own = plugin.dependencies(cx);
            helpless_together &= !points.has(Points::POST_FILTER) || own.post_filter != Reads::Cluster;
            own.post_filter = Reads::Pod;
            if points.any(Points::PRE_FILTER.and(Points::FILTER)) {
                if own.filter == Reads::Cluster {
                    late.push(at);
                    own.filter = Reads::Pod;
                }
            } else {
                own.filter = Reads::Pod;
            }
            if points.any(Points::PRE_SCORE.and(Points::SCORE)) {
                let unknown =
                    own.score != Reads::Pod && own.score != Reads::Domain && own.normalization == Normalization::Own;
                if own.score == Reads::Cluster || unknown {
                    return None;
                }
            } else {
                own.score = Reads::Pod;
            }
            said.push(own);
        }
        Some(Survey { said, late, helpless_together })
    }

    /// Whether a plan made earlier still holds. The plan takes over what was said, if so.
    pub(super) fn agrees(&self, plan: &mut Plan, profile: &Profile, cx: &Cycle<'_>) -> bool {
        if self.said == plan.said {
            return true;
        }
        // Replica sets and services change all the time; what pods of this shape make of them, hardly ever.
        let is_alike = |at: usize| {
            let Some(part) = plan.parts.iter().find(|part| part.plugin == at) else { return false };
            let now = profile.plugin(at).domains(cx);
            let now = now.as_ref().and_then(|form| form.selectors());
            self.said[at].at(0) == plan.said[at].at(0) && now.is_some() && now == part.form.selectors()
        };
        let agrees = (0..self.said.len()).all(|at| self.said[at] == plan.said[at] || is_alike(at));
        if agrees {
            plan.said.clone_from(&self.said);
        }
        agrees
    }
}

impl Plan {
    pub(super) fn new(profile: &Profile, cx: &Cycle<'_>, survey: Survey) -> Result<Self, Unsuited> {
        let mut plan = Plan::default();
        let mut counts = 0;
        for (at, said) in survey.said.iter().enumerate() {
            let points = profile.points_of(at);
            if said.filter == Reads::Domain || said.score == Reads::Domain {
                let (filters, scores) = (said.filter == Reads::Domain, said.score == Reads::Domain);
                // Half a plugin is left to the plain form.
                let whole = |on: bool, both: Points| !on || points.has(both);
                if !whole(filters, Points::PRE_FILTER.and(Points::FILTER))
                    || !whole(scores, Points::PRE_SCORE.and(Points::SCORE))
                {
                    return Err(Unsuited);
                }
                let form = profile.plugin(at).domains(cx).ok_or(Unsuited)?;
                let part = Part { plugin: at, form, filters, scores, weight: profile.weight(at), first: counts };
                counts = part.range().end;
                plan.parts.push(part);
            }
        }
        for &at in profile.at(Points::FILTER) {
            match survey.said[at].filter {
                Reads::Node => plan.node_filters.push(at),
                Reads::Usage => plan.usage_filters.push(at),
                _ => {}
            }
        }
        for &at in profile.at(Points::SCORE) {
            let (said, weight) = (survey.said[at], profile.weight(at));
            match (said.score, said.normalization) {
                (reads @ (Reads::Node | Reads::Usage), Normalization::Highest { reverse }) => {
                    plan.normalized.push(Normalized { plugin: at, weight, reverse, usage: reads == Reads::Usage });
                }
                (Reads::Node, _) => plan.node_scores.push((at, weight)),
                (Reads::Usage, _) => plan.usage_scores.push((at, weight)),
                _ => {}
            }
        }
        plan.said = survey.said;
        Ok(plan)
    }

    /// Whether filters ask for counts.
    pub(super) fn counts_in_filters(&self) -> bool {
        self.parts.iter().any(|part| part.filters && !part.range().is_empty())
    }

    /// Runs PreFilter and PreScore of the plugins that are asked per node.
    pub(super) fn prepare(
        &self,
        profile: &Profile,
        cx: &Cycle<'_>,
        states: &mut CycleStates,
    ) -> Result<Skipped, Unsuited> {
        let mut skipped = Skipped::default();
        let by_node = |reads: Reads| matches!(reads, Reads::Node | Reads::Usage);
        for &at in profile.at(Points::PRE_FILTER).iter().filter(|at| by_node(self.said[**at].filter)) {
            let answer = states.get_mut(at).pre_filter(cx);
            match answer.status.code {
                Code::Success if answer.nodes.is_none() => {}
                Code::Skip => skipped.filters.push(at),
                _ => return Err(Unsuited),
            }
        }
        for &at in profile.at(Points::PRE_SCORE).iter().filter(|at| by_node(self.said[**at].score)) {
            let status = states.get_mut(at).pre_score(cx, &[]);
            match status.code {
                Code::Success => {}
                Code::Skip => skipped.scores.push(at),
                _ => return Err(Unsuited),
            }
        }
        Ok(skipped)
    }

    /// Leaves plugins out that have nothing to say.
    pub(super) fn without(&mut self, skipped: &Skipped) {
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
pub(super) struct Skipped {
    filters: Vec<usize>,
    scores: Vec<usize>,
}
