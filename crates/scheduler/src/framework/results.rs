//! What plugins answer at extension points where a [`Status`] is not enough.

use std::collections::BTreeSet;
use std::time::Duration;

use bayplan_model::api::Request;

use super::Status;
use super::preemption::Preemption;

/// The answer of PreFilter.
#[derive(Clone, Debug, Default)]
pub struct PreFilter {
    /// Success, Skip or a rejection.
    pub status: Status,
    /// The only nodes worth filtering; none for all of them.
    pub nodes: Option<BTreeSet<String>>,
}

impl From<Status> for PreFilter {
    fn from(status: Status) -> Self {
        PreFilter { status, nodes: None }
    }
}

/// The answer of PostFilter.
#[derive(Clone, Debug, Default)]
pub struct PostFilter {
    /// Success when the pod may fit later because of what the plugin asks for.
    pub status: Status,
    /// What becomes of the pod's nomination.
    pub nomination: Nomination,
    /// The pods to evict.
    pub preemption: Option<Preemption>,
    /// Further calls to the API server, sent one after the other.
    pub calls: Vec<Request>,
}

impl From<Status> for PostFilter {
    fn from(status: Status) -> Self {
        PostFilter { status, ..PostFilter::default() }
    }
}

/// What becomes of a pod's `status.nominatedNodeName`; upstream's `NominatingInfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Nomination {
    /// It stays.
    #[default]
    Keep,
    /// It is set to this node, or cleared when empty.
    Override(String),
}

/// The answer of Permit.
#[derive(Clone, Debug, Default)]
pub struct Permit {
    /// Success, Wait or a rejection.
    pub status: Status,
    /// How long the pod waits before it is rejected; 15 minutes at most.
    pub timeout: Duration,
}

impl From<Status> for Permit {
    fn from(status: Status) -> Self {
        Permit { status, timeout: Duration::ZERO }
    }
}

/// The answer of PreBindPreFlight.
#[derive(Clone, Debug, Default)]
pub struct PreFlight {
    /// Success when PreBind will have something to do, Skip when not.
    pub status: Status,
    /// True when PreBind may run beside that of its neighbours.
    pub allow_parallel: bool,
}
