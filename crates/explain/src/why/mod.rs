//! Why a pod is where it is, or why it is nowhere: one decision of the plain cycle, explained in full.
//!
//! ```text
//!   State, Profiles, pod ─▶ PreEnqueue ─▶ Filter ─┬─▶ Score ─▶ ranking
//!                                                 └─▶ PostFilter ─▶ rejections, preemption, what it waits for
//! ```

mod effort;
mod explanation;
mod list;
mod manifests;
mod missing;
mod node;
mod owned;
mod preemption;
mod ranking;
pub(crate) mod rejections;
mod waits;

use std::sync::Arc;

use bayplan_scheduler::inspect::{Attempt, Diagnosis, FilterResult, Profile, Scores, Search};
use bayplan_scheduler::{Code, PluginName, PodInfo, TieBreak};
use jiff::Timestamp;

use crate::{ChangeOptions, DECISIONS_MAX, FoundChanges, Profiles, State, Subject, search};

pub use effort::{WrittenPods, find_changes_of_all};
pub use explanation::{
    API_VERSION, Answer, Attempts, Explanation, KnownFrom, LastAttempt, Nearest, NodeAnswer, NodeCounts, OnNode,
    PluginScore, PodName, PreemptionAnswer, PreemptionCandidate, RefusedBy, Rejection, SourceOfState, Verdict, WakesOn,
};
pub use list::{Counts, ExplanationList, Group, cause, explain_all};
pub use manifests::{NewPod, NotPods, pods_of_manifests};
pub use node::{NodeExplanation, RefusesPods, explain_node};
pub use owned::{Owner, pods_of_owner};

/// How a question is asked.
#[derive(Clone, Debug)]
pub struct Options {
    /// Adds an entry for every node, and all candidates of preemption.
    pub per_node: bool,
    /// Does not ask PostFilter.
    pub no_preemption: bool,
    /// Which of several equally good nodes is chosen.
    pub ties: TieBreak,
    /// Asks every filter about this node.
    pub node: Option<String>,
    /// The time of the decision.
    pub now: Timestamp,
}

impl Options {
    /// The plain question.
    pub fn at(now: Timestamp) -> Self {
        Options { per_node: false, no_preemption: false, ties: TieBreak::SmallestName, node: None, now }
    }
}

/// Explains a pod. One that the state has on a node is decided again on the state without it; any other is decided as
/// not bound, even when it names a node.
pub fn explain(state: &mut State, profiles: &Profiles, pod: &Arc<PodInfo>, options: &Options) -> Explanation {
    let placed = state.cluster().placed(pod.uid()).cloned();
    let Some(placed) = placed else { return explain_unplaced(state, profiles, pod, options) };
    let node = placed.spec.node_name.clone();
    let unbound = Arc::new(PodInfo::new(placed.pod_on("")));
    let mut explanation = state.without_placed(&placed, |state| explain_unplaced(state, profiles, &unbound, options));
    explanation
        .notes
        .push("the pod is bound: this is decided on today's state without it, not on that of its time".into());
    explanation.verdict = Verdict::Placed;
    explanation.node = Some(node);
    explanation.wakes_on.clear();
    explanation
}

/// Adds the changes that would let in a pod that fits nowhere, each proven on the state, which is as before afterwards.
pub fn find_changes(
    state: &mut State,
    profiles: &Profiles,
    explanation: &mut Explanation,
    subject: Subject<'_>,
    options: &Options,
) {
    if !explanation.verdict.fits() {
        explanation.changes = search_changes(state, profiles, explanation, subject, DECISIONS_MAX, options).changes;
    }
}

/// Searches with so many decisions at most.
fn search_changes(
    state: &mut State,
    profiles: &Profiles,
    explanation: &Explanation,
    subject: Subject<'_>,
    decisions_max: usize,
    options: &Options,
) -> FoundChanges {
    let Some(profile) = profiles.get(&explanation.scheduler_name) else {
        return FoundChanges { is_complete: true, ..FoundChanges::default() };
    };
    let preemption = !options.no_preemption;
    let options = ChangeOptions { preemption, decisions_max, ..ChangeOptions::at(options.now) };
    search(state, profile, subject, &options)
}

