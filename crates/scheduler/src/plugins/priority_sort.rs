//! PrioritySort: pods of higher priority first, then those that entered the queue earlier.

use crate::framework::{ExtensionPoints, Plugin, PluginName, QueuedPod, SortKey};

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

#[cfg(test)]
mod tests {
    use crate::plugins::testing::plugin;

    #[test]
    fn pods_leave_the_queue_by_priority_and_then_by_age() {
        plugin("PrioritySort").orders(&[
            ("a higher priority goes first, however late it came", &["low 1 0", "high 9 50"], "high low"),
            ("of equal priority, the pod that joined the queue earlier goes first", &["b 5 9", "a 5 3"], "a b"),
            ("a pod without a priority has priority 0", &["below -1 0", "none - 1", "above 1 2"], "above none below"),
            (
                "the priority of pod classes for the system",
                &["user 1000000000 0", "system 2000001000 9"],
                "system user",
            ),
            ("age decides only between equals", &["a 1 5", "b 2 6", "c 1 4", "d 2 7"], "b d c a"),
        ]);
    }
}
