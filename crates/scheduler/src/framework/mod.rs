//! The plugin API: what a plugin may say at each extension point, and what it is shown there.
//!
//! A plugin is one [`Plugin`] implementation. What it keeps from one extension point to the next is its own
//! [`Plugin::State`], so there is no map of anything. Filter and Score are pure functions of what they are shown;
//! Reserve may change the cluster's assumed state; PreBind, Bind and PostBind are futures over the API, run outside
//! the thread that owns the cluster.

pub mod domain_counting;
mod erased;
pub mod event;
mod headroom_plugin;
mod registry;
pub mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

pub use bayplan_model::api::Timer;
use bayplan_model::api::{Api, Recorder, Request};
use futures::future::BoxFuture;
use jiff::Timestamp;

use crate::cluster::{Cluster, NodeInfo, PodInfo};
use crate::cycle::filter::Filters;
use crate::cycle::preempt::Preemption;
use crate::engine::CandidateCache;
use crate::queue::{QueuedPod, SortKey};
pub use domain_counting::{CountScope, DomainCounting, DomainSummary, FeasibleNodes};
pub use erased::AnyPlugin;
pub(crate) use erased::{CycleStates, PluginWithState};
pub use event::{ClusterEvent, EventRegistration, EventResource, QueueingHint, action};
pub use headroom_plugin::HeadroomPlugin;
pub(crate) use headroom_plugin::add_scores;
pub use registry::{Factory, Registry};
pub use status::{Code, PluginName, Status};

/// The highest score a plugin may give.
pub const MAX_NODE_SCORE: i64 = 100;

/// The extension points a plugin implements, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtensionPoints(u16);

macro_rules! points {
    ($($(#[$meta:meta])* $name:ident = $bit:literal, $interface:literal;)*) => {
        impl ExtensionPoints {
            $($(#[$meta])* pub const $name: ExtensionPoints = ExtensionPoints(1 << $bit);)*

            /// The name upstream gives to the interface of a single point.
            pub fn interface(self) -> &'static str {
                $(if self == ExtensionPoints::$name { return $interface; })*
                ""
            }
        }
    };
}

points! {
    /// May hold a pod back before it enters the queue.
    PRE_ENQUEUE = 0, "PreEnqueuePlugin";
    /// Orders the queue.
    QUEUE_SORT = 1, "QueueSortPlugin";
    /// Prepares filtering, and may reject the pod or narrow the nodes.
    PRE_FILTER = 2, "PreFilterPlugin";
    /// Judges a node.
    FILTER = 3, "FilterPlugin";
    /// Acts when no node fits.
    POST_FILTER = 4, "PostFilterPlugin";
    /// Prepares scoring.
    PRE_SCORE = 5, "PreScorePlugin";
    /// Scores a node.
    SCORE = 6, "ScorePlugin";
    /// Sets something aside for the pod.
    RESERVE = 7, "ReservePlugin";
    /// May hold a placed pod back.
    PERMIT = 8, "PermitPlugin";
    /// Works before the pod is bound.
    PRE_BIND = 9, "PreBindPlugin";
    /// Binds the pod.
    BIND = 10, "BindPlugin";
    /// Is told that the pod was bound.
    POST_BIND = 11, "PostBindPlugin";
    /// Proposes sets of nodes for a group of pods; configured and not run, as upstream's gate for it is off.
    PLACEMENT_GENERATE = 12, "PlacementGeneratePlugin";
    /// Scores such a set.
    PLACEMENT_SCORE = 13, "PlacementScorePlugin";
}

impl ExtensionPoints {
    /// Both sets together.
    pub const fn union(self, other: ExtensionPoints) -> ExtensionPoints {
        ExtensionPoints(self.0 | other.0)
    }

    /// Whether any of these points is in the set.
    pub const fn intersects(self, of: ExtensionPoints) -> bool {
        self.0 & of.0 != 0
    }

    /// Whether all of these points are in the set.
    pub const fn contains(self, other: ExtensionPoints) -> bool {
        self.0 & other.0 == other.0
    }
}

/// What a verdict or score depends on; the engine caches and invalidates accordingly.
///
/// All but [`Reads::Cluster`] promise that of the pod nothing is read but what pods of one template have in common:
/// neither its name, UID or annotations, nor its volumes or device claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reads {
    /// Nothing but the pod: the answer is the same on all nodes, and Success or 0.
    Pod,
    /// Also the node object.
    Node,
    /// Also what the pods on the node take of it: requests, host ports, their number.
    Usage,
    /// Also what runs in the node's domains; the plugin has [`Plugin::domain_counting`].
    Domain,
    /// Anything. Always right, only slower.
    #[default]
    Cluster,
}

/// How a plugin makes scores of 0 to 100 out of what it said of each node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Normalization {
    /// In a way of its own.
    #[default]
    Own,
    /// They are what they are.
    None,
    /// By [`default_normalize`].
    Highest {
        /// Lower is better.
        reverse: bool,
    },
}

/// What Filter and Score of a plugin depend on, for one pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dependencies {
    /// What Filter reads, PreFilter included.
    pub filter: Reads,
    /// What Score reads, PreScore included.
    pub score: Reads,
    /// What becomes of the scores.
    pub normalization: Normalization,
    /// What PostFilter reads, when it can do nothing for the pod.
    pub post_filter: Reads,
    /// Changes whenever something else changed that the plugin reads, such as another kind of object.
    pub version: u64,
}

