//! The state of a what-if while its actions are carried out, and how each pod is decided on it.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use bayplan_model::pod::Pod;
use bayplan_scheduler::inspect::{Attempt, Decider, Decision, DecisionInput, Profile, Reserve, Search};
use bayplan_scheduler::{Object, PodInfo, Preemption, Status, TieBreak};
use bayplan_sources::{Resource, resource_of};
use rustc_hash::{FxHashMap, FxHasher};

use super::answer::{Deleted, Moved, Placed, Preempted, Stuck};
use super::expansion::Template;
use super::{Error, ObjectName, Options};
use crate::completion::Completion;
use crate::why::{self, Explanation, PodName, Verdict};
use crate::{Profiles, State};

/// The scheduler of pods that name none, as the API server fills it in.
const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// The plugin that holds pods with scheduling gates.
const SCHEDULING_GATES: &str = "SchedulingGates";

/// What became of a pod.
pub(super) enum Outcome {
    /// It is on this node now.
    Node(String),
    /// It stays pending.
    Pending(Box<Explanation>),
}

/// What was found out about pods of one template that fit nowhere, and when.
struct KnownRefusal {
    pod: Arc<PodInfo>,
    /// The number of changes of the state at the time.
    changes: u64,
    explanation: Explanation,
}

/// A what-if in progress.
pub(super) struct Session<'a> {
    pub(super) state: State,
    pub(super) options: &'a Options,
    pub(super) completion: Completion,
    profiles: &'a Profiles,
    ties: TieBreak,
    deciders: FxHashMap<String, Decider>,
    /// Grows with every change of the state.
    changes: u64,
    known: FxHashMap<u64, KnownRefusal>,
    pub(super) placed: Vec<Placed>,
    pub(super) pending: Vec<Explanation>,
    pub(super) moved: Vec<Moved>,
    pub(super) stuck: Vec<Stuck>,
    pub(super) preempted: Vec<Preempted>,
    pub(super) deleted: Vec<Deleted>,
    pub(super) notes: Vec<String>,
    /// The pods that had to leave and that their controllers create again.
    returning: Vec<(Arc<Pod>, String)>,
    /// The last template of which pods were made.
    pub(super) template: Option<Template>,
    /// The priorities that actions gave, which new pods of the same workload get too.
    pub(super) priorities: Vec<(ObjectName, i32)>,
    /// Whether something happened that may help pods that were pending before.
    pub(super) retry_pending: bool,
}

impl<'a> Session<'a> {
    pub(super) fn new(state: State, profiles: &'a Profiles, options: &'a Options) -> Self {
        Session {
            completion: Completion::of(&state),
            notes: state.notes().to_vec(),
            state,
            options,
            profiles,
            ties: options.ties.clone(),
            deciders: FxHashMap::default(),
            changes: 0,
            known: FxHashMap::default(),
            placed: Vec::new(),
            pending: Vec::new(),
            moved: Vec::new(),
            stuck: Vec::new(),
            preempted: Vec::new(),
            deleted: Vec::new(),
            returning: Vec::new(),
            template: None,
            priorities: Vec::new(),
            retry_pending: false,
        }
    }

    /// Says that the state was changed by other means than by placing a pod.
    pub(super) fn changed(&mut self) {
        self.changes += 1;
    }

    /// Creates a pod, decides it and notes the outcome.
    pub(super) fn create(&mut self, pod: Pod) {
        let key = pod.metadata.key();
        match self.create_and_decide(pod, self.options.preempt) {
            Outcome::Node(node) => self.placed.push(Placed { pod: key, node }),
            Outcome::Pending(explanation) => self.pending.push(*explanation),
        }
    }

    /// Creates a pod and decides it.
    pub(super) fn create_and_decide(&mut self, mut pod: Pod, preempt: bool) -> Outcome {
        // Whoever gives a pod asks where it goes, not where it is.
        let as_written = self.options.as_written;
        if pod.spec.scheduler_name.is_empty() && !as_written {
            pod.spec.scheduler_name = DEFAULT_SCHEDULER.into();
        }
        if pod.metadata.uid.is_empty() {
            pod.metadata.uid = pod.metadata.key();
        }
        let info = Arc::new(PodInfo::new(Arc::new(pod)));
        if !info.is_assigned() {
            self.state.put(Object::Pod(info.pod.clone()));
        }
        self.decide(&info, preempt)
    }

