//! Trials: a draft is applied to the objects as they are written, the pod is decided again, and the edits are undone.

use std::sync::Arc;

use bayplan_model::pod::Pod;
use bayplan_patch::json_patch;
use bayplan_scheduler::PodInfo;
use bayplan_scheduler::inspect::{Attempt, PotentialNodes, Profile, Search, best_candidates, dry_run, ineligible};
use bayplan_sources::{RESOURCES, Resource, resource_of};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::Value;

use super::obstacles::Obstacles;
use super::{Change, ChangeKind, ChangeOptions, ObjectPatch, Subject, Target, json_ops};
use crate::state::{State, Undo, with_uid};

/// A change that is not proven.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub(super) kind: ChangeKind,
    pub(super) cost: u64,
    pub(super) summary: String,
    /// The operations on the pod itself.
    pub(super) pod: Vec<Value>,
    pub(super) patches: Vec<ObjectPatch>,
    /// Pods, by namespace and name.
    pub(super) deletes: Vec<(String, String)>,
    pub(super) adds: Vec<Value>,
}

impl Draft {
    /// A draft that changes nothing yet.
    pub(super) fn new(kind: ChangeKind, cost: u64, summary: String) -> Self {
        Draft { kind, cost, summary, pod: Vec::new(), patches: Vec::new(), deletes: Vec::new(), adds: Vec::new() }
    }

    /// Patches the pod itself.
    pub(super) fn of_pod(kind: ChangeKind, cost: u64, summary: String, operations: Vec<Value>) -> Self {
        Draft { pod: operations, ..Draft::new(kind, cost, summary) }
    }

    fn is_empty(&self) -> bool {
        self.pod.is_empty() && self.patches.is_empty() && self.deletes.is_empty() && self.adds.is_empty()
    }

    /// Patches another object.
    pub(super) fn patching(mut self, kind: &str, namespace: &str, name: &str, patch: Vec<Value>) -> Self {
        if let Some(resource) = resource_of_kind(kind) {
            let target = Target {
                api_version: resource.api_version.to_owned(),
                kind: kind.to_owned(),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            };
            self.patches.push(ObjectPatch { target, patch });
        }
        self
    }
}

/// The resource whose objects are of a kind.
pub(super) fn resource_of_kind(kind: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|resource| resource.kind == kind)
}

/// Where the pod goes after a change.
pub(super) struct Placement {
    feasible: usize,
    /// The smallest name among the best nodes.
    node: String,
}

/// What preemption would do after a change.
pub(super) struct PreemptionOutcome {
    /// The smallest name among the acceptable nodes.
    pub(super) node: String,
    pub(super) victims: Vec<String>,
    pub(super) pdb_violations: usize,
}

/// The state, the pod and the profile that decides.
pub(super) struct Trial<'t> {
    pub(super) state: &'t mut State,
    pub(super) profile: &'t Profile,
    subject: Subject<'t>,
    /// The operations that every draft begins with: the removal of the scheduling gates.
    pub(super) first: Vec<Value>,
    /// The pod as it is decided, without scheduling gates.
    pub(super) pod: Arc<PodInfo>,
    /// The first part of a pair, which the pod as written and the state have already.
    base: Option<Draft>,
    options: ChangeOptions,
    decisions: usize,
}

/// What the dry runs of a preemption on all nodes cost, in decisions: each node is filtered with and without its pods.
const PREEMPTION_DECISIONS: usize = 20;

impl<'t> Trial<'t> {
    /// Prepares trials; none when the pod cannot be read.
    pub(super) fn new(
        state: &'t mut State,
        profile: &'t Profile,
        subject: Subject<'t>,
        options: &ChangeOptions,
    ) -> Option<Self> {
        let gates = subject.json.pointer("/spec/schedulingGates").and_then(Value::as_array);
        let is_gated = gates.is_some_and(|gates| !gates.is_empty());
        let first = if is_gated { vec![json_ops::remove(&["spec", "schedulingGates"])] } else { Vec::new() };
        let json = patched(subject.json.clone(), &first)?;
        let pod = read(state, subject, json)?;
        Some(Trial { state, profile, subject, first, pod, base: None, options: *options, decisions: 0 })
    }

