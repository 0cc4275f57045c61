//! A change of the cluster that may make rejected pods schedulable.

use bayplan_model::delta::Delta;

use super::QueueingStrategy;
use super::plugins::QueuePlugins;
use crate::cluster::Object;
use crate::framework::{ClusterEvent, QueuedPod};

/// A cluster event with the object it is about.
#[derive(Clone, Debug)]
pub(crate) struct ClusterChange {
    /// What happened.
    pub(crate) event: ClusterEvent,
    /// The object before and after; none for an event without an object.
    pub(crate) object: Option<Delta<Object>>,
    /// The UID of the only pod that the event moves; none for all pods.
    only_for: Option<Box<str>>,
}

impl ClusterChange {
    /// An event without an object.
    pub(crate) fn of(event: ClusterEvent) -> Self {
        ClusterChange { event, object: None, only_for: None }
    }

    /// An event about an object.
    pub(crate) fn of_object(event: ClusterEvent, object: Delta<Object>) -> Self {
        ClusterChange { event, object: Some(object), only_for: None }
    }

    /// The activation of one pod.
    pub(super) fn activation(uid: &str) -> Self {
        ClusterChange { event: ClusterEvent::WILDCARD, object: None, only_for: Some(uid.into()) }
    }

    /// How the change moves a pod.
    pub(super) fn strategy_for(&self, pod: &QueuedPod, plugins: &dyn QueuePlugins) -> QueueingStrategy {
        if !pod.is_rejected() {
            return QueueingStrategy::AfterBackoff;
        }
        if self.event.is_wildcard() {
            let is_for_other = self.only_for.as_deref().is_some_and(|uid| uid != pod.info.uid());
            return if is_for_other { QueueingStrategy::Skip } else { QueueingStrategy::AfterBackoff };
        }
        plugins.queueing_strategy(pod, self)
    }
}
