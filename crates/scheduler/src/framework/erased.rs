//! Plugins with their state types erased, and their states in the cycle of one pod.

use std::sync::Arc;

use bayplan_model::api::Request;
use futures::future::BoxFuture;

use super::{
    BindContext, ClusterEvent, Cycle, Dependencies, DomainCounting, EventRegistration, ExtensionPoints, HeadroomPlugin,
    NodeScore, ObjectChange, Permit, Plugin, PluginName, PostFilter, PostFilterContext, PreFilter, PreFlight,
    QueuedPod, QueueingHint, SortKey, Status,
};
use crate::cluster::{Cluster, NodeInfo, PodInfo};

/// A plugin with its state type erased; a [`Factory`](super::Factory) returns it.
#[derive(Clone)]
pub struct AnyPlugin(Arc<dyn ErasedPlugin>);

impl AnyPlugin {
    /// Erases the state type of a plugin.
    pub fn new<P: Plugin>(plugin: P) -> Self {
        AnyPlugin(Arc::new(Erased(Arc::new(plugin))))
    }

    /// The plugin's name.
    pub fn name(&self) -> PluginName {
        self.0.name()
    }

    /// The extension points that the plugin implements.
    pub fn extension_points(&self) -> ExtensionPoints {
        self.0.extension_points()
    }

    /// See [`Plugin::dependencies`].
    pub fn dependencies(&self, cx: &Cycle<'_>) -> Dependencies {
        self.0.dependencies(cx)
    }

    /// See [`Plugin::domain_counting`].
    pub fn domain_counting(&self, cx: &Cycle<'_>) -> Option<Box<dyn DomainCounting>> {
        self.0.domain_counting(cx)
    }

    /// See [`Plugin::events_to_register`].
    pub fn events_to_register(&self) -> Vec<EventRegistration> {
        self.0.events_to_register()
    }

    /// See [`Plugin::queueing_hint`].
    pub fn queueing_hint(
        &self,
        cx: &Cycle<'_>,
        event: &ClusterEvent,
        changed: &ObjectChange<'_>,
    ) -> Result<QueueingHint, String> {
        self.0.queueing_hint(cx, event, changed)
    }

    /// See [`Plugin::pre_enqueue`].
    pub fn pre_enqueue(&self, cx: &Cycle<'_>) -> Status {
        self.0.pre_enqueue(cx).by(self.name())
    }

    /// See [`Plugin::gate_waits_for_activation`].
    pub fn gate_waits_for_activation(&self) -> bool {
        self.0.gate_waits_for_activation()
    }

    /// See [`Plugin::activates_pods`].
    pub fn activates_pods(&self) -> bool {
        self.0.activates_pods()
    }

    /// See [`Plugin::less`].
    pub fn less(&self, a: &QueuedPod, b: &QueuedPod) -> bool {
        self.0.less(a, b)
    }

    /// See [`Plugin::hint_reads_signature`].
    pub fn hint_reads_signature(&self, event: &ClusterEvent) -> bool {
        self.0.hint_reads_signature(event)
    }

    /// See [`Plugin::sort_key`].
    pub fn sort_key(&self, pod: &QueuedPod) -> Option<SortKey> {
        self.0.sort_key(pod)
    }

    pub(crate) fn start(&self) -> Box<dyn PluginWithState> {
        self.0.start()
    }
}

