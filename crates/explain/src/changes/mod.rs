//! What would let a pod in that fits nowhere: changes of the pod or of the cluster, smallest first, each proven.
//!
//! ```text
//!   the pod's cycle ─▶ obstacles (every filter that refuses each node)
//!                          │ one file for each kind of change reads them and drafts
//!                          ▼
//!        drafts ─▶ trial: apply to the objects as written, decode, decide again, undo ─▶ changes, by cost
//! ```
//!
//! Invariant: a [`Change`] is made in one place, from the decision on the changed state. A draft that does not place
//! the pod is dropped, whatever made it look promising.

mod add_node;
mod add_object;
mod cost;
mod delete_pods;
mod json_ops;
mod node_demands;
mod obstacles;
mod pairs;
mod pod_requests;
mod raise_priority;
mod reduce_request;
mod relabel;
mod relax;
mod tolerate;
mod trial;

use bayplan_scheduler::inspect::Profile;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::State;
use obstacles::Obstacles;
use trial::Trial;

/// Most changes that are returned, unless the caller wants fewer: as many as a person reads.
pub const CHANGES_MAX: usize = 20;

/// Most changes of one kind: the next kind says more than the sixth of the same.
const CHANGES_OF_KIND_MAX: usize = 5;

/// Most decisions for one question. A decision on 5,000 nodes takes some milliseconds, a question about an ordinary pod
/// some dozens of decisions; a pod with very many terms must not take minutes.
pub const DECISIONS_MAX: usize = 400;

/// What kind of change lets a pod in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum ChangeKind {
    /// The pod requests less.
    ReduceRequest,
    /// The pod tolerates taints.
    Tolerate,
    /// The pod gives up a constraint, or a node is uncordoned.
    RelaxConstraint,
    /// A node gets other labels.
    Relabel,
    /// An object that the pod waits for is there.
    AddObject,
    /// The pod is more important, and preempts others.
    RaisePriority,
    /// Other pods go.
    DeletePods,
    /// There is one more node.
    AddNode,
}

/// An object that a patch is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// The object's `apiVersion`.
    pub api_version: String,
    /// The object's `kind`.
    pub kind: String,
    /// Empty for cluster-scoped objects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The object's name.
    pub name: String,
}

/// A JSON patch (RFC 6902) of one object as it is written.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObjectPatch {
    /// The object.
    pub target: Target,
    /// The operations.
    pub patch: Vec<Value>,
}

/// A change that lets the pod in. With `patches`, `deletes` and `adds` applied to the same state, `node` is among the
/// best nodes; for [`ChangeKind::RaisePriority`] it is among the acceptable ones of the preemption.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// What kind of change it is.
    pub kind: ChangeKind,
    /// The kind of its second part, where no change of one kind is enough.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<ChangeKind>,
    /// The change in one sentence.
    pub summary: String,
    /// Patches of objects that are there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub patches: Vec<ObjectPatch>,
    /// Pods that are deleted, as `namespace/name`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deletes: Vec<String>,
    /// Objects that are added.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub adds: Vec<Value>,
    /// How many nodes fit then; 0 when the pod has to preempt.
    pub feasible_after: usize,
    /// The node the pod goes to: the smallest name among the best.
    pub node: String,
    /// Pods that would be preempted, most important first, as `namespace/name`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub victims: Vec<String>,
    /// How many of the pods that go a disruption budget protects.
    #[serde(skip_serializing_if = "is_zero")]
    pub pdb_violations: usize,
    /// What the change is sorted by.
    #[serde(skip)]
    cost: u64,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Completes a pod as the API server would when it is created.
pub type Complete<'a> = dyn Fn(&State, Value) -> Result<Value, String> + 'a;

/// The pod that fits nowhere.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The pod as written: what patches of it apply to.
    pub json: &'a Value,
    /// How it is completed before it is decided; none for a pod that is taken as written.
    pub complete: Option<&'a Complete<'a>>,
}

impl<'a> Subject<'a> {
    /// A pod that is taken as written: one of the state, or a new one with `--as-written`.
    pub fn as_written(json: &'a Value) -> Self {
        Subject { json, complete: None }
    }
}

