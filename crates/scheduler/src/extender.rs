//! Extenders: services outside the process that filter, score, preempt and bind beside the plugins.
//!
//! The core says when they are asked and what their answers mean; the shell implements [`Extender`] over HTTP. What is
//! asked while a pod is being placed blocks the thread that owns the cluster, as it holds upstream's cycle up; binding is
//! a future like every other step of the binding cycle.

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_model::node::Node;
use futures::future::BoxFuture;

use crate::cluster::{NodeInfo, PodInfo};
use crate::config::ExtenderConfig;
use crate::cycle::preempt::Candidate;
use crate::framework::{ExtensionPoints, Plugin, PluginName};

/// The plugin that is blamed for what extenders reject.
pub const EXTENDER: PluginName = "Extender";

/// The highest score an extender is supposed to give.
pub const MAX_EXTENDER_PRIORITY: i64 = 10;

/// The extenders of a scheduler, in the order in which they are asked.
pub type Extenders = Arc<[Arc<dyn Extender>]>;

/// Why an extender's answer cannot be used.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// It could not be asked, or said that it failed.
    #[error("{0}")]
    Failed(String),
    /// It let a node pass that it was not asked about.
    #[error("extender {extender:?} claims a filtered node {node:?} which is not found in the input node list")]
    UnknownNode {
        /// Who.
        extender: String,
        /// The node.
        node: String,
    },
    /// It wants pods gone from a node that does not exist.
    #[error("nodeinfo not found for node name {0:?}")]
    NoNode(String),
    /// It wants a pod gone that is not there.
    #[error(
        "extender: {extender} claims to preempt pod (UID: {uid}) on node: {node}, but the pod is not found on that node"
    )]
    UnknownVictim {
        /// Who.
        extender: String,
        /// The pod.
        uid: String,
        /// Where it is not.
        node: String,
    },
    /// It wants room made on a node without anybody leaving.
    #[error("expected at least one victim pod on node {0:?}")]
    NoVictims(String),
}

/// A service outside the process that is asked beside the plugins. Only what its configuration names is asked.
pub trait Extender: Send + Sync {
    /// Its name, its weight, what it is asked and about which pods.
    fn config(&self) -> &ExtenderConfig;

    /// Says which of the nodes the pod may go to.
    fn filter(&self, pod: &PodInfo, nodes: &[&NodeInfo]) -> Result<ExtenderFilterResult, Error>;

    /// Scores nodes, each from 0 to [`MAX_EXTENDER_PRIORITY`].
    fn prioritize(&self, pod: &PodInfo, nodes: &[&NodeInfo]) -> Result<Vec<HostPriority>, Error>;

    /// Says where whom to evict, by node name, given where preemption would help.
    fn process_preemption(
        &self,
        pod: &PodInfo,
        candidates: &[Candidate],
    ) -> Result<BTreeMap<String, MetaVictims>, Error>;

    /// Binds the pod to the node.
    fn bind<'a>(&'a self, pod: &'a PodInfo, node: &'a str) -> BoxFuture<'a, Result<(), Error>>;
}

/// What an extender says about nodes.
#[derive(Clone, Debug, Default)]
pub struct ExtenderFilterResult {
    /// The nodes that pass.
    pub passed: PassedNodes,
    /// Nodes that do not, and why; preemption may help there.
    pub failed: BTreeMap<String, String>,
    /// Nodes that do not, and why; preemption cannot help there.
    pub failed_and_unresolvable: BTreeMap<String, String>,
}

/// The nodes that pass, in the form the extender answered in.
#[derive(Clone, Debug)]
pub enum PassedNodes {
    /// Names of nodes it was asked about.
    Names(Vec<String>),
    /// Whole nodes, which are used as answered and without the pods on them.
    Nodes(Vec<Arc<Node>>),
}

impl Default for PassedNodes {
    fn default() -> Self {
        PassedNodes::Names(Vec::new())
    }
}

/// An extender's score of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPriority {
    /// The node.
    pub host: String,
    /// Its score.
    pub score: i64,
}

/// Whom an extender wants evicted from a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetaVictims {
    /// The pods, by UID.
    pub uids: Vec<String>,
    /// How many of them a disruption budget protects.
    pub pdb_violations: i64,
}

/// Stands for the extenders in the queue: pods they reject are tried again after any event.
pub(crate) struct ExtenderRejections;

impl Plugin for ExtenderRejections {
    type State = ();

    fn name(&self) -> PluginName {
        EXTENDER
    }

    fn extension_points(&self) -> ExtensionPoints {
        ExtensionPoints::default()
    }
}
