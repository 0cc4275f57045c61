//! What the watches have told so far, indexed the way the control loops ask.
//!
//! Every store indexes its objects by namespace, by the UID of their controller, and keeps those without one apart,
//! so that a reconcile touches its own objects and the orphans only.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use bayplan_model::api::Resource;
use bayplan_model::meta::{HasMeta, ObjectMeta};
use bayplan_model::resource_claim::ResourceClaim;
use bayplan_model::storage::{PersistentVolume, PersistentVolumeClaim, StorageClass};
use rustc_hash::FxHashMap;
use serde::de::DeserializeOwned;

use crate::consistency::is_older;
use crate::disruption::Budget;
use crate::namespace::Namespace;
use crate::node::{Lease, NODE_LEASES, Node};
use crate::pod::Pod;
use crate::replicaset::ReplicationController;
use crate::requests;
use crate::resource_claim::ResourceClaimTemplate;
use crate::service_account::{ConfigMap, ROOT_CA_CONFIG_MAP};
use crate::workload::{Deployment, ReplicaSet};

/// An object of which nobody reads more than its metadata.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Metadata {
    /// Metadata.
    pub metadata: ObjectMeta,
}

impl HasMeta for Metadata {
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
}

impl Kind {
    /// Which of the resource's objects are of interest, as a field selector.
    pub fn field_selector(self) -> String {
        match self {
            Kind::RootCa => format!("metadata.name={ROOT_CA_CONFIG_MAP}"),
            Kind::Lease => format!("metadata.namespace={NODE_LEASES}"),
            _ => String::new(),
        }
    }
}

/// One change of one object.
#[derive(Clone, Debug)]
pub enum Delta<T> {
    /// Not known before.
    Added(Arc<T>),
    /// Known before; resyncs and relists may repeat the same version.
    Updated {
        /// Before.
        old: Arc<T>,
        /// After.
        new: Arc<T>,
    },
    /// Gone; its last known state.
    Deleted(Arc<T>),
}

/// The objects of one kind.
#[derive(Debug)]
pub struct Store<T> {
    by_namespace: FxHashMap<String, BTreeMap<String, Arc<T>>>,
    by_controller: FxHashMap<String, BTreeMap<String, Arc<T>>>,
    orphans: FxHashMap<String, BTreeMap<String, Arc<T>>>,
    version: String,
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Store {
            by_namespace: FxHashMap::default(),
            by_controller: FxHashMap::default(),
            orphans: FxHashMap::default(),
            version: String::new(),
        }
    }
}

impl<T: HasMeta> Store<T> {
    /// One object.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<T>> {
        self.by_namespace.get(namespace)?.get(name).cloned()
    }

    /// All objects of a namespace, by name.
    pub fn namespace(&self, namespace: &str) -> impl Iterator<Item = &Arc<T>> {
        self.by_namespace.get(namespace).into_iter().flat_map(BTreeMap::values)
    }

    /// All objects.
    pub fn all(&self) -> impl Iterator<Item = &Arc<T>> {
        self.by_namespace.values().flat_map(BTreeMap::values)
    }

    /// The objects that name this UID as their controller, by key.
    pub fn controlled_by(&self, uid: &str) -> impl Iterator<Item = &Arc<T>> {
        self.by_controller.get(uid).into_iter().flat_map(BTreeMap::values)
    }

    /// The objects of a namespace without a controller, by name.
    pub fn orphans(&self, namespace: &str) -> impl Iterator<Item = &Arc<T>> {
        self.orphans.get(namespace).into_iter().flat_map(BTreeMap::values)
    }

    /// The resource version of the last event the store has processed.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Notes a version that carried no object: a bookmark, or the end of a list.
    pub fn bookmark(&mut self, version: &str) {
        if !is_older(version, &self.version) {
            version.clone_into(&mut self.version);
        }
    }

    /// Keeps the newest state of an object.
    pub fn set(&mut self, object: Arc<T>) -> Delta<T> {
        let meta = object.meta();
        self.bookmark(&meta.resource_version);
        let old =
            self.by_namespace.entry(meta.namespace.clone()).or_default().insert(meta.name.clone(), object.clone());
        if let Some(old) = &old {
            self.unindex(old);
        }
        match meta.controller() {
            Some(owner) => self.by_controller.entry(owner.uid.clone()).or_default().insert(meta.key(), object.clone()),
            None => self.orphans.entry(meta.namespace.clone()).or_default().insert(meta.name.clone(), object.clone()),
        };
        match old {
            Some(old) => Delta::Updated { old, new: object },
            None => Delta::Added(object),
        }
    }

    /// Forgets an object; the version is that of its deletion, when known.
    pub fn remove(&mut self, namespace: &str, name: &str, version: &str) -> Option<Delta<T>> {
        if !version.is_empty() {
            self.bookmark(version);
        }
        let objects = self.by_namespace.get_mut(namespace)?;
        let old = objects.remove(name)?;
        if objects.is_empty() {
            self.by_namespace.remove(namespace);
        }
        self.unindex(&old);
        Some(Delta::Deleted(old))
    }

    fn unindex(&mut self, old: &Arc<T>) {
        let meta = old.meta();
        let (index, key, entry) = match meta.controller() {
            Some(owner) => (&mut self.by_controller, &owner.uid, meta.key()),
            None => (&mut self.orphans, &meta.namespace, meta.name.clone()),
        };
        if let Some(entries) = index.get_mut(key) {
            entries.remove(&entry);
            if entries.is_empty() {
                index.remove(key);
            }
        }
    }
}

