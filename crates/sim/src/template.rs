//! The template of simulated nodes, and the Node object they register.

use std::net::Ipv4Addr;

use bayplan_model::timestamp;
use jiff::Timestamp;
use serde_json::{Value, json};

/// The version simulated kubelets report.
pub(crate) const KUBELET_VERSION: &str = concat!("v1.36.4-bayplan.", env!("CARGO_PKG_VERSION"));

/// The label by which a simulated node is known, with the value `true`.
pub const SIMULATED: &str = "bayplan.dev/simulated";

/// Nodes a fleet may have: each needs a /24 of 10.0.0.0/8 outside 10.96.0.0/12, where services live.
pub(crate) const NODES_MAX: usize = (256 - 16) * 256;

/// The resources, zones and labels of nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeTemplate {
    /// CPU as a quantity.
    pub cpu: String,
    /// Memory as a quantity.
    pub memory: String,
    /// Ephemeral storage as a quantity.
    pub ephemeral_storage: String,
    /// Pods a node may run.
    pub pods: u32,
    /// The region all nodes are in.
    pub region: String,
    /// The zones; nodes are distributed over them in turn. Without any, nodes have no zone and region labels.
    pub zones: Vec<String>,
    /// Further labels.
    pub labels: Vec<(String, String)>,
    /// Further resources, by name, as quantities.
    pub extended_resources: Vec<(String, String)>,
}

impl Default for NodeTemplate {
    fn default() -> Self {
        NodeTemplate {
            cpu: "8".into(),
            memory: "32Gi".into(),
            ephemeral_storage: "100Gi".into(),
            pods: 110,
            region: "region-1".into(),
            zones: Self::zones(3),
            labels: Vec::new(),
            extended_resources: Vec::new(),
        }
    }
}

impl NodeTemplate {
    /// The names of so many zones: `zone-1`, `zone-2`, ….
    pub fn zones(count: usize) -> Vec<String> {
        (1..=count).map(|number| format!("zone-{number}")).collect()
    }
}

/// The identity of the node with this index: stable over restarts.
#[derive(Clone, Debug)]
pub(crate) struct NodeIdentity {
    pub(crate) index: usize,
    pub(crate) name: String,
    pub(crate) address: Ipv4Addr,
    pub(crate) pod_network: Ipv4Addr,
}

impl NodeIdentity {
    pub(crate) fn new(index: usize) -> Self {
        debug_assert!(index < NODES_MAX);
        let network = if index >= 96 * 256 { index + 16 * 256 } else { index };
        let [_, _, high, low] = octets(network);
        // 172.16.0.0/12 has room for a million nodes.
        let [_, top, middle, bottom] = octets(index + 2);
        NodeIdentity {
            index,
            name: format!("node-{:04}", index + 1),
            address: Ipv4Addr::new(172, 16 + top, middle, bottom),
            pod_network: Ipv4Addr::new(10, high, low, 0),
        }
    }

    /// The index of the node with this name, if it is one of ours.
    pub(crate) fn index_of(name: &str) -> Option<usize> {
        let index = name.strip_prefix("node-")?.parse::<usize>().ok()?.checked_sub(1)?;
        (index < NODES_MAX && NodeIdentity::new(index).name == name).then_some(index)
    }

    fn pod_cidr(&self) -> String {
        format!("{}/24", self.pod_network)
    }
}

/// An index as four bytes; fleets are smaller than four of them can count.
fn octets(index: usize) -> [u8; 4] {
    u32::try_from(index).unwrap_or(u32::MAX).to_be_bytes()
}

/// The labels a kubelet puts on its node.
pub(crate) fn labels(template: &NodeTemplate, node: &NodeIdentity) -> Value {
    let mut labels = json!({
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "kubernetes.io/hostname": node.name,
        (SIMULATED): "true",
    });
    if !template.zones.is_empty() {
        labels["topology.kubernetes.io/region"] = template.region.clone().into();
        labels["topology.kubernetes.io/zone"] = template.zones[node.index % template.zones.len()].clone().into();
    }
    for (name, value) in &template.labels {
        labels[name] = value.clone().into();
    }
    labels
}

