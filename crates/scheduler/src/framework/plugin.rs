//! The plugin trait: one method for each extension point of the scheduling framework.

use bayplan_model::api::Request;
use futures::future::BoxFuture;

use super::{
    BindContext, ClusterEvent, Cycle, Dependencies, DomainCounting, EventRegistration, ExtensionPoints, HeadroomPlugin,
    NodeScore, ObjectChange, Permit, PluginName, PostFilter, PostFilterContext, PreFilter, PreFlight, QueuedPod,
    QueueingHint, SortKey, Status, event,
};
use crate::cluster::{Cluster, NodeInfo, PodInfo};

/// A plugin: any number of extension points under one name.
///
/// Each method is an extension point with Kubernetes' meaning. Only the points named in [`Plugin::extension_points`]
/// are called.
#[allow(unused_variables)]
pub trait Plugin: Send + Sync + 'static {
    /// What the plugin keeps about one pod from PreFilter to PostBind; upstream keeps it in `CycleState`. It is cloned
    /// when filters run on copies of nodes.
    type State: Clone + Default + Send + Sync + 'static;

    /// The plugin's name in configurations and messages.
    fn name(&self) -> PluginName;

    /// The extension points the plugin implements.
    fn extension_points(&self) -> ExtensionPoints;

    /// What Filter, Score and PostFilter read for this pod; anything by default. Called for every pod, so it must be
    /// cheap.
    fn dependencies(&self, cx: &Cycle<'_>) -> Dependencies {
        Dependencies::default()
    }

    /// The incremental form that counts pods by topology domain, for a pod whose [`Plugin::dependencies`] say
    /// [`Reads::Domain`](super::Reads::Domain).
    fn domain_counting(&self, cx: &Cycle<'_>) -> Option<Box<dyn DomainCounting>> {
        None
    }

    /// The batch form that reads headroom only, for a pod whose [`Plugin::dependencies`] say
    /// [`Reads::Usage`](super::Reads::Usage). `state` is the state after PreFilter and PreScore.
    fn headroom_plugin(&self, state: &Self::State) -> Option<Box<dyn HeadroomPlugin>> {
        None
    }

    /// The events that may make a pod schedulable that this plugin rejected; all events by default.
    fn events_to_register(&self) -> Vec<EventRegistration> {
        event::everything()
    }

    /// Says whether a registered event may make the pod schedulable. An error counts as [`QueueingHint::Queue`].
    fn queueing_hint(
        &self,
        cx: &Cycle<'_>,
        event: &ClusterEvent,
        changed: &ObjectChange<'_>,
    ) -> Result<QueueingHint, String> {
        Ok(QueueingHint::Queue)
    }

    /// True when [`Plugin::queueing_hint`] reads nothing of the pod but its namespace, labels, annotations, owners and
    /// spec, and whether the event is about the pod itself. It is then called once for all pods of one signature,
    /// otherwise once for each pod.
    fn hint_reads_signature(&self, event: &ClusterEvent) -> bool {
        false
    }

    /// Success lets the pod enter the active queue.
    fn pre_enqueue(&self, cx: &Cycle<'_>) -> Status {
        Status::SUCCESS
    }

    /// True when only [`Scheduler::activate`](crate::Scheduler::activate) ends the wait of a pod that
    /// [`Plugin::pre_enqueue`] holds back. Events then skip such pods.
    fn gate_waits_for_activation(&self) -> bool {
        false
    }

    /// True when `a` is tried before `b`.
    fn less(&self, a: &QueuedPod, b: &QueuedPod) -> bool {
        false
    }

    /// A key that orders pods exactly as [`Plugin::less`] does, so that the queue need not touch pods to sort them.
    fn sort_key(&self, pod: &QueuedPod) -> Option<SortKey> {
        None
    }

    /// Prepares Filter. Skip leaves out this plugin's Filter for the pod.
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

    /// Accepts or rejects a node. `node` may be a changed copy: with nominated pods added or victims removed.
    fn filter(&self, cx: &Cycle<'_>, state: &Self::State, node: &NodeInfo) -> Status {
        Status::SUCCESS
    }

    /// Runs when no node fits.
    fn post_filter(&self, cx: &PostFilterContext<'_>, state: &mut Self::State) -> PostFilter {
        Status::unschedulable("").into()
    }

    /// Prepares Score for these nodes. Skip leaves out this plugin's Score for the pod.
    fn pre_score(&self, cx: &Cycle<'_>, state: &mut Self::State, nodes: &[&NodeInfo]) -> Status {
        Status::SUCCESS
    }

    /// Scores a node.
    fn score(&self, cx: &Cycle<'_>, state: &Self::State, node: &NodeInfo) -> Result<i64, Status> {
        Ok(0)
    }

    /// Normalises the scores of all nodes to 0..=100.
    fn normalize(&self, cx: &Cycle<'_>, state: &Self::State, scores: &mut [NodeScore]) -> Status {
        Status::SUCCESS
    }

    /// Reserves something for the pod on the node, in the scheduler's memory.
    fn reserve(&self, cluster: &mut Cluster, state: &mut Self::State, pod: &PodInfo, node: &str) -> Status {
        Status::SUCCESS
    }

    /// Undoes Reserve, and returns the calls to the API server that are needed for it. Must not fail, and may be called
    /// without a Reserve.
    fn unreserve(&self, cluster: &mut Cluster, state: &mut Self::State, pod: &PodInfo, node: &str) -> Vec<Request> {
        Vec::new()
    }

    /// Approves the binding, delays it, or rejects the pod.
    fn permit(&self, cx: &Cycle<'_>, state: &mut Self::State, node: &str) -> Permit {
        Permit::default()
    }

    /// True when the plugin may have pods tried again: only then is [`Plugin::take_pods_to_activate`] asked.
    fn activates_pods(&self) -> bool {
        false
    }

    /// The UIDs of the pods that shall be tried again at once, whatever backoff they have left; upstream's
    /// `PodsToActivate`. Asked when the pod has passed Permit, and again when it is bound. A plugin that collects such
    /// pods before Reserve says in [`Plugin::dependencies`] that it reads anything, so that it is asked for every pod.
    fn take_pods_to_activate(&self, state: &mut Self::State) -> Vec<String> {
        Vec::new()
    }

    /// Says whether PreBind will have something to do.
    fn pre_bind_pre_flight(&self, state: &Self::State, pod: &PodInfo, node: &str) -> PreFlight {
        PreFlight::default()
    }

    /// Runs before the pod is bound.
    fn pre_bind<'a>(&'a self, cx: BindContext<'a>, state: &'a Self::State) -> BoxFuture<'a, Status> {
        Box::pin(async { Status::SUCCESS })
    }

    /// Binds the pod, or skips it and leaves it to the next Bind plugin.
    fn bind<'a>(&'a self, cx: BindContext<'a>, state: &'a Self::State) -> BoxFuture<'a, Status> {
        Box::pin(async { Status::skip() })
    }

    /// Runs after the pod is bound.
    fn post_bind<'a>(&'a self, cx: BindContext<'a>, state: &'a Self::State) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }
}