    /// Decides a pod that is in the state and pending.
    pub(super) fn decide(&mut self, pod: &Arc<PodInfo>, preempt: bool) -> Outcome {
        let Some(profile) = self.profile_of(pod) else { return self.foreign(pod) };
        if let Some(explanation) = self.known_refusal(pod) {
            return Outcome::Pending(Box::new(explanation));
        }
        let (state, now) = (&self.state, self.options.now);
        let gate = Attempt::new(&profile, state.cluster(), state.nominator(), pod, now).pre_enqueue();
        if !gate.is_success() {
            return Outcome::Pending(Box::new(self.hold(&profile, pod, &gate)));
        }
        let (decision, reserve) = self.ask(&profile, pod, preempt);
        match decision {
            Decision::Node(node) => self.place(&profile, pod, node, reserve),
            Decision::Unschedulable(unschedulable) => match unschedulable.preemption {
                Some(preemption) => self.preempt(&profile, pod, preemption),
                None => Outcome::Pending(Box::new(self.explain(pod, preempt))),
            },
            Decision::NoNodes | Decision::Failed(_) => Outcome::Pending(Box::new(self.explain(pod, preempt))),
        }
    }

    /// A pod of another scheduler, about which this configuration decides nothing.
    fn foreign(&self, pod: &PodInfo) -> Outcome {
        let mut explanation = why::blank(&self.state, pod);
        let name = &pod.spec.scheduler_name;
        explanation.error =
            Some(format!("no profile of the configuration is named {name:?}; another scheduler may place it"));
        Outcome::Pending(Box::new(explanation))
    }

    /// PreEnqueue holds a pod. Unless somebody gated it on purpose, the cycle has a text for what is missing.
    fn hold(&self, profile: &Profile, pod: &PodInfo, gate: &Status) -> Explanation {
        let mut explanation = why::blank(&self.state, pod);
        explanation.verdict = Verdict::Gated;
        explanation.pre_enqueue = Some(gate.into());
        if gate.plugin != SCHEDULING_GATES {
            let (cluster, nominator) = (self.state.cluster(), self.state.nominator());
            let found = Attempt::new(profile, cluster, nominator, pod, self.options.now).find(Search::ALL);
            let unfit = found.ok().filter(|found| found.feasible.is_empty());
            explanation.message = unfit.map(|found| found.diagnosis.message());
        }
        explanation
    }

    fn profile_of(&self, pod: &PodInfo) -> Option<Arc<Profile>> {
        let name = match pod.spec.scheduler_name.as_str() {
            "" => DEFAULT_SCHEDULER,
            name => name,
        };
        self.profiles.get(name).cloned()
    }

    fn ask(&mut self, profile: &Arc<Profile>, pod: &PodInfo, preempt: bool) -> (Decision, Reserve) {
        let (cluster, nominator, now) = (self.state.cluster(), self.state.nominator(), self.options.now);
        let input = DecisionInput::new(profile, cluster, nominator, pod, now);
        let percentage = self.options.percentage;
        let decider = self.deciders.entry(profile.name.clone()).or_insert_with(|| Decider::new(percentage));
        decider.decide(input, &mut self.ties, preempt)
    }

    fn place(&mut self, profile: &Profile, pod: &Arc<PodInfo>, node: String, reserve: Reserve) -> Outcome {
        self.changes += 1;
        match self.state.place(profile, pod, reserve, &node) {
            Ok(()) => {
                self.state.confirm(pod, &node);
                Outcome::Node(node)
            }
            Err(status) => {
                let mut explanation = why::blank(&self.state, pod);
                explanation.error = Some(status.message());
                Outcome::Pending(Box::new(explanation))
            }
        }
    }

    /// Why no node fits, as `why` says it.
    fn explain(&mut self, pod: &Arc<PodInfo>, preempt: bool) -> Explanation {
        let options = why::Options { no_preemption: !preempt, ..why::Options::at(self.options.now) };
        let explanation = why::explain_unplaced(&self.state, self.profiles, pod, &options);
        if is_template_only(pod) {
            let known = KnownRefusal { pod: pod.clone(), changes: self.changes, explanation: explanation.clone() };
            self.known.insert(template_hash(pod), known);
        }
        explanation
    }

    /// The answer for another pod of the same template, if nothing has changed since.
    fn known_refusal(&self, pod: &PodInfo) -> Option<Explanation> {
        let known = self.known.get(&template_hash(pod)).filter(|known| known.changes == self.changes)?;
        let same = is_template_only(pod) && same_template(pod, &known.pod);
        same.then(|| Explanation { pod: name_of(pod), ..known.explanation.clone() })
    }

