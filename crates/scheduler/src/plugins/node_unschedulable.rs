//! NodeUnschedulable: keeps pods off cordoned nodes, unless they tolerate it.

use bayplan_model::pod::Pod;
use bayplan_model::taint::Taint;

use crate::cluster::NodeInfo;
use crate::framework::*;

/// Keeps pods off cordoned nodes.
pub(super) struct NodeUnschedulable;

fn tolerates(pod: &Pod) -> bool {
    let taint =
        Taint { key: "node.kubernetes.io/unschedulable".into(), value: String::new(), effect: "NoSchedule".into() };
    pod.spec.tolerations.iter().any(|toleration| toleration.tolerates(&taint))
}

impl Plugin for NodeUnschedulable {
    type State = ();

    fn name(&self) -> PluginName {
        "NodeUnschedulable"
    }

    fn points(&self) -> Points {
        Points::FILTER
    }

    fn dependencies(&self, _cx: &Cycle<'_>) -> Dependencies {
        Dependencies::filter(Reads::Node)
    }

    fn events(&self) -> Vec<Registration> {
        vec![
            Registration::ask(EventResource::Node, action::ADD | action::UPDATE_NODE_TAINT),
            Registration::ask(EventResource::Pod, action::UPDATE_POD_TOLERATION),
        ]
    }

    fn hint_reads_shape(&self, _event: &ClusterEvent) -> bool {
        true
    }

    fn hint(&self, cx: &Cycle<'_>, event: &ClusterEvent, changed: &Changed<'_>) -> Result<Hint, String> {
        let worth = if event.resource == EventResource::Node {
            match changed.nodes() {
                (None, Some(new)) => !new.spec.unschedulable,
                (Some(old), Some(new)) => old.spec.unschedulable && !new.spec.unschedulable,
                _ => false,
            }
        } else {
            changed.pods().1.is_some_and(|pod| pod.metadata.uid == cx.pod.metadata.uid && tolerates(pod))
        };
        Ok(if worth { Hint::Queue } else { Hint::Skip })
    }

    fn filter(&self, cx: &Cycle<'_>, _state: &(), node: &NodeInfo) -> Status {
        if node.node().spec.unschedulable && !tolerates(cx.pod) {
            return Status::unresolvable("node(s) were unschedulable");
        }
        Status::SUCCESS
    }
}
