//! The plain scheduling cycle of one pod: PreFilter → Filter → (PostFilter | PreScore → Score → choose a node).
//!
//! It runs every plugin on every node. It borrows the cluster and changes only the pod's own plugin states.

mod extenders;
pub(crate) mod filter;
mod refusals;
pub(crate) mod score;
pub(crate) mod tie_break;

use bayplan_model::api::Request;
use jiff::Timestamp;

use crate::cluster::{Cluster, NodeInfo, PodInfo};
use crate::framework::preemption::{CandidateCache, Preemption};
use crate::framework::{
    Code, Cycle, CycleStates, Diagnosis, ExtensionPoints, Nomination, PluginName, PostFilter, PostFilterContext, Status,
};
use crate::metrics::TimedPoint;
use crate::nominator::Nominator;
use crate::profile::Profile;
use filter::{FilterResult, Filters, Search};
use score::Scores;
use tie_break::TieBreak;

/// An attempt to place a pod: what the cycle decides, before anything is done about it.
pub struct Attempt<'a> {
    filters: Filters<'a>,
    pub(crate) states: CycleStates,
    /// The scores that the decision was made from, when several nodes fit.
    pub(crate) scores: Option<Scores>,
    /// The number of nodes that fit.
    pub(crate) feasible: u32,
}

/// The outcome of an attempt.
pub enum Decision {
    /// The pod goes to this node.
    Node(String),
    /// No node fits the pod.
    Unschedulable(Box<Unschedulable>),
    /// There are no nodes at all.
    NoNodes,
    /// A plugin or an extender failed.
    Failed(Status),
}

/// A pod that no node fits, and the answer of PostFilter.
pub struct Unschedulable {
    /// Why no node fits.
    pub diagnosis: Diagnosis,
    /// What becomes of the pod's nomination.
    pub nomination: Nomination,
    /// The pods to evict.
    pub preemption: Option<Preemption>,
    /// Further calls to the API server, sent one after the other.
    pub calls: Vec<Request>,
    /// The status that PostFilter answered.
    pub post_filter: Status,
}

impl Unschedulable {
    /// A pod that no node fits, when PostFilter is not asked.
    fn without_post_filter(diagnosis: Diagnosis) -> Self {
        let (nomination, post_filter) = (Nomination::Keep, Status::SUCCESS);
        Unschedulable { diagnosis, nomination, preemption: None, calls: Vec::new(), post_filter }
    }
}

impl<'a> Attempt<'a> {
    /// Prepares an attempt to place a pod.
    pub fn new(
        profile: &'a Profile,
        cluster: &'a Cluster,
        nominator: &'a Nominator,
        pod: &'a PodInfo,
        now: Timestamp,
    ) -> Self {
        let cycle = Cycle { pod, cluster, now };
        let filters = Filters::new(profile, cycle, nominator);
        Attempt { states: CycleStates::new(profile.plugins()), filters, scores: None, feasible: 0 }
    }

    /// Runs PreEnqueue in order; the first rejection counts.
    pub fn pre_enqueue(&self) -> Status {
        let plugins = self.filters.profile.at(ExtensionPoints::PRE_ENQUEUE).iter();
        let mut answers = plugins.map(|&at| self.filters.profile.plugin(at).pre_enqueue(&self.filters.cycle));
        answers.find(|status| !status.is_success()).unwrap_or(Status::SUCCESS)
    }