impl Dependencies {
    /// For a plugin that has nothing to say about the pod.
    pub const NOTHING: Dependencies = Dependencies {
        filter: Reads::Pod,
        score: Reads::Pod,
        normalization: Normalization::None,
        post_filter: Reads::Pod,
        version: 0,
    };

    /// For a plugin that only filters.
    pub fn filter(filter: Reads) -> Self {
        Dependencies { filter, ..Dependencies::NOTHING }
    }

    /// For a plugin that only scores.
    pub fn score(score: Reads, normalization: Normalization) -> Self {
        Dependencies { score, normalization, ..Dependencies::NOTHING }
    }

    /// The same, as of a version.
    #[must_use]
    pub fn at(self, version: u64) -> Self {
        Dependencies { version, ..self }
    }
}

/// What plugins are shown while a pod is placed.
#[derive(Clone, Copy)]
pub struct Cycle<'a> {
    /// The pod to place.
    pub pod: &'a PodInfo,
    /// The cluster as it is, assumed pods included.
    pub cluster: &'a Cluster,
    /// The time.
    pub now: Timestamp,
}

/// What PostFilter plugins are shown when no node fits.
pub struct PostFilterContext<'a> {
    /// The pod and the cluster.
    pub cycle: Cycle<'a>,
    /// Why each node was rejected.
    pub statuses: &'a NodeStatuses,
    /// Runs all filters on changed copies of nodes.
    pub filters: &'a Filters<'a>,
    /// The state of all plugins after PreFilter.
    pub(crate) states: &'a CycleStates,
    /// Chooses where to begin.
    pub random: u64,
    /// What an earlier pod of the same signature found out.
    pub(crate) known: Option<&'a CandidateCache>,
}

impl PostFilterContext<'_> {
    /// The code of the rejection of a node.
    pub fn code(&self, node: &NodeInfo) -> Code {
        match self.known {
            Some(known) => known.code(node.id),
            None => self.statuses.get(&node.name).code,
        }
    }
}

/// Why nodes were rejected: explicit for those filtered, one answer for all others.
#[derive(Clone, Debug, Default)]
pub struct NodeStatuses {
    /// By node name.
    pub nodes: BTreeMap<Arc<str>, Status>,
    /// What holds for nodes that are not listed.
    pub absent: Status,
}

