//! Objects as the server's own parts (rights, admission, bootstrap, subresources) read and write them.

use std::sync::Arc;

use bayplan_model::status::Status;
use futures::future::BoxFuture;
use serde_json::Value;

use crate::resources::Resource;

/// The server's own access to the objects it stores: no authentication, no rights, no admission.
pub trait Objects: Send + Sync {
    /// One object, as decoded JSON with its resource version; `namespace` is empty for cluster-scoped resources.
    fn get<'a>(
        &'a self,
        resource: &'static Resource,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<Value>>, Status>>;

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
