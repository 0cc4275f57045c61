//! What of a pod decides: its signature (what it wants, as plugins read it) and its affinity class (how other pods see it once placed).
//!
//! Pods made from one template have one signature and one affinity class, so what is computed for one of them holds for all. Both are
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
struct PodSignature<'a> {
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

impl<'a> PodSignature<'a> {
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
        PodSignature {
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
struct ClaimsSignature<'a> {
    volumes: &'a [Volume],
    resource_claims: &'a [PodResourceClaim],
    statuses: &'a [PodResourceClaimStatus],
    extended: &'a Option<ExtendedResourceClaimStatus>,
    identity: Option<[&'a str; 2]>,
}

impl<'a> ClaimsSignature<'a> {
    fn of(pod: &'a Pod) -> Self {
        let (meta, spec, status) = (&pod.metadata, &pod.spec, &pod.status);
        let named = spec.volumes.iter().any(|volume| volume.ephemeral.is_some()) || !spec.resource_claims.is_empty();
        ClaimsSignature {
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
struct AffinityKey<'a> {
    namespace: &'a str,
    labels: &'a Map,
    terminating: bool,
    affinity: Option<&'a PodAffinity>,
    anti_affinity: Option<&'a PodAffinity>,
}

impl<'a> AffinityKey<'a> {
    fn of(pod: &'a Pod) -> Self {
        let affinity = pod.spec.affinity.as_ref();
        AffinityKey {
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

/// Finds pods of the same signature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SignatureHash {
    /// Without volumes and device claims.
    pub base: u64,
    /// With them.
    pub full: u64,
}

impl SignatureHash {
    pub(super) fn of(pod: &Pod) -> Self {
        let base = hash(&PodSignature::of(pod));
        SignatureHash { base, full: hash(&(base, ClaimsSignature::of(pod))) }
    }
}

impl PodInfo {
    /// True when no plugin that states its dependencies can tell the two pods apart.
    pub fn same_signature(&self, other: &PodInfo) -> bool {
        self.signature_hash.full == other.signature_hash.full
            && self.same_base_signature(other)
            && ClaimsSignature::of(&self.pod) == ClaimsSignature::of(&other.pod)
    }

    /// True when the node they are on takes no notice of which of the two it is: same affinity class, same usage, ports and volumes.
    pub(super) fn same_on_node(&self, other: &PodInfo) -> bool {
        self.usage == other.usage
            && self.spec.volumes == other.spec.volumes
            && self.host_ports().eq(other.host_ports())
            && self.priority() == other.priority()
            && self.same_affinity_class(other)
    }

    /// True when only plugins that read volumes or device claims can tell the two pods apart.
    pub fn same_base_signature(&self, other: &PodInfo) -> bool {
        self.signature_hash.base == other.signature_hash.base
            && (self.shares_template(other) && self.spec.node_name == other.spec.node_name
                || PodSignature::of(&self.pod) == PodSignature::of(&other.pod))
    }

    /// True when what was computed for one of the two is shared by the other, because all of it but the node is the same.
    fn shares_template(&self, other: &PodInfo) -> bool {
        Arc::ptr_eq(&self.usage, &other.usage)
    }

    fn same_affinity_class(&self, other: &PodInfo) -> bool {
        self.shares_template(other) && self.is_terminating() == other.is_terminating()
            || AffinityKey::of(&self.pod) == AffinityKey::of(&other.pod)
    }
}

/// A hash of a pod's affinity class, the same whether it is terminating or not.
pub(super) fn affinity_hash(pod: &Pod) -> u64 {
    hash(&AffinityKey { terminating: false, ..AffinityKey::of(pod) })
}

/// Whether everything that is computed from a pod is the same for both, wherever they are.
pub(super) fn same_except_node(a: &Pod, b: &Pod) -> bool {
    PodSignature { node_name: "", ..PodSignature::of(a) } == PodSignature { node_name: "", ..PodSignature::of(b) }
}

/// Names one affinity class of placed pods; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AffinityClassId(u64);

impl AffinityClassId {
    /// The one that the first affinity class gets.
    pub(crate) const FIRST: AffinityClassId = AffinityClassId(0);
}

/// The affinity classes that are placed, and where.
#[derive(Clone, Debug, Default)]
pub(crate) struct AffinityClasses {
    by_hash: FxHashMap<u64, Vec<AffinityClass>>,
    hash_of: FxHashMap<AffinityClassId, u64>,
    next: u64,
}

/// One affinity class.
#[derive(Clone, Debug)]
pub(crate) struct AffinityClass {
    /// Its name.
    pub(crate) id: AffinityClassId,
    /// One of its pods.
    pub(crate) pod: Arc<PodInfo>,
    /// How many of its pods are on which node.
    pub(crate) nodes: FxHashMap<NodeId, u32>,
}

impl AffinityClasses {
    /// The affinity class of a pod that is placed now.
    pub(super) fn join(&mut self, pod: &Arc<PodInfo>, node: NodeId) -> AffinityClassId {
        let key = pod.affinity_hash;
        let entries = self.by_hash.entry(key).or_default();
        let at = entries.iter().position(|entry| entry.pod.same_affinity_class(pod)).unwrap_or_else(|| {
            let id = AffinityClassId(self.next);
            self.next += 1;
            self.hash_of.insert(id, key);
            entries.push(AffinityClass { id, pod: pod.clone(), nodes: FxHashMap::default() });
            entries.len() - 1
        });
        *entries[at].nodes.entry(node).or_default() += 1;
        entries[at].id
    }

    /// A pod of this affinity class left a node.
    pub(super) fn leave(&mut self, id: AffinityClassId, node: NodeId) {
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

    /// How many affinity classes are placed.
    pub(crate) fn len(&self) -> usize {
        self.hash_of.len()
    }

    /// All affinity classes that are placed somewhere.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &AffinityClass> {
        self.by_hash.values().flatten()
    }

    /// The name that the next new affinity class gets.
    pub(crate) fn end(&self) -> AffinityClassId {
        AffinityClassId(self.next)
    }

    /// The affinity classes with names from one up to another that are placed somewhere.
    pub(crate) fn between(&self, from: AffinityClassId, end: AffinityClassId) -> impl Iterator<Item = &AffinityClass> {
        // Going over those that came since, or over all there are, whichever is shorter.
        let few = end.0 - from.0 < self.hash_of.len() as u64;
        let new = if few { from.0..end.0 } else { 0..0 };
        let all = self.iter().take(if few { 0 } else { usize::MAX });
        let all = all.filter(move |class| (from..end).contains(&class.id));
        new.filter_map(|id| self.get(AffinityClassId(id))).chain(all)
    }

    /// A affinity class by name; none once its last pod is gone.
    pub(crate) fn get(&self, id: AffinityClassId) -> Option<&AffinityClass> {
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
    fn pods_of_one_template_have_one_signature_whatever_their_names() {
        let named = |name: &str, cpu: &str, app: &str| {
            pod(json!({
                "metadata": {"name": name, "uid": name, "namespace": "d", "labels": {"app": app}},
                "spec": {"containers": [{"resources": {"requests": {"cpu": cpu}}}]},
            }))
        };
        assert!(named("a", "1", "x").same_signature(&named("b", "1000m", "x")));
        assert!(!named("a", "1", "x").same_signature(&named("a", "2", "x")));
        assert!(!named("a", "1", "x").same_signature(&named("a", "1", "y")));
    }

    #[test]
    fn pods_with_claims_of_their_own_have_signatures_of_their_own() {
        let named = |name: &str| {
            pod(json!({
                "metadata": {"name": name, "uid": name},
                "spec": {"volumes": [{"name": "v", "ephemeral": {}}]},
            }))
        };
        assert!(!named("a").same_signature(&named("b")));
        assert!(named("a").same_signature(&named("a")));
    }

    #[test]
    fn a_class_is_forgotten_with_its_last_pod_and_its_id_is_not_used_again() {
        let named = |name: &str| pod(json!({"metadata": {"name": name, "uid": name, "labels": {"app": "x"}}}));
        let (a, b) = (named("a"), named("b"));
        let mut affinity_classes = AffinityClasses::default();
        let id = affinity_classes.join(&a, NodeId(0));
        assert_eq!(affinity_classes.join(&b, NodeId(1)), id);
        affinity_classes.leave(id, NodeId(0));
        assert_eq!(affinity_classes.iter().count(), 1);
        affinity_classes.leave(id, NodeId(1));
        assert_eq!(affinity_classes.iter().count(), 0);
        assert_ne!(affinity_classes.join(&a, NodeId(0)), id);
    }
}
