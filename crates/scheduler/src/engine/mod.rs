//! The decision engine: the answers of the plain cycle, without running every plugin on every node for every pod.
//!
//! ```text
//!   pod ─▶ what does each plugin read for this pod? ─ Score reads anything ─▶ plain cycle
//!            │ nodes, usage, topology domains
//!            ▼
//!          scoreboard of the pod's signature ◀─ nodes and pods that changed since it was last used
//!            │ buckets of feasible nodes
//!            ▼
//!          uncached filters (volumes, devices), best node first
//! ```
//!
//! A [`Scoreboard`] caches filter results and scores of all nodes for pods of one signature, as upstream's batching
//! (KEP-5598) does for pods in a row. What a scoreboard cannot answer exactly is left to the plain cycle, which stays
//! the reference for tests.

mod buckets;
mod cached_diagnosis;
mod change_reader;
mod decider;
mod domain_counts;
mod evaluate;
mod nominated_nodes;
mod plan;
mod scoreboard;
#[cfg(test)]
mod tests;
mod timing;
mod topology;
mod uncached_filters;
mod usage_plugins;

use std::sync::Arc;

use jiff::Timestamp;
use rustc_hash::FxHashMap;

use crate::cluster::{Cluster, NodeId, PodInfo};
use crate::cycle::filter::Filters;
use crate::cycle::post_filter;
use crate::cycle::tie_break::TieBreak;
use crate::framework::{Cycle, CycleStates, ExtensionPoints, PostFilter};
use crate::metrics::TimedPoint;
use crate::nominator::Nominator;
use crate::profile::Profile;
pub(crate) use cached_diagnosis::CachedDiagnosis;
pub use decider::Decider;
pub(crate) use evaluate::NotCacheable;
use plan::{PluginPlan, PodDependencies};
use scoreboard::{Scoreboard, Shared};
use timing::TimedCycle;
pub(crate) use timing::{DecisionKind, DecisionSamples, DecisionTimes, Timing};
use uncached_filters::UncachedFilters;

/// The most cells (nodes times signatures) that are kept. A cell takes 8 to 40 bytes, depending on how many topology
/// domains are counted: as a rule less than a gigabyte in all.
const CELLS_MAX: usize = 1 << 25;

/// For how many changes of the cluster a signature without a scoreboard is left to the plain cycle.
const NOT_CACHEABLE_FOR: u64 = 1000;

/// The most topology keys that are indexed. More than any real cluster uses; beyond it the engine starts over,
const LABELS_MAX: usize = 256;
/// but not within so many decisions: pods with made-up keys must not make it forget everything again and again.
const START_OVER_AFTER: u64 = 10_000;

/// The scoreboards of one profile, by the hash of their signature.
#[derive(Default)]
pub struct Engine {
    signatures: FxHashMap<u64, Vec<CachedSignature>>,
    shared: Shared,
    clock: u64,
    /// The clock from which on the engine may start over.
    start_over_from: u64,
    count: usize,
}

/// What is cached for pods of one signature.
struct CachedSignature {
    /// One of the pods.
    pod: Arc<PodInfo>,
    /// The engine's clock at the last use.
    last_used: u64,
    answer: CachedAnswer,
}

enum CachedAnswer {
    Scoreboard(Box<Scoreboard>),
    /// The signature is left to the plain cycle until the cluster's change log reaches this position.
    NotCacheableUntil(u64),
}

/// What a decision is made from.
#[derive(Clone, Copy)]
pub struct DecisionInput<'a> {
    /// The plugins.
    pub profile: &'a Profile,
    /// The nodes and the pods on them.
    pub cluster: &'a Cluster,
    /// The pods nominated to nodes.
    pub nominator: &'a Nominator,
    /// The pod to place.
    pub pod: &'a PodInfo,
    /// The current time.
    pub now: Timestamp,
    timing: Option<&'a Timing<'a>>,
}

/// Where a pod goes, as far as the engine can tell.
pub(crate) enum EngineDecision {
    /// To this node; with the plugin states that Reserve and the later points need.
    Node(Arc<str>, CycleStates),
    /// No node fits.
    NoNodeFits,
    /// The engine has no exact answer: the plain cycle decides.
    AskPlainCycle,
}

/// The score of the chosen node and the best of the others, for the log.
pub(crate) struct Ranking {
    /// The sum of the weighted scores of the chosen node.
    pub(crate) score: i64,
    /// The node that would have been chosen without it, and its score.
    pub(crate) runner_up: Option<(Arc<str>, i64)>,
}

