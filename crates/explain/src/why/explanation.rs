//! The answer of `why` for one pod, as JSON has it. The names are those of the specification and stay.

use jiff::Timestamp;
use serde::Serialize;

use bayplan_scheduler::{PluginName, Status};
use bayplan_sources::OriginKind;

use crate::Change;

/// The `apiVersion` of every answer.
pub const API_VERSION: &str = "bayplan.dev/v1";

/// Why a pod is where it is, or why it is nowhere.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// [`API_VERSION`].
    pub api_version: &'static str,
    /// `Explanation`.
    pub kind: &'static str,
    /// The pod.
    pub pod: PodName,
    /// Where the state comes from.
    pub source: SourceOfState,
    /// The profile that answers.
    pub scheduler_name: String,
    /// The answer in one word.
    pub verdict: Verdict,
    /// Where the pod is, or where it goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Upstream's text of the FailedScheduling event; absent when the pod fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The status of PreEnqueue, when it holds the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pre_enqueue: Option<Answer>,
    /// The status of PreFilter, when it rejects the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pre_filter: Option<Answer>,
    /// The text of the error with which the cycle failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How many nodes there are, and how many fit.
    pub nodes: NodeCounts,
    /// How many nodes each plugin refused; each node counts once, under the first that refused it. Most nodes first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused_by: Vec<RefusedBy>,
    /// How many nodes each plugin refused for each reason. Most nodes first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rejections: Vec<Rejection>,
    /// One entry for every node, by name; only when asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub per_node: Vec<NodeAnswer>,
    /// Every node with the highest total, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub best: Vec<String>,
    /// The chosen node and the runners-up, best first; absent when at most one node fits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranking: Vec<NodeAnswer>,
    /// The plugin without whose scores other nodes would have been best.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<PluginName>,
    /// What preemption could do; absent when it was not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemption: Option<PreemptionAnswer>,
    /// What would let it in, smallest first; absent when it was not looked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Change>,
    /// What has to change for a pod that never fits as specified.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub must_change: Vec<&'static str>,
    /// What every filter says of the one node that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_node: Option<OnNode>,
    /// The events that would have the pod tried again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub wakes_on: Vec<WakesOn>,
    /// When the pod is tried again without such an event, as far as its status tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// How often the scheduler tried the pod, as far as known: exactly from a decision log, at least from events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<Attempts>,
    /// What is known of the last attempt to schedule the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_attempt: Option<LastAttempt>,
    /// One line for each thing that the reader should know about the answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Those of the missing resources that could matter for this pod; text is spared the others.
    #[serde(skip)]
    pub missing_here: Vec<&'static str>,
}

/// The answer in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Verdict {
    /// It is bound.
    Placed,
    /// A node fits now.
    WillPlace,
    /// PreEnqueue holds it.
    Gated,
    /// Nothing fits now, but pods that leave, or an object that it waits for, can help.
    NotYet,
    /// The pod, a node's own properties or the set of nodes has to change.
    Never,
}

impl Verdict {
    /// Whether the pod has a node, or a node fits now.
    pub(crate) fn fits(self) -> bool {
        matches!(self, Verdict::Placed | Verdict::WillPlace)
    }

    /// The word.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Placed => "Placed",
            Verdict::WillPlace => "WillPlace",
            Verdict::Gated => "Gated",
            Verdict::NotYet => "NotYet",
            Verdict::Never => "Never",
        }
    }
}

/// Which pod is meant.
#[derive(Clone, Debug, Serialize)]
pub struct PodName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID; empty for a pod that does not exist yet.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

impl std::fmt::Display for PodName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Where the state comes from that the answer was decided on.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceOfState {
    /// The kind of source.
    pub kind: OriginKind,
    /// When the state was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Timestamp>,
    /// Its `resourceVersion`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// The resources that could not be read and may change the answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<&'static str>,
}

/// The status with which a plugin answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// Upstream's name of the code.
    pub code: &'static str,
    /// The plugin; empty when it was none.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub plugin: PluginName,
    /// Its reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
}

