//! The Pod as the scheduler reads it.

use std::sync::Arc;

use jiff::Timestamp;

use crate::affinity::{Affinity, TopologySpreadConstraint};
use crate::meta::{Map, ObjectMeta};
use crate::resources::{ResourceList, ResourceRequirements};
use crate::taint::Tolerations;
use crate::view::{has_meta, views};

has_meta!(Pod);

views! {
    /// A Pod, without the parts only a kubelet needs.
    struct Pod {
        /// Name, labels, owners and the like.
        metadata: ObjectMeta,
        /// The desired state.
        spec: PodSpec,
        /// The observed state.
        status: PodStatus,
        /// The whole object as JSON, kept only for extenders.
        #[serde(skip)]
        manifest: Option<Arc<str>>,
    }

    /// The desired state of a pod.
    struct PodSpec {
        /// The node it is bound to; empty while pending.
        node_name: String,
        /// The profile that places it.
        scheduler_name: String,
        /// Higher is more important; absent means 0.
        priority: Option<i32>,
        /// `Never` forbids preempting others.
        preemption_policy: Option<String>,
        /// Labels the node must carry; an empty map differs from none in what PreFilter skips.
        node_selector: Option<Map>,
        /// Node and pod (anti-)affinity.
        affinity: Option<Affinity>,
        /// The taints it tolerates.
        tolerations: Tolerations,
        /// How evenly pods like it are spread over topology domains.
        topology_spread_constraints: Vec<TopologySpreadConstraint>,
        containers: Vec<Container>,
        /// Containers that run before them, or beside them when restartable.
        init_containers: Vec<Container>,
        volumes: Vec<Volume>,
        /// Resources of the pod sandbox.
        overhead: ResourceList,
        /// Pod-level resources.
        resources: Option<ResourceRequirements>,
        /// While there are any, the pod is not scheduled.
        scheduling_gates: Vec<SchedulingGate>,
        /// Device claims.
        resource_claims: Vec<PodResourceClaim>,
        /// Shares the node's network.
        host_network: bool,
        /// False asks for a user namespace.
        host_users: Option<bool>,
    }

    /// A reason not to schedule a pod yet.
    struct SchedulingGate {
        /// The gate's name, which its owner removes.
        name: String,
    }

    /// A container as placement sees it.
    struct Container {
        /// Unique in its pod.
        name: String,
        /// The image's reference.
        image: String,
        /// Requests, limits and claims.
        resources: ResourceRequirements,
        /// Ports it opens.
        ports: Vec<ContainerPort>,
        /// `Always` makes an init container a sidecar.
        restart_policy: Option<String>,
        /// Per-container restart rules.
        restart_policy_rules: Vec<RestartRule>,
    }

    /// What to do when a container exits in a certain way.
    struct RestartRule {
        /// `Restart` or `RestartAllContainers`.
        action: String,
    }

    /// A port a container opens.
    struct ContainerPort {
        /// The port on the node; 0 for none.
        host_port: i32,
        /// `TCP` when empty.
        protocol: String,
        /// The node address it binds; all when empty.
        #[serde(rename = "hostIP")]
        host_ip: String,
    }

    /// A device claim of a pod.
    struct PodResourceClaim {
        /// The name containers refer to.
        name: String,
        /// An existing claim.
        resource_claim_name: Option<String>,
        /// A template from which a claim is made for this pod.
        resource_claim_template_name: Option<String>,
    }

    /// A volume, with the sources that constrain placement.
    struct Volume {
        /// Unique in its pod.
        name: String,
        /// A claim in the pod's namespace.
        persistent_volume_claim: Option<ClaimVolume>,
        /// A claim made for this pod, named `<pod>-<volume>`.
        ephemeral: Option<EphemeralVolume>,
        /// An inline CSI volume.
        csi: Option<CsiVolume>,
        /// An image mounted as a volume.
        image: Option<ImageVolume>,
        /// Google's disk.
        gce_persistent_disk: Option<GcePersistentDisk>,
        /// Amazon's disk.
        aws_elastic_block_store: Option<AwsElasticBlockStore>,
        /// An iSCSI disk.
        iscsi: Option<Iscsi>,
        /// A Ceph block device.
        rbd: Option<Rbd>,
        /// Azure's disk.
        azure_disk: Option<AzureDisk>,
        /// Azure's file share.
        azure_file: Option<AzureFile>,
        /// OpenStack's disk.
        cinder: Option<VolumeId>,
        /// vSphere's disk.
        vsphere_volume: Option<VsphereVolume>,
        /// Portworx' disk.
        portworx_volume: Option<VolumeId>,
    }

    /// A volume that names a claim.
    struct ClaimVolume {
        /// The claim's name.
        claim_name: String,
        /// Mounted for reading only.
        read_only: bool,
    }

    /// A volume whose claim is made for the pod.
    struct EphemeralVolume {}

    /// An inline CSI volume.
    struct CsiVolume {
        /// The CSI driver.
        driver: String,
    }

    /// An image mounted as a volume.
    struct ImageVolume {
        /// The image's reference.
        reference: String,
    }

    /// Google's disk.
    struct GcePersistentDisk {
        /// The disk.
        pd_name: String,
        partition: i32,
        /// Mounted for reading only.
        read_only: bool,
    }

    /// Amazon's disk.
    struct AwsElasticBlockStore {
        /// The disk.
        #[serde(rename = "volumeID")]
        volume_id: String,
        partition: i32,
        /// Mounted for reading only.
        read_only: bool,
    }

    /// An iSCSI disk.
    struct Iscsi {
        /// The target.
        iqn: String,
        /// Mounted for reading only.
        read_only: bool,
    }

    /// A Ceph block device.
    struct Rbd {
        /// The Ceph monitors.
        monitors: Vec<String>,
        /// The pool.
        pool: String,
        /// The image.
        image: String,
        /// Mounted for reading only.
        read_only: bool,
    }

    /// Azure's disk.
    struct AzureDisk {
        /// The disk's name.
        disk_name: String,
        /// Its address.
        #[serde(rename = "diskURI")]
        disk_uri: String,
    }

    /// Azure's file share.
    struct AzureFile {
        /// The share.
        share_name: String,
        /// The secret that opens it.
        secret_name: String,
    }

    /// A disk named by an id alone.
    struct VolumeId {
        /// The disk.
        #[serde(rename = "volumeID")]
        volume_id: String,
    }

    /// vSphere's disk.
    struct VsphereVolume {
        /// The path of the disk.
        volume_path: String,
    }

    /// The observed state of a pod.
    struct PodStatus {
        /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
        phase: String,
        /// The latest observations.
        conditions: Vec<PodCondition>,
        /// The node on which a preemption frees resources for it.
        nominated_node_name: String,
        /// When a kubelet took the pod.
        start_time: Option<Timestamp>,
        /// The observed state of the containers.
        container_statuses: Vec<ContainerStatus>,
        /// The observed state of the init containers.
        init_container_statuses: Vec<ContainerStatus>,
        /// Pod-level resources in force.
        resources: Option<ResourceRequirements>,
        /// Pod-level resources that a kubelet allocated.
        allocated_resources: ResourceList,
        /// Claims made from templates.
        resource_claim_statuses: Vec<PodResourceClaimStatus>,
        /// The claim that backs its extended resources.
        extended_resource_claim_status: Option<ExtendedResourceClaimStatus>,
    }

    /// One observation of a pod.
    struct PodCondition {
        /// What is observed.
        #[serde(rename = "type")]
        kind: String,
        /// `True`, `False` or `Unknown`.
        status: String,
        /// A reason in CamelCase, for programs.
        reason: String,
        /// A sentence for people.
        message: String,
        /// When it was last probed.
        last_probe_time: Option<Timestamp>,
        /// When the status last changed.
        last_transition_time: Option<Timestamp>,
        /// The generation it speaks of.
        observed_generation: i64,
    }

    /// The observed state of a container.
    struct ContainerStatus {
        /// The container's name.
        name: String,
        /// Resources in force; absent differs from empty.
        resources: Option<ResourceRequirements>,
        /// Resources that a kubelet allocated.
        allocated_resources: ResourceList,
    }

    /// The claim made for one entry of `spec.resourceClaims`.
    struct PodResourceClaimStatus {
        /// The entry's name.
        name: String,
        /// The claim, or none when no claim is needed.
        resource_claim_name: Option<String>,
    }

    /// The claim that backs a pod's extended resources.
    struct ExtendedResourceClaimStatus {
        /// The claim.
        resource_claim_name: String,
    }
}