/// The Node object as it is registered.
pub(crate) fn node(template: &NodeTemplate, node: &NodeIdentity, now: Timestamp) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": node.name, "labels": labels(template, node) },
        "spec": {
            "podCIDR": node.pod_cidr(),
            "podCIDRs": [node.pod_cidr()],
            "providerID": format!("bayplan://{}", node.name),
        },
        "status": status(template, node, now, now),
    })
}

/// The status a kubelet reports; `ready_since` is when it last became ready.
pub(crate) fn status(template: &NodeTemplate, node: &NodeIdentity, ready_since: Timestamp, now: Timestamp) -> Value {
    let mut capacity = json!({
        "cpu": template.cpu,
        "memory": template.memory,
        "ephemeral-storage": template.ephemeral_storage,
        "pods": template.pods.to_string(),
    });
    for (name, quantity) in &template.extended_resources {
        capacity[name] = quantity.clone().into();
    }
    json!({
        "capacity": capacity,
        "allocatable": capacity,
        "addresses": [
            { "type": "InternalIP", "address": node.address },
            { "type": "Hostname", "address": node.name },
        ],
        "conditions": conditions(ready_since, now),
        "daemonEndpoints": { "kubeletEndpoint": { "Port": 10250 } },
        "nodeInfo": {
            "machineID": format!("{:032x}", node.index + 1),
            "systemUUID": format!("00000000-0000-0000-0000-{:012x}", node.index + 1),
            "bootID": format!("00000000-0000-0000-0001-{:012x}", node.index + 1),
            "kernelVersion": "6.12.0-simulated",
            "osImage": "Bayplan simulated node",
            "containerRuntimeVersion": concat!("bayplan://", env!("CARGO_PKG_VERSION")),
            "kubeletVersion": KUBELET_VERSION,
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": "amd64",
        },
    })
}

fn conditions(ready_since: Timestamp, now: Timestamp) -> Value {
    let (since, now) = (timestamp::seconds(ready_since), timestamp::seconds(now));
    let rows = [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ];
    rows.iter()
        .map(|(kind, status, reason, message)| {
            json!({
                "type": kind, "status": status, "reason": reason, "message": message,
                "lastHeartbeatTime": now, "lastTransitionTime": since,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use rustc_hash::FxHashSet;

    use super::*;

    #[test]
    fn every_node_has_its_own_name_address_and_pod_network_outside_the_services() {
        let nodes: Vec<NodeIdentity> = (0..NODES_MAX).map(NodeIdentity::new).collect();
        let distinct = |of: fn(&NodeIdentity) -> String| nodes.iter().map(of).collect::<FxHashSet<_>>().len();
        assert_eq!(distinct(|n| n.name.clone()), NODES_MAX);
        assert_eq!(distinct(|n| n.address.to_string()), NODES_MAX);
        assert_eq!(distinct(|n| n.pod_network.to_string()), NODES_MAX);
        assert!(nodes.iter().all(|n| !(96..112).contains(&n.pod_network.octets()[1])));
        assert_eq!(nodes[0].name, "node-0001");
        assert_eq!(nodes[300].pod_cidr(), "10.1.44.0/24");
    }

    #[test]
    fn nodes_are_dealt_to_zones_in_turn() {
        let template = NodeTemplate::default();
        let zone = |index| labels(&template, &NodeIdentity::new(index))["topology.kubernetes.io/zone"].clone();
        assert_eq!([zone(0), zone(1), zone(2), zone(3)], ["zone-1", "zone-2", "zone-3", "zone-1"]);
        let bare = NodeTemplate { zones: Vec::new(), ..template };
        assert_eq!(labels(&bare, &NodeIdentity::new(0)).get("topology.kubernetes.io/region"), None);
    }
}
