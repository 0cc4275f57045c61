//! What of a pod decides: its shape (what it wants, as plugins read it) and its kin (how other pods see it once placed).
//!
//! Pods made from one template have one shape and one kin, so what is computed for one of them holds for all. Both are
//! compared field by field; the hash only finds them.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use bayplan_model::affinity::{Affinity, PodAffinity, TopologySpreadConstraint};
use bayplan_model::meta::Map;
use bayplan_model::pod::{
    Container, ContainerStatus, ExtendedResourceClaimStatus, Pod, PodResourceClaim, PodResourceClaimStatus, PodSpec,
    PodStatus, SchedulingGate, Volume,
};
use bayplan_model::resources::{ResourceList, ResourceRequirements};
use bayplan_model::taint::Toleration;
use rustc_hash::{FxHashMap, FxHasher};

use super::{NodeId, PodInfo};

/// What plugins read of a pod that is to be placed, without what only volumes and device claims are about.
#[derive(PartialEq, Hash)]
struct Shape<'a> {
    namespace: &'a str,
    labels: &'a Map,
    /// The controller's API version, kind and name: default spreading looks its selector up.
    controller: Option<[&'a str; 3]>,
    node_name: &'a str,
    scheduler_name: &'a str,
    priority: i32,
    preemption_policy: &'a Option<String>,
    node_selector: &'a Option<Map>,
    affinity: &'a Option<Affinity>,
    tolerations: &'a [Toleration],
    topology_spread_constraints: &'a [TopologySpreadConstraint],
    containers: &'a [Container],
    init_containers: &'a [Container],
    overhead: &'a ResourceList,
    resources: &'a Option<ResourceRequirements>,
    scheduling_gates: &'a [SchedulingGate],
    host_network: bool,
    host_users: Option<bool>,
    /// What a kubelet says of a pod it has resized.
    resized: Option<Resized<'a>>,
}

#[derive(PartialEq, Hash)]
struct Resized<'a> {
    containers: &'a [ContainerStatus],
    init_containers: &'a [ContainerStatus],
    resources: &'a Option<ResourceRequirements>,
    allocated: &'a ResourceList,
}

impl<'a> Shape<'a> {
    fn of(pod: &'a Pod) -> Self {
        let meta = &pod.metadata;
        // Field by field, so that a new one is not forgotten.
        let PodSpec {
            node_name,
            scheduler_name,
            priority,
            preemption_policy,
            node_selector,
            affinity,
            tolerations,
            topology_spread_constraints,
            containers,
            init_containers,
            volumes: _,
            overhead,
            resources,
            scheduling_gates,
            resource_claims: _,
            host_network,
            host_users,
        } = &pod.spec;
        Shape {
            namespace: &meta.namespace,
            labels: &meta.labels,
            controller: meta.controller().map(|owner| [&*owner.api_version, &*owner.kind, &*owner.name]),
            node_name,
            scheduler_name,
            priority: priority.unwrap_or(0),
            preemption_policy,
            node_selector,
            affinity,
            tolerations,
            topology_spread_constraints,
            containers,
            init_containers,
            overhead,
            resources,
            scheduling_gates,
            host_network: *host_network,
            host_users: *host_users,
            resized: Resized::of(&pod.status),
        }
    }
}

impl<'a> Resized<'a> {
    fn of(status: &'a PodStatus) -> Option<Self> {
        let resized = Resized {
            containers: &status.container_statuses,
            init_containers: &status.init_container_statuses,
            resources: &status.resources,
            allocated: &status.allocated_resources,
        };
        let nothing = resized.containers.is_empty()
            && resized.init_containers.is_empty()
            && resized.resources.is_none()
            && resized.allocated.is_empty();
        (!nothing).then_some(resized)
    }
}

/// The rest of what plugins read: volumes, device claims, and who the pod is where those are named after it.
#[derive(PartialEq, Hash)]
struct Claims<'a> {
    volumes: &'a [Volume],
    resource_claims: &'a [PodResourceClaim],
    statuses: &'a [PodResourceClaimStatus],
    extended: &'a Option<ExtendedResourceClaimStatus>,
    identity: Option<[&'a str; 2]>,
}

