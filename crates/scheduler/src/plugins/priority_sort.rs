//! PrioritySort: higher priority first, then whoever waits longer.

use crate::framework::{ExtensionPoints, Plugin, PluginName};
use crate::queue::{QueuedPod, SortKey};

/// Orders the queue.
pub(super) struct PrioritySort;

impl Plugin for PrioritySort {
    type State = ();

    fn name(&self) -> PluginName {
        "PrioritySort"
    }

    fn extension_points(&self) -> ExtensionPoints {
        ExtensionPoints::QUEUE_SORT
    }

    fn less(&self, a: &QueuedPod, b: &QueuedPod) -> bool {
        let key = |pod: &QueuedPod| (-i64::from(pod.info.priority()), pod.timestamp, pod.sequence());
        key(a) < key(b)
    }

    fn sort_key(&self, pod: &QueuedPod) -> Option<SortKey> {
        Some(SortKey::new(pod.info.priority(), pod.timestamp, pod.sequence()))
    }
}
