//! What a what-if answers: `WhatIf` of `bayplan.dev/v1`.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::capacity::Capacity;
use crate::why::{Explanation, SourceOfState};

/// A pod that found a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Placed {
    /// `namespace/name`.
    pub pod: String,
    /// Where it goes.
    pub node: String,
}

/// A pod that leaves a node, and whose successor found another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Moved {
    /// `namespace/name`.
    pub pod: String,
    /// The node it leaves.
    pub from: String,
    /// Where its successor goes.
    pub to: String,
    /// True when no controller owns it: somebody has to create it again.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unmanaged: bool,
}

/// A pod that cannot leave its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stuck {
    /// `namespace/name`.
    pub pod: String,
    /// The node it stays on.
    pub node: String,
    /// What holds it there.
    pub why: String,
}

/// A pod that had to leave for a more important one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Preempted {
    /// `namespace/name`.
    pub pod: String,
    /// The node it leaves.
    pub node: String,
    /// The pod that takes its place.
    pub by: String,
}

/// A pod that was deleted and not created again: by `--delete`, or by a workload that needs fewer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Deleted {
    /// `namespace/name`.
    pub pod: String,
    /// The node it leaves; absent for a pod that was pending.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node: String,
}

/// How many of the placed pods went where.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PlacedBy {
    /// By the nodes' zone; empty for nodes without one.
    pub zone: BTreeMap<String, usize>,
    /// By the nodes' pool; empty for nodes without one.
    pub pool: BTreeMap<String, usize>,
}

/// The answer of a what-if.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WhatIf {
    /// `bayplan.dev/v1`.
    pub api_version: &'static str,
    /// `WhatIf`.
    pub kind: &'static str,
    /// Where the state came from.
    pub source: SourceOfState,
    /// What was done, in order, in words.
    pub actions: Vec<String>,
    /// The pods that found a node, in the order in which they were decided.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub placed: Vec<Placed>,
    /// How many of them went to which zone and pool.
    pub placed_by: PlacedBy,
    /// The pods that found none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<Explanation>,
    /// The pods that go to another node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub moved: Vec<Moved>,
    /// The pods that cannot leave.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stuck: Vec<Stuck>,
    /// The pods that had to leave for more important ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub preempted: Vec<Preempted>,
    /// The pods that are gone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deleted: Vec<Deleted>,
    /// The cluster before anything was done.
    pub before: Capacity,
    /// The cluster after all of it.
    pub after: Capacity,
    /// How many more copies of the last template fit after all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more_copies: Option<usize>,
    /// True when [`WhatIf::more_copies`] is where counting stopped: more may fit.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub more_copies_at_least: bool,
    /// One line for each thing that could not be read, or that the answer leaves out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}