impl<'a> DecisionInput<'a> {
    /// A decision about a pod by a profile, on the cluster as it is.
    pub fn new(
        profile: &'a Profile,
        cluster: &'a Cluster,
        nominator: &'a Nominator,
        pod: &'a PodInfo,
        now: Timestamp,
    ) -> Self {
        DecisionInput { profile, cluster, nominator, pod, now, timing: None }
    }

    /// The same, timed.
    pub(crate) fn timed(self, timing: Option<&'a Timing<'a>>) -> Self {
        DecisionInput { timing, ..self }
    }

    fn cycle(&self) -> TimedCycle<'a> {
        let cycle = Cycle { pod: self.pod, cluster: self.cluster, now: self.now };
        TimedCycle { cycle, timing: self.timing }
    }

    /// The next step of the decision begins.
    fn step(&self, point: TimedPoint) {
        if let Some(timing) = self.timing {
            timing.step(point);
        }
    }

    /// What the plugins read for the pod. Without nodes no plugin is asked at all, which is the plain cycle's to tell.
    fn dependencies(&self) -> Result<PodDependencies, NotCacheable> {
        if self.cluster.node_count() == 0 {
            return Err(NotCacheable);
        }
        PodDependencies::of(self.profile, &self.cycle())
    }
}

impl Engine {
    /// Decides where a pod goes.
    pub(crate) fn decide(&mut self, input: DecisionInput<'_>, ties: &mut TieBreak) -> EngineDecision {
        self.try_decide(input, ties).unwrap_or(EngineDecision::AskPlainCycle)
    }

    fn try_decide(&mut self, input: DecisionInput<'_>, ties: &mut TieBreak) -> Result<EngineDecision, NotCacheable> {
        let DecisionInput { profile, cluster, pod, .. } = input;
        let cx = input.cycle();
        let dependencies = input.dependencies()?;
        let uncached = UncachedFilters::prepare(&input, &dependencies.uncached)?;
        input.step(TimedPoint::Filter);
        let scoreboard = self.scoreboard(&input, dependencies)?;
        scoreboard.account_for_nominated(&input, &uncached)?;
        input.step(TimedPoint::Score);
        let nominated = cluster.node(&pod.status.nominated_node_name);
        let chosen = match nominated.filter(|node| scoreboard.is_feasible(node.id)) {
            // An uncached filter that fails here with an error is asked again about all nodes.
            Some(node) if matches!(uncached.pass(&cx, node), Ok(true)) => Some(node.id),
            _ => choose(scoreboard, &cx, &uncached, ties)?,
        };
        Ok(match chosen.and_then(|node| cluster.node_by_id(node)) {
            Some(node) => EngineDecision::Node(node.name.clone(), uncached.states_for_reserve(profile, scoreboard)),
            None => EngineDecision::NoNodeFits,
        })
    }

    /// Whether a node passes all filters, without choosing one; none when only the plain cycle can tell.
    pub(crate) fn fits(&mut self, input: DecisionInput<'_>) -> Option<bool> {
        let dependencies = input.dependencies().ok()?;
        let uncached = UncachedFilters::prepare(&input, &dependencies.uncached).ok()?;
        if !uncached.is_empty() {
            return None;
        }
        let scoreboard = self.scoreboard(&input, dependencies).ok()?;
        scoreboard.account_for_nominated(&input, &uncached).ok()?;
        Some(scoreboard.fits_somewhere())
    }

    /// Why no node fits a pod, and the answer of PostFilter.
    pub(crate) fn explain(
        &mut self,
        input: DecisionInput<'_>,
        ties: &mut TieBreak,
    ) -> Result<(&CachedDiagnosis, PostFilter), NotCacheable> {
        let DecisionInput { profile, nominator, pod, .. } = input;
        let cycle = input.cycle();
        let dependencies = input.dependencies()?;
        // A nominated pod takes no precedence over itself, so its nominated node differs from what other pods see.
        if !dependencies.uncached.is_empty() || nominator.node_of(pod.uid()).is_some() || pod.is_nominated() {
            return Err(NotCacheable);
        }
        let failure_is_shared = dependencies.preemption_failure_is_shared;
        let scoreboard = self.scoreboard(&input, dependencies)?;
        if scoreboard.plan.counts_in_filters() {
            return Err(NotCacheable);
        }
        let mut cached = scoreboard.diagnosis.take().unwrap_or_default();
        cached.catch_up(scoreboard, &input)?;
        let cached = scoreboard.diagnosis.insert(cached);
        if let Some(known) = cached.preemption_cannot_help.clone() {
            // It takes no time, but it is an answer of PostFilter.
            profile.stopwatch().point(TimedPoint::PostFilter, known.status.code);
            cached.diagnosis.post_filter_message = known.status.message();
            return Ok((cached, known));
        }
        let mut states = scoreboard.states.clone();
        for &at in profile.at(ExtensionPoints::POST_FILTER) {
            if profile.points_of(at).contains(ExtensionPoints::PRE_FILTER) {
                states.get_mut(at).pre_filter(&cycle.cycle);
            }
        }
        let filters = Filters::new(profile, cycle.cycle, nominator);
        let answer = post_filter(&filters, &states, &mut cached.diagnosis, Some(&cached.candidates), ties.random());
        if failure_is_shared && answer.preemption.is_none() && answer.calls.is_empty() {
            cached.preemption_cannot_help = Some(answer.clone());
        }
        Ok((cached, answer))
    }

