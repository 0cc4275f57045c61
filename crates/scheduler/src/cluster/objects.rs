//! The latest version of every object that plugins look up.

use std::sync::Arc;

use bayplan_model::decision_log::Identity;
use bayplan_model::keyed::KeyedMap;
use bayplan_model::meta::ObjectMeta;
use bayplan_model::node::Node;
use bayplan_model::pod::Pod;
use bayplan_model::resource_claim::ResourceClaim;
use bayplan_model::resource_slice::{DeviceClass, ResourceSlice};
use bayplan_model::storage::{
    CsiDriver, CsiNode, CsiStorageCapacity, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment,
};
use bayplan_model::workload::{Controller, Namespace, PodDisruptionBudget, ReplicationController, Service};

use super::assumed_volumes::AssumedVolumes;
use super::device_claims::DeviceClaims;
use super::devices::Devices;
use super::storage::Storage;

/// The objects of one kind, by namespace and name. Hashed, because they are looked up far more often than listed.
#[derive(Clone, Debug)]
pub struct Table<T> {
    objects: KeyedMap<String, KeyedMap<String, Arc<T>>>,
    version: u64,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table { objects: KeyedMap::default(), version: 0 }
    }
}

/// Whether a `resourceVersion` comes before another one. Versions that are no numbers cannot be compared, so neither is
/// older.
pub(crate) fn is_older(version: &str, than: &str) -> bool {
    matches!((version.parse::<u64>(), than.parse::<u64>()), (Ok(version), Ok(than)) if version < than)
}

/// The values of a map by key.
fn sorted<T>(map: &KeyedMap<String, T>) -> impl Iterator<Item = &T> {
    let mut entries: Vec<(&String, &T)> = map.iter().collect();
    entries.sort_by_key(|(key, _)| *key);
    entries.into_iter().map(|(_, value)| value)
}

