//! The manifests of `deploy/manifests` on an API server: their objects, their pods as processes of this machine, what
//! these really request, and the rights that they have.
//!
//! ```text
//!   manifest ──objects──▶ API server ◀── recorder ◀── pod (a process with the service account's token)
//!      └──── rights ──────────compared with────┘ requests
//! ```

#![allow(dead_code, reason = "each of the tests that share it uses a part")]

pub(crate) mod pod;
pub(crate) mod recorder;
pub(crate) mod requests;
pub(crate) mod rights;
pub(crate) mod server;
pub(crate) mod work;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bayplan_client::{Client, Config};
use bayplan_model::api::{Api, DeleteOptions, ListOptions, PatchKind, Request, Resource, Verb};
use bayplan_model::status::{Status, reason};
use serde_json::{Value, json};

/// How long anything may take; generous because shared machines stall.
const PATIENCE: Duration = Duration::from_secs(120);
/// The time between two looks at something that is awaited.
const GLANCE: Duration = Duration::from_millis(50);

/// Where the repository is.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The objects of a manifest of `deploy/manifests`.
pub(crate) fn manifest(name: &str) -> Vec<Value> {
    let path = root().join("deploy/manifests").join(format!("{name}.yaml"));
    objects(&std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

/// The objects of YAML documents; empty documents are none.
pub(crate) fn objects(yaml: &str) -> Vec<Value> {
    let documents = yaml.split("\n---").map(|document| serde_saphyr::from_str::<Value>(document).unwrap());
    documents.filter(|object| !object.is_null()).collect()
}

/// The first object of a kind.
pub(crate) fn of_kind<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    objects.iter().find(|object| object["kind"] == kind).unwrap_or_else(|| panic!("there is no {kind}"))
}

/// An API server, as its administrator sees it.
pub(crate) struct Target {
    pub(crate) config: Config,
    client: Client,
}

impl Target {
    /// The server of an administrator's kubeconfig. Waits until it is ready.
    pub(crate) async fn new(kubeconfig: &Path) -> Target {
        eventually("there is a kubeconfig", async || kubeconfig.exists().then_some(())).await;
        let config = Config::load(Some(kubeconfig), None, None).unwrap();
        let client = Client::from_config(&config).unwrap();
        eventually("the API server is ready", async || client.get("/readyz", "*/*").await.ok()).await;
        Target { config, client }
    }

    async fn ask(&self, request: Request) -> Result<Value, Status> {
        self.client.call(request).await.map(|answer| serde_json::from_slice(&answer).unwrap())
    }

    /// Creates an object in the namespace that it names, and answers what the server made of it.
    pub(crate) async fn try_create(&self, object: &Value) -> Result<Value, Status> {
        let resource = resource(object["kind"].as_str().unwrap());
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let verb = Verb::Create(object.to_string().into());
        self.ask(Request::collection(&resource, namespace, verb)).await
    }

    /// The same; one that is there already is left alone.
    pub(crate) async fn create(&self, object: &Value) {
        match self.try_create(object).await {
            Err(status) if !status.is(reason::ALREADY_EXISTS) => panic!("{}: {object}", status.message),
            _ => {}
        }
    }

    /// Reads an object, if it is there.
    pub(crate) async fn find(&self, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        self.ask(Request::object(&resource(kind), namespace, name, Verb::Get)).await.ok()
    }

    /// All objects of a kind in a namespace.
    pub(crate) async fn list(&self, kind: &str, namespace: &str) -> Vec<Value> {
        let request = Request::collection(&resource(kind), namespace, Verb::List(ListOptions::default()));
        let mut list = self.ask(request).await.unwrap_or_default();
        list["items"].as_array_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Changes a subresource of an object by a merge patch.
    pub(crate) async fn patch_status(&self, kind: &str, namespace: &str, name: &str, patch: &Value) {
        let verb = Verb::Patch(PatchKind::Merge, patch.to_string().into());
        let request = Request::object(&resource(kind), namespace, name, verb).subresource("status");
        self.ask(request).await.unwrap_or_else(|status| panic!("{kind} {name}: {}", status.message));
    }

    /// Deletes a pod without waiting for a kubelet that is not there.
    pub(crate) async fn remove_pod(&self, namespace: &str, name: &str) {
        let at_once = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
        // Somebody else may have been faster.
        let _ = self.ask(Request::object(&resource("Pod"), namespace, name, Verb::Delete(at_once))).await;
    }

    /// A token of a service account.
    pub(crate) async fn token(&self, namespace: &str, account: &str) -> String {
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}).to_string();
        let verb = Verb::Create(body.into());
        let request = Request::object(&resource("ServiceAccount"), namespace, account, verb).subresource("token");
        let token = self.ask(request).await.unwrap_or_else(|status| panic!("{account}: {}", status.message));
        token["status"]["token"].as_str().unwrap().to_owned()
    }
}

/// Looks again and again until there is something to see.
pub(crate) async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(Instant::now() < deadline, "in vain: {what}");
        tokio::time::sleep(GLANCE).await;
    }
}

fn resource(kind: &str) -> Resource {
    const RBAC: &str = "rbac.authorization.k8s.io";
    let (group, version, plural) = match kind {
        "Namespace" => ("", "v1", "namespaces"),
        "Node" => ("", "v1", "nodes"),
        "Pod" => ("", "v1", "pods"),
        "ServiceAccount" => ("", "v1", "serviceaccounts"),
        "ConfigMap" => ("", "v1", "configmaps"),
        "Service" => ("", "v1", "services"),
        "PersistentVolume" => ("", "v1", "persistentvolumes"),
        "PersistentVolumeClaim" => ("", "v1", "persistentvolumeclaims"),
        "Deployment" => ("apps", "v1", "deployments"),
        "PodDisruptionBudget" => ("policy", "v1", "poddisruptionbudgets"),
        "PriorityClass" => ("scheduling.k8s.io", "v1", "priorityclasses"),
        "StorageClass" => ("storage.k8s.io", "v1", "storageclasses"),
        "DeviceClass" => ("resource.k8s.io", "v1", "deviceclasses"),
        "ResourceSlice" => ("resource.k8s.io", "v1", "resourceslices"),
        "ResourceClaim" => ("resource.k8s.io", "v1", "resourceclaims"),
        "Lease" => ("coordination.k8s.io", "v1", "leases"),
        "ClusterRole" => (RBAC, "v1", "clusterroles"),
        "ClusterRoleBinding" => (RBAC, "v1", "clusterrolebindings"),
        "Role" => (RBAC, "v1", "roles"),
        "RoleBinding" => (RBAC, "v1", "rolebindings"),
        _ => panic!("{kind}: add it to the table"),
    };
    Resource::new(group, version, plural)
}
