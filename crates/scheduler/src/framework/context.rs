//! What plugins see at the extension points.

use std::sync::Arc;

use bayplan_model::api::{Api, Recorder, Timer};
use jiff::Timestamp;

use super::preemption::{Candidate, CandidateCache, RankedCandidate};
use super::{ClusterWaits, Code, CycleStates, NodeStatuses, Status};
use crate::cluster::{Cluster, NodeInfo, PodInfo};

/// What plugins see in the scheduling cycle of a pod.
#[derive(Clone, Copy)]
pub struct Cycle<'a> {
    /// The pod to place.
    pub pod: &'a PodInfo,
    /// The cluster, with assumed pods on their nodes.
    pub cluster: &'a Cluster,
    /// The current time.
    pub now: Timestamp,
}

/// What PostFilter plugins see when no node fits.
pub struct PostFilterContext<'a> {
    /// The pod and the cluster.
    pub cycle: Cycle<'a>,
    /// Why each node was rejected.
    pub statuses: &'a NodeStatuses,
    /// A random number, for instance to begin a search at a random node.
    pub random: u64,
    /// Runs all filters on changed copies of nodes.
    pub(crate) filters: &'a dyn FilterRunner,
    /// The state of all plugins after PreFilter.
    pub(crate) states: &'a CycleStates,
    /// What an earlier pod of the same signature found out.
    pub(crate) candidates: Option<&'a CandidateCache>,
}

impl PostFilterContext<'_> {
    /// The code with which a node was rejected.
    pub fn code(&self, node: &NodeInfo) -> Code {
        match self.candidates {
            Some(known) => known.code(node.id),
            None => self.statuses.get(&node.name).code,
        }
    }
}

/// What PostFilter plugins ask of the cycle: upstream's `Handle`, as far as preemption uses it.
pub(crate) trait FilterRunner {
    /// Runs the filters on a node with the pods nominated to it and without them (upstream's
    /// `RunFilterPluginsWithNominatedPods`).
    fn run_with_nominated(&self, states: &CycleStates, node: &NodeInfo) -> Status;

    /// Puts a pod on a copy of a node and updates the states (upstream's `RunPreFilterExtensionAddPod`).
    fn add_pod(&self, states: &mut CycleStates, node: &mut NodeInfo, pod: &Arc<PodInfo>) -> Status;

    /// Takes a pod off a copy of a node and updates the states (upstream's `RunPreFilterExtensionRemovePod`).
    fn remove_pod(&self, states: &mut CycleStates, node: &mut NodeInfo, pod: &PodInfo) -> Status;

    /// The pods nominated to a node.
    fn nominated_to(&self, node: &str) -> &[Arc<PodInfo>];

    /// Lets extenders change the candidates; none when there are no extenders.
    fn process_preemption(&self, candidates: &[&RankedCandidate]) -> Option<Result<Vec<Candidate>, String>>;
}

/// What plugins see in the binding cycle of a pod.
#[derive(Clone, Copy)]
pub struct BindContext<'a> {
    /// The pod to bind.
    pub pod: &'a PodInfo,
    /// The node to bind it to.
    pub node: &'a str,
    /// The API server.
    pub api: &'a dyn Api,
    /// Records events.
    pub recorder: &'a dyn Recorder,
    /// Clock and timers.
    pub timer: &'a dyn Timer,
    /// Where to wait for what the cluster state will show.
    pub waits: &'a ClusterWaits,
}