/// Explains a pod that is not on a node of the state.
pub fn explain_unplaced(state: &State, profiles: &Profiles, pod: &PodInfo, options: &Options) -> Explanation {
    let mut explanation = blank(state, pod);
    let Some(profile) = profile_of(profiles, pod, &mut explanation.notes) else {
        explanation.error = Some("the configuration has no profile".into());
        return explanation;
    };
    explanation.scheduler_name = profile.name.clone();
    let decision = Decision { state, profile, preempting: profiles.preempting(&profile.name), pod, options };
    decision.explain(&mut explanation);
    if explanation.nodes.feasible > 0 {
        // Nobody is preempted for a pod that fits.
        explanation.missing_here.retain(|resource| *resource != missing::BUDGETS);
    }
    explanation
}

/// The profile that answers for a pod: that of its `schedulerName`, or the first.
fn profile_of<'p>(profiles: &'p Profiles, pod: &PodInfo, notes: &mut Vec<String>) -> Option<&'p Arc<Profile>> {
    let name = &pod.spec.scheduler_name;
    profiles.get(name).or_else(|| {
        let first = profiles.first()?;
        if !name.is_empty() {
            notes.push(format!(
                "schedulerName {name:?} has no profile in the configuration; answered as {:?} would",
                first.name
            ));
        }
        Some(first)
    })
}

/// Where the state comes from.
pub(crate) fn source_of(state: &State) -> SourceOfState {
    let origin = state.origin();
    SourceOfState {
        kind: origin.kind,
        time: origin.time,
        resource_version: origin.resource_version.clone(),
        missing: state.missing().to_vec(),
    }
}

/// An explanation that says nothing yet.
pub(crate) fn blank(state: &State, pod: &PodInfo) -> Explanation {
    let meta = &pod.metadata;
    let (attempts, last_attempt) = waits::last_attempt(state, pod);
    // A pod that was written by hand is known by its name.
    let uid = if meta.uid == pod.key() { String::new() } else { meta.uid.clone() };
    Explanation {
        api_version: API_VERSION,
        kind: "Explanation",
        pod: PodName { namespace: meta.namespace.clone(), name: meta.name.clone(), uid },
        source: source_of(state),
        scheduler_name: pod.spec.scheduler_name.clone(),
        verdict: Verdict::NotYet,
        node: None,
        message: None,
        pre_enqueue: None,
        pre_filter: None,
        error: None,
        nodes: NodeCounts { total: state.cluster().node_count(), feasible: 0 },
        refused_by: Vec::new(),
        rejections: Vec::new(),
        per_node: Vec::new(),
        best: Vec::new(),
        ranking: Vec::new(),
        decided_by: None,
        preemption: None,
        changes: Vec::new(),
        must_change: Vec::new(),
        on_node: None,
        wakes_on: Vec::new(),
        retry_at: None,
        attempts,
        last_attempt,
        notes: Vec::new(),
        missing_here: missing::for_pod(state, pod),
    }
}

/// One decision that is to be explained.
struct Decision<'a> {
    state: &'a State,
    profile: &'a Profile,
    preempting: crate::profiles::Preempting,
    pod: &'a PodInfo,
    options: &'a Options,
}

