//! NodeName: a pod that names a node goes nowhere else.

use crate::cluster::NodeInfo;
use crate::framework::*;

pub(super) struct NodeName;

impl Plugin for NodeName {
    type State = ();

    fn name(&self) -> PluginName {
        "NodeName"
    }

    fn extension_points(&self) -> ExtensionPoints {
        ExtensionPoints::FILTER
    }

    fn dependencies(&self, _cx: &Cycle<'_>) -> Dependencies {
        Dependencies::filter(Reads::Node)
    }

    fn events_to_register(&self) -> Vec<EventRegistration> {
        vec![EventRegistration::always(EventResource::Node, action::ADD)]
    }

    fn filter(&self, cx: &Cycle<'_>, _state: &(), node: &NodeInfo) -> Status {
        let wanted = &cx.pod.spec.node_name;
        if !wanted.is_empty() && **wanted != *node.name {
            return Status::unresolvable("node(s) didn't match the requested node name");
        }
        Status::SUCCESS
    }
}

#[cfg(test)]
mod tests {
    use crate::plugins::testing::plugin;

    const OTHER: &str = "UnschedulableAndUnresolvable: node(s) didn't match the requested node name";

    #[test]
    fn a_pod_that_names_a_node_goes_nowhere_else() {
        let (a, b) = (&*format!("a: {OTHER}"), &*format!("b: {OTHER}"));
        plugin("NodeName").given("Node a\nNode b").filters(&[
            ("a pod that names no node may go anywhere", "{}", "", &["a: Success", "b: Success"]),
            ("the named node passes", "{nodeName: b}", "", &[a, "b: Success"]),
            ("a name that no node has fits nowhere", "{nodeName: gone}", "", &[a, b]),
            ("names are compared as they are", "{nodeName: B}", "", &[a, b]),
        ]);
    }

    #[test]
    fn a_new_node_may_be_the_named_one() {
        plugin("NodeName").hints(&[
            ("any new node wakes the pod", "{nodeName: b}", "add Node c", "Queue"),
            ("labels do not change a name", "{nodeName: b}", "update Node a {labels: {x: z}} => {labels: {}}", "Skip"),
            (
                "a plugin registered for new nodes is asked about taints too, as upstream does",
                "{nodeName: b}",
                "update Node a {taints: [{key: x, effect: NoSchedule}]} => {}",
                "Queue",
            ),
            ("a pod that leaves frees no name", "{nodeName: b}", "delete Pod x {nodeName: b}", "Skip"),
        ]);
    }
}