    /// Runs PreFilter and Filter. An error ends the cycle.
    pub fn find(&mut self, search: Search) -> Result<FilterResult<'a>, Status> {
        self.filters.find(&mut self.states, search)
    }

    /// Asks every filter about a node, those after a rejection too; Skip means that a filter does not apply to the pod.
    /// It needs no [`Attempt::find`] before it.
    pub fn ask_all_filters(&self, node: &NodeInfo) -> Vec<Status> {
        self.filters.ask_all(node)
    }

    /// What [`Attempt::find`] would report of a node, without asking the others: the first rejection or error.
    pub fn check_node(&mut self, node: &NodeInfo) -> Status {
        self.filters.check_node(&mut self.states, node)
    }

    /// Runs PreScore and Score on feasible nodes. An error ends the cycle.
    pub fn score(&mut self, nodes: &[&NodeInfo]) -> Result<Scores, Status> {
        score::score(self.filters.profile, &self.filters.cycle, &mut self.states, nodes)
    }

    /// The plugins that were skipped in Filter, and in Score.
    pub fn skipped(&self) -> (Vec<PluginName>, Vec<PluginName>) {
        let names = |skipped: &[bool]| {
            let plugins = self.filters.profile.plugins().iter().zip(skipped);
            plugins.filter(|(_, skipped)| **skipped).map(|(plugin, _)| plugin.name()).collect()
        };
        (names(&self.states.skip_filter), names(&self.states.skip_score))
    }

    /// The part of the attempt that Reserve needs, without the borrow of the cluster.
    pub fn into_reserve(self) -> Reserve {
        Reserve { states: self.states }
    }

    /// Calls `run` with what PostFilter plugins see.
    pub fn with_post_filter_context<T>(
        &self,
        diagnosis: &Diagnosis,
        random: u64,
        run: impl FnOnce(&PostFilterContext<'_>) -> T,
    ) -> T {
        run(&PostFilterContext {
            cycle: self.filters.cycle,
            statuses: &diagnosis.statuses,
            filters: &self.filters,
            states: &self.states,
            random,
            candidates: None,
        })
    }

    /// Times the cycle plugin by plugin.
    pub(crate) fn sampled(mut self, sampled: bool) -> Self {
        self.states.sampled = sampled;
        self
    }

    /// Reports what was counted in the cycle.
    pub(crate) fn report_metrics(&self) {
        self.filters.report_metrics(&self.states);
    }

    /// Runs PostFilter: the first Success, UnschedulableAndUnresolvable or error ends it, rejections add up.
    pub fn post_filter(&mut self, diagnosis: &mut Diagnosis, random: u64) -> PostFilter {
        post_filter(&self.filters, &self.states, diagnosis, None, random)
    }

    /// Runs PostFilter as [`Attempt::post_filter`] does, after `look` saw what its plugins see. Neither tries
    /// preemption again on a node where the other has tried it.
    pub fn post_filter_after<T>(
        &mut self,
        diagnosis: &mut Diagnosis,
        random: u64,
        look: impl FnOnce(&PostFilterContext<'_>) -> T,
    ) -> (PostFilter, T) {
        let cluster = self.filters.cycle.cluster;
        let mut tried = CandidateCache::default();
        tried.resize(cluster.slot_count());
        for node in cluster.nodes() {
            tried.set_code(node.id, diagnosis.statuses.get(&node.name).code);
        }
        let seen = look(&PostFilterContext {
            cycle: self.filters.cycle,
            statuses: &diagnosis.statuses,
            filters: &self.filters,
            states: &self.states,
            random,
            candidates: Some(&tried),
        });
        (post_filter(&self.filters, &self.states, diagnosis, Some(&tried), random), seen)
    }

    /// Decides where the pod goes; the number is that of the filtered nodes.
    pub fn decide(&mut self, search: Search, ties: &mut TieBreak) -> (Decision, usize) {
        self.decide_or(search, ties, |attempt, mut diagnosis, random| {
            let post_filter = attempt.post_filter(&mut diagnosis, random);
            Unschedulable {
                diagnosis,
                nomination: post_filter.nomination,
                preemption: post_filter.preemption,
                calls: post_filter.calls,
                post_filter: post_filter.status,
            }
        })
    }

    /// Decides where the pod goes; PostFilter is not asked.
    pub fn decide_without_post_filter(&mut self, search: Search, ties: &mut TieBreak) -> (Decision, usize) {
        self.decide_or(search, ties, |_, diagnosis, _| Unschedulable::without_post_filter(diagnosis))
    }

    fn decide_or(
        &mut self,
        search: Search,
        ties: &mut TieBreak,
        unfit: impl FnOnce(&mut Self, Diagnosis, u64) -> Unschedulable,
    ) -> (Decision, usize) {
        if self.filters.cycle.cluster.node_count() == 0 {
            return (Decision::NoNodes, 0);
        }
        let found = match self.find(search) {
            Ok(found) => found,
            Err(status) => return (Decision::Failed(status), 0),
        };
        let evaluated = found.evaluated;
        let nodes = found.nodes();
        self.feasible = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
        let decision = match &*nodes {
            [] => {
                drop(nodes);
                Decision::Unschedulable(Box::new(unfit(self, found.diagnosis, ties.random())))
            }
            [only] => Decision::Node(only.name.to_string()),
            many => match self.score(many) {
                Err(status) => Decision::Failed(status),
                Ok(scores) => {
                    let chosen = ties.choose(&scores).expect("several nodes were scored");
                    self.scores = Some(scores);
                    Decision::Node(many[chosen].name.to_string())
                }
            },
        };
        (decision, evaluated)
    }
}

/// The plugin states of a decided pod, ready for Reserve.
pub struct Reserve {
    pub(crate) states: CycleStates,
}

impl Reserve {
    /// Runs Reserve in order; the first failure counts.
    pub fn run(mut self, profile: &Profile, cluster: &mut Cluster, pod: &PodInfo, node: &str) -> Status {
        let plugins = profile.at(ExtensionPoints::RESERVE).iter();
        let mut answers = plugins.map(|&plugin| self.states.get_mut(plugin).reserve(cluster, pod, node));
        answers.find(|status| !status.is_success()).unwrap_or(Status::SUCCESS)
    }
}

/// Runs PostFilter: the first Success, UnschedulableAndUnresolvable or error ends it, rejections add up.
pub(crate) fn post_filter(
    filters: &Filters<'_>,
    states: &CycleStates,
    diagnosis: &mut Diagnosis,
    candidates: Option<&CandidateCache>,
    random: u64,
) -> PostFilter {
    let watch = filters.profile.stopwatch();
    let answer = ask_post_filter(filters, states, diagnosis, candidates, random);
    watch.point(TimedPoint::PostFilter, answer.status.code);
    answer
}

fn ask_post_filter(
    filters: &Filters<'_>,
    states: &CycleStates,
    diagnosis: &mut Diagnosis,
    candidates: Option<&CandidateCache>,
    random: u64,
) -> PostFilter {
    let mut collected = PostFilter::from(Status { code: Code::Unschedulable, ..Status::default() });
    if filters.profile.at(ExtensionPoints::POST_FILTER).is_empty() {
        // Without PostFilter no preemption keeps a nomination valid.
        collected.nomination = Nomination::Override(String::new());
    }
    for &plugin in filters.profile.at(ExtensionPoints::POST_FILTER) {
        let mut own = states.get(plugin).copy();
        let statuses = &diagnosis.statuses;
        let cx = PostFilterContext { cycle: filters.cycle, statuses, filters, states, random, candidates };
        let watch = filters.profile.stopwatch_if(states.sampled);
        let answer = own.post_filter(&cx);
        watch.plugin(plugin, TimedPoint::PostFilter, answer.status.code);
        match answer.status.code {
            Code::Unschedulable => {
                if collected.status.plugin.is_empty() {
                    collected.status.plugin = answer.status.plugin;
                }
                collected.status.reasons.extend(answer.status.reasons.iter().cloned());
                collected.calls.extend(answer.calls);
                if answer.nomination != Nomination::Keep {
                    collected.nomination = answer.nomination;
                }
            }
            _ => {
                diagnosis.post_filter_message = answer.status.message();
                collected.calls.extend(answer.calls);
                return PostFilter { calls: collected.calls, ..answer };
            }
        }
    }
    diagnosis.post_filter_message = collected.status.message();
    collected
}
