//! The decision engine: the same answers as the plain cycle, by recomputing only what changed.
//!
//! ```text
//!   pod ─▶ survey: what does each plugin read of this pod? ─ anything ─▶ plain cycle
//!            │ nodes, usage, domains
//!            ▼
//!          scoreboard of the pod's signature ◀─ changes of nodes and pods since it was last used
//!            │ buckets of feasible nodes
//!            ▼
//!          filters that read anything (volumes, devices), best node first
//! ```
//!
//! A [`Scoreboard`] keeps verdicts and scores for pods of one signature. Whatever a scoreboard cannot answer exactly, it leaves to the
//! plain cycle, which stays the truth for tests and explanations.

mod buckets;
mod cached_diagnosis;
mod change_reader;
mod domain_counts;
mod nominated_nodes;
mod plan;
mod scoreboard;
mod topology;
mod usage_plugins;

use std::sync::Arc;

use jiff::Timestamp;
use rustc_hash::FxHashMap;

use crate::cluster::{Cluster, NodeId, NodeInfo, PodInfo};
use crate::cycle::filter::Filters;
use crate::cycle::post_filter;
use crate::cycle::tie_break::TieBreak;
use crate::framework::{Code, Cycle, CycleStates, ExtensionPoints, PluginWithState, PostFilter};
use crate::profile::Profile;
use crate::queue::Nominator;
pub(crate) use cached_diagnosis::{CachedDiagnosis, CandidateCache};
use plan::{PluginPlan, PodDependencies};
use scoreboard::{Scoreboard, Shared};

/// Most cells (nodes times signatures) that are kept: with 8 to 40 bytes each, by how much is counted, a gigabyte or less as a rule.
const CELLS_MAX: usize = 1 << 25;

/// A signature that no scoreboard suits is left to the plain cycle until this many changes later.
const NOT_CACHEABLE_FOR: u64 = 1000;

/// Labels that may be kept in topologies. Nobody means as many; who tries out keys starts anew once in a while.
const LABELS_MAX: usize = 256;

/// Scoreboards of one profile, by the hash of their signature.
#[derive(Default)]
pub struct Engine {
    signatures: FxHashMap<u64, Vec<CachedSignature>>,
    shared: Shared,
    clock: u64,
    count: usize,
}

struct CachedSignature {
    pod: Arc<PodInfo>,
    used: u64,
    kept: CachedAnswer,
}

enum CachedAnswer {
    Scoreboard(Box<Scoreboard>),
    /// Not before the cluster's changes reach this.
    NotCacheable(u64),
}

/// What is to be decided, and on which grounds.
#[derive(Clone, Copy)]
pub struct DecisionInput<'a> {
    /// The plugins.
    pub profile: &'a Profile,
    /// The cluster.
    pub cluster: &'a Cluster,
    /// Who is expected where.
    pub nominator: &'a Nominator,
    /// The pod.
    pub pod: &'a PodInfo,
    /// The time.
    pub now: Timestamp,
}

/// Where a pod goes.
pub(crate) enum Verdict {
    /// To this node, with the states that Reserve and the later points need.
    Node(Arc<str>, CycleStates),
    /// Nowhere; the plain cycle says why.
    Nowhere,
}

impl<'a> DecisionInput<'a> {
    fn cycle(&self) -> Cycle<'a> {
        Cycle { pod: self.pod, cluster: self.cluster, now: self.now }
    }
}

impl Engine {
    /// Decides where a pod goes; none when only the plain cycle can tell.
    pub(crate) fn decide(&mut self, input: DecisionInput<'_>, ties: &mut TieBreak) -> Option<Verdict> {
        let DecisionInput { profile, cluster, pod, .. } = input;
        let cx = input.cycle();
        let dependencies = PodDependencies::of(profile, &cx)?;
        let uncached = UncachedFilters::prepare(&input, &dependencies.uncached)?;
        let scoreboard = self.scoreboard(&input, dependencies)?;
        scoreboard.account_for_nominated(&input, &uncached)?;
        let own = cluster.node(&pod.status.nominated_node_name).map(|node| node.id);
        let chosen = match own.filter(|node| scoreboard.is_feasible(*node)) {
            Some(own) if uncached.pass(&cx, cluster.node_by_id(own)?) == Some(true) => Some(Some(own)),
            _ => choose(scoreboard, &cx, &uncached, ties),
        };
        let states = |scoreboard: &Scoreboard| uncached.states_for_reserve(profile, scoreboard);
        chosen.map(|chosen| match chosen.and_then(|node| cluster.node_by_id(node)) {
            Some(node) => Verdict::Node(node.name.clone(), states(scoreboard)),
            None => Verdict::Nowhere,
        })
    }

