//! The server's own access to stored objects, for authorization, admission, bootstrap and subresources.

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_kinds::Kind;
use bayplan_kinds::codec::Empties;
use bayplan_model::status::Status;
use bayplan_store::WriteError;
use futures::future::BoxFuture;
use serde_json::Value;

use super::ownership::Writer;
use super::{Registry, metadata};
use crate::status_errors;
use crate::watch_cache::labels_of;

/// Reads without authorization: what the server itself needs to know. What is answered may be a moment old where
/// several servers share a store, as upstream's informers; a write that is based on it has its own precondition.
pub(crate) trait Objects: Send + Sync {
    /// One object as JSON with its resource version; `namespace` is empty for cluster-scoped resources.
    fn get<'a>(
        &'a self,
        resource: &'static Kind,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<Value>>, Status>>;

    /// The labels of one object: cheaper than [`get`](Self::get), which keeps the whole object decoded.
    fn labels<'a>(
        &'a self,
        resource: &'static Kind,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<BTreeMap<String, String>>, Status>> {
        let labels = |object: Arc<Value>| labels_of(&object["metadata"]);
        Box::pin(async move { Ok(self.get(resource, namespace, name).await?.map(labels)) })
    }

    /// All objects of a namespace, or of the cluster if `namespace` is empty, in storage order.
    fn list<'a>(
        &'a self,
        resource: &'static Kind,
        namespace: &'a str,
    ) -> BoxFuture<'a, Result<Vec<Arc<Value>>, Status>>;
}

/// Why the server writes an object without the checks of a client's write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SystemWrite {
    /// The objects every cluster starts with, written before the first request is served.
    Bootstrap,
    /// `pods/binding` sets `spec.nodeName`, which no update may change. The binding itself was authorized and admitted.
    Binding,
    /// `pods/eviction` sets `DisruptionTarget` on the pod. The eviction itself was authorized, and the deletion that
    /// follows is admitted.
    Eviction,
    /// `pods/eviction` takes a disruption from the budget.
    Disruption,
    /// The server's address and its leases, renewed while it runs.
    ServerAddress,
    /// The IPAddress of a service that is about to be written.
    ServiceAddress,
    /// The server finds its own range of addresses ready, by an apply that says who owns that.
    ServiceRange,
    /// The `ResourceQuota` admission plugin charges the quota for the object that is about to be written.
    QuotaUsage,
}

impl SystemWrite {
    /// The subresource that a client would write through, if the write makes the server own what it changes. What
    /// upstream writes straight to its storage is owned by nobody.
    fn tracked_through(self) -> Option<&'static str> {
        match self {
            SystemWrite::Bootstrap | SystemWrite::ServerAddress | SystemWrite::ServiceAddress => Some(""),
            SystemWrite::QuotaUsage | SystemWrite::Disruption => Some("status"),
            SystemWrite::Binding | SystemWrite::Eviction | SystemWrite::ServiceRange => None,
        }
    }
}

/// Writes that skip authorization, admission and validation; each call names its reason.
pub(crate) trait SystemObjects: Objects {
    /// Stores a new object with a new uid and creation time, unchecked.
    fn create_unchecked<'a>(
        &'a self,
        why: SystemWrite,
        resource: &'static Kind,
        namespace: &'a str,
        object: Value,
    ) -> BoxFuture<'a, Result<Arc<Value>, Status>>;

    /// Changes an object in place, unchecked; retries while other writers are faster, until `change` fails.
    fn update_unchecked<'a>(
        &'a self,
        why: SystemWrite,
        resource: &'static Kind,
        namespace: &'a str,
        name: &'a str,
        change: &'a mut (dyn FnMut(&mut Value) -> Result<(), Status> + Send),
    ) -> BoxFuture<'a, Result<Arc<Value>, Status>>;
}

