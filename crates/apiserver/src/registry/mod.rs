//! The verbs on stored objects; upstream's generic registry.
//!
//! ```text
//!   create   decode ▶ default ▶ mutating admission ▶ strategy ▶ validation ▶ validating admission ▶ store
//!   update   the same with the stored object, in a compare-and-swap loop; a patch is applied inside the loop
//!   delete   grace period, finalizers, then removal
//!   list     one range of the store, filtered by the labels and fields that the watch cache has parsed
//! ```

mod admin_access;
mod answer;
pub(crate) mod apply;
mod continuation;
mod conversion;
mod create;
pub(crate) mod decode;
mod delete;
pub(crate) mod list;
pub(crate) mod metadata;
mod objects;
mod ownership;
pub(crate) mod patch;
#[cfg(test)]
mod races;
mod revision_waiters;
mod service_addresses;
mod update;

use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bayplan_kinds::{Kind, served};
use bayplan_model::status::Status;
use bayplan_store::{Entry, Revision, Store, WriteError};
use bytes::Bytes;
use jiff::Timestamp;
use rustc_hash::FxHashMap;
use serde_json::Value;

pub(crate) use answer::{Answer, Body, List, VersionedObject};
pub(crate) use delete::check_delete_preconditions;
pub(crate) use objects::{Objects, SystemObjects, SystemWrite};
pub(crate) use ownership::{ScaleWriter, Writer};
pub(crate) use patch::PatchKind;
use revision_waiters::RevisionWaiters;
pub(crate) use service_addresses::{NODE_PORTS, keep_service_addresses};
pub use service_addresses::{ServiceRange, ServiceRangeError};
pub(crate) use update::{UpdatedObject, check_identity};

use crate::admission::{AdmissionContext, AdmissionMetrics, AdmissionPlugins, Operation};
use crate::authz::Authorizer;
use crate::big_work::BigWork;
use crate::encode::Encoded;
use crate::request::Preconditions;
use crate::status_errors;
use crate::user::User;
use crate::warnings::Warnings;
use crate::watch_cache::WatchCache;

/// How long a read waits for the store to reach its resource version, as upstream's watch cache.
const REVISION_TIMEOUT: Duration = Duration::from_secs(3);
/// The prefix of all keys.
const ALL_KEYS: &str = "/";

/// How long an event is kept after its last write, unless somebody says otherwise; upstream's `--event-ttl`.
pub(crate) const EVENT_LIFETIME: Duration = Duration::from_hours(1);

/// The source of the current time; tests provide their own.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The stored objects and the verbs on them.
pub(crate) struct Registry {
    store: Arc<dyn Store>,
    caches: FxHashMap<&'static str, Arc<WatchCache>>,
    clock: Clock,
    plugins: AdmissionPlugins,
    service_range: ServiceRange,
    /// The ports that services get.
    pub(crate) node_ports: RangeInclusive<u16>,
    /// How long an event is kept after its last write.
    pub(crate) event_lifetime: Duration,
    /// Where it is told how long admission takes, if anybody wants to know.
    pub(crate) admission_metrics: Option<AdmissionMetrics>,
    /// Decides about what a request does besides its own verb.
    authorizer: Authorizer,
    waiters: Arc<RevisionWaiters>,
    /// Where requests with large bodies are carried out.
    pub(crate) big_work: BigWork,
    /// When the range of cluster IPs was last looked through and found full.
    range_full: Mutex<Option<(Timestamp, usize)>>,
}

/// One call of a verb on an object or a collection.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    /// The resource in the version of the URL.
    pub(crate) resource: &'static Kind,
    /// Empty for the object itself.
    pub(crate) subresource: &'a str,
    /// Empty at cluster scope.
    pub(crate) namespace: &'a str,
    /// Empty for collections.
    pub(crate) name: &'a str,
    /// The user who makes the request.
    pub(crate) user: &'a User,
    /// Run every check, write nothing.
    pub(crate) dry_run: bool,
    /// Whether a new object has its labels in common with its template.
    pub(crate) shares_labels: bool,
    /// Who owns the fields that a write sets; empty if unknown.
    pub(crate) manager: &'a str,
    /// What the client is warned of.
    pub(crate) warnings: &'a Warnings,
}

