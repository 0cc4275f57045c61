//! Volumes, claims and their classes as the scheduler reads them.

use crate::affinity::NodeSelector;
use crate::label_selector::LabelSelector;
use crate::meta::ObjectMeta;
use crate::pod::{AwsElasticBlockStore, AzureDisk, AzureFile, GcePersistentDisk, VolumeId, VsphereVolume};
use crate::quantity::Quantity;
use crate::resources::{ResourceList, ResourceRequirements};
use crate::view::{has_meta, views};

/// The annotation that named a claim's class before the field existed.
pub const BETA_STORAGE_CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
/// The annotation of a claim that was bound for good.
pub const BIND_COMPLETED_ANNOTATION: &str = "pv.kubernetes.io/bind-completed";
/// The annotation of a volume or claim that a controller, not a person, bound.
pub const BOUND_BY_CONTROLLER_ANNOTATION: &str = "pv.kubernetes.io/bound-by-controller";
/// The annotation of a claim that names the node a volume is to be made for.
pub const SELECTED_NODE_ANNOTATION: &str = "volume.kubernetes.io/selected-node";
/// The annotation of a volume that a provisioner made; its value is the provisioner.
pub const PROVISIONED_BY_ANNOTATION: &str = "pv.kubernetes.io/provisioned-by";
/// The annotation of a claim that asks a provisioner for a volume.
pub const STORAGE_PROVISIONER_ANNOTATION: &str = "volume.kubernetes.io/storage-provisioner";
/// The former name of [`STORAGE_PROVISIONER_ANNOTATION`], still written beside it.
pub const BETA_STORAGE_PROVISIONER_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// The binding mode in which a claim is bound when its first pod is placed.
pub const WAIT_FOR_FIRST_CONSUMER: &str = "WaitForFirstConsumer";

has_meta!(
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    CsiNode,
    CsiDriver,
    CsiStorageCapacity,
    VolumeAttachment
);