impl NodeStatuses {
    /// The status of a node.
    pub fn get(&self, node: &str) -> &Status {
        self.nodes.get(node).unwrap_or(&self.absent)
    }
}

/// What PreFilter answers.
#[derive(Clone, Debug, Default)]
pub struct PreFilter {
    /// Success, Skip or a rejection.
    pub status: Status,
    /// The only nodes worth filtering, if that is known.
    pub nodes: Option<BTreeSet<String>>,
}

impl From<Status> for PreFilter {
    fn from(status: Status) -> Self {
        PreFilter { status, nodes: None }
    }
}

/// What PostFilter answers.
#[derive(Clone, Debug, Default)]
pub struct PostFilter {
    /// Success when the pod may fit later because of what was done.
    pub status: Status,
    /// What becomes of the pod's nomination.
    pub nomination: Nomination,
    /// Whom to evict.
    pub preemption: Option<Preemption>,
    /// What else to ask of the API server, one after the other.
    pub calls: Vec<Request>,
}

impl From<Status> for PostFilter {
    fn from(status: Status) -> Self {
        PostFilter { status, ..PostFilter::default() }
    }
}

/// What becomes of a pod's `nominatedNodeName`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Nomination {
    /// It stays as it is.
    #[default]
    Keep,
    /// It is set, or cleared when empty.
    Override(String),
}

/// What Permit answers.
#[derive(Clone, Debug, Default)]
pub struct Permit {
    /// Success, Wait or a rejection.
    pub status: Status,
    /// How long to wait at most.
    pub timeout: Duration,
}

impl From<Status> for Permit {
    fn from(status: Status) -> Self {
        Permit { status, timeout: Duration::ZERO }
    }
}

/// What PreBind says before it runs.
#[derive(Clone, Debug, Default)]
pub struct PreFlight {
    /// Success when it will have something to do, Skip when not.
    pub status: Status,
    /// Whether it may run beside its neighbours.
    pub allow_parallel: bool,
}

/// What plugins are shown while a pod is bound.
#[derive(Clone, Copy)]
pub struct BindContext<'a> {
    /// The pod being bound.
    pub pod: &'a PodInfo,
    /// The node it is bound to.
    pub node: &'a str,
    /// The API server.
    pub api: &'a dyn Api,
    /// Where to tell events.
    pub recorder: &'a dyn Recorder,
    /// Time.
    pub timer: &'a dyn Timer,
}

/// A node and its score.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeScore {
    /// The node.
    pub node: Arc<str>,
    /// Its score.
    pub score: i64,
}

