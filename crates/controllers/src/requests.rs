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
/// `apps/v1/controllerrevisions`.
pub const CONTROLLER_REVISIONS: Resource = Resource::new("apps", "v1", "controllerrevisions");
/// `apps/v1/daemonsets`.
pub const DAEMON_SETS: Resource = Resource::new("apps", "v1", "daemonsets");
/// `apps/v1/statefulsets`.
pub const STATEFUL_SETS: Resource = Resource::new("apps", "v1", "statefulsets");
/// `batch/v1/jobs`.
pub const JOBS: Resource = Resource::new("batch", "v1", "jobs");
/// `batch/v1/cronjobs`.
pub const CRON_JOBS: Resource = Resource::new("batch", "v1", "cronjobs");
/// `policy/v1/poddisruptionbudgets`.
pub const POD_DISRUPTION_BUDGETS: Resource = Resource::new("policy", "v1", "poddisruptionbudgets");
/// `autoscaling/v2/horizontalpodautoscalers`.
pub const HORIZONTAL_POD_AUTOSCALERS: Resource = Resource::new("autoscaling", "v2", "horizontalpodautoscalers");
/// `certificates.k8s.io/v1/certificatesigningrequests`.
pub const CERTIFICATE_SIGNING_REQUESTS: Resource =
    Resource::new("certificates.k8s.io", "v1", "certificatesigningrequests");
/// `v1/resourcequotas`.
pub const RESOURCE_QUOTAS: Resource = Resource::new("", "v1", "resourcequotas");
/// `v1/namespaces`.
pub const NAMESPACES: Resource = Resource::new("", "v1", "namespaces");
/// `v1/secrets`.
pub const SECRETS: Resource = Resource::new("", "v1", "secrets");
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
/// `rbac.authorization.k8s.io/v1/clusterroles`.
pub const CLUSTER_ROLES: Resource = Resource::new("rbac.authorization.k8s.io", "v1", "clusterroles");
/// `networking.k8s.io/v1/servicecidrs`.
pub const SERVICE_CIDRS: Resource = Resource::new("networking.k8s.io", "v1", "servicecidrs");
/// `networking.k8s.io/v1/ipaddresses`.
pub const IP_ADDRESSES: Resource = Resource::new("networking.k8s.io", "v1", "ipaddresses");
/// `storage.k8s.io/v1/volumeattributesclasses`.
pub const VOLUME_ATTRIBUTES_CLASSES: Resource = Resource::new("storage.k8s.io", "v1", "volumeattributesclasses");
/// `storage.k8s.io/v1/volumeattachments`.
pub const VOLUME_ATTACHMENTS: Resource = Resource::new("storage.k8s.io", "v1", "volumeattachments");
/// `storage.k8s.io/v1/csidrivers`.
pub const CSI_DRIVERS: Resource = Resource::new("storage.k8s.io", "v1", "csidrivers");

/// `v1/services`.
pub const SERVICES: Resource = Resource::new("", "v1", "services");
/// `v1/endpoints`.
pub const ENDPOINTS: Resource = Resource::new("", "v1", "endpoints");
/// `discovery.k8s.io/v1/endpointslices`.
pub const ENDPOINT_SLICES: Resource = Resource::new("discovery.k8s.io", "v1", "endpointslices");

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
