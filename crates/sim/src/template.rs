//! The template of simulated nodes, and the Node object they register.

use bayplan_model::taint::Taint;
use bayplan_model::timestamp;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::identity::{NodeIdentity, NodeNames};
use crate::manifest::NodeManifest;

/// The version simulated kubelets report.
pub(crate) const KUBELET_VERSION: &str = concat!("v1.36.4-bayplan.", env!("CARGO_PKG_VERSION"));

/// The label by which a simulated node is known, with the value `true`.
pub const SIMULATED: &str = "bayplan.dev/simulated";

/// The annotation by which a kubelet leaves the attaching of volumes to the controller manager.
const ATTACHED_BY_CONTROLLER: &str = "volumes.kubernetes.io/controller-managed-attach-detach";

/// The names, resources, zones and labels of nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeTemplate {
    /// How they are named.
    pub names: NodeNames,
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
    /// Annotations.
    pub annotations: Vec<(String, String)>,
    /// Taints.
    pub taints: Vec<Taint>,
    /// Further resources, by name, as quantities.
    pub extended_resources: Vec<(String, String)>,
    /// Whether nodes come with a pod network. In a cluster whose controllers give them out, they must not.
    pub pod_networks: bool,
    /// What a manifest says is laid over all that.
    pub manifest: Option<NodeManifest>,
}

impl Default for NodeTemplate {
    fn default() -> Self {
        NodeTemplate {
            names: NodeNames::default(),
            cpu: "8".into(),
            memory: "32Gi".into(),
            ephemeral_storage: "100Gi".into(),
            pods: 110,
            region: "region-1".into(),
            zones: Self::zones(3),
            labels: Vec::new(),
            annotations: Vec::new(),
            taints: Vec::new(),
            extended_resources: Vec::new(),
            pod_networks: true,
            manifest: None,
        }
    }
}

impl NodeTemplate {
    /// The names of so many zones: `zone-1`, `zone-2`, ….
    pub fn zones(count: usize) -> Vec<String> {
        (1..=count).map(|number| format!("zone-{number}")).collect()
    }
}

/// The labels a kubelet puts on its node.
fn labels(template: &NodeTemplate, node: &NodeIdentity) -> Value {
    let mut labels = json!({
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
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
pub(crate) fn node(template: &NodeTemplate, identity: &NodeIdentity, now: Timestamp) -> Value {
    let mut node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": identity.name, "labels": labels(template, identity) },
        "spec": { "providerID": format!("bayplan://{}", identity.name) },
        "status": {
            "capacity": capacity(template),
            "allocatable": capacity(template),
            "addresses": addresses(identity),
            "daemonEndpoints": { "kubeletEndpoint": { "Port": 10250 } },
            "nodeInfo": node_info(identity),
        },
    });
    if template.pod_networks {
        node["spec"]["podCIDR"] = identity.pod_cidr().into();
        node["spec"]["podCIDRs"] = json!([identity.pod_cidr()]);
    }
    if !template.taints.is_empty() {
        node["spec"]["taints"] = json!(template.taints);
    }
    if let Some(manifest) = &template.manifest {
        manifest.lay_over(&mut node, identity);
    }
    for (name, value) in &template.annotations {
        node["metadata"]["annotations"][name] = value.clone().into();
    }
    node["metadata"]["annotations"][ATTACHED_BY_CONTROLLER] = "true".into();
    // By these it is found and known, whatever a template says.
    node["metadata"]["labels"]["kubernetes.io/hostname"] = identity.name.clone().into();
    node["metadata"]["labels"][SIMULATED] = "true".into();
    node["status"]["conditions"] = conditions(now, now);
    node
}

/// The status a kubelet reports; `ready_since` is when it last became ready.
pub(crate) fn status(template: &NodeTemplate, node: &NodeIdentity, ready_since: Timestamp, now: Timestamp) -> Value {
    let mut status = self::node(template, node, now)["status"].take();
    status["conditions"] = conditions(ready_since, now);
    status
}

/// The parts of a status that a Node lacks which others made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lacks {
    pub(crate) resources: bool,
    pub(crate) addresses: bool,
    pub(crate) node_info: bool,
}

/// The status of a Node that others made: how it is, and what it lacks.
pub(crate) fn status_of_selected(
    template: &NodeTemplate,
    node: &NodeIdentity,
    lacks: Lacks,
    ready_since: Timestamp,
    now: Timestamp,
) -> Value {
    let mut status = json!({ "conditions": conditions(ready_since, now) });
    if lacks.resources {
        status["capacity"] = capacity(template);
        status["allocatable"] = capacity(template);
    }
    if lacks.addresses {
        status["addresses"] = addresses(node);
    }
    if lacks.node_info {
        status["nodeInfo"] = node_info(node);
    }
    status
}

fn capacity(template: &NodeTemplate) -> Value {
    let own = [
        ("cpu", template.cpu.clone()),
        ("memory", template.memory.clone()),
        ("ephemeral-storage", template.ephemeral_storage.clone()),
        ("pods", template.pods.to_string()),
    ];
    let own = own.into_iter().map(|(name, quantity)| (name.to_owned(), quantity.into()));
    let further = template.extended_resources.iter().map(|(name, quantity)| (name.clone(), quantity.as_str().into()));
    Value::Object(own.chain(further).collect::<Map<_, _>>())
}

fn addresses(node: &NodeIdentity) -> Value {
    json!([{ "type": "InternalIP", "address": node.address }, { "type": "Hostname", "address": node.name }])
}

fn node_info(node: &NodeIdentity) -> Value {
    json!({
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
    use super::*;

    #[test]
    fn nodes_are_dealt_to_zones_in_turn() {
        let template = NodeTemplate::default();
        let zone = |index| {
            labels(&template, &NodeIdentity::new(&template.names, index))["topology.kubernetes.io/zone"].clone()
        };
        assert_eq!([zone(0), zone(1), zone(2), zone(3)], ["zone-1", "zone-2", "zone-3", "zone-1"]);
        let bare = NodeTemplate { zones: Vec::new(), ..template };
        assert_eq!(labels(&bare, &NodeIdentity::new(&bare.names, 0)).get("topology.kubernetes.io/region"), None);
    }
}
