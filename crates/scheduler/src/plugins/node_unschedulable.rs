//! NodeUnschedulable: keeps pods off cordoned nodes, unless they tolerate the cordon's taint.

use bayplan_model::pod::Pod;
use bayplan_model::taint::Taint;

use crate::cluster::NodeInfo;
use crate::framework::*;

pub(super) struct NodeUnschedulable;

/// Whether a pod tolerates a cordoned node.
fn tolerates(pod: &Pod) -> bool {
    let taint =
        Taint { key: "node.kubernetes.io/unschedulable".into(), value: String::new(), effect: "NoSchedule".into() };
    pod.spec.tolerations.bear(&taint)
}

impl Plugin for NodeUnschedulable {
    type State = ();

    fn name(&self) -> PluginName {
        "NodeUnschedulable"
    }

    fn extension_points(&self) -> ExtensionPoints {
        ExtensionPoints::FILTER
    }

    fn dependencies(&self, _cx: &Cycle<'_>) -> Dependencies {
        Dependencies::filter(Reads::Node)
    }

    fn events_to_register(&self) -> Vec<EventRegistration> {
        vec![
            EventRegistration::with_hint(EventResource::Node, action::ADD | action::UPDATE_NODE_TAINT),
            EventRegistration::with_hint(EventResource::Pod, action::UPDATE_POD_TOLERATION),
        ]
    }

    fn hint_reads_signature(&self, _event: &ClusterEvent) -> bool {
        true
    }

    fn queueing_hint(
        &self,
        cx: &Cycle<'_>,
        event: &ClusterEvent,
        changed: &ObjectChange<'_>,
    ) -> Result<QueueingHint, String> {
        let helps = if event.resource == EventResource::Node {
            match changed.nodes() {
                (None, Some(new)) => !new.spec.unschedulable,
                (Some(old), Some(new)) => old.spec.unschedulable && !new.spec.unschedulable,
                _ => false,
            }
        } else {
            changed.pods().1.is_some_and(|pod| pod.metadata.uid == cx.pod.metadata.uid && tolerates(pod))
        };
        Ok(if helps { QueueingHint::Queue } else { QueueingHint::Skip })
    }

    fn filter(&self, cx: &Cycle<'_>, _state: &(), node: &NodeInfo) -> Status {
        if node.node().spec.unschedulable && !tolerates(cx.pod) {
            return Status::unresolvable("node(s) were unschedulable");
        }
        Status::SUCCESS
    }
}

#[cfg(test)]
mod tests {
    use crate::plugins::testing::plugin;

    const CORDONED: &str = "b: UnschedulableAndUnresolvable: node(s) were unschedulable";

    #[test]
    fn cordoned_nodes_take_pods_that_tolerate_it() {
        plugin("NodeUnschedulable").given("Node a\nNode b {unschedulable: true}").filters(&[
            ("an ordinary pod", "{}", "", &["a: Success", CORDONED]),
            (
                "a pod of a DaemonSet tolerates the cordon",
                "{tolerations: [{key: node.kubernetes.io/unschedulable, operator: Exists, effect: NoSchedule}]}",
                "",
                &["a: Success", "b: Success"],
            ),
            (
                "so does a pod that tolerates every taint",
                "{tolerations: [{operator: Exists}]}",
                "",
                &["a: Success", "b: Success"],
            ),
            (
                "the taint of a cordon has no value",
                "{tolerations: [{key: node.kubernetes.io/unschedulable, value: 'true'}]}",
                "",
                &["a: Success", CORDONED],
            ),
            (
                "the taint of a cordon has effect NoSchedule",
                "{tolerations: [{key: node.kubernetes.io/unschedulable, operator: Exists, effect: NoExecute}]}",
                "",
                &["a: Success", CORDONED],
            ),
        ]);
    }

    #[test]
    fn a_node_that_is_uncordoned_wakes_pods() {
        plugin("NodeUnschedulable").hints(&[
            ("a new node", "{}", "add Node c", "Queue"),
            ("a new node that is cordoned", "{}", "add Node c {unschedulable: true}", "Skip"),
            ("a node is uncordoned", "{}", "update Node b {unschedulable: true} => {}", "Queue"),
            ("taints of a node that never was cordoned", "{}", "update Node a {taints: [{key: x}]} => {}", "Skip"),
            ("the pod tolerates it now", "{}", "update Pod pod {} => {tolerations: [{operator: Exists}]}", "Queue"),
            ("the pod tolerates something else now", "{}", "update Pod pod {} => {tolerations: [{key: x}]}", "Skip"),
        ]);
    }
}
