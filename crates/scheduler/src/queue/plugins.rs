//! What the queue asks the plugins: PreEnqueue, queueing hints and QueueSort.

use super::ClusterChange;
use crate::cluster::PodInfo;
use crate::framework::{ClusterEvent, PluginName, QueuedPod, SortKey, Status};

/// How an event moves a rejected pod; upstream's `queueingStrategy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum QueueingStrategy {
    /// The pod stays where it is.
    Skip,
    /// The pod is tried again after its backoff.
    AfterBackoff,
    /// The pod is tried again at once.
    Immediately,
}

/// For which pods one answer to an event holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HintScope {
    /// For none: no plugin that rejected the pods is registered for the event.
    Nobody,
    /// For all pods of one signature, except the pod that the event is about.
    Signature,
    /// For one pod.
    Pod,
}

/// The plugins as the queue calls them.
pub(crate) trait QueuePlugins {
    /// Runs PreEnqueue; `first` names the plugin to run before the others.
    fn pre_enqueue(&self, pod: &PodInfo, first: Option<PluginName>) -> Status;
    /// Runs the queueing hints of the plugins that rejected the pod.
    fn queueing_strategy(&self, pod: &QueuedPod, change: &ClusterChange) -> QueueingStrategy;
    /// True when any plugin is registered for the event.
    fn any_registered(&self, event: &ClusterEvent) -> bool;
    /// True when this plugin is registered for the event.
    fn is_registered(&self, pod: &PodInfo, plugin: PluginName, event: &ClusterEvent) -> bool;
    /// True when `a` is tried before `b`.
    fn less(&self, a: &QueuedPod, b: &QueuedPod) -> bool;
    /// A key that orders pods as [`QueuePlugins::less`] does, if there is one.
    fn sort_key(&self, pod: &QueuedPod) -> Option<SortKey> {
        let _ = pod;
        None
    }
    /// True when only activation ends the wait of a pod that this plugin holds back.
    fn waits_for_activation(&self, pod: &PodInfo, plugin: PluginName) -> bool {
        let _ = (pod, plugin);
        false
    }
    /// For which of the pods that the same plugins rejected [`QueuePlugins::queueing_strategy`] gives the same answer.
    fn hint_scope(&self, pod: &QueuedPod, event: &ClusterEvent) -> HintScope {
        let _ = (pod, event);
        HintScope::Pod
    }
}