views! {
    /// A PersistentVolume.
    struct PersistentVolume {
        /// Name, labels and the like.
        metadata: ObjectMeta,
        /// What is wanted.
        spec: PersistentVolumeSpec,
        /// What is known.
        status: PersistentVolumeStatus,
    }

    /// What a volume is.
    struct PersistentVolumeSpec {
        /// Its size, under `storage`.
        capacity: ResourceList,
        /// How it may be mounted.
        access_modes: Vec<String>,
        /// The claim it is bound or reserved to.
        claim_ref: Option<ClaimRef>,
        storage_class_name: String,
        /// What becomes of it when its claim is gone: `Retain`, `Recycle` or `Delete`.
        persistent_volume_reclaim_policy: String,
        /// `Filesystem` when absent.
        volume_mode: Option<String>,
        volume_attributes_class_name: Option<String>,
        /// Where it can be reached.
        node_affinity: Option<VolumeNodeAffinity>,
        /// A CSI volume.
        csi: Option<CsiPersistentVolume>,
        /// Google's disk.
        gce_persistent_disk: Option<GcePersistentDisk>,
        /// Amazon's disk.
        aws_elastic_block_store: Option<AwsElasticBlockStore>,
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

    /// The claim a volume is bound or reserved to.
    struct ClaimRef {
        namespace: String,
        name: String,
        /// Its UID; empty when reserved by name.
        uid: String,
    }

    /// Where a volume can be reached.
    struct VolumeNodeAffinity {
        /// From which nodes.
        required: Option<NodeSelector>,
    }

    /// A CSI volume.
    struct CsiPersistentVolume {
        /// The CSI driver.
        driver: String,
        /// The driver's name of the volume.
        volume_handle: String,
    }

    /// What is known of a volume.
    struct PersistentVolumeStatus {
        /// `Available`, `Bound`, `Released` and so on.
        phase: String,
    }

    /// A PersistentVolumeClaim.
    struct PersistentVolumeClaim {
        /// Name, annotations, owners and the like.
        metadata: ObjectMeta,
        /// What is wanted.
        spec: PersistentVolumeClaimSpec,
        /// What is known.
        status: PersistentVolumeClaimStatus,
    }

    /// What a claim wants.
    struct PersistentVolumeClaimSpec {
        /// How it is to be mounted.
        access_modes: Vec<String>,
        /// Which volumes may serve.
        selector: Option<LabelSelector>,
        /// How large, under `requests.storage`.
        resources: ResourceRequirements,
        /// The volume it is bound to.
        volume_name: String,
        storage_class_name: Option<String>,
        /// `Filesystem` when absent.
        volume_mode: Option<String>,
        volume_attributes_class_name: Option<String>,
    }

    /// What is known of a claim.
    struct PersistentVolumeClaimStatus {
        /// `Pending`, `Bound` or `Lost`.
        phase: String,
        /// How its volume may be mounted.
        access_modes: Vec<String>,
        /// The size of its volume, under `storage`.
        capacity: ResourceList,
    }

    /// A StorageClass.
    struct StorageClass {
        metadata: ObjectMeta,
        /// Who makes volumes of it.
        provisioner: String,
        /// `Immediate` or `WaitForFirstConsumer`.
        volume_binding_mode: Option<String>,
        /// What becomes of its volumes when their claims are gone.
        reclaim_policy: Option<String>,
        /// Where volumes may be made.
        allowed_topologies: Vec<TopologySelectorTerm>,
    }

    /// Requirements which a node must all match.
    struct TopologySelectorTerm {
        /// On labels.
        match_label_expressions: Vec<TopologySelectorRequirement>,
    }

    /// One label and its allowed values.
    struct TopologySelectorRequirement {
        /// The label.
        key: String,
        /// The values.
        values: Vec<String>,
    }

    /// What a node's kubelet says of CSI drivers on it.
    struct CsiNode {
        /// The node's name, and the migrated plugins as an annotation.
        metadata: ObjectMeta,
        /// The drivers.
        spec: CsiNodeSpec,
    }

    /// The drivers on a node.
    struct CsiNodeSpec {
        /// One entry each.
        drivers: Vec<CsiNodeDriver>,
    }

    /// A driver on a node.
    struct CsiNodeDriver {
        name: String,
        /// How much the node takes.
        allocatable: Option<VolumeNodeResources>,
    }

    /// How many volumes of a driver a node takes.
    struct VolumeNodeResources {
        /// The number, if limited.
        count: Option<i32>,
    }

    /// A CSIDriver.
    struct CsiDriver {
        metadata: ObjectMeta,
        /// What it can do.
        spec: CsiDriverSpec,
    }

    /// What a CSI driver can do.
    struct CsiDriverSpec {
        /// Publishes its free capacity.
        storage_capacity: Option<bool>,
        /// Pods wait for it to be on the node.
        prevent_pod_scheduling_if_missing: Option<bool>,
    }

    /// Free capacity of a class in some part of the cluster.
    struct CsiStorageCapacity {
        metadata: ObjectMeta,
        /// Which nodes can reach it.
        node_topology: Option<LabelSelector>,
        /// The class.
        storage_class_name: String,
        /// How much is free.
        capacity: Option<Quantity>,
        /// The largest volume that can be made.
        maximum_volume_size: Option<Quantity>,
    }

    /// A VolumeAttachment.
    struct VolumeAttachment {
        metadata: ObjectMeta,
        /// What is wanted.
        spec: VolumeAttachmentSpec,
    }

    /// What is attached where.
    struct VolumeAttachmentSpec {
        /// The CSI driver.
        attacher: String,
        /// The node.
        node_name: String,
        /// The volume.
        source: VolumeAttachmentSource,
    }

    /// The volume that is attached.
    struct VolumeAttachmentSource {
        /// By name.
        persistent_volume_name: Option<String>,
        /// Inline, for a migrated pod volume.
        inline_volume_spec: Option<PersistentVolumeSpec>,
    }
}

impl PersistentVolumeClaim {
    /// The class of the claim; empty for none.
    pub fn class(&self) -> &str {
        match self.metadata.annotations.get(BETA_STORAGE_CLASS_ANNOTATION) {
            Some(class) => class,
            None => self.spec.storage_class_name.as_deref().unwrap_or(""),
        }
    }
    /// True once the claim is bound for good.
    pub fn is_fully_bound(&self) -> bool {
        !self.spec.volume_name.is_empty() && self.metadata.annotations.contains_key(BIND_COMPLETED_ANNOTATION)
    }

    /// True when the claim was made for this pod.
    pub fn is_for(&self, pod: &crate::pod::Pod) -> bool {
        self.metadata.controller().is_some_and(|owner| owner.uid == pod.metadata.uid)
    }
    /// How many bytes the claim wants; 0 when it does not say.
    pub fn requested_storage(&self) -> i64 {
        self.spec.resources.requests.get("storage").map_or(0, Quantity::value)
    }
}

impl PersistentVolume {
    /// The class of the volume; empty for none.
    pub fn class(&self) -> &str {
        self.metadata.annotations.get(BETA_STORAGE_CLASS_ANNOTATION).unwrap_or(&self.spec.storage_class_name)
    }

    /// How many bytes it has; 0 when it does not say.
    pub fn capacity(&self) -> i64 {
        self.spec.capacity.get("storage").map_or(0, Quantity::value)
    }

    /// True when the volume is bound or reserved to this claim.
    pub fn is_reserved_for(&self, claim: &PersistentVolumeClaim) -> bool {
        self.spec.claim_ref.as_ref().is_some_and(|to| {
            to.name == claim.metadata.name
                && to.namespace == claim.metadata.namespace
                && (to.uid.is_empty() || to.uid == claim.metadata.uid)
        })
    }
}