/// A plugin: any number of extension points under one name.
///
/// Each method is an extension point with Kubernetes' meaning. Only those named in [`Plugin::extension_points`] are called.
#[allow(unused_variables)]
pub trait Plugin: Send + Sync + 'static {
    /// What the plugin keeps of one pod from PreFilter to PostBind. It is copied when filters run on copies of nodes.
    type State: Clone + Default + Send + Sync + 'static;

    /// The name in configurations and messages.
    fn name(&self) -> PluginName;

    /// The extension points it implements.
    fn extension_points(&self) -> ExtensionPoints;

    /// What its verdicts on this pod depend on; everything unless said otherwise. Cheap: it is asked for every pod.
    fn dependencies(&self, cx: &Cycle<'_>) -> Dependencies {
        Dependencies::default()
    }

    /// The form that counts by domain, for a pod on which the plugin says to read domains.
    fn domain_counting(&self, cx: &Cycle<'_>) -> Option<Box<dyn DomainCounting>> {
        None
    }

    /// The form that judges by room alone, for a pod that was prepared and on which the plugin says to read usage.
    fn headroom_plugin(&self, state: &Self::State) -> Option<Box<dyn HeadroomPlugin>> {
        None
    }

    /// The events that may let a pod fit which it rejected; everything unless said otherwise.
    fn events_to_register(&self) -> Vec<EventRegistration> {
        event::everything()
    }

    /// Whether an event of `changed` may let the pod fit. An error counts as [`QueueingHint::Queue`].
    fn queueing_hint(
        &self,
        cx: &Cycle<'_>,
        event: &ClusterEvent,
        changed: &ObjectChange<'_>,
    ) -> Result<QueueingHint, String> {
        Ok(QueueingHint::Queue)
    }

    /// Whether [`Plugin::queueing_hint`] reads nothing of the pod but what pods of one signature share (namespace, labels,
    /// annotations, owners and spec), and whether the event is about the pod itself. It is then asked once for all of
    /// them; otherwise for each pod.
    fn hint_reads_signature(&self, event: &ClusterEvent) -> bool {
        false
    }

    /// Success lets the pod into the queue.
    fn pre_enqueue(&self, cx: &Cycle<'_>) -> Status {
        Status::SUCCESS
    }

    /// Whether a pod that [`Plugin::pre_enqueue`] holds back is held back until it is activated, whatever happens
    /// meanwhile. Such pods are not asked for one by one at every event.
    fn gate_waits_for_activation(&self) -> bool {
        false
    }

    /// Whether `a` is placed before `b`.
    fn less(&self, a: &QueuedPod, b: &QueuedPod) -> bool {
        false
    }

    /// A key that orders pods exactly as [`Plugin::less`] does; with it the queue need not look at pods to sort them.
    fn sort_key(&self, pod: &QueuedPod) -> Option<SortKey> {
        None
    }

    /// Prepares filtering. Skip leaves out this plugin's Filter for the pod.
    fn pre_filter(&self, cx: &Cycle<'_>, state: &mut Self::State) -> PreFilter {
        PreFilter::default()
    }

    /// Updates the prepared state as if `pod` were on `node` too.
    fn add_pod(&self, cx: &Cycle<'_>, state: &mut Self::State, pod: &PodInfo, node: &NodeInfo) -> Status {
        Status::SUCCESS
    }

    /// Updates the prepared state as if `pod` were no longer on `node`.
    fn remove_pod(&self, cx: &Cycle<'_>, state: &mut Self::State, pod: &PodInfo, node: &NodeInfo) -> Status {
        Status::SUCCESS
    }

    /// Judges a node. `node` may be a changed copy: with nominated pods, or without victims.
    fn filter(&self, cx: &Cycle<'_>, state: &Self::State, node: &NodeInfo) -> Status {
        Status::SUCCESS
    }

    /// Acts when no node fits.
    fn post_filter(&self, cx: &PostFilterContext<'_>, state: &mut Self::State) -> PostFilter {
        Status::unschedulable("").into()
    }

    /// Prepares scoring of these nodes. Skip leaves out this plugin's Score for the pod.
    fn pre_score(&self, cx: &Cycle<'_>, state: &mut Self::State, nodes: &[&NodeInfo]) -> Status {
        Status::SUCCESS
    }

    /// Scores a node.
    fn score(&self, cx: &Cycle<'_>, state: &Self::State, node: &NodeInfo) -> Result<i64, Status> {
        Ok(0)
    }

    /// Brings the scores of all nodes into 0..=100.
    fn normalize(&self, cx: &Cycle<'_>, state: &Self::State, scores: &mut [NodeScore]) -> Status {
        Status::SUCCESS
    }

    /// Sets something aside for the pod on the node.
    fn reserve(&self, cluster: &mut Cluster, state: &mut Self::State, pod: &PodInfo, node: &str) -> Status {
        Status::SUCCESS
    }

    /// Gives back what Reserve set aside; must not fail, and may come without a Reserve.
    fn unreserve(&self, cluster: &mut Cluster, state: &mut Self::State, pod: &PodInfo, node: &str) {}

    /// Lets the pod be bound, makes it wait, or rejects it.
    fn permit(&self, cx: &Cycle<'_>, state: &mut Self::State, node: &str) -> Permit {
        Permit::default()
    }

    /// Says whether PreBind will have something to do.
    fn pre_bind_pre_flight(&self, state: &Self::State, pod: &PodInfo, node: &str) -> PreFlight {
        PreFlight::default()
    }

    /// Works before the pod is bound.
    fn pre_bind<'a>(&'a self, cx: BindContext<'a>, state: &'a Self::State) -> BoxFuture<'a, Status> {
        Box::pin(async { Status::SUCCESS })
    }

    /// Binds the pod, or skips it for the next Bind plugin.
    fn bind<'a>(&'a self, cx: BindContext<'a>, state: &'a Self::State) -> BoxFuture<'a, Status> {
        Box::pin(async { Status::skip() })
    }

    /// Is told that the pod was bound.
    fn post_bind<'a>(&'a self, cx: BindContext<'a>, state: &'a Self::State) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }
}