impl<T> Table<T> {
    /// The object of this name; the namespace is empty for cluster-scoped kinds.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<T>> {
        self.objects.get(namespace)?.get(name)
    }

    /// All objects of a namespace, by name.
    pub fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = &Arc<T>> {
        self.objects.get(namespace).into_iter().flat_map(sorted)
    }

    /// All objects, by namespace and name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        sorted(&self.objects).flat_map(sorted)
    }

    /// All objects, in no order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Arc<T>> {
        self.objects.values().flat_map(KeyedMap::values)
    }

    /// A number that grows with every change of the table.
    pub fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn insert(&mut self, meta: &ObjectMeta, object: Arc<T>) -> Option<Arc<T>> {
        self.version += 1;
        let namespace = match self.objects.get_mut(&meta.namespace) {
            Some(namespace) => namespace,
            None => self.objects.entry(meta.namespace.clone()).or_default(),
        };
        match namespace.get_mut(&meta.name) {
            Some(known) => Some(std::mem::replace(known, object)),
            None => namespace.insert(meta.name.clone(), object),
        }
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
    ($($(#[$meta:meta])* $variant:ident($type:ty), $table:ident, $api:literal $kind:literal;)*) => {
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

            /// The object's `apiVersion` and `kind`.
            pub fn type_meta(&self) -> (&'static str, &'static str) {
                match self {
                    Object::Pod(_) => ("v1", "Pod"),
                    Object::Node(_) => ("v1", "Node"),
                    $(Object::$variant(_) => ($api, $kind),)*
                }
            }

            /// Which object it is.
            pub fn identity(&self) -> Identity {
                let (api_version, kind) = self.type_meta();
                let meta = self.metadata();
                Identity {
                    api_version: api_version.into(),
                    kind: kind.into(),
                    namespace: meta.namespace.clone(),
                    name: meta.name.clone(),
                    uid: meta.uid.clone(),
                }
            }

            /// The object without the annotations that are not to be kept.
            #[must_use]
            pub fn retain_annotations(mut self, keep: &dyn Fn(&str) -> bool) -> Self {
                if self.metadata().annotations.keys().all(|name| keep(name)) {
                    return self;
                }
                let annotations = match &mut self {
                    Object::Pod(o) => &mut Arc::make_mut(o).metadata.annotations,
                    Object::Node(o) => &mut Arc::make_mut(o).metadata.annotations,
                    $(Object::$variant(o) => &mut Arc::make_mut(o).metadata.annotations,)*
                };
                annotations.retain(|name, _| keep(name));
                self
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

        }

        impl serde::Serialize for Object {
            /// Writes what the scheduler reads of the object, and no more.
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let (api_version, kind) = self.type_meta();
                match self {
                    Object::Pod(o) => Written { api_version, kind, object: &**o }.serialize(serializer),
                    Object::Node(o) => Written { api_version, kind, object: &**o }.serialize(serializer),
                    $(Object::$variant(o) => Written { api_version, kind, object: &**o }.serialize(serializer),)*
                }
            }
        }

        /// The objects of all kinds but nodes.
        #[derive(Clone, Debug, Default)]
        pub struct Objects {
            /// Pods, with and without a node.
            pub pods: Table<Pod>,
            $(#[doc = concat!("The objects of kind ", $kind, ".")] pub $table: Table<$type>,)*
            /// The devices of slices and claims.
            pub(crate) devices: Devices,
            pub(super) claims: DeviceClaims,
            /// Volumes, attachments and capacity, indexed.
            pub(crate) storage: Storage,
            pub(super) assumed_volumes: AssumedVolumes,
        }

        impl Objects {
            /// Stores a version and returns the former one.
            pub(crate) fn store(&mut self, object: &Object) -> Option<Object> {
                let old = match object {
                    Object::Pod(o) => return self.pods.insert(&o.metadata, o.clone()).map(Object::Pod),
                    Object::Node(_) => return None,
                    $(Object::$variant(o) => self.$table.insert(&o.metadata, o.clone()).map(Object::$variant),)*
                };
                self.update_indexes(old.as_ref(), Some(object));
                old
            }

            /// The stored object of a kind and name; none for nodes, which are not here.
            pub(super) fn find(&self, kind: &str, namespace: &str, name: &str) -> Option<Object> {
                match kind {
                    "Pod" => self.pods.get(namespace, name).cloned().map(Object::Pod),
                    $($kind => self.$table.get(namespace, name).cloned().map(Object::$variant),)*
                    _ => None,
                }
            }

            /// Visits all objects, kind by kind.
            pub(crate) fn each(&self, visit: &mut dyn FnMut(Object)) {
                $(self.$table.values().for_each(|o| visit(Object::$variant(o.clone())));)*
                self.pods.values().for_each(|o| visit(Object::Pod(o.clone())));
            }

            /// Removes an object and returns its last version.
            pub(crate) fn remove(&mut self, object: &Object) -> Option<Object> {
                let old = match object {
                    Object::Pod(o) => return self.pods.remove(&o.metadata).map(Object::Pod),
                    Object::Node(_) => return None,
                    $(Object::$variant(o) => self.$table.remove(&o.metadata).map(Object::$variant),)*
                };
                self.update_indexes(old.as_ref(), None);
                old
            }
        }
    };
}

objects! {
    /// A Namespace.
    Namespace(Namespace), namespaces, "v1" "Namespace";
    /// A Service.
    Service(Service), services, "v1" "Service";
    /// A ReplicationController.
    ReplicationController(ReplicationController), replication_controllers, "v1" "ReplicationController";
    /// A ReplicaSet.
    ReplicaSet(Controller), replica_sets, "apps/v1" "ReplicaSet";
    /// A StatefulSet.
    StatefulSet(Controller), stateful_sets, "apps/v1" "StatefulSet";
    /// A PodDisruptionBudget.
    PodDisruptionBudget(PodDisruptionBudget), disruption_budgets, "policy/v1" "PodDisruptionBudget";
    /// A PersistentVolume.
    PersistentVolume(PersistentVolume), persistent_volumes, "v1" "PersistentVolume";
    /// A PersistentVolumeClaim.
    PersistentVolumeClaim(PersistentVolumeClaim), persistent_volume_claims, "v1" "PersistentVolumeClaim";
    /// A StorageClass.
    StorageClass(StorageClass), storage_classes, "storage.k8s.io/v1" "StorageClass";
    /// A CSINode.
    CsiNode(CsiNode), csi_nodes, "storage.k8s.io/v1" "CSINode";
    /// A CSIDriver.
    CsiDriver(CsiDriver), csi_drivers, "storage.k8s.io/v1" "CSIDriver";
    /// A CSIStorageCapacity.
    CsiStorageCapacity(CsiStorageCapacity), csi_storage_capacities, "storage.k8s.io/v1" "CSIStorageCapacity";
    /// A VolumeAttachment.
    VolumeAttachment(VolumeAttachment), volume_attachments, "storage.k8s.io/v1" "VolumeAttachment";
    /// A ResourceClaim.
    ResourceClaim(ResourceClaim), resource_claims, "resource.k8s.io/v1" "ResourceClaim";
    /// A ResourceSlice.
    ResourceSlice(ResourceSlice), resource_slices, "resource.k8s.io/v1" "ResourceSlice";
    /// A DeviceClass.
    DeviceClass(DeviceClass), device_classes, "resource.k8s.io/v1" "DeviceClass";
}

/// A view with its type.
#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct Written<'a, T> {
    api_version: &'static str,
    kind: &'static str,
    #[serde(flatten)]
    object: &'a T,
}

/// Both versions of a changed object, as one kind.
macro_rules! versions {
    ($variant:ident, $old:expr, $new:expr) => {{
        let of = |object: Option<&Object>| match object {
            Some(Object::$variant(object)) => Some(object.clone()),
            _ => None,
        };
        (of($old), of($new))
    }};
}

impl Objects {
    /// Updates the indexes after a change.
    fn update_indexes(&mut self, old: Option<&Object>, new: Option<&Object>) {
        match new.or(old) {
            Some(Object::ResourceSlice(_)) => {
                let (old, new) = versions!(ResourceSlice, old, new);
                self.devices.slice_changed(old.as_deref(), new.as_ref());
            }
            Some(Object::ResourceClaim(_)) => {
                let (old, new) = versions!(ResourceClaim, old, new);
                for (claim, added) in [(&old, false), (&new, true)] {
                    let allocation = claim.as_ref().and_then(|claim| claim.status.allocation.as_ref());
                    self.devices.count(allocation.map_or(&[][..], |given| &given.devices.results), added);
                }
                for ended in self.claims.claim_changed(old.as_deref(), new.as_ref()) {
                    self.devices.count(&ended.devices.results, false);
                }
            }
            Some(Object::DeviceClass(_)) => {
                let (old, new) = versions!(DeviceClass, old, new);
                self.claims.class_changed(old.as_deref(), new.as_ref());
            }
            Some(Object::PersistentVolume(volume)) => self.index_volume(&volume.metadata.name),
            Some(Object::VolumeAttachment(_)) => {
                let (old, new) = versions!(VolumeAttachment, old, new);
                self.storage.attachment_changed(old.as_deref(), new.as_ref());
            }
            Some(Object::CsiStorageCapacity(_)) => {
                let (old, new) = versions!(CsiStorageCapacity, old, new);
                self.storage.capacity_changed(old.as_deref(), new.as_deref());
            }
            _ => {}
        }
    }

    /// Indexes a volume as it is now: the assumed version, while that is current.
    pub(super) fn index_volume(&mut self, name: &str) {
        let stored = self.persistent_volumes.get("", name);
        let seen = stored.map(|stored| self.assumed_volumes.as_assumed(stored));
        self.storage.volume_changed(name, seen);
    }
}