    /// Why a pod that fits nowhere does not, and what PostFilter makes of it; none when only the plain cycle can tell.
    pub(crate) fn explain(
        &mut self,
        input: DecisionInput<'_>,
        ties: &mut TieBreak,
    ) -> Option<(&CachedDiagnosis, PostFilter)> {
        let DecisionInput { profile, nominator, pod, .. } = input;
        let cycle = input.cycle();
        let dependencies = PodDependencies::of(profile, &cycle)?;
        // A nominated pod is not in its own way, so it sees its node as no other pod of the signature does.
        if !dependencies.uncached.is_empty() || nominator.node_of(pod.uid()).is_some() || pod.is_nominated() {
            return None;
        }
        let preemption_failure_is_shared = dependencies.preemption_failure_is_shared;
        let scoreboard = self.scoreboard(&input, dependencies)?;
        if scoreboard.plan.counts_in_filters() {
            return None;
        }
        let mut diagnosis = scoreboard.diagnosis.take().unwrap_or_default();
        diagnosis.catch_up(scoreboard, &input).ok()?;
        let diagnosis = scoreboard.diagnosis.insert(diagnosis);
        if let Some(known) = diagnosis.preemption_cannot_help.clone() {
            diagnosis.diagnosis.post_filter_message = known.status.message();
            return Some((diagnosis, known));
        }
        let mut states = scoreboard.states.clone();
        for &at in profile.at(ExtensionPoints::POST_FILTER) {
            if profile.points_of(at).contains(ExtensionPoints::PRE_FILTER) {
                states.get_mut(at).pre_filter(&cycle);
            }
        }
        let filters = Filters::new(profile, cycle, nominator);
        let answer = post_filter(&filters, &states, &mut diagnosis.diagnosis, Some(&diagnosis.known), ties.random());
        if preemption_failure_is_shared && answer.preemption.is_none() && answer.calls.is_empty() {
            diagnosis.preemption_cannot_help = Some(answer.clone());
        }
        Some((diagnosis, answer))
    }

    /// Why a pod fits nowhere, as the user is told, and what PostFilter answers when it begins at the first node; none when
    /// the pod fits somewhere or only the plain cycle can tell.
    pub fn why_not(&mut self, input: DecisionInput<'_>) -> Option<(String, PostFilter)> {
        if !self.scores(input)?.is_empty() {
            return None;
        }
        let (diagnosis, answer) = self.explain(input, &mut TieBreak::SmallestName)?;
        Some((diagnosis.diagnosis.message(), answer))
    }

    /// All nodes the pod may go to with the sums of their scores, by name; none when only the plain cycle can tell.
    pub fn scores(&mut self, input: DecisionInput<'_>) -> Option<Vec<(Arc<str>, i64)>> {
        let cx = input.cycle();
        let dependencies = PodDependencies::of(input.profile, &cx)?;
        let uncached = UncachedFilters::prepare(&input, &dependencies.uncached)?;
        let scoreboard = self.scoreboard(&input, dependencies)?;
        scoreboard.account_for_nominated(&input, &uncached)?;
        let hidden = if uncached.is_empty() { Vec::new() } else { hide_failing(scoreboard, &cx, &uncached)? };
        let name = |id: NodeId| input.cluster.node_by_id(id).map(|node| node.name.clone());
        let mut all: Vec<_> = scoreboard.all().into_iter().filter_map(|(id, score)| Some((name(id)?, score))).collect();
        hidden.into_iter().for_each(|node| scoreboard.unhide(node));
        all.sort();
        Some(all)
    }

