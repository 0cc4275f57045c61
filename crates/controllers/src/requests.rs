//! The calls the control loops make, each in one line at its caller.

use bayplan_model::api::{Api, DeleteOptions, PatchKind, Request, Resource, Verb, decode, encode};
use bayplan_model::meta::ObjectMeta;
use bayplan_model::status::Status;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// `v1/pods`.
pub const PODS: Resource = Resource::new("", "v1", "pods");
/// `apps/v1/replicasets`.
pub const REPLICA_SETS: Resource = Resource::new("apps", "v1", "replicasets");
/// `v1/replicationcontrollers`.
pub const REPLICATION_CONTROLLERS: Resource = Resource::new("", "v1", "replicationcontrollers");
/// `apps/v1/deployments`.
pub const DEPLOYMENTS: Resource = Resource::new("apps", "v1", "deployments");

/// `policy/v1/poddisruptionbudgets`.
pub const POD_DISRUPTION_BUDGETS: Resource = Resource::new("policy", "v1", "poddisruptionbudgets");
/// `v1/namespaces`.
pub const NAMESPACES: Resource = Resource::new("", "v1", "namespaces");
/// `v1/serviceaccounts`.
pub const SERVICE_ACCOUNTS: Resource = Resource::new("", "v1", "serviceaccounts");
/// `v1/configmaps`.
pub const CONFIG_MAPS: Resource = Resource::new("", "v1", "configmaps");
/// `v1/nodes`.
pub const NODES: Resource = Resource::new("", "v1", "nodes");
/// `coordination.k8s.io/v1/leases`.
pub const LEASES: Resource = Resource::new("coordination.k8s.io", "v1", "leases");
/// `v1/persistentvolumes`.
pub const PERSISTENT_VOLUMES: Resource = Resource::new("", "v1", "persistentvolumes");
/// `v1/persistentvolumeclaims`.
pub const PERSISTENT_VOLUME_CLAIMS: Resource = Resource::new("", "v1", "persistentvolumeclaims");
/// `storage.k8s.io/v1/storageclasses`.
pub const STORAGE_CLASSES: Resource = Resource::new("storage.k8s.io", "v1", "storageclasses");
/// `resource.k8s.io/v1/resourceclaims`.
pub const RESOURCE_CLAIMS: Resource = Resource::new("resource.k8s.io", "v1", "resourceclaims");
/// `resource.k8s.io/v1/resourceclaimtemplates`.
pub const RESOURCE_CLAIM_TEMPLATES: Resource = Resource::new("resource.k8s.io", "v1", "resourceclaimtemplates");

/// Reads the latest state of an object.
pub async fn get<T: DeserializeOwned>(
    api: &dyn Api,
    resource: &Resource,
    namespace: &str,
    name: &str,
) -> Result<T, Status> {
    decode(&api.call(Request::object(resource, namespace, name, Verb::Get)).await?)
}

/// Creates an object and reads back what the server stored.
pub async fn create<T: Serialize, A: DeserializeOwned>(
    api: &dyn Api,
    resource: &Resource,
    namespace: &str,
    object: &T,
) -> Result<A, Status> {
    decode(&api.call(Request::collection(resource, namespace, Verb::Create(encode(object)))).await?)
}

/// Replaces an object and reads back what the server stored.
pub async fn update<T: Serialize + DeserializeOwned>(
    api: &dyn Api,
    resource: &Resource,
    meta: &ObjectMeta,
    object: &T,
) -> Result<T, Status> {
    decode(&api.call(Request::object(resource, &meta.namespace, &meta.name, Verb::Update(encode(object)))).await?)
}

/// Replaces an object's status and reads back what the server stored.
pub async fn update_status<T: Serialize + DeserializeOwned>(
    api: &dyn Api,
    resource: &Resource,
    meta: &ObjectMeta,
    object: &T,
) -> Result<T, Status> {
    let request = Request::object(resource, &meta.namespace, &meta.name, Verb::Update(encode(object)));
    decode(&api.call(request.subresource("status")).await?)
}

/// Patches an object and reads back its metadata.
pub async fn patch(
    api: &dyn Api,
    resource: &Resource,
    meta: &ObjectMeta,
    kind: PatchKind,
    patch: &Value,
) -> Result<ObjectMeta, Status> {
    let request = Request::object(resource, &meta.namespace, &meta.name, Verb::Patch(kind, encode(patch)));
    let answer: bayplan_model::meta::PartialObjectMetadata = decode(&api.call(request).await?)?;
    Ok(answer.metadata)
}

/// Deletes an object.
pub async fn delete(
    api: &dyn Api,
    resource: &Resource,
    meta: &ObjectMeta,
    options: DeleteOptions,
) -> Result<(), Status> {
    api.call(Request::object(resource, &meta.namespace, &meta.name, Verb::Delete(options))).await.map(|_| ())
}