/// The object an event speaks of, before and after; absent on the side where it did not exist.
#[derive(Clone, Copy)]
pub struct ObjectChange<'a> {
    /// Before.
    pub old: Option<&'a crate::cluster::Object>,
    /// After.
    pub new: Option<&'a crate::cluster::Object>,
}

macro_rules! changed_as {
    ($($(#[$meta:meta])* $method:ident, $variant:ident, $type:ty;)*) => {
        impl<'a> ObjectChange<'a> {$(
            $(#[$meta])*
            pub fn $method(&self) -> (Option<&'a $type>, Option<&'a $type>) {
                let of = |object: Option<&'a crate::cluster::Object>| match object {
                    Some(crate::cluster::Object::$variant(object)) => Some(&**object),
                    _ => None,
                };
                (of(self.old), of(self.new))
            }
        )*}
    };
}

changed_as! {
    /// Both sides as pods.
    pods, Pod, bayplan_model::pod::Pod;
    /// Both sides as nodes.
    nodes, Node, bayplan_model::node::Node;
    /// Both sides as volumes.
    persistent_volumes, PersistentVolume, bayplan_model::storage::PersistentVolume;
    /// Both sides as claims on volumes.
    persistent_volume_claims, PersistentVolumeClaim, bayplan_model::storage::PersistentVolumeClaim;
    /// Both sides as classes of volumes.
    storage_classes, StorageClass, bayplan_model::storage::StorageClass;
    /// Both sides as the CSI drivers of a node.
    csi_nodes, CsiNode, bayplan_model::storage::CsiNode;
    /// Both sides as CSI drivers.
    csi_drivers, CsiDriver, bayplan_model::storage::CsiDriver;
    /// Both sides as free capacity.
    csi_storage_capacities, CsiStorageCapacity, bayplan_model::storage::CsiStorageCapacity;
    /// Both sides as attachments.
    volume_attachments, VolumeAttachment, bayplan_model::storage::VolumeAttachment;
    /// Both sides as classes of devices.
    device_classes, DeviceClass, bayplan_model::resource_slice::DeviceClass;
    /// Both sides as claims on devices.
    resource_claims, ResourceClaim, bayplan_model::resource_claim::ResourceClaim;
}

/// Upstream's DefaultNormalizeScore: the highest score becomes 100 and the others follow; `reverse` turns it around.
pub fn default_normalize(scores: &mut [NodeScore], reverse: bool) {
    let highest = scores.iter().map(|s| s.score).max().unwrap_or(0).max(0);
    for entry in scores {
        entry.score = normalized_by_highest(entry.score, highest, reverse);
    }
}

/// What [`default_normalize`] makes of one score, by the highest of all (0 when none is above).
pub(crate) fn normalized_by_highest(score: i64, highest: i64, reverse: bool) -> i64 {
    match (highest, reverse) {
        (0, true) => MAX_NODE_SCORE,
        (0, false) => score,
        (_, true) => MAX_NODE_SCORE - MAX_NODE_SCORE * score / highest,
        (_, false) => MAX_NODE_SCORE * score / highest,
    }
}