    /// Why no node fits a pod, as the FailedScheduling event says it, and the answer of PostFilter when it begins at
    /// the first node; none when a node fits or only the plain cycle can tell. Tests compare it with the plain cycle.
    pub fn why_not(&mut self, input: DecisionInput<'_>) -> Option<(String, PostFilter)> {
        if !self.scores(input)?.is_empty() {
            return None;
        }
        let (cached, answer) = self.explain(input, &mut TieBreak::SmallestName).ok()?;
        Some((cached.diagnosis.message(), answer))
    }

    /// All feasible nodes with their scores, by name; none when only the plain cycle can tell. Tests compare it with
    /// the plain cycle.
    pub fn scores(&mut self, input: DecisionInput<'_>) -> Option<Vec<(Arc<str>, i64)>> {
        self.try_scores(input).ok()
    }

    fn try_scores(&mut self, input: DecisionInput<'_>) -> Result<Vec<(Arc<str>, i64)>, NotCacheable> {
        let cx = input.cycle();
        let dependencies = input.dependencies()?;
        let uncached = UncachedFilters::prepare(&input, &dependencies.uncached)?;
        let scoreboard = self.scoreboard(&input, dependencies)?;
        scoreboard.account_for_nominated(&input, &uncached)?;
        let hidden = if uncached.is_empty() { Vec::new() } else { hide_failing(scoreboard, &cx, &uncached)? };
        let name = |id: NodeId| input.cluster.node_by_id(id).map(|node| node.name.clone());
        let mut all: Vec<_> = scoreboard.all().into_iter().filter_map(|(id, score)| Some((name(id)?, score))).collect();
        hidden.into_iter().for_each(|node| scoreboard.unhide(node));
        all.sort();
        Ok(all)
    }

    /// The score of a chosen node and of the next best by the scoreboard alone. Looks at all nodes: for the log only.
    pub(crate) fn ranking(&mut self, input: DecisionInput<'_>, chosen: &str) -> Option<Ranking> {
        let dependencies = input.dependencies().ok()?;
        let all = self.scoreboard(&input, dependencies).ok()?.all();
        let chosen = input.cluster.node(chosen)?.id;
        let score = all.iter().find(|(id, _)| *id == chosen)?.1;
        let next = all.into_iter().filter(|(id, _)| *id != chosen).max_by_key(|(_, score)| *score);
        let runner_up = next.and_then(|(id, score)| Some((input.cluster.node_by_id(id)?.name.clone(), score)));
        Some(Ranking { score, runner_up })
    }

    /// The scoreboard of the pod's signature, brought up to date.
    fn scoreboard(
        &mut self,
        input: &DecisionInput<'_>,
        dependencies: PodDependencies,
    ) -> Result<&mut Scoreboard, NotCacheable> {
        let DecisionInput { profile, cluster, pod, .. } = *input;
        let cx = input.cycle();
        self.clock += 1;
        self.shared.topologies.catch_up(cluster);
        let hash = pod.signature_hash.base;
        let signatures = self.signatures.entry(hash).or_default();
        let mut at = signatures.iter().position(|cached| cached.pod.same_base_signature(pod));
        let end = cluster.changes().end();
        if let Some(known) = at {
            signatures[known].last_used = self.clock;
            let usable = match &mut signatures[known].answer {
                CachedAnswer::NotCacheableUntil(until) if end < *until => return Err(NotCacheable),
                CachedAnswer::NotCacheableUntil(_) => false,
                CachedAnswer::Scoreboard(scoreboard) => {
                    dependencies.match_plan(&mut scoreboard.plan, profile, &cx)
                        && scoreboard.catch_up(&cx, &mut self.shared).is_ok()
                }
            };
            if !usable {
                signatures.swap_remove(known);
                self.count -= 1;
                at = None;
            }
        }
        let at = match at {
            Some(at) => at,
            None => self.add_signature(input, dependencies),
        };
        match self.signatures.get_mut(&hash).map(|signatures| &mut signatures[at].answer) {
            Some(CachedAnswer::Scoreboard(scoreboard)) => Ok(scoreboard),
            _ => Err(NotCacheable),
        }
    }

