//! NodePorts: two pods cannot open the same host port.

use crate::cluster::{HostPorts, NodeInfo};
use crate::framework::*;

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

#[cfg(test)]
mod tests {
    use crate::plugins::testing::plugin;

    const TAKEN: &str = "a: Unschedulable: node(s) didn't have free ports for the requested pod ports";

    const TCP_80: &str = "{containers: [{name: c, ports: [{hostPort: 80}]}]}";

    #[test]
    fn two_pods_cannot_open_one_host_port() {
        let on_all = "Pod web {nodeName: a, containers: [{name: c, ports: [{hostPort: 80}]}]}";
        let on_one = "Pod web {nodeName: a, containers: [{name: c, ports: [{hostPort: 80, hostIP: 10.0.0.1}]}]}";
        plugin("NodePorts").given("Node a").filters(&[
            ("a pod without host ports is skipped", "{containers: [{name: c}]}", on_all, &["a: Skip"]),
            ("a free port", TCP_80, "", &["a: Success"]),
            ("a taken port", TCP_80, on_all, &[TAKEN]),
            (
                "another protocol is another port",
                "{containers: [{name: c, ports: [{hostPort: 80, protocol: UDP}]}]}",
                on_all,
                &["a: Success"],
            ),
            (
                "another address is another port",
                "{containers: [{name: c, ports: [{hostPort: 80, hostIP: 10.0.0.2}]}]}",
                on_one,
                &["a: Success"],
            ),
            ("all addresses include each", TCP_80, on_one, &[TAKEN]),
            (
                "the port of a sidecar counts",
                "{initContainers: [{name: c, restartPolicy: Always, ports: [{hostPort: 80}]}]}",
                on_all,
                &[TAKEN],
            ),
            (
                "the port of an ordinary init container does not",
                "{initContainers: [{name: c, ports: [{hostPort: 80}]}]}",
                on_all,
                &["a: Skip"],
            ),
        ]);
    }

    #[test]
    fn a_pod_that_gives_its_port_back_wakes_those_who_want_it() {
        plugin("NodePorts").hints(&[
            (
                "the port is free again",
                TCP_80,
                "delete Pod web {nodeName: a, containers: [{name: c, ports: [{hostPort: 80}]}]}",
                "Queue",
            ),
            (
                "a nominated pod no longer expects it",
                TCP_80,
                "delete Pod web {nominatedNodeName: a, containers: [{name: c, ports: [{hostPort: 80}]}]}",
                "Queue",
            ),
            (
                "a pod without a node took no port",
                TCP_80,
                "delete Pod web {containers: [{name: c, ports: [{hostPort: 80}]}]}",
                "Skip",
            ),
            (
                "another port does not help",
                TCP_80,
                "delete Pod web {nodeName: a, containers: [{name: c, ports: [{hostPort: 81}]}]}",
                "Skip",
            ),
            ("a new node has all its ports", TCP_80, "add Node b", "Queue"),
        ]);
    }
}