impl Registry {
    /// A registry over a store; the caller feeds its [caches](Self::caches).
    pub(crate) fn new(
        store: Arc<dyn Store>,
        clock: Clock,
        plugins: AdmissionPlugins,
        service_range: ServiceRange,
        authorizer: Authorizer,
    ) -> Registry {
        let caches = served()
            .filter(|r| r.stored() && std::ptr::eq(*r, r.storage()))
            .map(|r| (r.storage_prefix, Arc::new(WatchCache::new(r))))
            .collect();
        Registry {
            store,
            caches,
            clock,
            plugins,
            service_range,
            node_ports: NODE_PORTS,
            event_lifetime: EVENT_LIFETIME,
            admission_metrics: None,
            authorizer,
            waiters: Arc::default(),
            big_work: BigWork::default(),
            range_full: Mutex::default(),
        }
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub(crate) fn plugins(&self) -> AdmissionPlugins {
        self.plugins
    }

    /// The watch caches, one for each stored resource.
    pub(crate) fn caches(&self) -> impl Iterator<Item = &Arc<WatchCache>> {
        self.caches.values()
    }

    pub(crate) fn cache(&self, resource: &'static Kind) -> &Arc<WatchCache> {
        self.caches.get(resource.storage_prefix).expect("every stored resource has a cache")
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// The storage key of an object.
    pub(crate) fn key(resource: &Kind, namespace: &str, name: &str) -> String {
        if resource.namespaced() {
            format!("/registry/{}/{namespace}/{name}", resource.storage_prefix)
        } else {
            format!("/registry/{}/{name}", resource.storage_prefix)
        }
    }

    async fn entry(&self, key: &str) -> Result<Option<Entry>, Status> {
        self.store.get(key).await.map_err(status_errors::read)
    }

    /// The newest entry of a key that is known here. One that is not known is looked for in the store itself: another
    /// server may have written it just now.
    async fn recent_entry(&self, key: &str) -> Result<Option<Entry>, Status> {
        match self.store.get_recent(key).await.map_err(status_errors::read)? {
            Some(entry) => Ok(Some(entry)),
            None => self.entry(key).await,
        }
    }

    /// How long an object of a kind is kept after its last write; `None` until somebody deletes it.
    fn lifetime(&self, kind: &Kind) -> Option<Duration> {
        (kind.storage_prefix == "events").then_some(self.event_lifetime)
    }

    /// Stores the bytes of a new object; events for a time.
    async fn write_new(&self, kind: &Kind, key: &str, value: Bytes) -> Result<Revision, WriteError> {
        match self.lifetime(kind) {
            Some(lifetime) => self.store.create_expiring(key, value, lifetime).await,
            None => self.store.create(key, value).await,
        }
    }

    /// Stores new bytes of an object that must be at a revision; the time of an event begins again.
    async fn write_changed(
        &self,
        kind: &Kind,
        key: &str,
        value: Bytes,
        expected: Revision,
    ) -> Result<Revision, WriteError> {
        match self.lifetime(kind) {
            Some(lifetime) => self.store.update_expiring(key, value, expected, lifetime).await,
            None => self.store.update(key, value, expected).await,
        }
    }

    /// Reads one object.
    pub(crate) async fn get(&self, call: Call<'_>, resource_version: &str) -> Result<Answer, Status> {
        if !resource_version.is_empty() && resource_version != "0" {
            let requested = resource_version.parse::<Revision>().map_err(|_| {
                status_errors::plain(format!(
                    "resourceVersion: Invalid value: {resource_version:?}: strconv.ParseUint: parsing \
                     {resource_version:?}: invalid syntax"
                ))
            })?;
            self.wait_for(requested).await?;
        }
        let key = Self::key(call.resource, call.namespace, call.name);
        let entry = if resource_version == "0" { self.recent_entry(&key).await? } else { self.entry(&key).await? };
        let entry = entry.ok_or_else(|| status_errors::not_found(call.resource, call.name))?;
        let encoded = self.view(call.resource, &entry)?;
        Ok(Answer::object(200, call.resource, encoded, Some(entry.mod_revision)))
    }

    /// An entry in the requested version: the stored bytes, or a conversion of them.
    fn view(&self, resource: &'static Kind, entry: &Entry) -> Result<Encoded, Status> {
        let encoded = Encoded::from_store(resource.storage(), entry.value.clone())?;
        conversion::view(resource, encoded)
    }

    /// The decoded object in the requested version, with its resource version.
    fn decoded(&self, resource: &'static Kind, entry: &Entry) -> Result<Value, Status> {
        let stored = Encoded::from_store(resource.storage(), entry.value.clone())?;
        let mut object = stored.decode(Some(entry.mod_revision))?;
        resource.convert_from_storage(&mut object);
        Ok(object)
    }

    /// Encodes an object in the storage version.
    fn encode(&self, resource: &'static Kind, object: &Value) -> Encoded {
        if std::ptr::eq(resource, resource.storage()) {
            return Encoded::new(resource, object);
        }
        let mut object = object.clone();
        resource.convert_to_storage(&mut object);
        Encoded::new(resource.storage(), &object)
    }

    /// Waits until the store has reached a revision, which a read with `resourceVersion=N` demands.
    pub(crate) async fn wait_for(&self, requested: Revision) -> Result<(), Status> {
        if self.revision().await? >= requested {
            return Ok(());
        }
        match tokio::time::timeout(REVISION_TIMEOUT, self.waiters.wait(&self.store, requested)).await {
            Ok(()) => Ok(()),
            Err(_elapsed) => match self.revision().await? {
                current if current >= requested => Ok(()),
                current => Err(status_errors::version_too_large(requested, current)),
            },
        }
    }

    /// The store's revision.
    pub(crate) async fn revision(&self) -> Result<Revision, Status> {
        self.store.revision().await.map_err(status_errors::read)
    }

    pub(crate) fn admission<'a>(&'a self, call: Call<'a>, operation: Operation, name: &'a str) -> AdmissionContext<'a> {
        AdmissionContext {
            operation,
            resource: call.resource,
            subresource: call.subresource,
            namespace: call.namespace,
            name,
            requested_name: call.name,
            user: call.user,
            dry_run: call.dry_run,
            warnings: call.warnings,
            objects: self,
            metrics: self.admission_metrics.as_ref(),
            authorizer: &self.authorizer,
        }
    }
}

