//! Judges the bindings of another scheduler: was each pod's node one that we would have chosen, too?
//!
//! ```text
//!   Delta ─▶ timeline (the state, and its recent past kind by kind)
//!     └─ a pod is bound ─▶ evaluation in the state before it ─ best ─▶ same │ tied
//!                             │ not the best
//!                             ▼ a little later, when bindings on their way have arrived
//!                          search over the states that it may have been decided in ─▶ raced │ sampled │ unexplained
//! ```
//!
//! Not judged are pods that other schedulers place, pods that were created on a node, and preemptors: they go where
//! their victims were.

mod evaluation;
mod images;
mod report;
mod search;
#[cfg(test)]
mod tests;
mod timeline;
mod track;

use std::collections::VecDeque;
use std::sync::Arc;

use bayplan_model::delta::Delta;
use bayplan_model::pod::Pod;
use bayplan_scheduler::{Object, PodInfo};
use jiff::{SignedDuration, Timestamp};
use rustc_hash::FxHashMap;

pub use evaluation::{NodeScores, PluginScore};
pub use report::{Case, Regret, ShadowReport, Verdict};

use crate::Profiles;
use evaluation::{Evaluation, compared, is_best_of_a_sample};
use report::Tally;
use search::{Bound, Found, SLACK, StateSearch};
use timeline::{Timeline, version_of};
use track::{Number, Turn, Version};

/// How long a binding that needs a search waits for what the scheduler knew before us: twice as long as that counts.
const SETTLES_AFTER: SignedDuration = SignedDuration::from_secs(2);
/// The cases that are kept with their state.
pub const CASES_MAX: usize = 20;

/// Why a binding is not judged.
const OTHER_SCHEDULER: &str = "placed by another scheduler";
const CREATED_ON_NODE: &str = "created on a node, or not seen before its binding";
const PREEMPTOR: &str = "preempted others, or was nominated";

/// Whether PreBind binds volumes or devices for a pod.
fn waits_in_pre_bind(pod: &Pod) -> bool {
    let claims =
        pod.spec.volumes.iter().any(|volume| volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some());
    claims || !pod.spec.resource_claims.is_empty()
}

/// Whether a plugin may have kept a pod out of the queue when it was created.
fn may_be_gated(pod: &Pod) -> bool {
    !pod.spec.scheduling_gates.is_empty() || !pod.spec.resource_claims.is_empty()
}

/// A pod without a node.
struct Pending {
    turn: Turn,
    /// A preemption nominated it to a node.
    preempts: bool,
    /// It was shown to be on its way to a node, by this change.
    expected: Option<(String, Number)>,
    /// As it was last seen without a node.
    pod: Arc<Pod>,
}

/// A binding that was judged.
pub struct Judgement {
    /// The pod, as `namespace/name`.
    pub pod: String,
    /// The node that it was bound to.
    pub node: String,
    /// How it compares with ours.
    pub verdict: Verdict,
    /// For a raced binding, how far the state that explains it was from the binding.
    pub distance: Option<SignedDuration>,
    /// For a case that is kept: its number, and the objects of the state before the binding, the pod without its node.
    pub case: Option<(usize, Vec<Object>)>,
}

/// Judges bindings as they are seen.
pub struct BindingReview {
    profiles: Profiles,
    percentage: Option<i32>,
    timeline: Timeline,
    pending: FxHashMap<String, Pending>,
    /// Recent bindings: when they were seen, and since when their pods can have been decided.
    recent: VecDeque<(Timestamp, Number)>,
    /// What is bound from now on was decided after this change: pods that were bound before it were, and they overtake
    /// each other only a little.
    decided_after: Number,
    /// Bindings that need a search, and when they were seen.
    waiting: VecDeque<(Timestamp, Bound)>,
    judged: Vec<Judgement>,
    tally: Tally,
    /// When judging began; before that the state is being read.
    since: Option<Timestamp>,
}

