//! NodePorts: two pods cannot open the same host port.

use crate::cluster::{HostPorts, NodeInfo};
use crate::framework::*;

/// Keeps pods off nodes where their host ports are taken.
pub(super) struct NodePorts;

impl Plugin for NodePorts {
    type State = ();

    fn name(&self) -> PluginName {
        "NodePorts"
    }

    fn extension_points(&self) -> ExtensionPoints {
        ExtensionPoints::PRE_FILTER.union(ExtensionPoints::FILTER)
    }

    fn dependencies(&self, cx: &Cycle<'_>) -> Dependencies {
        match cx.pod.host_ports().next() {
            None => Dependencies::filter(Reads::Pod),
            Some(_) => Dependencies::filter(Reads::Usage),
        }
    }

    fn events_to_register(&self) -> Vec<EventRegistration> {
        vec![
            EventRegistration::with_hint(EventResource::Pod, action::DELETE),
            EventRegistration::always(EventResource::Node, action::ADD),
        ]
    }

    fn hint_reads_signature(&self, _event: &ClusterEvent) -> bool {
        true
    }

    fn queueing_hint(
        &self,
        cx: &Cycle<'_>,
        _event: &ClusterEvent,
        changed: &ObjectChange<'_>,
    ) -> Result<QueueingHint, String> {
        let Some(deleted) = changed.pods().0 else { return Ok(QueueingHint::Queue) };
        if !deleted.is_assigned() && !deleted.is_nominated() {
            return Ok(QueueingHint::Skip);
        }
        let mut freed = HostPorts::default();
        deleted.host_ports().for_each(|port| freed.add(port));
        Ok(if cx.pod.host_ports().any(|port| freed.conflicts(port)) { QueueingHint::Queue } else { QueueingHint::Skip })
    }

    fn pre_filter(&self, cx: &Cycle<'_>, _state: &mut ()) -> PreFilter {
        if cx.pod.host_ports().next().is_none() { Status::skip().into() } else { PreFilter::default() }
    }

    fn filter(&self, cx: &Cycle<'_>, _state: &(), node: &NodeInfo) -> Status {
        if cx.pod.host_ports().any(|port| node.used_ports.conflicts(port)) {
            return Status::unschedulable("node(s) didn't have free ports for the requested pod ports");
        }
        Status::SUCCESS
    }
}