    /// Builds the scoreboard of a pod's signature, or notes that there can be none; the answer is its index.
    fn add_signature(&mut self, input: &DecisionInput<'_>, dependencies: PodDependencies) -> usize {
        let DecisionInput { profile, cluster, pod, .. } = *input;
        let cx = input.cycle();
        self.evict(cluster.slot_count());
        let template = Arc::new(pod.clone());
        let until = cluster.changes().end() + NOT_CACHEABLE_FOR;
        let answer = PluginPlan::new(profile, &cx, dependencies)
            .and_then(|plan| self.make_room_for(&plan).map(|()| plan))
            .and_then(|plan| Scoreboard::build(profile, &cx, plan, template.clone(), &mut self.shared))
            .map_or(CachedAnswer::NotCacheableUntil(until), |scoreboard| {
                CachedAnswer::Scoreboard(Box::new(scoreboard))
            });
        self.count += 1;
        let signatures = self.signatures.entry(pod.signature_hash.base).or_default();
        signatures.push(CachedSignature { pod: template, last_used: self.clock, answer });
        signatures.len() - 1
    }

    /// Makes room for the topology keys of a plan, if need be by starting over.
    fn make_room_for(&mut self, plan: &PluginPlan) -> Result<(), NotCacheable> {
        let topologies = &self.shared.topologies;
        let new = plan.labels().filter(|label| !topologies.contains(label)).count();
        if topologies.len() + new <= LABELS_MAX {
            return Ok(());
        }
        if self.clock < self.start_over_from {
            return Err(NotCacheable);
        }
        let start_over_from = self.clock + START_OVER_AFTER;
        *self = Engine { clock: self.clock, start_over_from, ..Engine::default() };
        Ok(())
    }

    /// Evicts the least recently used scoreboards until there is space for one more.
    fn evict(&mut self, slot_count: usize) {
        while self.count > 0 && (self.count + 1) * slot_count.max(1) > CELLS_MAX {
            let all = self.signatures.iter();
            let all = all.flat_map(|(hash, cached)| cached.iter().map(move |cached| (cached.last_used, *hash)));
            let Some((oldest, hash)) = all.min() else { return };
            let Some(signatures) = self.signatures.get_mut(&hash) else { return };
            self.count -= signatures.len();
            signatures.retain(|cached| cached.last_used != oldest);
            self.count += signatures.len();
            if signatures.is_empty() {
                self.signatures.remove(&hash);
            }
        }
    }
}

/// The best node that passes the uncached filters.
fn choose(
    scoreboard: &mut Scoreboard,
    cx: &TimedCycle<'_>,
    uncached: &UncachedFilters,
    ties: &mut TieBreak,
) -> Result<Option<NodeId>, NotCacheable> {
    if uncached.is_empty() {
        return Ok(scoreboard.best(cx, ties));
    }
    let mut hidden = Vec::new();
    let chosen = if scoreboard.is_order_fixed() {
        best_passing(scoreboard, cx, uncached, ties, &mut hidden)
    } else {
        hide_failing(scoreboard, cx, uncached).map(|failing| {
            hidden = failing;
            scoreboard.best(cx, ties)
        })
    };
    hidden.into_iter().for_each(|node| scoreboard.unhide(node));
    chosen
}

/// Asks the uncached filters about one node after the other, best first; those that fail are hidden.
fn best_passing(
    scoreboard: &mut Scoreboard,
    cx: &TimedCycle<'_>,
    uncached: &UncachedFilters,
    ties: &mut TieBreak,
    hidden: &mut Vec<NodeId>,
) -> Result<Option<NodeId>, NotCacheable> {
    while let Some(best) = scoreboard.best(cx, ties) {
        let node = cx.cluster.node_by_id(best).ok_or(NotCacheable)?;
        if uncached.pass(cx, node)? {
            // Nodes that were not asked about may fail.
            ties.forget_among();
            return Ok(Some(best));
        }
        scoreboard.hide(best);
        hidden.push(best);
    }
    Ok(None)
}

/// Hides all nodes that fail the uncached filters; nothing is hidden when a filter ends with an error.
fn hide_failing(
    scoreboard: &mut Scoreboard,
    cx: &TimedCycle<'_>,
    uncached: &UncachedFilters,
) -> Result<Vec<NodeId>, NotCacheable> {
    let mut failing = Vec::new();
    for node in scoreboard.feasible() {
        if !uncached.pass(cx, cx.cluster.node_by_id(node).ok_or(NotCacheable)?)? {
            failing.push(node);
        }
    }
    failing.iter().for_each(|node| scoreboard.hide(*node));
    Ok(failing)
}
