//! The latest known version of every object that plugins look up.

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_model::meta::ObjectMeta;
use bayplan_model::node::Node;
use bayplan_model::pod::Pod;
use bayplan_model::resource_claim::ResourceClaim;
use bayplan_model::resource_slice::{DeviceClass, ResourceSlice};
use bayplan_model::storage::{
    CsiDriver, CsiNode, CsiStorageCapacity, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment,
};
use bayplan_model::workload::{Controller, Namespace, PodDisruptionBudget, ReplicationController, Service};

use crate::framework::EventResource;

/// Objects of one kind by namespace and name.
#[derive(Clone, Debug)]
pub struct Table<T> {
    objects: BTreeMap<String, BTreeMap<String, Arc<T>>>,
    version: u64,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table { objects: BTreeMap::new(), version: 0 }
    }
}

impl<T> Table<T> {
    /// The object of this name; the namespace is empty for cluster-scoped kinds.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<T>> {
        self.objects.get(namespace)?.get(name)
    }

    /// All objects of a namespace, by name.
    pub fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = &Arc<T>> {
        self.objects.get(namespace).into_iter().flat_map(BTreeMap::values)
    }

    /// All objects, by namespace and name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.objects.values().flat_map(BTreeMap::values)
    }

    /// How often the table was changed.
    pub fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn insert(&mut self, meta: &ObjectMeta, object: Arc<T>) -> Option<Arc<T>> {
        self.version += 1;
        self.objects.entry(meta.namespace.clone()).or_default().insert(meta.name.clone(), object)
    }

    pub(super) fn remove(&mut self, meta: &ObjectMeta) -> Option<Arc<T>> {
        self.version += 1;
        let namespace = self.objects.get_mut(&meta.namespace)?;
        let object = namespace.remove(&meta.name);
        if namespace.is_empty() {
            self.objects.remove(&meta.namespace);
        }
        object
    }
}

macro_rules! objects {
    ($($(#[$meta:meta])* $variant:ident($type:ty), $table:ident, $api:literal $kind:literal, $event:expr;)*) => {
        /// Any object the scheduler watches.
        #[derive(Clone, Debug)]
        pub enum Object {
            /// A pod.
            Pod(Arc<Pod>),
            /// A node.
            Node(Arc<Node>),
            $($(#[$meta])* $variant(Arc<$type>),)*
        }

        impl Object {
            /// The object's metadata.
            pub fn metadata(&self) -> &ObjectMeta {
                match self {
                    Object::Pod(o) => &o.metadata,
                    Object::Node(o) => &o.metadata,
                    $(Object::$variant(o) => &o.metadata,)*
                }
            }

            /// Decodes an object by its `apiVersion` and `kind`; none for kinds the scheduler does not read.
            pub fn decode(json: &serde_json::Value) -> Option<Result<Self, serde_json::Error>> {
                use serde::Deserialize;
                let text = |field: &str| json.get(field).and_then(serde_json::Value::as_str).unwrap_or_default();
                match (text("apiVersion"), text("kind")) {
                    ("v1", "Pod") => Some(Pod::deserialize(json).map(|o| Object::Pod(Arc::new(o)))),
                    ("v1", "Node") => Some(Node::deserialize(json).map(|o| Object::Node(Arc::new(o)))),
                    $(($api, $kind) => Some(<$type>::deserialize(json).map(|o| Object::$variant(Arc::new(o)))),)*
                    _ => None,
                }
            }

            /// What plugins hear of it; some kinds are only looked up.
            pub(crate) fn event_resource(&self) -> Option<EventResource> {
                match self {
                    Object::Pod(_) => Some(EventResource::Pod),
                    Object::Node(_) => Some(EventResource::Node),
                    $(Object::$variant(_) => $event,)*
                }
            }
        }

        /// The tables of all kinds that are looked up; pods and nodes have their own structures.
        #[derive(Clone, Debug, Default)]
        pub struct Objects {
            /// Pods, whether placed or not.
            pub pods: Table<Pod>,
            $($(#[$meta])* pub $table: Table<$type>,)*
        }

        impl Objects {
            /// Stores a version and returns the former one.
            pub(crate) fn store(&mut self, object: &Object) -> Option<Object> {
                match object {
                    Object::Pod(o) => self.pods.insert(&o.metadata, o.clone()).map(Object::Pod),
                    Object::Node(_) => None,
                    $(Object::$variant(o) => self.$table.insert(&o.metadata, o.clone()).map(Object::$variant),)*
                }
            }

            /// Drops an object and returns its last version.
            pub(crate) fn remove(&mut self, object: &Object) -> Option<Object> {
                match object {
                    Object::Pod(o) => self.pods.remove(&o.metadata).map(Object::Pod),
                    Object::Node(_) => None,
                    $(Object::$variant(o) => self.$table.remove(&o.metadata).map(Object::$variant),)*
                }
            }
        }
    };
}

objects! {
    /// Namespaces.
    Namespace(Namespace), namespaces, "v1" "Namespace", None;
    /// Services.
    Service(Service), services, "v1" "Service", None;
    /// Replication controllers.
    ReplicationController(ReplicationController), replication_controllers, "v1" "ReplicationController", None;
    /// Replica sets.
    ReplicaSet(Controller), replica_sets, "apps/v1" "ReplicaSet", None;
    /// Stateful sets.
    StatefulSet(Controller), stateful_sets, "apps/v1" "StatefulSet", None;
    /// Disruption budgets.
    PodDisruptionBudget(PodDisruptionBudget), disruption_budgets, "policy/v1" "PodDisruptionBudget", None;
    /// Volumes.
    PersistentVolume(PersistentVolume), persistent_volumes, "v1" "PersistentVolume", Some(EventResource::PersistentVolume);
    /// Claims on volumes.
    PersistentVolumeClaim(PersistentVolumeClaim), persistent_volume_claims, "v1" "PersistentVolumeClaim", Some(EventResource::PersistentVolumeClaim);
    /// Classes of volumes.
    StorageClass(StorageClass), storage_classes, "storage.k8s.io/v1" "StorageClass", Some(EventResource::StorageClass);
    /// CSI drivers by node.
    CsiNode(CsiNode), csi_nodes, "storage.k8s.io/v1" "CSINode", Some(EventResource::CsiNode);
    /// CSI drivers.
    CsiDriver(CsiDriver), csi_drivers, "storage.k8s.io/v1" "CSIDriver", Some(EventResource::CsiDriver);
    /// Free capacity by class and place.
    CsiStorageCapacity(CsiStorageCapacity), csi_storage_capacities, "storage.k8s.io/v1" "CSIStorageCapacity", Some(EventResource::CsiStorageCapacity);
    /// Attachments.
    VolumeAttachment(VolumeAttachment), volume_attachments, "storage.k8s.io/v1" "VolumeAttachment", Some(EventResource::VolumeAttachment);
    /// Claims on devices.
    ResourceClaim(ResourceClaim), resource_claims, "resource.k8s.io/v1" "ResourceClaim", Some(EventResource::ResourceClaim);
    /// Lists of devices.
    ResourceSlice(ResourceSlice), resource_slices, "resource.k8s.io/v1" "ResourceSlice", Some(EventResource::ResourceSlice);
    /// Classes of devices.
    DeviceClass(DeviceClass), device_classes, "resource.k8s.io/v1" "DeviceClass", Some(EventResource::DeviceClass);
}
