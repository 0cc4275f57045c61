//! A node with the pods on it and the sums that plugins read. Upstream's `NodeInfo`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_model::keyed::KeyedSet;
use bayplan_model::node::Node;
use bayplan_model::pod::ContainerPort;
use bayplan_model::resources::Amounts;

use super::PodInfo;

/// A node's slot in the cluster state; reused after the node is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

/// A node and the pods on it. Without a node object it is a placeholder, for pods bound to a node that is not known
/// (yet).
#[derive(Clone, Debug)]
pub struct NodeInfo {
    /// The node's slot.
    pub id: NodeId,
    /// The node's name.
    pub name: Arc<str>,
    node: Option<Arc<Node>>,
    pods: Vec<Arc<PodInfo>>,
    /// The number of pods with any pod affinity or anti-affinity.
    pub pods_with_affinity: u32,
    /// The number of pods with required pod anti-affinity.
    pub pods_with_required_anti_affinity: u32,
    /// Host ports in use.
    pub used_ports: HostPorts,
    /// The sum of the pods' requests.
    pub requested: Amounts,
    /// The sum of the pods' cpu requests for scoring, where an absent request counts as upstream's default.
    pub non_zero_milli_cpu: i64,
    /// The sum of the pods' memory requests for scoring, likewise.
    pub non_zero_memory: i64,
    /// The resources that pods may use.
    pub allocatable: Amounts,
    /// The PersistentVolumeClaims in use, by `namespace/name`, with the number of pods.
    pub claims: BTreeMap<String, usize>,
}

static NO_NODE: std::sync::LazyLock<Node> = std::sync::LazyLock::new(Node::default);

impl NodeInfo {
    /// A node without an object and pods.
    pub fn placeholder(id: NodeId, name: Arc<str>) -> Self {
        NodeInfo {
            id,
            name,
            node: None,
            pods: Vec::new(),
            pods_with_affinity: 0,
            pods_with_required_anti_affinity: 0,
            used_ports: HostPorts::default(),
            requested: Amounts::default(),
            non_zero_milli_cpu: 0,
            non_zero_memory: 0,
            allocatable: Amounts::default(),
            claims: BTreeMap::new(),
        }
    }

    /// A node outside any cluster, with no pods: what queueing hints try a pod on.
    pub fn of(node: Arc<Node>) -> Self {
        let mut info = NodeInfo::placeholder(NodeId(0), node.metadata.name.as_str().into());
        info.set_node(Some(node));
        info
    }

    /// The node object; cycles never see a placeholder, for which this is an empty node.
    pub fn node(&self) -> &Node {
        self.node.as_deref().unwrap_or(&NO_NODE)
    }

    /// True when there is no node object.
    pub fn is_placeholder(&self) -> bool {
        self.node.is_none()
    }

    pub(crate) fn node_object(&self) -> Option<&Arc<Node>> {
        self.node.as_ref()
    }

    pub(super) fn set_node(&mut self, node: Option<Arc<Node>>) {
        self.allocatable = node.as_ref().map(|n| Amounts::of(&n.status.allocatable)).unwrap_or_default();
        self.node = node;
    }

    /// Stores a new version of the node that differs in nothing that plugins read.
    pub(super) fn replace_node(&mut self, node: Arc<Node>) {
        self.node = Some(node);
    }

    /// The pods on the node, assumed ones included.
    pub fn pods(&self) -> &[Arc<PodInfo>] {
        &self.pods
    }

