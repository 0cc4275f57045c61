//! Extenders: services outside the process that filter, score, preempt and bind beside the plugins.
//!
//! The core decides when extenders are called and what their answers mean; the shell implements [`Extender`] over HTTP.
//! Calls in the scheduling cycle block the task that owns the cluster, as they block upstream's cycle; binding is a
//! future like every other step of the binding cycle.

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_model::node::Node;
use futures::future::BoxFuture;

use crate::cluster::{NodeInfo, PodInfo};
use crate::config::ExtenderConfig;
use crate::framework::preemption::Candidate;
use crate::framework::{ExtensionPoints, Plugin, PluginName};

/// The plugin name under which rejections of extenders are noted.
pub const EXTENDER: PluginName = "Extender";

/// The highest score that an extender may give.
pub const MAX_EXTENDER_PRIORITY: i64 = 10;

/// The extenders of a scheduler, in the order in which they are called.
pub type Extenders = Arc<[Arc<dyn Extender>]>;

/// Why an extender's answer cannot be used.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// The call failed, or the extender answered with an error.
    #[error("{0}")]
    Failed(String),
    /// The extender answered with a node that was not in the request.
    #[error("extender {extender:?} claims a filtered node {node:?} which is not found in the input node list")]
    UnknownNode {
        /// The extender's name.
        extender: String,
        /// The node's name.
        node: String,
    },
    /// The extender chose victims on a node that does not exist.
    #[error("nodeinfo not found for node name {0:?}")]
    NoNode(String),
    /// The extender chose a victim that is not on the node.
    #[error(
        "extender: {extender} claims to preempt pod (UID: {uid}) on node: {node}, but the pod is not found on that node"
    )]
    UnknownVictim {
        /// The extender's name.
        extender: String,
        /// The pod's UID.
        uid: String,
        /// The node's name.
        node: String,
    },
    /// The extender chose a node without victims.
    #[error("expected at least one victim pod on node {0:?}")]
    NoVictims(String),
}

/// A service outside the process that is called beside the plugins, at the points that its configuration names.
pub trait Extender: Send + Sync {
    /// The extender's configuration.
    fn config(&self) -> &ExtenderConfig;

    /// Filters nodes.
    fn filter(&self, pod: &PodInfo, nodes: &[&NodeInfo]) -> Result<ExtenderFilterResult, Error>;

    /// Scores nodes, each from 0 to [`MAX_EXTENDER_PRIORITY`].
    fn prioritize(&self, pod: &PodInfo, nodes: &[&NodeInfo]) -> Result<Vec<HostPriority>, Error>;

    /// Chooses among the candidates of a preemption; the answer is by node name.
    fn process_preemption(
        &self,
        pod: &PodInfo,
        candidates: &[Candidate],
    ) -> Result<BTreeMap<String, MetaVictims>, Error>;

    /// Binds the pod to the node.
    fn bind<'a>(&'a self, pod: &'a PodInfo, node: &'a str) -> BoxFuture<'a, Result<(), Error>>;
}

/// The answer of an extender's filter.
#[derive(Clone, Debug, Default)]
pub struct ExtenderFilterResult {
    /// The nodes that pass.
    pub passed: PassedNodes,
    /// The nodes that fail, with the reason; preemption may help.
    pub failed: BTreeMap<String, String>,
    /// The nodes that fail, with the reason; preemption cannot help.
    pub failed_and_unresolvable: BTreeMap<String, String>,
}

/// The nodes that pass, in the form that the extender answered in.
#[derive(Clone, Debug)]
pub enum PassedNodes {
    /// Names of nodes in the request.
    Names(Vec<String>),
    /// Whole nodes, which are used as answered and without pods.
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
    /// The node's name.
    pub host: String,
    /// The node's score.
    pub score: i64,
}

/// The victims that an extender chose on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetaVictims {
    /// The UIDs of the victims.
    pub uids: Vec<String>,
    /// How many of the victims a PodDisruptionBudget protects.
    pub pdb_violations: i64,
}

/// Represents the extenders in the queue: pods that they reject are tried again after any event.
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