/// What a watch said of an object.
#[derive(Clone, Debug)]
pub enum Sighting<T> {
    /// It is there, in this state.
    Present(Arc<T>),
    /// It is gone; this is its last known state.
    Absent(Arc<T>),
}

/// Tells the cache of a sighting; answers what changed by it.
pub type Feed<T> = fn(&Cache, Sighting<T>) -> Option<Change>;

/// Someone who needs to know the type behind a [`Kind`], to start a watch for example.
pub trait Visitor {
    /// Called with the type of the kind's objects.
    fn visit<T: HasMeta + DeserializeOwned + Send + Sync + 'static>(&mut self, kind: Kind, feed: Feed<T>);
}

/// Declares the kinds the control loops watch: the enum of kinds, the cache with a store for each, and the change
/// that one of them saw.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident($object:ty) $field:ident = $resource:expr;)*) => {
        /// A kind the control loops watch.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Kind { $($(#[$doc])* $kind,)* }

        impl Kind {
            /// Every kind.
            pub const ALL: &'static [Kind] = &[$(Kind::$kind,)*];

            /// Calls the visitor with the type of this kind's objects, and with the way to tell the cache about them.
            pub fn visit(self, visitor: &mut impl Visitor) {
                match self {
                    $(Kind::$kind => visitor.visit::<$object>(self, |cache, sighting| match sighting {
                        Sighting::Present(object) => {
                            let mut store = cache.$field.write().unwrap_or_else(PoisonError::into_inner);
                            Some(Change::$kind(store.set(object)))
                        }
                        Sighting::Absent(object) => {
                            let meta = object.meta();
                            cache.remove(self::Kind::$kind, &meta.namespace, &meta.name, &meta.resource_version)
                        }
                    }),)*
                }
            }

            /// The resource to list and watch.
            pub fn resource(self) -> Resource {
                match self { $(Kind::$kind => $resource,)* }
            }
        }

        /// One change of one object, of any kind.
        #[derive(Clone, Debug)]
        pub enum Change { $($(#[$doc])* $kind(Delta<$object>),)* }

        /// The stores of all kinds. Readers hold a store only while they copy out what they need.
        #[derive(Debug, Default)]
        pub struct Cache { $($field: RwLock<Store<$object>>,)* }

        impl Cache {
            $(
                $(#[$doc])*
                pub fn $field(&self) -> RwLockReadGuard<'_, Store<$object>> {
                    self.$field.read().unwrap_or_else(PoisonError::into_inner)
                }
            )*

            /// Keeps an object as a watch or list sent it.
            pub fn set(&self, kind: Kind, json: &[u8]) -> Result<Change, serde_json::Error> {
                match kind {
                    $(Kind::$kind => {
                        let object: Arc<$object> = Arc::new(serde_json::from_slice(json)?);
                        let mut store = self.$field.write().unwrap_or_else(PoisonError::into_inner);
                        Ok(Change::$kind(store.set(object)))
                    })*
                }
            }

            /// Forgets an object that a watch or list no longer has.
            pub fn remove(&self, kind: Kind, namespace: &str, name: &str, version: &str) -> Option<Change> {
                match kind {
                    $(Kind::$kind => {
                        let mut store = self.$field.write().unwrap_or_else(PoisonError::into_inner);
                        store.remove(namespace, name, version).map(Change::$kind)
                    })*
                }
            }

            /// Notes a version that carried no object.
            pub fn bookmark(&self, kind: Kind, version: &str) {
                match kind {
                    $(Kind::$kind => {
                        self.$field.write().unwrap_or_else(PoisonError::into_inner).bookmark(version)
                    })*
                }
            }
        }
    };
}

kinds! {
    /// Pods.
    Pod(Pod) pods = requests::PODS;
    /// ReplicaSets.
    ReplicaSet(ReplicaSet) replica_sets = requests::REPLICA_SETS;
    /// ReplicationControllers.
    ReplicationController(ReplicationController) replication_controllers = requests::REPLICATION_CONTROLLERS;
    /// Nodes.
    Node(Node) nodes = requests::NODES;
    /// The leases by which kubelets are known to live.
    Lease(Lease) leases = requests::LEASES;
    /// PersistentVolumes.
    Volume(PersistentVolume) volumes = requests::PERSISTENT_VOLUMES;
    /// PersistentVolumeClaims.
    VolumeClaim(PersistentVolumeClaim) volume_claims = requests::PERSISTENT_VOLUME_CLAIMS;
    /// StorageClasses.
    StorageClass(StorageClass) storage_classes = requests::STORAGE_CLASSES;
    /// ResourceClaims.
    ResourceClaim(ResourceClaim) resource_claims = requests::RESOURCE_CLAIMS;
    /// ResourceClaimTemplates.
    ResourceClaimTemplate(ResourceClaimTemplate) resource_claim_templates = requests::RESOURCE_CLAIM_TEMPLATES;
    /// Deployments.
    Deployment(Deployment) deployments = requests::DEPLOYMENTS;
    /// PodDisruptionBudgets.
    Budget(Budget) budgets = requests::POD_DISRUPTION_BUDGETS;
    /// Namespaces.
    Namespace(Namespace) namespaces = requests::NAMESPACES;
    /// Service accounts.
    ServiceAccount(Metadata) service_accounts = requests::SERVICE_ACCOUNTS;
    /// The ConfigMaps that hold the cluster's certificate authority.
    RootCa(ConfigMap) root_cas = requests::CONFIG_MAPS;
}