impl From<&Status> for Answer {
    fn from(status: &Status) -> Self {
        let reasons = status.reasons.iter().map(|reason| reason.to_string()).collect();
        Answer { code: status.code.name(), plugin: status.plugin, reasons }
    }
}

/// How many nodes there are, and how many fit.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct NodeCounts {
    /// All nodes.
    pub total: usize,
    /// The nodes that fit.
    pub feasible: usize,
}

/// How many nodes a plugin refused.
#[derive(Clone, Debug, Serialize)]
pub struct RefusedBy {
    /// The plugin; empty when several PreFilter plugins together leave nodes out.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub plugin: PluginName,
    /// The number of nodes that it was the first to refuse.
    pub nodes: usize,
}

/// How many nodes a plugin refused for one reason.
#[derive(Clone, Debug, Serialize)]
pub struct Rejection {
    /// The plugin; empty when several PreFilter plugins together leave nodes out.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub plugin: PluginName,
    /// The reason, as upstream words it.
    pub reason: String,
    /// The number of nodes with this reason. A node with several reasons counts for each.
    pub nodes: usize,
    /// Some of the nodes.
    pub examples: Vec<String>,
    /// The node that lacks least, when the reason is a resource that is short.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nearest: Option<Nearest>,
}

/// The node that lacks least of a resource. A node that lacks nothing else comes first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Nearest {
    /// The node.
    pub node: String,
    /// The resource.
    pub resource: String,
    /// How much more the node would have to have free, as a quantity.
    pub short: String,
}

/// What was answered about a node: why it is refused, or what it scores.
#[derive(Clone, Debug, Default, Serialize)]
pub struct NodeAnswer {
    /// The node.
    pub node: String,
    /// The code of a refusal; `Skip` for a node that needed no asking.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<&'static str>,
    /// The plugin that refused the node.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub plugin: PluginName,
    /// Its reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// The scores of a feasible node; none when it is the only one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scores: Vec<PluginScore>,
    /// Their sum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<i64>,
}

/// What a plugin scored a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PluginScore {
    /// The plugin.
    pub plugin: PluginName,
    /// The plugin's own value.
    pub raw: i64,
    /// After normalisation, times the plugin's weight.
    pub score: i64,
    /// The plugin's weight.
    pub weight: i64,
}

/// What preemption could do for the pod.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PreemptionAnswer {
    /// True when the pod may preempt others.
    pub eligible: bool,
    /// Why it may not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Where preemption would help: everywhere with `--per-node`, otherwise where it would be done.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<PreemptionCandidate>,
    /// The nodes it may choose.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub acceptable: Vec<String>,
    /// What PostFilter says when it does not help.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A node where preemption would help.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PreemptionCandidate {
    /// The node.
    pub node: String,
    /// The pods that would be evicted, by name.
    pub victims: Vec<String>,
    /// How many of them a PodDisruptionBudget protects.
    pub pdb_violations: usize,
}

/// What every filter says of one node.
#[derive(Clone, Debug, Serialize)]
pub struct OnNode {
    /// The node.
    pub node: String,
    /// True when every filter lets the pod in.
    pub fits: bool,
    /// The answer of each filter, in their order; `Skip` means that it does not apply to the pod.
    pub filters: Vec<Answer>,
}

/// An event that would have the pod tried again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct WakesOn {
    /// The resource, as upstream names it.
    pub resource: &'static str,
    /// What happens to it, as upstream names it.
    pub action: &'static str,
    /// The plugin that waits for it.
    pub plugin: PluginName,
}

/// How often the scheduler tried a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempts {
    /// How often.
    pub count: u64,
    /// True when there may have been more.
    pub at_least: bool,
    /// How it is known.
    pub from: KnownFrom,
}

/// How an attempt is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KnownFrom {
    /// The pod's `PodScheduled` condition.
    Condition,
    /// FailedScheduling events about the pod.
    Events,
    /// A decision log.
    Log,
}

/// What is known of the last attempt to schedule a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LastAttempt {
    /// When it was, as far as known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Timestamp>,
    /// Since when the pod could not be scheduled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The reason in one word.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The message of the last attempt.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// How it is known.
    pub from: Vec<KnownFrom>,
}