impl Decision<'_> {
    fn explain(&self, explanation: &mut Explanation) {
        let (cluster, nominator) = (self.state.cluster(), self.state.nominator());
        let mut attempt = Attempt::new(self.profile, cluster, nominator, self.pod, self.options.now);
        self.ask_one_node(&attempt, explanation);
        let gate = attempt.pre_enqueue();
        if !gate.is_success() {
            explanation.verdict = Verdict::Gated;
            explanation.pre_enqueue = Some((&gate).into());
            explanation.wakes_on = waits::wakes_on(self.profile, [gate.plugin].into_iter());
            return;
        }
        if cluster.node_count() == 0 {
            explanation.verdict = Verdict::Never;
            explanation.message = Some("no nodes available to schedule pods".into());
            explanation.must_change = vec!["the set of nodes: there are none"];
            return;
        }
        match attempt.find(Search::ALL) {
            Err(error) => explanation.error = Some(error.message()),
            Ok(found) => self.explain_found(&mut attempt, found, explanation),
        }
    }

    fn ask_one_node(&self, attempt: &Attempt<'_>, explanation: &mut Explanation) {
        let Some(name) = &self.options.node else { return };
        let Some(node) = self.state.cluster().node(name) else {
            explanation.notes.push(format!("there is no node {name}"));
            return;
        };
        let filters: Vec<Answer> = attempt.ask_all_filters(node).iter().map(Answer::from).collect();
        let fits = filters.iter().all(|answer| matches!(answer.code, "Success" | "Skip"));
        explanation.on_node = Some(OnNode { node: name.clone(), fits, filters });
    }

    fn explain_found(&self, attempt: &mut Attempt<'_>, found: FilterResult<'_>, explanation: &mut Explanation) {
        let (cluster, nominator) = (self.state.cluster(), self.state.nominator());
        explanation.nodes.feasible = found.feasible.len();
        let counted = rejections::count(cluster, nominator, self.pod, &found.diagnosis);
        explanation.refused_by = counted.refused_by;
        explanation.rejections = counted.rejections;
        let scores = match found.feasible.as_slice() {
            [] => {
                self.describe_nodes(&found, None, explanation);
                return self.explain_no_fit(attempt, found.diagnosis, explanation);
            }
            [only] => {
                explanation.node = Some(only.name.to_string());
                explanation.best = vec![only.name.to_string()];
                None
            }
            many => match attempt.score(many) {
                Err(error) => {
                    explanation.error = Some(error.message());
                    self.describe_nodes(&found, None, explanation);
                    return;
                }
                Ok(scores) => Some(scores),
            },
        };
        explanation.verdict = Verdict::WillPlace;
        if found.nominated_node_used {
            let why = "the pod's nominated node still fits, so that no other was asked";
            explanation.notes.push(why.to_owned());
        }
        if let Some(scores) = &scores {
            self.explain_choice(scores, explanation);
        }
        self.describe_nodes(&found, scores.as_ref(), explanation);
    }

    fn explain_choice(&self, scores: &Scores, explanation: &mut Explanation) {
        let best = scores.best();
        explanation.best = best.iter().map(|&at| scores.nodes[at].to_string()).collect();
        explanation.best.sort();
        if let Some(chosen) = self.options.ties.clone().choose(scores) {
            explanation.node = Some(scores.nodes[chosen].to_string());
            explanation.ranking = ranking::ranking(scores, chosen);
            explanation.decided_by = ranking::decided_by(scores, chosen);
        }
    }

    fn describe_nodes(&self, found: &FilterResult<'_>, scores: Option<&Scores>, explanation: &mut Explanation) {
        if !self.options.per_node {
            return;
        }
        let mut answers: Vec<NodeAnswer> = match scores {
            Some(scores) => (0..scores.nodes.len()).map(|at| ranking::answer(scores, at)).collect(),
            None => {
                let only = |node: &&bayplan_scheduler::NodeInfo| NodeAnswer {
                    node: node.name.to_string(),
                    ..NodeAnswer::default()
                };
                found.feasible.iter().map(only).collect()
            }
        };
        let feasible: rustc_hash::FxHashSet<&str> = found.feasible.iter().map(|node| &*node.name).collect();
        let others = self.state.cluster().nodes().filter(|node| !feasible.contains(&*node.name));
        answers.extend(others.map(|node| refused(&found.diagnosis, &node.name)));
        answers.sort_by(|a, b| a.node.cmp(&b.node));
        explanation.per_node = answers;
    }

    /// Runs PostFilter, which adds to the message, and tells what preemption could do.
    fn ask_post_filter(&self, attempt: &mut Attempt<'_>, diagnosis: &mut Diagnosis) -> Option<PreemptionAnswer> {
        let extent = preemption::Extent { everywhere: self.options.per_node, now: self.options.now };
        let random = self.options.ties.clone().random();
        let (post_filter, seen) = attempt.post_filter_after(diagnosis, random, |cx| {
            preemption::is_enabled(self.profile).then(|| preemption::explain(cx, &self.preempting, &extent))
        });
        let status = post_filter.status;
        let message = Some(status.message()).filter(|message| !status.is_success() && !message.is_empty());
        seen.map(|answer| PreemptionAnswer { message, ..answer })
    }

    fn explain_no_fit(&self, attempt: &mut Attempt<'_>, mut diagnosis: Diagnosis, explanation: &mut Explanation) {
        explanation.verdict = verdict(self.state, &diagnosis);
        explanation.pre_filter = diagnosis.pre_filter.as_ref().map(Answer::from);
        // A pod that names its node is in nobody's queue: the cycle is asked, but nobody is evicted for it.
        if !self.options.no_preemption && !self.pod.is_assigned() {
            explanation.preemption = self.ask_post_filter(attempt, &mut diagnosis);
        }
        explanation.message = Some(diagnosis.message());
        let plugins = diagnosis.unschedulable_plugins.iter().chain(&diagnosis.pending_plugins).copied();
        if explanation.verdict == Verdict::Never {
            explanation.must_change = must_change(plugins.clone());
        }
        explanation.wakes_on = waits::wakes_on(self.profile, plugins);
        let now = explanation.source.time.unwrap_or(self.options.now);
        explanation.retry_at = waits::retry_at(explanation.last_attempt.as_ref(), now);
    }
}