    /// Lets the victims leave, and decides the pod again on what they leave behind.
    fn preempt(&mut self, profile: &Arc<Profile>, pod: &Arc<PodInfo>, preemption: Preemption) -> Outcome {
        for other in &preemption.lower_priority_nominated {
            self.state.nominate(other, "");
        }
        for victim in &preemption.victims {
            let (key, node) = (victim.key(), preemption.node.clone());
            if victim.metadata.controller().is_some() {
                self.returning.push((victim.pod.clone(), node.clone()));
            }
            self.preempted.push(Preempted { pod: key.clone(), node, by: pod.key() });
            // What this question placed and displaced again has not found a node.
            self.placed.retain(|placed| placed.pod != key);
            self.remove_pod(&victim.metadata.namespace, &victim.metadata.name);
        }
        let mut nominated = (*pod.pod).clone();
        nominated.status.nominated_node_name.clone_from(&preemption.node);
        let nominated = Arc::new(PodInfo::new(Arc::new(nominated)));
        self.state.put(Object::Pod(nominated.pod.clone()));
        let (decision, reserve) = self.ask(profile, &nominated, false);
        match decision {
            Decision::Node(node) => self.place(profile, &nominated, node, reserve),
            _ => Outcome::Pending(Box::new(self.explain(&nominated, false))),
        }
    }

    /// Takes a pod out of the state.
    pub(super) fn remove_pod(&mut self, namespace: &str, name: &str) -> bool {
        self.changes += 1;
        self.state.remove(pods(), namespace, name).is_some()
    }

    /// Decides the pods that had to leave and that their controllers create again. They may displace less important
    /// ones in turn, so that it goes on until nobody has to leave.
    pub(super) fn settle(&mut self) {
        while !self.returning.is_empty() {
            for (pod, from) in std::mem::take(&mut self.returning) {
                self.recreate(&pod, from);
            }
        }
    }

    /// Creates a pod again that left its node, decides it and notes the outcome.
    pub(super) fn recreate(&mut self, pod: &Arc<Pod>, from: String) -> bool {
        let (key, unmanaged) = (pod.metadata.key(), pod.metadata.controller().is_none());
        let successor = self.successor(pod);
        match self.create_and_decide(successor, self.options.preempt) {
            Outcome::Node(to) => {
                self.moved.retain(|moved| moved.pod != key);
                self.moved.push(Moved { pod: key, from, to, unmanaged });
                true
            }
            Outcome::Pending(explanation) => {
                self.pending.push(*explanation);
                false
            }
        }
    }

    /// Tries the pods that were pending before anything was done, in the order of the queue.
    pub(super) fn retry_pending(&mut self) {
        let given: Vec<(String, String)> =
            self.pending.iter().map(|pending| (pending.pod.namespace.clone(), pending.pod.name.clone())).collect();
        let is_given = |pod: &Pod| {
            given.iter().any(|(namespace, name)| *namespace == pod.metadata.namespace && *name == pod.metadata.name)
        };
        let mut waiting: Vec<Arc<PodInfo>> = self.state.pending().filter(|pod| !is_given(pod)).cloned().collect();
        waiting.retain(|pod| !pod.is_terminating());
        waiting.sort_by_key(|pod| (std::cmp::Reverse(pod.priority()), pod.metadata.creation_timestamp, pod.key()));
        for pod in waiting {
            match self.decide(&pod, self.options.preempt) {
                Outcome::Node(node) => self.placed.push(Placed { pod: pod.key(), node }),
                Outcome::Pending(explanation) => self.pending.push(*explanation),
            }
        }
    }

    /// The resource of a kind that decisions read.
    pub(super) fn resource(api_version: &str, kind: &str) -> Result<&'static Resource, Error> {
        resource_of(api_version, kind).ok_or_else(|| Error::Unknown(format!("{api_version} {kind}")))
    }
}

/// The name of a pod, as `why` has it.
fn name_of(pod: &PodInfo) -> PodName {
    let meta = &pod.metadata;
    let uid = if meta.uid == pod.key() { String::new() } else { meta.uid.clone() };
    PodName { namespace: meta.namespace.clone(), name: meta.name.clone(), uid }
}

/// The resource of pods.
pub(super) fn pods() -> &'static Resource {
    resource_of("v1", "Pod").expect("decisions read pods")
}

/// Whether everything that is decided about a pod follows from its template: it has no claims of its own name.
fn is_template_only(pod: &Pod) -> bool {
    pod.spec.volumes.is_empty() && pod.spec.resource_claims.is_empty() && pod.status.nominated_node_name.is_empty()
}

fn same_template(a: &Pod, b: &Pod) -> bool {
    let (own, other) = (&a.metadata, &b.metadata);
    own.namespace == other.namespace
        && own.labels == other.labels
        && own.owner_references == other.owner_references
        && a.spec == b.spec
}

fn template_hash(pod: &Pod) -> u64 {
    let mut hasher = FxHasher::default();
    (&pod.metadata.namespace, &pod.metadata.labels, &pod.spec).hash(&mut hasher);
    hasher.finish()
}