impl<'a> Claims<'a> {
    fn of(pod: &'a Pod) -> Self {
        let (meta, spec, status) = (&pod.metadata, &pod.spec, &pod.status);
        let named = spec.volumes.iter().any(|volume| volume.ephemeral.is_some()) || !spec.resource_claims.is_empty();
        Claims {
            volumes: &spec.volumes,
            resource_claims: &spec.resource_claims,
            statuses: &status.resource_claim_statuses,
            extended: &status.extended_resource_claim_status,
            identity: named.then_some([&*meta.name, &*meta.uid]),
        }
    }
}

/// What other pods' affinity and spreading see of a placed pod.
#[derive(PartialEq, Hash)]
struct Kin<'a> {
    namespace: &'a str,
    labels: &'a Map,
    terminating: bool,
    affinity: Option<&'a PodAffinity>,
    anti_affinity: Option<&'a PodAffinity>,
}

impl<'a> Kin<'a> {
    fn of(pod: &'a Pod) -> Self {
        let affinity = pod.spec.affinity.as_ref();
        Kin {
            namespace: &pod.metadata.namespace,
            labels: &pod.metadata.labels,
            terminating: pod.is_terminating(),
            affinity: affinity.and_then(|a| a.pod_affinity.as_ref()),
            anti_affinity: affinity.and_then(|a| a.pod_anti_affinity.as_ref()),
        }
    }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = FxHasher::default();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Finds pods of the same shape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ShapeHash {
    /// Without volumes and device claims.
    pub base: u64,
    /// With them.
    pub full: u64,
}

impl ShapeHash {
    pub(super) fn of(pod: &Pod) -> Self {
        let base = hash(&Shape::of(pod));
        ShapeHash { base, full: hash(&(base, Claims::of(pod))) }
    }
}

impl PodInfo {
    /// True when no plugin that states its dependencies can tell the two pods apart.
    pub fn same_shape(&self, other: &PodInfo) -> bool {
        self.shape_hash.full == other.shape_hash.full
            && self.same_base_shape(other)
            && Claims::of(&self.pod) == Claims::of(&other.pod)
    }

    /// True when the node they are on takes no notice of which of the two it is: same kin, same usage, ports and volumes.
    pub(super) fn same_on_node(&self, other: &PodInfo) -> bool {
        self.usage == other.usage
            && self.spec.volumes == other.spec.volumes
            && self.host_ports().eq(other.host_ports())
            && self.priority() == other.priority()
            && self.same_kin(other)
    }

    /// True when only plugins that read volumes or device claims can tell the two pods apart.
    pub fn same_base_shape(&self, other: &PodInfo) -> bool {
        self.shape_hash.base == other.shape_hash.base
            && (self.is_of_template(other) && self.spec.node_name == other.spec.node_name
                || Shape::of(&self.pod) == Shape::of(&other.pod))
    }

    /// True when what was computed for one of the two is shared by the other, because all of it but the node is the same.
    fn is_of_template(&self, other: &PodInfo) -> bool {
        Arc::ptr_eq(&self.usage, &other.usage)
    }

    fn same_kin(&self, other: &PodInfo) -> bool {
        self.is_of_template(other) && self.is_terminating() == other.is_terminating()
            || Kin::of(&self.pod) == Kin::of(&other.pod)
    }
}

/// A hash of a pod's kin, the same whether it is terminating or not.
pub(super) fn kin_hash(pod: &Pod) -> u64 {
    hash(&Kin { terminating: false, ..Kin::of(pod) })
}

/// Whether everything that is computed from a pod is the same for both, wherever they are.
pub(super) fn same_but_for_the_node(a: &Pod, b: &Pod) -> bool {
    Shape { node_name: "", ..Shape::of(a) } == Shape { node_name: "", ..Shape::of(b) }
}

/// Names one kin of placed pods; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KinId(u64);

impl KinId {
    /// The one that the first kin gets.
    pub(crate) const FIRST: KinId = KinId(0);
}

/// The kins that are placed, and where.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kinships {
    by_hash: FxHashMap<u64, Vec<Entry>>,
    hash_of: FxHashMap<KinId, u64>,
    next: u64,
}

/// One kin.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Its name.
    pub(crate) id: KinId,
    /// One of its pods.
    pub(crate) pod: Arc<PodInfo>,
    /// How many of its pods are on which node.
    pub(crate) nodes: FxHashMap<NodeId, u32>,
}

