//! Pod signatures: what plugins read of a pod that is to be placed; upstream's `PodSignature` and `SignPod` (KEP-5598).
//!
//! Pods of one template have one signature, so what the engine computes for one of them holds for all. Signatures are
//! compared field by field; their hash only finds them.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use bayplan_model::affinity::{Affinity, TopologySpreadConstraint};
use bayplan_model::keyed::KeyedState;
use bayplan_model::meta::Map;
use bayplan_model::pod::{
    Container, ContainerStatus, ExtendedResourceClaimStatus, Pod, PodResourceClaim, PodResourceClaimStatus, PodSpec,
    PodStatus, SchedulingGate, Volume,
};
use bayplan_model::resources::{ResourceList, ResourceRequirements};
use bayplan_model::taint::Toleration;

use super::PodInfo;

/// What plugins read of a pod that is to be placed, except volumes and device claims.
#[derive(PartialEq, Hash)]
struct PodSignature<'a> {
    namespace: &'a str,
    labels: &'a Map,
    /// The controller's API version, kind and name: default spreading looks up its selector.
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
    /// What the kubelet reports of a resized pod.
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
        // Field by field, so that the compiler asks about a new one.
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

/// The rest of what plugins read: volumes and device claims, and the pod's identity when those are named after it.
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

pub(super) fn hash(value: &impl Hash) -> u64 {
    KeyedState::default().hash_one(value)
}

/// The hash of a pod's signature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct SignatureHash {
    /// Of the signature without volumes and device claims.
    pub(crate) base: u64,
    /// Of the whole signature.
    pub(crate) full: u64,
}

impl SignatureHash {
    pub(super) fn of(pod: &Pod) -> Self {
        let base = hash(&PodSignature::of(pod));
        SignatureHash { base, full: hash(&(base, ClaimsSignature::of(pod))) }
    }
}

impl PodInfo {
    /// A number that pods of one signature share. Others may share it, too: it only finds them.
    pub fn signature_number(&self) -> u64 {
        self.signature_hash.full
    }

    /// True when no plugin that states its dependencies can tell the two pods apart.
    pub fn same_signature(&self, other: &PodInfo) -> bool {
        self.signature_hash.full == other.signature_hash.full
            && self.same_base_signature(other)
            && ClaimsSignature::of(&self.pod) == ClaimsSignature::of(&other.pod)
    }

    /// True when a node is the same with either of the two pods on it: same affinity class, usage, ports and volumes.
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

    /// True when both share what was computed from one of them: they are equal in all but the node.
    pub(super) fn shares_template(&self, other: &PodInfo) -> bool {
        Arc::ptr_eq(&self.usage, &other.usage)
    }
}

/// True when everything that is computed from a pod is the same for both, whatever their nodes.
pub(super) fn same_except_node(a: &Pod, b: &Pod) -> bool {
    PodSignature { node_name: "", ..PodSignature::of(a) } == PodSignature { node_name: "", ..PodSignature::of(b) }
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
}