impl BindingReview {
    /// A judge that knows no objects. `percentage` is the configuration's `percentageOfNodesToScore`.
    pub fn new(profiles: Profiles, percentage: Option<i32>) -> Self {
        BindingReview {
            profiles,
            percentage,
            timeline: Timeline::default(),
            pending: FxHashMap::default(),
            recent: VecDeque::new(),
            decided_after: 0,
            waiting: VecDeque::new(),
            judged: Vec::new(),
            tally: Tally::default(),
            since: None,
        }
    }

    /// The whole state has been read: what happens from now on is judged.
    pub fn begin(&mut self, now: Timestamp) {
        self.since = Some(now);
    }

    /// Takes a change of an object.
    pub fn handle(&mut self, delta: Delta<Object>, now: Timestamp) {
        match delta.current() {
            Some(Object::Pod(pod)) if !pod.is_terminal() => self.see_pod(Arc::clone(pod), now),
            Some(Object::Pod(pod)) => self.see_end(&Object::Pod(Arc::clone(pod)), now),
            None => self.see_end(delta.object(), now),
            Some(other) => self.note(now, Some(other.clone()), other, None),
        }
    }

    fn see_end(&mut self, object: &Object, now: Timestamp) {
        if let Object::Pod(pod) = object {
            self.pending.remove(&pod.metadata.uid);
        }
        self.note(now, None, object, None);
    }

    /// Takes a change into the timeline.
    fn note(&mut self, now: Timestamp, new: Option<Object>, identity: &Object, turn: Option<Turn>) {
        match self.since {
            Some(_) => self.timeline.push(now, new, identity, turn),
            None => self.timeline.load(new, identity),
        }
    }

    fn see_pod(&mut self, pod: Arc<Pod>, now: Timestamp) {
        let uid = pod.metadata.uid.clone();
        let identity = Object::Pod(Arc::clone(&pod));
        if pod.is_assigned() {
            let pending = self.pending.remove(&uid);
            let turn = pending.as_ref().and_then(|pending| self.turn_of(pending));
            match pending {
                Some(pending) => self.see_binding(pending, &pod, now),
                None => {
                    let known = self.timeline.cluster().placed(&uid).is_some();
                    if self.since.is_some() && !known {
                        self.not_judged(CREATED_ON_NODE);
                    }
                }
            }
            return self.note(now, Some(identity.clone()), &identity, turn);
        }
        let turn = self.pending.get(&uid).and_then(|pending| self.turn_of(pending));
        let seen = self.note_pending(&pod, now);
        self.note(now, Some(seen), &identity, turn);
    }

    /// The turn of a pod that is ours to judge.
    fn turn_of(&self, pending: &Pending) -> Option<Turn> {
        self.profiles.get(&pending.pod.spec.scheduler_name).map(|_| pending.turn)
    }

    /// Remembers a pod without a node; the answer is the pod as the scheduler sees it. A nomination that does not come
    /// with a failure says that the pod is on its way to that node (NominatedNodeNameForExpectation).
    fn note_pending(&mut self, pod: &Arc<Pod>, now: Timestamp) -> Object {
        let next = self.timeline.pods().end();
        let failure = |pod: &Pod| {
            let condition = pod.condition("PodScheduled").filter(|condition| condition.status == "False")?;
            Some((condition.reason.clone(), condition.message.clone(), condition.last_transition_time))
        };
        let nominated = pod.status.nominated_node_name.clone();
        let is_new_pod = self.since.is_some() && failure(pod).is_none() && !may_be_gated(pod);
        let pending = self.pending.entry(pod.metadata.uid.clone()).or_insert_with(|| Pending {
            turn: Turn { priority: pod.priority(), since: next + 1, is_first: is_new_pod },
            // What was nominated before we came may have been preempting.
            preempts: !nominated.is_empty(),
            expected: None,
            pod: Arc::clone(pod),
        });
        let failed_again = failure(pod).is_some() && failure(pod) != failure(&pending.pod);
        let is_new = nominated != pending.pod.status.nominated_node_name;
        if failed_again || (is_new && nominated.is_empty()) {
            // It may have been tried again before we saw that it failed.
            let retried = self.timeline.pods().first_after(now.saturating_sub(SLACK).unwrap_or(now));
            (pending.turn.since, pending.expected) = (pending.turn.since.max(retried), None);
            pending.turn.is_first = false;
        }
        if is_new && !nominated.is_empty() {
            match failed_again {
                true => pending.preempts = true,
                false => pending.expected = Some((nominated.clone(), next)),
            }
        }
        pending.pod = Arc::clone(pod);
        match &pending.expected {
            Some((node, _)) => Object::Pod(PodInfo::new(Arc::clone(pod)).pod_on(node)),
            None => Object::Pod(Arc::clone(pod)),
        }
    }