impl Kinships {
    /// The kin of a pod that is placed now.
    pub(super) fn join(&mut self, pod: &Arc<PodInfo>, node: NodeId) -> KinId {
        let key = pod.kin_hash;
        let entries = self.by_hash.entry(key).or_default();
        let at = entries.iter().position(|entry| entry.pod.same_kin(pod)).unwrap_or_else(|| {
            let id = KinId(self.next);
            self.next += 1;
            self.hash_of.insert(id, key);
            entries.push(Entry { id, pod: pod.clone(), nodes: FxHashMap::default() });
            entries.len() - 1
        });
        *entries[at].nodes.entry(node).or_default() += 1;
        entries[at].id
    }

    /// A pod of this kin left a node.
    pub(super) fn leave(&mut self, id: KinId, node: NodeId) {
        let Some(&key) = self.hash_of.get(&id) else { return };
        let Some(entries) = self.by_hash.get_mut(&key) else { return };
        let Some(at) = entries.iter().position(|entry| entry.id == id) else { return };
        let nodes = &mut entries[at].nodes;
        if let Some(pods) = nodes.get_mut(&node) {
            *pods -= 1;
            if *pods == 0 {
                nodes.remove(&node);
            }
        }
        if nodes.is_empty() {
            entries.swap_remove(at);
            self.hash_of.remove(&id);
            if entries.is_empty() {
                self.by_hash.remove(&key);
            }
        }
    }

    /// How many kins are placed.
    pub(crate) fn len(&self) -> usize {
        self.hash_of.len()
    }

    /// All kins that are placed somewhere.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.by_hash.values().flatten()
    }

    /// The name that the next new kin gets.
    pub(crate) fn end(&self) -> KinId {
        KinId(self.next)
    }

    /// The kins with names from one up to another that are placed somewhere.
    pub(crate) fn between(&self, from: KinId, end: KinId) -> impl Iterator<Item = &Entry> {
        // Going over those that came since, or over all there are, whichever is shorter.
        let few = end.0 - from.0 < self.hash_of.len() as u64;
        let new = if few { from.0..end.0 } else { 0..0 };
        let all = self.iter().take(if few { 0 } else { usize::MAX });
        let all = all.filter(move |kin| (from..end).contains(&kin.id));
        new.filter_map(|id| self.get(KinId(id))).chain(all)
    }

    /// A kin by name; none once its last pod is gone.
    pub(crate) fn get(&self, id: KinId) -> Option<&Entry> {
        self.by_hash.get(self.hash_of.get(&id)?)?.iter().find(|entry| entry.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(json: serde_json::Value) -> Arc<PodInfo> {
        Arc::new(PodInfo::new(Arc::new(serde_json::from_value(json).unwrap())))
    }

    #[test]
    fn pods_of_one_template_have_one_shape_whatever_their_names() {
        let named = |name: &str, cpu: &str, app: &str| {
            pod(json!({
                "metadata": {"name": name, "uid": name, "namespace": "d", "labels": {"app": app}},
                "spec": {"containers": [{"resources": {"requests": {"cpu": cpu}}}]},
            }))
        };
        assert!(named("a", "1", "x").same_shape(&named("b", "1000m", "x")));
        assert!(!named("a", "1", "x").same_shape(&named("a", "2", "x")));
        assert!(!named("a", "1", "x").same_shape(&named("a", "1", "y")));
    }

    #[test]
    fn pods_with_claims_of_their_own_have_shapes_of_their_own() {
        let named = |name: &str| {
            pod(json!({
                "metadata": {"name": name, "uid": name},
                "spec": {"volumes": [{"name": "v", "ephemeral": {}}]},
            }))
        };
        assert!(!named("a").same_shape(&named("b")));
        assert!(named("a").same_shape(&named("a")));
    }

    #[test]
    fn a_kin_is_forgotten_with_its_last_pod_and_its_name_is_not_used_again() {
        let named = |name: &str| pod(json!({"metadata": {"name": name, "uid": name, "labels": {"app": "x"}}}));
        let (a, b) = (named("a"), named("b"));
        let mut kinships = Kinships::default();
        let id = kinships.join(&a, NodeId(0));
        assert_eq!(kinships.join(&b, NodeId(1)), id);
        kinships.leave(id, NodeId(0));
        assert_eq!(kinships.iter().count(), 1);
        kinships.leave(id, NodeId(1));
        assert_eq!(kinships.iter().count(), 0);
        assert_ne!(kinships.join(&a, NodeId(0)), id);
    }
}
