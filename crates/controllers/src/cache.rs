//! The objects the informers have reported so far, indexed the way the control loops read them.
//!
//! Every store indexes its objects by namespace and by their controller, and keeps those without one apart, so that a
//! reconcile touches its own objects and the orphans only.

use std::collections::BTreeMap;
use std::hash::Hash;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bayplan_model::api::Resource;
use bayplan_model::delta::Delta;
use bayplan_model::keyed::KeyedMap;
use bayplan_model::meta::{HasMeta, ObjectMeta, OwnerReference, PartialObjectMetadata};
use bayplan_model::quota::{DeviceClaimMeasure, PodMeasure, ServiceMeasure, VolumeClaimMeasure};
use bayplan_model::resource_claim::ResourceClaim;
use bayplan_model::storage::{PersistentVolume, PersistentVolumeClaim, StorageClass};
use serde::de::DeserializeOwned;

use crate::attach_detach::object::{CsiDriver, VolumeAttachment};
use crate::certificates::CertificateSigningRequest;
use crate::cluster_role_aggregation::ClusterRole;
use crate::consistency::is_older;
use crate::cron_job::CronJob;
use crate::daemonset::DaemonSet;
use crate::disruption::Budget;
use crate::endpoint_slice::EndpointSlice;
use crate::endpoints::Endpoints;
use crate::horizontal_pod_autoscaler::object::Autoscaler;
use crate::job::Job;
use crate::namespace::Namespace;
use crate::node::{Lease, NODE_LEASES, Node};
use crate::pod::Pod;
use crate::replicaset::ReplicationController;
use crate::requests;
use crate::resource_claim::ResourceClaimTemplate;
use crate::resource_quota::ResourceQuota;
use crate::revisions::ControllerRevision;
use crate::service::Service;
use crate::service_account::{ConfigMap, ROOT_CA_CONFIG_MAP};
use crate::service_account_token::{TOKEN_SECRET, TokenSecretView};
use crate::service_cidr::ServiceCidr;
use crate::statefulset::StatefulSet;
use crate::token_cleaner::{BOOTSTRAP_TOKEN, BootstrapToken};
use crate::workload::{Deployment, ReplicaSet};

impl Kind {
    /// Which of the resource's objects are of interest, as a field selector.
    pub fn field_selector(self) -> String {
        match self {
            Kind::RootCa => format!("metadata.name={ROOT_CA_CONFIG_MAP}"),
            Kind::TokenSecret => format!("type={TOKEN_SECRET}"),
            Kind::BootstrapToken => format!("type={BOOTSTRAP_TOKEN}"),
            Kind::Lease => format!("metadata.namespace={NODE_LEASES}"),
            _ => String::new(),
        }
    }
}

/// A controller as its children name it. Owner references reach no other namespace, and a UID alone proves nothing:
/// whoever may write objects anywhere can put the UID of a foreign object into their owner references.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ControllerKey {
    namespace: String,
    kind: String,
    name: String,
    uid: String,
}

impl ControllerKey {
    /// The key of a controller of this kind.
    pub fn of(kind: &str, controller: &ObjectMeta) -> Self {
        ControllerKey {
            namespace: controller.namespace.clone(),
            kind: kind.into(),
            name: controller.name.clone(),
            uid: controller.uid.clone(),
        }
    }

    /// The key of the controller that a reference in an object of this namespace names.
    pub fn named_in(namespace: &str, owner: &OwnerReference) -> Self {
        ControllerKey {
            namespace: namespace.into(),
            kind: owner.kind.clone(),
            name: owner.name.clone(),
            uid: owner.uid.clone(),
        }
    }
}

/// The objects of one kind.
#[derive(Debug)]
pub struct Store<T> {
    by_namespace: BTreeMap<String, BTreeMap<String, Arc<T>>>,
    /// By controller, then by name.
    by_controller: KeyedMap<ControllerKey, BTreeMap<String, Arc<T>>>,
    orphans: KeyedMap<String, BTreeMap<String, Arc<T>>>,
    version: String,
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Store {
            by_namespace: BTreeMap::new(),
            by_controller: KeyedMap::default(),
            orphans: KeyedMap::default(),
            version: String::new(),
        }
    }
}