    fn not_judged(&mut self, reason: &'static str) {
        *self.tally.not_judged.entry(reason).or_default() += 1;
    }

    /// Judges a binding in the state before it, or has it wait for a search.
    fn see_binding(&mut self, pending: Pending, pod: &Arc<Pod>, now: Timestamp) {
        if self.since.is_none() {
            return;
        }
        if self.profiles.get(&pod.spec.scheduler_name).is_none() {
            return self.not_judged(OTHER_SCHEDULER);
        }
        let decided_after = self.note_order(pending.turn.since, now);
        if pending.preempts {
            return self.not_judged(PREEMPTOR);
        }
        let node = pod.spec.node_name.clone();
        let expected = pending.expected.filter(|(expected, _)| *expected == node);
        let placed = expected.map_or(self.timeline.pods().end(), |(_, number)| number);
        let mut undecided = Pod::clone(&pending.pod);
        undecided.spec.node_name.clear();
        undecided.status.nominated_node_name.clear();
        // What PreBind waits for can take long; others were decided meanwhile.
        let turn = pending.turn;
        let since = if waits_in_pre_bind(&pending.pod) { turn.since } else { turn.since.max(decided_after) };
        let bound = Bound { pod: PodInfo::new(Arc::new(undecided)), node, turn, since: since.min(placed), placed };
        let is_now = placed == self.timeline.pods().end();
        match self.evaluate_before(&bound, version_of(&Object::Pod(Arc::clone(pod))), now) {
            Some(evaluation) if is_now && evaluation.is_best() => {
                let verdict = if evaluation.tied == 1 { Verdict::Same } else { Verdict::Tied };
                self.judge(&bound, verdict, 0);
            }
            // Where part of the nodes is scored, most bindings are like this: no search for each of them.
            Some(evaluation) if is_now && evaluation.may_be_sampled(self.percentage_of(pod)) => {
                self.judge(&bound, Verdict::Sampled, evaluation.regret().unwrap_or_default());
            }
            _ => self.waiting.push_back((now, bound)),
        }
    }

    /// `percentageOfNodesToScore` of a pod's profile.
    fn percentage_of(&self, pod: &Pod) -> Option<i32> {
        self.profiles.get(&pod.spec.scheduler_name).and_then(|profile| profile.percentage).or(self.percentage)
    }

    /// Evaluates a node in the state before a version; the timeline is at its end before and afterwards.
    fn evaluate_before(&mut self, bound: &Bound, version: Version, now: Timestamp) -> Option<Evaluation> {
        self.timeline.go_before(version);
        let evaluation = self.evaluate_now(bound, now);
        self.timeline.go_to_end();
        evaluation
    }

    fn evaluate_now(&mut self, bound: &Bound, now: Timestamp) -> Option<Evaluation> {
        let profile = self.profiles.get(&bound.pod.spec.scheduler_name)?;
        let (pod, node) = (&bound.pod, &bound.node);
        self.timeline.without_pod(pod.uid(), |timeline| Evaluation::of(profile, timeline, pod, node, now))
    }

    /// Notes that a pod is bound, and says after which change it was decided.
    fn note_order(&mut self, since: Number, now: Timestamp) -> Number {
        while let Some((seen, since)) = self.recent.front()
            && now.duration_since(*seen) > SLACK
        {
            self.decided_after = self.decided_after.max(*since);
            self.recent.pop_front();
        }
        self.recent.push_back((now, since));
        self.decided_after
    }

    fn judge(&mut self, bound: &Bound, verdict: Verdict, regret: i64) -> &mut Judgement {
        self.tally.count(verdict, regret);
        let (pod, node) = (bound.pod.key(), bound.node.clone());
        self.judged.push(Judgement { pod, node, verdict, distance: None, case: None });
        self.judged.last_mut().expect("it was just pushed")
    }

