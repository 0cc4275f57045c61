//! The generic verbs over the store: what every stored kind has in common.
//!
//! ```text
//!   create   decode ▶ defaults ▶ mutating admission ▶ system fields, strategy ▶ validation ▶ validating admission ▶ store
//!   update   the same around the stored object, in a compare-and-swap loop; patches are applied inside the loop
//!   delete   grace, finalizers, then removal
//!   list     one range of the store, filtered by the watch cache's parsed labels and fields
//! ```

mod answer;
mod continuation;
mod conversion;
mod create;
mod delete;
pub(crate) mod list;
pub mod metadata;
mod objects;
pub(crate) mod patch;
mod service_addresses;
mod update;

use std::sync::Arc;

use bayplan_model::status::Status;
use bayplan_store::{Entry, Revision, Store};
use jiff::Timestamp;
use rustc_hash::FxHashMap;
use serde_json::Value;

pub use answer::{Answer, Body, List, Shown};
pub(crate) use delete::check_delete_preconditions;
pub use objects::Objects;
pub use patch::PatchKind;
pub use service_addresses::{ServiceRange, ServiceRangeError};
pub use update::Change;

use crate::admission::{AdmissionContext, Operation, Plugins};
use crate::cache::Cache;
use crate::encode::Encoded;
use crate::request::Preconditions;
use crate::resources::{RESOURCES, Resource};
use crate::status_errors;
use crate::user::User;

/// Where time comes from; tests give their own.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The stored objects and the verbs on them.
pub struct Registry {
    store: Arc<dyn Store>,
    caches: FxHashMap<&'static str, Arc<Cache>>,
    clock: Clock,
    plugins: Plugins,
    service_range: ServiceRange,
    /// Held while a service gets its addresses and is stored.
    services: tokio::sync::Mutex<()>,
}

/// One call of a verb on an object or a collection: what it is about, and who makes it.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// The resource as the client names it.
    pub resource: &'static Resource,
    /// The subresource, empty for the object itself.
    pub subresource: &'a str,
    /// The namespace, empty at cluster scope.
    pub namespace: &'a str,
    /// The name, empty for collections.
    pub name: &'a str,
    /// Who.
    pub user: &'a User,
    /// Do everything but write.
    pub dry_run: bool,
}

impl Registry {
    /// A registry over a store; its caches must be [fed](Self::caches).
    pub fn new(store: Arc<dyn Store>, clock: Clock, plugins: Plugins, service_range: ServiceRange) -> Registry {
        let caches = RESOURCES
            .iter()
            .filter(|r| r.stored() && std::ptr::eq(*r, r.storage()))
            .map(|r| (r.storage_prefix, Arc::new(Cache::new(r))))
            .collect();
        Registry { store, caches, clock, plugins, service_range, services: tokio::sync::Mutex::default() }
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The admission plugins.
    pub fn plugins(&self) -> Plugins {
        self.plugins
    }

    /// The watch caches, one for each stored resource.
    pub fn caches(&self) -> impl Iterator<Item = &Arc<Cache>> {
        self.caches.values()
    }

    /// The watch cache of a resource.
    pub fn cache(&self, resource: &'static Resource) -> &Arc<Cache> {
        self.caches.get(resource.storage_prefix).expect("every stored resource has a cache")
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// The storage key of an object.
    pub fn key(resource: &Resource, namespace: &str, name: &str) -> String {
        if resource.namespaced() {
            format!("/registry/{}/{namespace}/{name}", resource.storage_prefix)
        } else {
            format!("/registry/{}/{name}", resource.storage_prefix)
        }
    }

    async fn entry(&self, key: &str) -> Result<Option<Entry>, Status> {
        self.store.get(key).await.map_err(status_errors::read)
    }

    /// Reads one object.
    pub async fn get(&self, call: Call<'_>, resource_version: &str) -> Result<Answer, Status> {
        if !resource_version.is_empty() && resource_version != "0" {
            let requested = resource_version.parse::<Revision>().map_err(|_| {
                status_errors::plain(format!(
                    "resourceVersion: Invalid value: {resource_version:?}: strconv.ParseUint: parsing {resource_version:?}: invalid syntax"
                ))
            })?;
            self.wait_for(requested).await?;
        }
        let entry = self
            .entry(&Self::key(call.resource, call.namespace, call.name))
            .await?
            .ok_or_else(|| status_errors::not_found(call.resource, call.name))?;
        let encoded = self.view(call.resource, &entry)?;
        Ok(Answer::object(200, call.resource, encoded, Some(entry.mod_revision)))
    }

    /// An entry as the resource asked for shows it: the stored bytes, or a conversion of them.
    fn view(&self, resource: &'static Resource, entry: &Entry) -> Result<Encoded, Status> {
        let encoded = Encoded::from_store(resource.storage(), entry.value.clone())?;
        conversion::view(resource, encoded)
    }

    /// The decoded object with its resource version, as the resource asked for shows it.
    fn decoded(&self, resource: &'static Resource, entry: &Entry) -> Result<Value, Status> {
        let object = Encoded::from_store(resource.storage(), entry.value.clone())?.decode(Some(entry.mod_revision))?;
        Ok(conversion::from_storage(resource, object))
    }

    /// An object ready to be stored.
    fn encode(&self, resource: &'static Resource, object: &Value) -> Encoded {
        if std::ptr::eq(resource, resource.storage()) {
            return Encoded::new(resource, object);
        }
        Encoded::new(resource.storage(), &conversion::to_storage(resource, object.clone()))
    }

    /// Waits until the store has reached a revision: what `resourceVersion=N` of a read promises.
    pub async fn wait_for(&self, requested: Revision) -> Result<(), Status> {
        const STEP: std::time::Duration = std::time::Duration::from_millis(100);
        /// Upstream gives up after three seconds.
        const STEPS: usize = 30;
        for step in 0..=STEPS {
            let current = self.store.revision().await.map_err(status_errors::read)?;
            if current >= requested {
                return Ok(());
            }
            if step == STEPS {
                return Err(status_errors::version_too_large(requested, current));
            }
            tokio::time::sleep(STEP).await;
        }
        Ok(())
    }

    fn admission<'a>(&'a self, call: Call<'a>, operation: Operation, name: &'a str) -> AdmissionContext<'a> {
        AdmissionContext {
            operation,
            resource: call.resource,
            subresource: call.subresource,
            namespace: call.namespace,
            name,
            user: call.user,
            dry_run: call.dry_run,
            objects: self,
        }
    }
}

/// Checks uid and resource version the way the store does: the message names the key.
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
                "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"
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