    /// The scoreboard of the pod's signature, up to date.
    fn scoreboard(&mut self, input: &DecisionInput<'_>, dependencies: PodDependencies) -> Option<&mut Scoreboard> {
        let DecisionInput { profile, cluster, pod, .. } = *input;
        let cx = input.cycle();
        self.clock += 1;
        self.shared.topologies.catch_up(cluster);
        if self.shared.topologies.len() > LABELS_MAX {
            *self = Engine { clock: self.clock, ..Engine::default() };
        }
        let hash = pod.signature_hash.base;
        let signatures = self.signatures.entry(hash).or_default();
        let mut at = signatures.iter().position(|signature| signature.pod.same_base_signature(pod));
        let end = cluster.changes().end();
        if let Some(known) = at {
            signatures[known].used = self.clock;
            let usable = match &mut signatures[known].kept {
                CachedAnswer::NotCacheable(until) if end < *until => return None,
                CachedAnswer::NotCacheable(_) => false,
                CachedAnswer::Scoreboard(scoreboard) => {
                    dependencies.matches_plan(&mut scoreboard.plan, profile, &cx)
                        && matches!(scoreboard.catch_up(&cx, &mut self.shared), Ok(true))
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
            None => {
                self.evict(cluster.slot_count());
                let signature = Arc::new(pod.clone());
                let kept = PluginPlan::new(profile, &cx, dependencies)
                    .and_then(|plan| Scoreboard::build(profile, &cx, plan, signature.clone(), &mut self.shared))
                    .map_or(CachedAnswer::NotCacheable(end + NOT_CACHEABLE_FOR), |scoreboard| {
                        CachedAnswer::Scoreboard(Box::new(scoreboard))
                    });
                self.count += 1;
                let signatures = self.signatures.entry(hash).or_default();
                signatures.push(CachedSignature { pod: signature, used: self.clock, kept });
                signatures.len() - 1
            }
        };
        match &mut self.signatures.get_mut(&hash)?[at].kept {
            CachedAnswer::Scoreboard(scoreboard) => Some(scoreboard),
            CachedAnswer::NotCacheable(_) => None,
        }
    }

    /// Makes room for one more scoreboard.
    fn evict(&mut self, slot_count: usize) {
        while self.count > 0 && (self.count + 1) * slot_count.max(1) > CELLS_MAX {
            let all = self
                .signatures
                .iter()
                .flat_map(|(hash, signatures)| signatures.iter().map(move |signature| (signature.used, *hash)));
            let Some((used, hash)) = all.min() else { return };
            let Some(signatures) = self.signatures.get_mut(&hash) else { return };
            self.count -= signatures.len();
            signatures.retain(|signature| signature.used != used);
            self.count += signatures.len();
            if signatures.is_empty() {
                self.signatures.remove(&hash);
            }
        }
    }
}

/// The best node that the late filters let pass; the outer none when only the plain cycle can tell.
fn choose(
    scoreboard: &mut Scoreboard,
    cx: &Cycle<'_>,
    uncached: &UncachedFilters,
    ties: &mut TieBreak,
) -> Option<Option<NodeId>> {
    if uncached.is_empty() {
        return Some(scoreboard.best(cx.cluster, ties));
    }
    let mut hidden = Vec::new();
    let chosen = if scoreboard.is_order_fixed() {
        loop {
            let Some(best) = scoreboard.best(cx.cluster, ties) else { break Some(None) };
            match cx.cluster.node_by_id(best).and_then(|node| uncached.pass(cx, node)) {
                None => break None,
                Some(true) => break Some(Some(best)),
                Some(false) => {
                    scoreboard.hide(best);
                    hidden.push(best);
                }
            }
        }
    } else {
        hide_failing(scoreboard, cx, uncached).map(|failing| {
            hidden = failing;
            scoreboard.best(cx.cluster, ties)
        })
    };
    hidden.into_iter().for_each(|node| scoreboard.unhide(node));
    chosen
}

/// Hides all nodes that late filters turn down; none (and nothing hidden) when one of them fails.
fn hide_failing(scoreboard: &mut Scoreboard, cx: &Cycle<'_>, uncached: &UncachedFilters) -> Option<Vec<NodeId>> {
    let mut failing = Vec::new();
    for node in scoreboard.feasible() {
        if !uncached.pass(cx, cx.cluster.node_by_id(node)?)? {
            failing.push(node);
        }
    }
    failing.iter().for_each(|node| scoreboard.hide(*node));
    Some(failing)
}

/// Plugins that read anything: prepared for this pod, and asked node by node.
struct UncachedFilters {
    /// With the plugin's place; those without a filter for this pod are only kept for Reserve.
    plugins: Vec<(usize, bool, Box<dyn PluginWithState>)>,
}

impl UncachedFilters {
    /// Runs their PreFilter; none when one of them rejects the pod or narrows the nodes.
    fn prepare(input: &DecisionInput<'_>, uncached: &[usize]) -> Option<Self> {
        let profile = input.profile;
        let mut plugins = Vec::with_capacity(uncached.len());
        for &at in uncached {
            let mut state = profile.plugin(at).start();
            let points = profile.points_of(at);
            let mut asks = points.contains(ExtensionPoints::FILTER);
            if points.contains(ExtensionPoints::PRE_FILTER) {
                let answer = state.pre_filter(&input.cycle());
                match answer.status.code {
                    Code::Success if answer.nodes.is_none() => {}
                    Code::Skip => asks = false,
                    _ => return None,
                }
            }
            plugins.push((at, asks, state));
        }
        // In the order in which filters run.
        plugins.sort_by_key(|(at, ..)| profile.at(ExtensionPoints::FILTER).iter().position(|p| p == at));
        Some(UncachedFilters { plugins })
    }

    fn is_empty(&self) -> bool {
        !self.plugins.iter().any(|(_, asks, _)| *asks)
    }

    /// Whether all of them let a node pass; none when one fails.
    fn pass(&self, cx: &Cycle<'_>, node: &NodeInfo) -> Option<bool> {
        for (_, _, state) in self.plugins.iter().filter(|(_, asks, _)| *asks) {
            let status = state.filter(cx, node);
            if status.is_rejected() {
                return Some(false);
            }
            if !status.is_success() {
                return None;
            }
        }
        Some(true)
    }

    /// The states of the plugins that take part after the decision.
    fn states_for_reserve(&self, profile: &Profile, scoreboard: &Scoreboard) -> CycleStates {
        let later = profile.plugins_after_decision().iter().map(|&at| {
            let own = self.plugins.iter().find(|(plugin, ..)| *plugin == at);
            (at, own.map_or_else(|| scoreboard.states.get(at).copy(), |(.., state)| state.copy()))
        });
        CycleStates::of(profile.plugins().len(), later)
    }
}