trait ErasedPlugin: Send + Sync {
    fn name(&self) -> PluginName;
    fn extension_points(&self) -> ExtensionPoints;
    fn dependencies(&self, cx: &Cycle<'_>) -> Dependencies;
    fn domain_counting(&self, cx: &Cycle<'_>) -> Option<Box<dyn DomainCounting>>;
    fn events_to_register(&self) -> Vec<EventRegistration>;
    fn queueing_hint(
        &self,
        cx: &Cycle<'_>,
        event: &ClusterEvent,
        changed: &ObjectChange<'_>,
    ) -> Result<QueueingHint, String>;
    fn pre_enqueue(&self, cx: &Cycle<'_>) -> Status;
    fn gate_waits_for_activation(&self) -> bool;
    fn activates_pods(&self) -> bool;
    fn less(&self, a: &QueuedPod, b: &QueuedPod) -> bool;
    fn hint_reads_signature(&self, event: &ClusterEvent) -> bool;
    fn sort_key(&self, pod: &QueuedPod) -> Option<SortKey>;
    fn start(&self) -> Box<dyn PluginWithState>;
}

struct Erased<P>(Arc<P>);

impl<P: Plugin> ErasedPlugin for Erased<P> {
    fn name(&self) -> PluginName {
        self.0.name()
    }
    fn extension_points(&self) -> ExtensionPoints {
        self.0.extension_points()
    }
    fn dependencies(&self, cx: &Cycle<'_>) -> Dependencies {
        self.0.dependencies(cx)
    }
    fn domain_counting(&self, cx: &Cycle<'_>) -> Option<Box<dyn DomainCounting>> {
        self.0.domain_counting(cx)
    }
    fn events_to_register(&self) -> Vec<EventRegistration> {
        self.0.events_to_register()
    }
    fn queueing_hint(
        &self,
        cx: &Cycle<'_>,
        event: &ClusterEvent,
        changed: &ObjectChange<'_>,
    ) -> Result<QueueingHint, String> {
        self.0.queueing_hint(cx, event, changed)
    }
    fn pre_enqueue(&self, cx: &Cycle<'_>) -> Status {
        self.0.pre_enqueue(cx)
    }
    fn gate_waits_for_activation(&self) -> bool {
        self.0.gate_waits_for_activation()
    }
    fn activates_pods(&self) -> bool {
        self.0.activates_pods()
    }
    fn less(&self, a: &QueuedPod, b: &QueuedPod) -> bool {
        self.0.less(a, b)
    }
    fn hint_reads_signature(&self, event: &ClusterEvent) -> bool {
        self.0.hint_reads_signature(event)
    }
    fn sort_key(&self, pod: &QueuedPod) -> Option<SortKey> {
        self.0.sort_key(pod)
    }
    fn start(&self) -> Box<dyn PluginWithState> {
        Box::new(WithState { plugin: self.0.clone(), state: P::State::default() })
    }
}

/// A plugin together with its state for one pod. Its answers carry the plugin's name.
pub(crate) trait PluginWithState: Send + Sync {
    fn pre_filter(&mut self, cx: &Cycle<'_>) -> PreFilter;
    fn add_pod(&mut self, cx: &Cycle<'_>, pod: &PodInfo, node: &NodeInfo) -> Status;
    fn remove_pod(&mut self, cx: &Cycle<'_>, pod: &PodInfo, node: &NodeInfo) -> Status;
    fn filter(&self, cx: &Cycle<'_>, node: &NodeInfo) -> Status;
    fn post_filter(&mut self, cx: &PostFilterContext<'_>) -> PostFilter;
    fn pre_score(&mut self, cx: &Cycle<'_>, nodes: &[&NodeInfo]) -> Status;
    fn score(&self, cx: &Cycle<'_>, node: &NodeInfo) -> Result<i64, Status>;
    fn normalize(&self, cx: &Cycle<'_>, scores: &mut [NodeScore]) -> Status;
    fn headroom_plugin(&self) -> Option<Box<dyn HeadroomPlugin>>;
    fn reserve(&mut self, cluster: &mut Cluster, pod: &PodInfo, node: &str) -> Status;
    fn unreserve(&mut self, cluster: &mut Cluster, pod: &PodInfo, node: &str) -> Vec<Request>;
    fn permit(&mut self, cx: &Cycle<'_>, node: &str) -> Permit;
    fn take_pods_to_activate(&mut self) -> Vec<String>;
    fn pre_bind_pre_flight(&self, pod: &PodInfo, node: &str) -> PreFlight;
    fn pre_bind<'a>(&'a self, cx: BindContext<'a>) -> BoxFuture<'a, Status>;
    fn bind<'a>(&'a self, cx: BindContext<'a>) -> BoxFuture<'a, Status>;
    fn post_bind<'a>(&'a self, cx: BindContext<'a>) -> BoxFuture<'a, ()>;
    fn copy(&self) -> Box<dyn PluginWithState>;
}

struct WithState<P: Plugin> {
    plugin: Arc<P>,
    state: P::State,
}

impl<P: Plugin> PluginWithState for WithState<P> {
    fn pre_filter(&mut self, cx: &Cycle<'_>) -> PreFilter {
        let mut answer = self.plugin.pre_filter(cx, &mut self.state);
        answer.status.plugin = self.plugin.name();
        answer
    }
    fn add_pod(&mut self, cx: &Cycle<'_>, pod: &PodInfo, node: &NodeInfo) -> Status {
        self.plugin.add_pod(cx, &mut self.state, pod, node).by(self.plugin.name())
    }
    fn remove_pod(&mut self, cx: &Cycle<'_>, pod: &PodInfo, node: &NodeInfo) -> Status {
        self.plugin.remove_pod(cx, &mut self.state, pod, node).by(self.plugin.name())
    }
    fn filter(&self, cx: &Cycle<'_>, node: &NodeInfo) -> Status {
        self.plugin.filter(cx, &self.state, node).by(self.plugin.name())
    }
    fn post_filter(&mut self, cx: &PostFilterContext<'_>) -> PostFilter {
        let mut answer = self.plugin.post_filter(cx, &mut self.state);
        answer.status.plugin = self.plugin.name();
        answer
    }
    fn pre_score(&mut self, cx: &Cycle<'_>, nodes: &[&NodeInfo]) -> Status {
        self.plugin.pre_score(cx, &mut self.state, nodes).by(self.plugin.name())
    }
    fn score(&self, cx: &Cycle<'_>, node: &NodeInfo) -> Result<i64, Status> {
        self.plugin.score(cx, &self.state, node)
    }
    fn normalize(&self, cx: &Cycle<'_>, scores: &mut [NodeScore]) -> Status {
        self.plugin.normalize(cx, &self.state, scores)
    }
    fn headroom_plugin(&self) -> Option<Box<dyn HeadroomPlugin>> {
        self.plugin.headroom_plugin(&self.state)
    }
    fn reserve(&mut self, cluster: &mut Cluster, pod: &PodInfo, node: &str) -> Status {
        self.plugin.reserve(cluster, &mut self.state, pod, node).by(self.plugin.name())
    }
    fn unreserve(&mut self, cluster: &mut Cluster, pod: &PodInfo, node: &str) -> Vec<Request> {
        self.plugin.unreserve(cluster, &mut self.state, pod, node)
    }
    fn permit(&mut self, cx: &Cycle<'_>, node: &str) -> Permit {
        let mut answer = self.plugin.permit(cx, &mut self.state, node);
        answer.status.plugin = self.plugin.name();
        answer
    }
    fn take_pods_to_activate(&mut self) -> Vec<String> {
        self.plugin.take_pods_to_activate(&mut self.state)
    }
    fn pre_bind_pre_flight(&self, pod: &PodInfo, node: &str) -> PreFlight {
        self.plugin.pre_bind_pre_flight(&self.state, pod, node)
    }
    fn pre_bind<'a>(&'a self, cx: BindContext<'a>) -> BoxFuture<'a, Status> {
        self.plugin.pre_bind(cx, &self.state)
    }
    fn bind<'a>(&'a self, cx: BindContext<'a>) -> BoxFuture<'a, Status> {
        self.plugin.bind(cx, &self.state)
    }
    fn post_bind<'a>(&'a self, cx: BindContext<'a>) -> BoxFuture<'a, ()> {
        self.plugin.post_bind(cx, &self.state)
    }
    fn copy(&self) -> Box<dyn PluginWithState> {
        Box::new(WithState { plugin: self.plugin.clone(), state: self.state.clone() })
    }
}

/// The states of a profile's plugins for one pod, by the plugin's index in the profile; upstream's `CycleState`.
pub(crate) struct CycleStates {
    states: Vec<Option<Box<dyn PluginWithState>>>,
    /// Plugins whose Filter is skipped for this pod.
    pub(crate) skip_filter: Vec<bool>,
    /// Plugins whose Score is skipped for this pod.
    pub(crate) skip_score: Vec<bool>,
    /// True when the cycle is timed plugin by plugin.
    pub(crate) sampled: bool,
}

impl CycleStates {
    pub(crate) fn new(plugins: &[AnyPlugin]) -> Self {
        CycleStates {
            states: plugins.iter().map(|plugin| Some(plugin.start())).collect(),
            skip_filter: vec![false; plugins.len()],
            skip_score: vec![false; plugins.len()],
            sampled: false,
        }
    }

    /// The states of some plugins only; the others must not be used.
    pub(crate) fn of(plugins: usize, some: impl Iterator<Item = (usize, Box<dyn PluginWithState>)>) -> Self {
        let mut states: Vec<Option<Box<dyn PluginWithState>>> = Vec::new();
        states.resize_with(plugins, || None);
        for (at, state) in some {
            states[at] = Some(state);
        }
        CycleStates { states, skip_filter: Vec::new(), skip_score: Vec::new(), sampled: false }
    }

    pub(crate) fn get(&self, plugin: usize) -> &dyn PluginWithState {
        self.states[plugin].as_deref().expect("only plugins with a state are used")
    }

    pub(crate) fn get_mut(&mut self, plugin: usize) -> &mut dyn PluginWithState {
        self.states[plugin].as_deref_mut().expect("only plugins with a state are used")
    }
}

impl Clone for CycleStates {
    fn clone(&self) -> Self {
        CycleStates {
            states: self.states.iter().map(|s| s.as_ref().map(|s| s.copy())).collect(),
            skip_filter: self.skip_filter.clone(),
            skip_score: self.skip_score.clone(),
            // Copies are for dry runs, which upstream does not time either.
            sampled: false,
        }
    }
}

impl std::fmt::Debug for AnyPlugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