    /// The value of one of the node's labels.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.node().metadata.labels.get(key).map(String::as_str)
    }

    /// Puts a pod on the node.
    pub fn add_pod(&mut self, pod: Arc<PodInfo>) {
        self.account(&pod, true);
        for port in pod.host_ports() {
            self.used_ports.add(port);
        }
        self.pods.push(pod);
    }

    /// Takes a pod off the node; false when it is not on it.
    pub fn remove_pod(&mut self, uid: &str) -> bool {
        let Some(at) = self.pods.iter().position(|p| p.uid() == uid) else { return false };
        self.remove_pod_at(at);
        true
    }

    /// Takes the pod at an index of [`NodeInfo::pods`] off the node; the pod that moved to this index is returned.
    pub(super) fn remove_pod_at(&mut self, at: usize) -> Option<&Arc<PodInfo>> {
        let pod = self.pods.swap_remove(at);
        self.account(&pod, false);
        for port in pod.host_ports() {
            self.used_ports.remove(port);
        }
        self.pods.get(at)
    }

    /// Marks the ports of all pods as used. Ports are a set, as upstream's: when one of two pods with the same port
    /// leaves, the scheduler takes the port for free until it reads the node again. An edited state does not.
    pub(super) fn mark_ports(&mut self) {
        for port in self.pods.iter().flat_map(|pod| pod.host_ports()) {
            self.used_ports.add(port);
        }
    }

    /// Swaps two pods in the order of [`NodeInfo::pods`].
    pub(super) fn swap_pods(&mut self, one: usize, other: usize) {
        self.pods.swap(one, other);
    }

    /// Stores a new version of a pod that uses the same of the node.
    pub(super) fn replace_pod_at(&mut self, at: usize, pod: Arc<PodInfo>) {
        self.pods[at] = pod;
    }

    fn account(&mut self, pod: &PodInfo, added: bool) {
        let count = |n: &mut u32| *n = if added { *n + 1 } else { n.saturating_sub(1) };
        if pod.has_affinity() {
            count(&mut self.pods_with_affinity);
        }
        if !pod.required_anti_affinity.is_empty() {
            count(&mut self.pods_with_required_anti_affinity);
        }
        let sign = if added { 1 } else { -1 };
        if added {
            self.requested.add(&pod.usage.requested)
        } else {
            self.requested.sub(&pod.usage.requested)
        }
        self.non_zero_milli_cpu = self.non_zero_milli_cpu.saturating_add(sign * pod.usage.non_zero_milli_cpu);
        self.non_zero_memory = self.non_zero_memory.saturating_add(sign * pod.usage.non_zero_memory);
        for volume in &pod.spec.volumes {
            let Some(claim) = &volume.persistent_volume_claim else { continue };
            let key = format!("{}/{}", pod.metadata.namespace, claim.claim_name);
            if added {
                *self.claims.entry(key).or_default() += 1;
            } else if let Some(users) = self.claims.get_mut(&key) {
                *users -= 1;
                if *users == 0 {
                    self.claims.remove(&key);
                }
            }
        }
    }
}

/// The host ports in use on a node: a set, not a count, as upstream has it.
#[derive(Clone, Debug, Default)]
pub struct HostPorts(KeyedSet<(String, String, i32)>);

const ANY_ADDRESS: &str = "0.0.0.0";

fn address(port: &ContainerPort) -> &str {
    if port.host_ip.is_empty() { ANY_ADDRESS } else { &port.host_ip }
}

fn protocol(port: &ContainerPort) -> &str {
    if port.protocol.is_empty() { "TCP" } else { &port.protocol }
}

impl HostPorts {
    /// Marks a port as used.
    pub fn add(&mut self, port: &ContainerPort) {
        if port.host_port > 0 {
            self.0.insert((address(port).to_owned(), protocol(port).to_owned(), port.host_port));
        }
    }

    /// Marks a port as free.
    pub fn remove(&mut self, port: &ContainerPort) {
        self.0.remove(&(address(port).to_owned(), protocol(port).to_owned(), port.host_port));
    }

    /// True when a wanted port conflicts with a used one: same protocol and port, on the same or on any address.
    pub fn conflicts(&self, wanted: &ContainerPort) -> bool {
        if wanted.host_port <= 0 || self.0.is_empty() {
            return false;
        }
        let any = address(wanted) == ANY_ADDRESS;
        self.0.iter().any(|(ip, proto, port)| {
            *port == wanted.host_port
                && proto == protocol(wanted)
                && (any || ip == ANY_ADDRESS || ip == address(wanted))
        })
    }
}