    /// The pod as it is written.
    pub(super) fn json(&self) -> &'t Value {
        self.subject.json
    }

    /// True when the pod is completed as the API server would.
    pub(super) fn is_completed(&self) -> bool {
        self.subject.complete.is_some()
    }

    /// True when the pod is held by scheduling gates.
    pub(super) fn is_gated(&self) -> bool {
        !self.first.is_empty()
    }

    /// The time of the next decision. Searches for devices have an allowance that grows with time, so for pods with
    /// devices each decision comes a second after the one before it.
    pub(super) fn now(&self) -> Timestamp {
        let uses_devices = !self.pod.spec.resource_claims.is_empty() || !self.pod.usage.requested.scalars.is_empty();
        let seconds = if uses_devices { self.decisions as i64 } else { 0 };
        self.options.now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(self.options.now)
    }

    /// Counts a decision; false when there were too many.
    pub(super) fn count_decision(&mut self) -> bool {
        self.decisions += 1;
        !self.is_exhausted()
    }

    /// True when no more decisions are made.
    pub(super) fn is_exhausted(&self) -> bool {
        self.decisions > self.options.decisions_max
    }

    /// How many decisions were made, as far as they count.
    pub(super) fn decisions(&self) -> usize {
        self.decisions
    }

    /// Asks with the first part of a pair applied. `ask` is given what is still in the way then; nothing is asked when
    /// the first part alone is enough.
    pub(super) fn with_base(
        &mut self,
        base: &Draft,
        ask: impl FnOnce(&mut Trial<'_>, &Obstacles) -> Vec<Change>,
    ) -> Vec<Change> {
        let Some(json) = patched(self.subject.json.clone(), &base.pod) else { return Vec::new() };
        let mut undos = Vec::new();
        let mut found = Vec::new();
        if self.count_decision() && self.apply(base, &mut undos).is_some() {
            let subject = Subject { json: &json, complete: self.subject.complete };
            if let Some(mut second) = Trial::new(&mut *self.state, self.profile, subject, &self.options) {
                second.decisions = self.decisions;
                second.base = Some(base.clone());
                if let Some(obstacles) = Obstacles::find(&second) {
                    found = ask(&mut second, &obstacles);
                }
                self.decisions = second.decisions;
            }
        }
        undos.into_iter().rev().for_each(|undo| self.state.undo(undo));
        found
    }

    /// Whether the pod fits somewhere with these operations applied to it.
    pub(super) fn fits(&mut self, operations: &[Value]) -> bool {
        let draft = Draft::of_pod(ChangeKind::RelaxConstraint, 0, String::new(), operations.to_vec());
        self.with_draft(&draft, |trial, pod| trial.place(&pod)).is_some()
    }

    /// The change that a draft is, if it places the pod.
    pub(super) fn prove(&mut self, draft: Draft) -> Option<Change> {
        let placement = self.with_draft(&draft, |trial, pod| trial.place(&pod))?;
        Some(self.change(draft, placement.node, placement.feasible, Vec::new(), 0))
    }

    /// The same for a draft that deletes pods, some of them against a budget.
    pub(super) fn prove_deletion(&mut self, draft: Draft, pdb_violations: usize) -> Option<Change> {
        let change = self.prove(draft)?;
        Some(Change { pdb_violations, ..change })
    }

    /// The change that a draft is, if the pod preempts others then. `summary` words it.
    pub(super) fn prove_preemption(
        &mut self,
        draft: Draft,
        summary: impl FnOnce(&PreemptionOutcome) -> (u64, String),
    ) -> Option<Change> {
        let outcome = self.with_draft(&draft, |trial, pod| trial.preempt(&pod))?;
        let (cost, summary) = summary(&outcome);
        let draft = Draft { cost, summary, ..draft };
        Some(self.change(draft, outcome.node, 0, outcome.victims, outcome.pdb_violations))
    }

    fn change(
        &self,
        draft: Draft,
        node: String,
        feasible_after: usize,
        victims: Vec<String>,
        pdb_violations: usize,
    ) -> Change {
        let is_gates_alone = draft.is_empty();
        let (kind, with, draft) = self.composed(draft);
        let (mut patches, operations) = (draft.patches, draft.pod);
        if !operations.is_empty() {
            patches.insert(0, ObjectPatch { target: self.target(), patch: operations });
        }
        let summary = match self.is_gated() && !is_gates_alone {
            true => format!("remove the scheduling gates, and {}", draft.summary),
            false => draft.summary,
        };
        Change {
            kind,
            with,
            summary,
            patches,
            deletes: draft.deletes.iter().map(|(namespace, name)| format!("{namespace}/{name}")).collect(),
            adds: draft.adds,
            feasible_after,
            node,
            victims,
            pdb_violations,
            cost: draft.cost.saturating_add(if self.is_gated() { super::cost::GATE } else { 0 }),
        }
    }

    /// A draft with all operations on the pod, in their order: the first part of a pair, the gates, and its own. With
    /// it the kind of the first part, and that of the second.
    fn composed(&self, draft: Draft) -> (ChangeKind, Vec<ChangeKind>, Draft) {
        let gates = self.first.iter().cloned();
        let Some(base) = self.base.clone() else {
            return (draft.kind, Vec::new(), Draft { pod: gates.chain(draft.pod).collect(), ..draft });
        };
        let both = Draft {
            kind: draft.kind,
            cost: base.cost.saturating_add(draft.cost),
            summary: format!("{}, and {}", base.summary, draft.summary),
            pod: base.pod.into_iter().chain(gates).chain(draft.pod).collect(),
            patches: base.patches.into_iter().chain(draft.patches).collect(),
            deletes: draft.deletes,
            adds: draft.adds,
        };
        (base.kind, vec![draft.kind], both)
    }

    fn target(&self) -> Target {
        let metadata = &self.pod.metadata;
        Target {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
        }
    }

    /// Applies a draft, asks, and undoes the edits. None when the draft does not apply.
    pub(super) fn with_draft<T>(
        &mut self,
        draft: &Draft,
        ask: impl FnOnce(&mut Self, Arc<PodInfo>) -> Option<T>,
    ) -> Option<T> {
        if !self.count_decision() {
            return None;
        }
        let operations: Vec<Value> = self.first.iter().chain(&draft.pod).cloned().collect();
        let json = patched(self.subject.json.clone(), &operations)?;
        let mut undos = Vec::new();
        let answer = match self.apply(draft, &mut undos) {
            Some(()) => read(self.state, self.subject, json).and_then(|pod| ask(self, pod)),
            None => None,
        };
        undos.into_iter().rev().for_each(|undo| self.state.undo(undo));
        answer
    }

    fn apply(&mut self, draft: &Draft, undos: &mut Vec<Undo>) -> Option<()> {
        for ObjectPatch { target, patch } in &draft.patches {
            let resource = resource_of(&target.api_version, &target.kind)?;
            let written = self.state.written(resource, &target.namespace, &target.name)?;
            let json = patched(serde_json::from_str(written.get()).ok()?, patch)?;
            undos.push(self.state.write(resource, &json).ok()?);
        }
        for (namespace, name) in &draft.deletes {
            undos.push(self.state.remove(resource_of("v1", "Pod")?, namespace, name)?);
        }
        for json in &draft.adds {
            let text = |field: &str| json[field].as_str().unwrap_or_default();
            undos.push(self.state.write(resource_of(text("apiVersion"), text("kind"))?, json).ok()?);
        }
        Some(())
    }

    /// The whole decision, PreEnqueue included.
    fn place(&mut self, pod: &PodInfo) -> Option<Placement> {
        let mut attempt = Attempt::new(self.profile, self.state.cluster(), self.state.nominator(), pod, self.now());
        if !attempt.pre_enqueue().is_success() {
            return None;
        }
        let found = attempt.find(Search::ALL).ok()?;
        let nodes = found.nodes();
        let node = match &*nodes {
            [] => return None,
            [only] => only.name.to_string(),
            many => {
                let scores = attempt.score(many).ok()?;
                scores.best().into_iter().map(|at| &scores.nodes[at]).min()?.to_string()
            }
        };
        Some(Placement { feasible: nodes.len(), node })
    }

    /// What preemption would choose on all nodes; none when the pod fits, may not preempt, or finds no victims.
    pub(super) fn preempt(&mut self, pod: &PodInfo) -> Option<PreemptionOutcome> {
        let now = self.now();
        self.decisions += PREEMPTION_DECISIONS;
        if self.is_exhausted() {
            return None;
        }
        let mut attempt = Attempt::new(self.profile, self.state.cluster(), self.state.nominator(), pod, now);
        if !attempt.pre_enqueue().is_success() {
            return None;
        }
        let found = attempt.find(Search::ALL).ok()?;
        if !found.nodes().is_empty() {
            return None;
        }
        attempt.with_post_filter_context(&found.diagnosis, 0, |cx| {
            if ineligible(cx).is_some() {
                return None;
            }
            let nodes = PotentialNodes::of(cx);
            let result = dry_run(cx, &nodes, 0, nodes.len());
            let best = best_candidates(&result.candidates, now);
            let chosen = best.into_iter().min_by_key(|candidate| &candidate.node)?;
            Some(PreemptionOutcome {
                node: chosen.node.to_string(),
                victims: chosen.victims.iter().map(|victim| victim.key()).collect(),
                pdb_violations: chosen.pdb_violations,
            })
        })
    }
}

/// An object with a patch applied; none when the patch does not fit.
fn patched(json: Value, operations: &[Value]) -> Option<Value> {
    if operations.is_empty() {
        return Some(json);
    }
    json_patch::apply(json, &serde_json::to_vec(operations).ok()?).ok()
}

/// The pod as the scheduler sees it.
fn read(state: &State, subject: Subject<'_>, json: Value) -> Option<Arc<PodInfo>> {
    let json = match subject.complete {
        Some(complete) => complete(state, json).ok()?,
        None => json,
    };
    Some(Arc::new(PodInfo::new(with_uid(Arc::new(Pod::deserialize(json).ok()?)))))
}