/// Checks uid and resource version; the message names the key, as upstream's storage does.
pub(crate) fn check_preconditions(
    call: &Call<'_>,
    key: &str,
    preconditions: &Preconditions,
    object: &Value,
) -> Result<(), Status> {
    let storage_error = |what: &str, wanted: &str, found: &str| {
        status_errors::conflict(
            call.resource,
            call.name,
            format!(
                "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: \
                 Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
            ),
        )
    };
    let metadata = &object["metadata"];
    if let Some(uid) = &preconditions.uid {
        let found = metadata["uid"].as_str().unwrap_or_default();
        if uid != found {
            return Err(storage_error("UID", uid, found));
        }
    }
    if let Some(version) = &preconditions.resource_version {
        let found = metadata["resourceVersion"].as_str().unwrap_or_default();
        if version != found {
            return Err(storage_error("ResourceVersion", version, found));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bayplan_store::LogStore;

    use super::*;

    fn registry() -> Registry {
        let store = Arc::new(LogStore::in_memory().unwrap());
        let (plugins, range) = (AdmissionPlugins::default(), ServiceRange::default());
        Registry::new(store, Arc::new(Timestamp::now), plugins, range, Authorizer::default())
    }

    #[tokio::test]
    async fn a_read_waits_for_the_write_of_its_resource_version() {
        let registry = registry();
        let requested = registry.revision().await.unwrap() + 2;
        let write = async {
            registry.store.create("/registry/configmaps/a/b", Bytes::from_static(b"{}")).await.unwrap();
            registry.store.create("/registry/pods/a/b", Bytes::from_static(b"{}")).await.unwrap();
        };
        let (waited, ()) = tokio::join!(registry.wait_for(requested), write);
        waited.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_of_a_resource_version_that_never_comes_ends_after_three_seconds() {
        let registry = registry();
        let started = tokio::time::Instant::now();
        let status = registry.wait_for(1_000).await.unwrap_err();
        assert_eq!((status.code, started.elapsed().as_secs()), (504, 3));
        assert_eq!(status.message, "Timeout: Too large resource version: 1000, current: 1");
    }
}