impl<T: HasMeta> Store<T> {
    /// One object.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<T>> {
        self.by_namespace.get(namespace)?.get(name).cloned()
    }

    /// How many objects a namespace has.
    pub fn count(&self, namespace: &str) -> usize {
        self.by_namespace.get(namespace).map_or(0, BTreeMap::len)
    }

    /// All objects of a namespace, by name.
    pub fn namespace(&self, namespace: &str) -> impl Iterator<Item = &Arc<T>> {
        self.by_namespace.get(namespace).into_iter().flat_map(BTreeMap::values)
    }

    /// All objects.
    pub fn all(&self) -> impl Iterator<Item = &Arc<T>> {
        self.by_namespace.values().flat_map(BTreeMap::values)
    }

    /// The objects that name this controller as theirs, by name.
    pub fn controlled_by(&self, controller: &ControllerKey) -> impl Iterator<Item = &Arc<T>> + use<'_, T> {
        self.by_controller.get(controller).into_iter().flat_map(BTreeMap::values)
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

    /// The delta that brings an object to this version.
    fn delta_to(&self, object: Arc<T>) -> Delta<Arc<T>> {
        let meta = object.meta();
        match self.get(&meta.namespace, &meta.name) {
            Some(old) => Delta::Updated { old, new: object },
            None => Delta::Added(object),
        }
    }

    /// Follows a change of an object.
    pub fn apply(&mut self, delta: &Delta<Arc<T>>) {
        match delta {
            Delta::Added(object) | Delta::Updated { new: object, .. } => self.insert(object),
            Delta::Deleted(object) => {
                let meta = object.meta();
                self.remove(&meta.namespace, &meta.name, &meta.resource_version);
            }
        }
    }

    fn insert(&mut self, object: &Arc<T>) {
        let meta = object.meta();
        self.bookmark(&meta.resource_version);
        let old =
            self.by_namespace.entry(meta.namespace.clone()).or_default().insert(meta.name.clone(), object.clone());
        if let Some(old) = &old {
            self.unindex(old);
        }
        let entries = match meta.controller() {
            Some(owner) => self.by_controller.entry(ControllerKey::named_in(&meta.namespace, owner)).or_default(),
            None => self.orphans.entry(meta.namespace.clone()).or_default(),
        };
        entries.insert(meta.name.clone(), object.clone());
    }

    /// Removes an object and returns its last version; `version` is that of the deletion, empty when unknown.
    fn remove(&mut self, namespace: &str, name: &str, version: &str) -> Option<Arc<T>> {
        if !version.is_empty() {
            self.bookmark(version);
        }
        let objects = self.by_namespace.get_mut(namespace)?;
        let old = objects.remove(name)?;
        if objects.is_empty() {
            self.by_namespace.remove(namespace);
        }
        self.unindex(&old);
        Some(old)
    }

    fn unindex(&mut self, old: &Arc<T>) {
        let meta = old.meta();
        match meta.controller() {
            Some(owner) => {
                remove_entry(&mut self.by_controller, &ControllerKey::named_in(&meta.namespace, owner), &meta.name);
            }
            None => remove_entry(&mut self.orphans, &meta.namespace, &meta.name),
        }
    }
}

/// Removes an object from an index, and its group with the last one.
fn remove_entry<K: Eq + Hash, T>(index: &mut KeyedMap<K, BTreeMap<String, Arc<T>>>, key: &K, name: &str) {
    let Some(entries) = index.get_mut(key) else { return };
    entries.remove(name);
    if entries.is_empty() {
        index.remove(key);
    }
}

/// Applies a delta to the cache and returns it, tagged with its kind, for [`Controller::observe`].
///
/// [`Controller::observe`]: crate::Controller::observe
pub type Apply<T> = fn(&Cache, Delta<Arc<T>>) -> AnyDelta;

/// A caller that needs the type behind a [`Kind`], to start a watch for example.
pub trait Visitor {
    /// Called with the type of the kind's objects.
    fn visit<T: HasMeta + DeserializeOwned + Send + Sync + 'static>(&mut self, kind: Kind, apply: Apply<T>);
}

/// A store is whole after every call, so a panicked writer leaves nothing half done.
fn write<T>(store: &RwLock<Store<T>>) -> RwLockWriteGuard<'_, Store<T>> {
    store.write().unwrap_or_else(PoisonError::into_inner)
}

