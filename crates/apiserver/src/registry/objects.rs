//! Objects as the server's own parts (rights, admission, bootstrap, subresources) read and write them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_model::status::Status;
use bayplan_store::WriteError;
use futures::future::BoxFuture;
use serde_json::Value;

use super::{Registry, metadata};
use crate::cache::labels_of;
use crate::resources::Resource;
use crate::{status_errors, strategy};

/// The server's own access to the objects it stores: no authentication, no rights, no admission.
pub trait Objects: Send + Sync {
    /// One object, as decoded JSON with its resource version; `namespace` is empty for cluster-scoped resources.
    fn get<'a>(
        &'a self,
        resource: &'static Resource,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<Value>>, Status>>;

    /// The labels of one object; cheaper than the whole of it, which would be kept decoded.
    fn labels<'a>(
        &'a self,
        resource: &'static Resource,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<BTreeMap<String, String>>, Status>> {
        let labels = |object: Arc<Value>| labels_of(&object["metadata"]);
        Box::pin(async move { Ok(self.get(resource, namespace, name).await?.map(labels)) })
    }

    /// All objects of a namespace, or with an empty `namespace` of the cluster, in storage order.
    fn list<'a>(
        &'a self,
        resource: &'static Resource,
        namespace: &'a str,
    ) -> BoxFuture<'a, Result<Vec<Arc<Value>>, Status>>;

    /// The revision of the newest change of any object of the resource: what was derived from a [`list`](Self::list)
    /// holds as long as this stays the same.
    fn version(&self, resource: &'static Resource) -> BoxFuture<'_, Result<u64, Status>>;

    /// Stores a new object; the server fills in uid and creation time.
    fn create<'a>(
        &'a self,
        resource: &'static Resource,
        namespace: &'a str,
        object: Value,
    ) -> BoxFuture<'a, Result<Arc<Value>, Status>>;

    /// Changes an object in place, trying again while other writers interfere; an error of `change` ends it.
    fn update<'a>(
        &'a self,
        resource: &'static Resource,
        namespace: &'a str,
        name: &'a str,
        change: &'a mut (dyn FnMut(&mut Value) -> Result<(), Status> + Send),
    ) -> BoxFuture<'a, Result<Arc<Value>, Status>>;
}

impl Objects for Registry {
    fn get<'a>(
        &'a self,
        resource: &'static Resource,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<Value>>, Status>> {
        Box::pin(async move {
            match self.entry(&Self::key(resource, namespace, name)).await? {
                Some(entry) => self.converted(resource, &self.cache(resource).item(&entry)?)?.decoded().map(Some),
                None => Ok(None),
            }
        })
    }

    fn labels<'a>(
        &'a self,
        resource: &'static Resource,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<BTreeMap<String, String>>, Status>> {
        Box::pin(async move {
            let entry = self.entry(&Self::key(resource, namespace, name)).await?;
            entry.map(|entry| Ok(self.cache(resource).item(&entry)?.labels.clone())).transpose()
        })
    }

    fn list<'a>(
        &'a self,
        resource: &'static Resource,
        namespace: &'a str,
    ) -> BoxFuture<'a, Result<Vec<Arc<Value>>, Status>> {
        Box::pin(async move {
            let (start, end) = Self::bounds(resource, namespace);
            let range = self.store().range(&start, &end, None, 0).await.map_err(status_errors::read)?;
            let cache = self.cache(resource);
            range.entries.iter().map(|entry| self.converted(resource, &cache.item(entry)?)?.decoded()).collect()
        })
    }

    fn version(&self, resource: &'static Resource) -> BoxFuture<'_, Result<u64, Status>> {
        let version = self.cache(resource).last_change();
        Box::pin(async move { Ok(version) })
    }

    fn create<'a>(
        &'a self,
        resource: &'static Resource,
        namespace: &'a str,
        mut object: Value,
    ) -> BoxFuture<'a, Result<Arc<Value>, Status>> {
        Box::pin(async move {
            metadata::wipe_system_fields(&mut object);
            if resource.namespaced() {
                metadata::of(&mut object).insert("namespace".to_owned(), Value::String(namespace.to_owned()));
            }
            metadata::fill_system_fields(&mut object, self.now());
            strategy::of(resource).prepare_for_create(&mut object, self.now());
            let name = metadata::text(&object, "name").to_owned();
            let encoded = self.encode(resource, &object);
            let key = Self::key(resource, namespace, &name);
            match self.store().create(&key, encoded.bytes().clone()).await {
                Ok(revision) => Ok(Arc::new(super::conversion::view(resource, encoded)?.decode(Some(revision))?)),
                Err(WriteError::Conflict { .. }) => Err(status_errors::already_exists(resource, &name, false)),
                Err(error) => Err(status_errors::write(error)),
            }
        })
    }

    fn update<'a>(
        &'a self,
        resource: &'static Resource,
        namespace: &'a str,
        name: &'a str,
        change: &'a mut (dyn FnMut(&mut Value) -> Result<(), Status> + Send),
    ) -> BoxFuture<'a, Result<Arc<Value>, Status>> {
        Box::pin(async move {
            let key = Self::key(resource, namespace, name);
            loop {
                let entry = self.entry(&key).await?.ok_or_else(|| status_errors::not_found(resource, name))?;
                let mut object = self.decoded(resource, &entry)?;
                change(&mut object)?;
                let encoded = self.encode(resource, &object);
                let shown = super::conversion::view(resource, encoded.clone())?;
                if encoded.bytes() == &entry.value {
                    return Ok(Arc::new(shown.decode(Some(entry.mod_revision))?));
                }
                match self.store().update(&key, encoded.bytes().clone(), entry.mod_revision).await {
                    Ok(revision) => return Ok(Arc::new(shown.decode(Some(revision))?)),
                    Err(WriteError::Conflict { .. }) => {}
                    Err(error) => return Err(status_errors::write(error)),
                }
            }
        })
    }
}