    /// Judges the bindings that waited long enough.
    pub fn settle(&mut self, now: Timestamp) {
        while let Some((seen, _)) = self.waiting.front()
            && now.duration_since(*seen) >= SETTLES_AFTER
        {
            self.settle_next();
        }
    }

    /// Judges all bindings that wait.
    pub fn finish(&mut self) {
        while !self.waiting.is_empty() {
            self.settle_next();
        }
    }

    fn settle_next(&mut self) {
        let Some((seen, bound)) = self.waiting.pop_front() else { return };
        let Some(profile) = self.profiles.get(&bound.pod.spec.scheduler_name).cloned() else { return };
        let percentage = self.percentage_of(&bound.pod);
        let found = StateSearch::new(&mut self.timeline, &profile, percentage, &bound).run();
        if let Found::Best(distance) = found {
            self.judge(&bound, Verdict::Raced, 0).distance = Some(distance);
            return;
        }
        self.timeline.go_before(self.timeline.version(bound.placed));
        let regret = self.evaluate_now(&bound, seen).and_then(|evaluation| evaluation.regret());
        match found {
            Found::Nothing { .. } if self.may_be_best_of_a_sample(&bound, seen) => {
                self.judge(&bound, Verdict::Sampled, regret.unwrap_or_default());
            }
            Found::Nothing { regret: least } => {
                let case = self.keep_case(&bound, seen);
                self.judge(&bound, Verdict::Unexplained, least.or(regret).unwrap_or_default()).case = case;
            }
            Found::Best(_) | Found::Sampled => {
                self.judge(&bound, Verdict::Sampled, regret.unwrap_or_default());
            }
        }
        self.timeline.go_to_end();
    }

    /// Whether the node wins when only a part of the nodes is scored, in the state that the timeline is at.
    fn may_be_best_of_a_sample(&mut self, bound: &Bound, now: Timestamp) -> bool {
        let percentage = self.percentage_of(&bound.pod);
        let Some(profile) = self.profiles.get(&bound.pod.spec.scheduler_name) else { return false };
        let (pod, node) = (&bound.pod, &bound.node);
        let wins = |timeline: &Timeline| is_best_of_a_sample(profile, percentage, timeline, pod, node, now);
        self.timeline.without_pod(pod.uid(), wins)
    }

    /// Keeps a case, with the objects of the state that the timeline is at.
    fn keep_case(&mut self, bound: &Bound, now: Timestamp) -> Option<(usize, Vec<Object>)> {
        if self.tally.cases.len() >= CASES_MAX {
            return None;
        }
        let profile = self.profiles.get(&bound.pod.spec.scheduler_name)?;
        let (pod, node) = (&bound.pod, &bound.node);
        let (ours, scores) =
            self.timeline.without_pod(pod.uid(), |timeline| compared(profile, timeline, pod, node, now));
        self.tally.cases.push(Case { pod: pod.key(), theirs: node.clone(), ours, scores, snapshot: None });
        let mut objects = Vec::new();
        self.timeline.cluster().each_seen(&mut |object| {
            let is_own = matches!(&object, Object::Pod(other) if other.metadata.uid == pod.uid());
            objects.push(if is_own { Object::Pod(Arc::clone(&pod.pod)) } else { object });
        });
        Some((self.tally.cases.len() - 1, objects))
    }

    /// Says where the state of a case was written to.
    pub fn case_is_saved(&mut self, number: usize, file: String) {
        if let Some(case) = self.tally.cases.get_mut(number) {
            case.snapshot = Some(file);
        }
    }

    /// The judgements since the last call.
    pub fn take_judgements(&mut self) -> Vec<Judgement> {
        std::mem::take(&mut self.judged)
    }

    /// How many bindings were judged so.
    pub fn count(&self, verdict: Verdict) -> u64 {
        self.tally.of(verdict)
    }

    /// All that was judged so far.
    pub fn report(&self, now: Timestamp, notes: Vec<String>) -> ShadowReport {
        self.tally.report(self.since.unwrap_or(now), now, notes)
    }
}