/// Declares the kinds the control loops watch: the enum of kinds, the cache with a store for each, and the delta of
/// any of them.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident($object:ty) $field:ident = $resource:expr;)*) => {
        /// A kind the control loops watch.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Kind { $($(#[$doc])* $kind,)* }

        impl Kind {
            /// Every kind.
            pub const ALL: &'static [Kind] = &[$(Kind::$kind,)*];

            /// Calls the visitor with the type of this kind's objects and the function that applies their deltas.
            pub fn visit(self, visitor: &mut impl Visitor) {
                match self {
                    $(Kind::$kind => visitor.visit::<$object>(self, |cache, delta| {
                        write(&cache.$field).apply(&delta);
                        AnyDelta::$kind(delta)
                    }),)*
                }
            }

            /// The resource to list and watch.
            pub fn resource(self) -> Resource {
                match self { $(Kind::$kind => $resource,)* }
            }
        }

        /// A change of an object of any kind.
        #[derive(Clone, Debug)]
        pub enum AnyDelta { $($(#[$doc])* $kind(Delta<Arc<$object>>),)* }

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

            /// Stores an object that did not come from an informer, and returns the delta an informer would report.
            pub fn set(&self, kind: Kind, json: &[u8]) -> Result<AnyDelta, serde_json::Error> {
                match kind {
                    $(Kind::$kind => {
                        let object: Arc<$object> = Arc::new(serde_json::from_slice(json)?);
                        let mut store = write(&self.$field);
                        let delta = store.delta_to(object);
                        store.apply(&delta);
                        Ok(AnyDelta::$kind(delta))
                    })*
                }
            }

            /// Removes an object as [`Cache::set`] stores one; none when it is not there.
            pub fn remove(&self, kind: Kind, namespace: &str, name: &str, version: &str) -> Option<AnyDelta> {
                match kind {
                    $(Kind::$kind => {
                        let last = write(&self.$field).remove(namespace, name, version)?;
                        Some(AnyDelta::$kind(Delta::Deleted(last)))
                    })*
                }
            }

            /// Notes a version that carried no object.
            pub fn bookmark(&self, kind: Kind, version: &str) {
                match kind {
                    $(Kind::$kind => write(&self.$field).bookmark(version),)*
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
    /// ControllerRevisions.
    ControllerRevision(ControllerRevision) controller_revisions = requests::CONTROLLER_REVISIONS;
    /// DaemonSets.
    DaemonSet(DaemonSet) daemon_sets = requests::DAEMON_SETS;
    /// StatefulSets.
    StatefulSet(StatefulSet) stateful_sets = requests::STATEFUL_SETS;
    /// Jobs.
    Job(Job) jobs = requests::JOBS;
    /// CronJobs.
    CronJob(CronJob) cron_jobs = requests::CRON_JOBS;
    /// HorizontalPodAutoscalers.
    Autoscaler(Autoscaler) autoscalers = requests::HORIZONTAL_POD_AUTOSCALERS;
    /// CertificateSigningRequests.
    CertificateSigningRequest(CertificateSigningRequest) certificate_signing_requests =
        requests::CERTIFICATE_SIGNING_REQUESTS;
    /// PodDisruptionBudgets.
    Budget(Budget) budgets = requests::POD_DISRUPTION_BUDGETS;
    /// Namespaces.
    Namespace(Namespace) namespaces = requests::NAMESPACES;
    /// Service accounts.
    ServiceAccount(PartialObjectMetadata) service_accounts = requests::SERVICE_ACCOUNTS;
    /// Services.
    Service(Service) services = requests::SERVICES;
    /// Endpoints.
    Endpoints(Endpoints) endpoints = requests::ENDPOINTS;
    /// EndpointSlices.
    EndpointSlice(EndpointSlice) endpoint_slices = requests::ENDPOINT_SLICES;
    /// The ConfigMaps that hold the cluster's certificate authority.
    RootCa(ConfigMap) root_cas = requests::CONFIG_MAPS;
    /// The secrets that hold tokens of service accounts.
    TokenSecret(TokenSecretView) token_secrets = requests::SECRETS;
    /// The secrets by which nodes join.
    BootstrapToken(BootstrapToken) bootstrap_tokens = requests::SECRETS;
    /// ClusterRoles.
    ClusterRole(ClusterRole) cluster_roles = requests::CLUSTER_ROLES;
    /// The ranges of Services' addresses.
    ServiceCidr(ServiceCidr) service_cidrs = requests::SERVICE_CIDRS;
    /// The addresses that Services have.
    ServiceAddress(PartialObjectMetadata) service_addresses = requests::IP_ADDRESSES;
    /// VolumeAttributesClasses.
    VolumeAttributesClass(PartialObjectMetadata) volume_attributes_classes = requests::VOLUME_ATTRIBUTES_CLASSES;
    /// VolumeAttachments.
    VolumeAttachment(VolumeAttachment) volume_attachments = requests::VOLUME_ATTACHMENTS;
    /// CSIDrivers.
    CsiDriver(CsiDriver) csi_drivers = requests::CSI_DRIVERS;
    /// ResourceQuotas.
    ResourceQuota(ResourceQuota) resource_quotas = requests::RESOURCE_QUOTAS;
    /// Pods as quotas count them.
    CountedPod(PodMeasure) counted_pods = requests::PODS;
    /// Services as quotas count them.
    CountedService(ServiceMeasure) counted_services = Resource::new("", "v1", "services");
    /// PersistentVolumeClaims as quotas count them.
    CountedVolumeClaim(VolumeClaimMeasure) counted_volume_claims = requests::PERSISTENT_VOLUME_CLAIMS;
    /// ResourceClaims as quotas count them.
    CountedDeviceClaim(DeviceClaimMeasure) counted_device_claims = requests::RESOURCE_CLAIMS;
}