impl Objects for Registry {
    fn get<'a>(
        &'a self,
        resource: &'static Kind,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<Value>>, Status>> {
        Box::pin(async move {
            match self.recent_entry(&Self::key(resource, namespace, name)).await? {
                Some(entry) => self.converted(resource, &self.cache(resource).object(&entry)?)?.decoded().map(Some),
                None => Ok(None),
            }
        })
    }

    fn labels<'a>(
        &'a self,
        resource: &'static Kind,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<BTreeMap<String, String>>, Status>> {
        Box::pin(async move {
            let entry = self.recent_entry(&Self::key(resource, namespace, name)).await?;
            entry.map(|entry| Ok(self.cache(resource).object(&entry)?.labels.clone())).transpose()
        })
    }

    fn list<'a>(
        &'a self,
        resource: &'static Kind,
        namespace: &'a str,
    ) -> BoxFuture<'a, Result<Vec<Arc<Value>>, Status>> {
        Box::pin(async move {
            let (start, end) = Self::bounds(resource, namespace);
            let range = self.store().range_recent(&start, &end, 0).await.map_err(status_errors::read)?;
            let cache = self.cache(resource);
            range.entries.iter().map(|entry| self.converted(resource, &cache.object(entry)?)?.decoded()).collect()
        })
    }
}

impl SystemObjects for Registry {
    fn create_unchecked<'a>(
        &'a self,
        why: SystemWrite,
        resource: &'static Kind,
        namespace: &'a str,
        mut object: Value,
    ) -> BoxFuture<'a, Result<Arc<Value>, Status>> {
        Box::pin(async move {
            metadata::wipe_system_fields(&mut object);
            if resource.namespaced() {
                metadata::of(&mut object).insert("namespace".to_owned(), Value::String(namespace.to_owned()));
            }
            if let Some(subresource) = why.tracked_through() {
                Writer::server(resource, subresource).track_create(&mut object, &Empties::default(), self.now());
            }
            metadata::fill_system_fields(&mut object, self.now());
            resource.prepare_for_create(&mut object, self.now());
            let name = metadata::text(&object, "name").to_owned();
            let encoded = self.encode(resource, &object);
            let key = Self::key(resource, namespace, &name);
            tracing::trace!(?why, key, "the server creates an object unchecked");
            match self.store().create(&key, encoded.bytes().clone()).await {
                Ok(revision) => Ok(Arc::new(super::conversion::view(resource, encoded)?.decode(Some(revision))?)),
                Err(WriteError::Conflict { .. }) => Err(status_errors::already_exists(resource, &name, false)),
                Err(error) => Err(status_errors::write(error)),
            }
        })
    }

    fn update_unchecked<'a>(
        &'a self,
        why: SystemWrite,
        resource: &'static Kind,
        namespace: &'a str,
        name: &'a str,
        change: &'a mut (dyn FnMut(&mut Value) -> Result<(), Status> + Send),
    ) -> BoxFuture<'a, Result<Arc<Value>, Status>> {
        Box::pin(async move {
            let key = Self::key(resource, namespace, name);
            tracing::trace!(?why, key, "the server updates an object unchecked");
            loop {
                let entry = self.entry(&key).await?.ok_or_else(|| status_errors::not_found(resource, name))?;
                let old = self.decoded(resource, &entry)?;
                let mut object = old.clone();
                change(&mut object)?;
                if let Some(subresource) = why.tracked_through().filter(|_| object != old) {
                    Writer::server(resource, subresource).track_update(
                        &old,
                        &mut object,
                        &Empties::default(),
                        self.now(),
                    );
                }
                let encoded = self.encode(resource, &object);
                let converted = super::conversion::view(resource, encoded.clone())?;
                if encoded.bytes() == &entry.value {
                    return Ok(Arc::new(converted.decode(Some(entry.mod_revision))?));
                }
                match self.store().update(&key, encoded.bytes().clone(), entry.mod_revision).await {
                    Ok(revision) => return Ok(Arc::new(converted.decode(Some(revision))?)),
                    Err(WriteError::Conflict { .. }) => {}
                    Err(error) => return Err(status_errors::write(error)),
                }
            }
        })
    }
}