/// How changes are looked for.
#[derive(Clone, Copy, Debug)]
pub struct ChangeOptions {
    /// The time of the decision.
    pub now: Timestamp,
    /// Most changes to return; [`CHANGES_MAX`] at most.
    pub max: usize,
    /// Whether preemption is considered: false leaves `RaisePriority` out.
    pub preemption: bool,
    /// Most decisions to make; [`DECISIONS_MAX`] at most.
    pub decisions_max: usize,
}

impl ChangeOptions {
    /// All changes, decided at this time.
    pub fn at(now: Timestamp) -> Self {
        ChangeOptions { now, max: CHANGES_MAX, preemption: true, decisions_max: DECISIONS_MAX }
    }
}

/// What was found within the decisions that a search may make.
#[derive(Clone, Debug, Default)]
pub struct FoundChanges {
    /// The changes, smallest first.
    pub changes: Vec<Change>,
    /// How many decisions were made.
    pub decisions: usize,
    /// True when decisions were left: there is nothing more to find.
    pub is_complete: bool,
}

/// The changes that let a pod in that fits nowhere, smallest first. None when it fits, cannot be read, or nothing
/// helps. The state is edited for each proof and put back.
pub fn changes(state: &mut State, profile: &Profile, subject: Subject<'_>, options: &ChangeOptions) -> Vec<Change> {
    search(state, profile, subject, options).changes
}

/// The same, with what it took.
pub fn search(state: &mut State, profile: &Profile, subject: Subject<'_>, options: &ChangeOptions) -> FoundChanges {
    let nothing = FoundChanges { is_complete: true, ..FoundChanges::default() };
    let options = ChangeOptions { decisions_max: options.decisions_max.min(DECISIONS_MAX), ..*options };
    let Some(mut trial) = Trial::new(state, profile, subject, &options) else { return nothing };
    if !trial.count_decision() {
        return FoundChanges::default();
    }
    let Some(obstacles) = Obstacles::find(&trial) else { return nothing };
    let mut found = relax::gates_alone(&mut trial);
    for changes in KINDS {
        if !trial.is_exhausted() {
            found.extend(changes(&mut trial, &obstacles));
        }
    }
    if options.preemption && !trial.is_exhausted() {
        found.extend(raise_priority::changes(&mut trial, &obstacles));
    }
    if !trial.is_exhausted() && !found.iter().any(Change::is_of_the_pod_or_a_node) {
        found.extend(pairs::changes(&mut trial, &obstacles));
    }
    let (decisions, is_complete) = (trial.decisions(), !trial.is_exhausted());
    FoundChanges { changes: smallest_first(found, options.max.min(CHANGES_MAX)), decisions, is_complete }
}

/// Changes of one kind.
type Changes = fn(&mut Trial<'_>, &Obstacles) -> Vec<Change>;

/// The kinds whose changes place the pod, in the order in which they are looked for.
const KINDS: [Changes; 7] = [
    reduce_request::changes,
    tolerate::changes,
    relax::changes,
    relabel::changes,
    add_object::changes,
    add_node::changes,
    delete_pods::changes,
];

/// Sorts changes by cost, drops repeated ones, and keeps the smallest.
fn smallest_first(mut found: Vec<Change>, max: usize) -> Vec<Change> {
    found.sort_by(|a, b| (a.cost, a.kind, &a.node, &a.summary).cmp(&(b.cost, b.kind, &b.node, &b.summary)));
    let mut kept: Vec<Change> = Vec::new();
    for change in found {
        let of_kind = kept.iter().filter(|other| other.kind == change.kind).count();
        let is_repeated = kept.iter().any(|other| other.does_the_same_as(&change));
        if kept.len() < max && of_kind < CHANGES_OF_KIND_MAX && !is_repeated {
            kept.push(change);
        }
    }
    kept
}

impl Change {
    /// Whether it edits the pod or a node that is there, and nothing else.
    fn is_of_the_pod_or_a_node(&self) -> bool {
        use ChangeKind::{ReduceRequest, Relabel, RelaxConstraint, Tolerate};
        matches!(self.kind, ReduceRequest | Tolerate | RelaxConstraint | Relabel)
    }

    fn does_the_same_as(&self, other: &Change) -> bool {
        self.patches == other.patches && self.deletes == other.deletes && self.adds == other.adds
    }
}
