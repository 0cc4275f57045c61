//! NodeName: a pod that names a node goes nowhere else.

use crate::cluster::NodeInfo;
use crate::framework::*;

/// Keeps pods off nodes they did not name.
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