impl Pod {
    /// The pod's priority; 0 when none was given.
    pub fn priority(&self) -> i32 {
        self.spec.priority.unwrap_or(0)
    }

    /// True once the pod has ended; the scheduler does not see such pods.
    pub fn is_terminal(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    /// True once deletion began.
    pub fn is_terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// True when the pod is bound or, as far as this view knows, assumed.
    pub fn is_assigned(&self) -> bool {
        !self.spec.node_name.is_empty()
    }

    /// True when a preemption nominated a node for the pod.
    pub fn is_nominated(&self) -> bool {
        !self.status.nominated_node_name.is_empty()
    }

    /// The condition of this type, if it was ever set.
    pub fn condition(&self, kind: &str) -> Option<&PodCondition> {
        self.status.conditions.iter().find(|c| c.kind == kind)
    }

    /// Host ports: those of the containers and of restartable init containers.
    pub fn host_ports(&self) -> impl Iterator<Item = &ContainerPort> {
        let sidecars = self.spec.init_containers.iter().filter(|c| c.is_sidecar());
        self.spec.containers.iter().chain(sidecars).flat_map(|c| &c.ports).filter(|p| p.host_port > 0)
    }

    /// The claims the pod's volumes name, without those made for the pod.
    pub fn named_claims(&self) -> impl Iterator<Item = &str> {
        let volumes = self.spec.volumes.iter().filter_map(|volume| volume.persistent_volume_claim.as_ref());
        volumes.map(|claim| claim.claim_name.as_str())
    }

    /// The claims the pod's volumes name, ephemeral ones included, as (volume, claim name, made for this pod).
    pub fn claim_names(&self) -> impl Iterator<Item = (&Volume, String, bool)> {
        self.spec.volumes.iter().filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(claim), _) => Some((volume, claim.claim_name.clone(), false)),
            (None, Some(_)) => Some((volume, format!("{}-{}", self.metadata.name, volume.name), true)),
            (None, None) => None,
        })
    }
}

impl Container {
    /// True for an init container that keeps running beside the others.
    pub fn is_sidecar(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always")
    }
}
