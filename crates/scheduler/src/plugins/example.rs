//! Example: keeps pods of other namespaces off nodes that are reserved for one.
//!
//! The worked example of CONTRIBUTING.md ("Adding a plugin"), compiled for tests only. A node is reserved by the label
//! `example.com/reserved-for`, with the name of a namespace.

use crate::cluster::NodeInfo;
use crate::framework::*;

pub(super) struct Example;

const LABEL: &str = "example.com/reserved-for";

impl Plugin for Example {
    type State = ();

    fn name(&self) -> PluginName {
        "Example"
    }

    fn extension_points(&self) -> ExtensionPoints {
        ExtensionPoints::FILTER
    }

    fn dependencies(&self, _cx: &Cycle<'_>) -> Dependencies {
        Dependencies::filter(Reads::Node)
    }

    fn events_to_register(&self) -> Vec<EventRegistration> {
        vec![EventRegistration::always(EventResource::Node, action::ADD | action::UPDATE_NODE_LABEL)]
    }

    fn filter(&self, cx: &Cycle<'_>, _state: &(), node: &NodeInfo) -> Status {
        match node.label(LABEL) {
            Some(namespace) if namespace != cx.pod.metadata.namespace => {
                Status::unresolvable("node(s) were reserved for another namespace")
            }
            _ => Status::SUCCESS,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::plugins::testing::plugin;

    const RESERVED: &str = "b: UnschedulableAndUnresolvable: node(s) were reserved for another namespace";

    #[test]
    fn a_reserved_node_takes_pods_of_its_namespace_only() {
        let nodes = "
            Node a
            Node b {labels: {example.com/reserved-for: team}}
        ";
        plugin("Example").given(nodes).filters(&[
            ("a pod of the namespace may go anywhere", "{namespace: team}", "", &["a: Success", "b: Success"]),
            ("a pod of another one keeps off", "{namespace: other}", "", &["a: Success", RESERVED]),
        ]);
    }

    #[test]
    fn a_node_that_is_no_longer_reserved_wakes_pods() {
        plugin("Example").hints(&[
            (
                "the label goes",
                "{namespace: other}",
                "update Node b {labels: {example.com/reserved-for: team}} => {}",
                "Queue",
            ),
            ("capacity does not matter", "{namespace: other}", "update Node b {} => {allocatable: {cpu: 1}}", "Skip"),
        ]);
    }
}