/// Why a node does not take the pod, or that it was not asked.
fn refused(diagnosis: &Diagnosis, node: &str) -> NodeAnswer {
    let node = node.to_owned();
    match rejections::refusal(diagnosis, &node) {
        Some(status) => {
            let Answer { code, plugin, reasons } = status.into();
            NodeAnswer { node, code: Some(code), plugin, reasons, ..NodeAnswer::default() }
        }
        None => {
            let reasons = vec!["not asked: enough nodes were found before".to_owned()];
            NodeAnswer { node, code: Some(Code::Skip.name()), reasons, ..NodeAnswer::default() }
        }
    }
}

/// `Never` when every node refused the pod for reasons that no leaving pod resolves.
fn verdict(state: &State, diagnosis: &Diagnosis) -> Verdict {
    let can_help = diagnosis.pre_filter.is_some()
        || state.cluster().nodes().any(|node| {
            let refusal = rejections::refusal(diagnosis, &node.name);
            refusal.is_some_and(|status| status.code != Code::UnschedulableAndUnresolvable)
        });
    if can_help { Verdict::NotYet } else { Verdict::Never }
}

/// What has to change so that these plugins let the pod in somewhere.
fn must_change(plugins: impl Iterator<Item = PluginName>) -> Vec<&'static str> {
    let mut all: Vec<&'static str> = plugins
        .map(|plugin| match plugin {
            "NodeName" => "the pod's nodeName, or the set of nodes",
            "NodeUnschedulable" => "the nodes: they are cordoned",
            "TaintToleration" => "the pod's tolerations, or the nodes' taints",
            "NodeAffinity" => "the pod's node selector and affinity, or the nodes' labels",
            "NodeResourcesFit" => {
                "the pod's requests, or the size of the nodes: no node is large enough even when empty"
            }
            "PodTopologySpread" => "the pod's topology spread constraints, or the nodes' labels",
            "InterPodAffinity" => "the pod's affinity to other pods",
            "VolumeBinding" | "VolumeZone" => "the pod's volumes, or nodes that can reach them",
            "NodeVolumeLimits" => "the pod's volumes, or the nodes' volume limits",
            "DynamicResources" => "the pod's device claims, or the devices of the nodes",
            "NodeDeclaredFeatures" => "the features that the nodes declare",
            _ => "the pod, the nodes' own properties or the set of nodes",
        })
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}
