//! Pods that wait for volumes nobody provisions keep no other pod from being bound.

#![allow(clippy::unwrap_used)] // Helpers of tests, not the product.

use std::sync::Arc;
use std::time::Duration;

use bayplan_apiserver::certificates::{Names, Pki};
use bayplan_apiserver::{AdmissionPlugins, ApiServer, Config, User};
use bayplan_client::Client;
use bayplan_model::api::{Api, ListOptions, Request, Resource, Verb, encode};
use bayplan_runner::scheduler::{SchedulerConfig, run_scheduler};
use bayplan_store::LogStore;
use serde_json::{Value, json};
use tokio::sync::watch;

const NODES: Resource = Resource::new("", "v1", "nodes");
const PODS: Resource = Resource::new("", "v1", "pods");
const CLAIMS: Resource = Resource::new("", "v1", "persistentvolumeclaims");
const CLASSES: Resource = Resource::new("storage.k8s.io", "v1", "storageclasses");
/// More than the requests of binding cycles that are in flight at once.
const WAITING: usize = 140;
const PLAIN: usize = 20;
/// How often the server is asked, at most, before the test gives up; a minute.
const ASKED_MAX: usize = 600;

async fn server() -> ApiServer {
    let pki = Pki::in_memory(&Names::standard(None, "10.0.0.1".parse().unwrap()), jiff::Timestamp::now()).unwrap();
    let mut config = Config::new(pki.service_account_key.clone(), "127.0.0.1:6443".parse().unwrap());
    config.plugins = AdmissionPlugins { service_account: false, ..AdmissionPlugins::default() };
    ApiServer::new(config, Arc::new(LogStore::in_memory().unwrap())).await.unwrap()
}

async fn create(client: &Client, resource: &Resource, namespace: &str, object: Value) {
    let request = Request::collection(resource, namespace, Verb::Create(encode(&object)));
    client.call(request).await.unwrap();
}

async fn create_pod(client: &Client, name: &str, volumes: Value) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "img"}], "volumes": volumes},
    });
    create(client, &PODS, "default", pod).await;
}

/// Waits until so many objects satisfy what is asked.
async fn eventually(client: &Client, resource: &Resource, count: usize, holds: impl Fn(&Value) -> bool) {
    let mut found = 0;
    for _ in 0..ASKED_MAX {
        let list = Request::collection(resource, "default", Verb::List(ListOptions::default()));
        let list: Value = serde_json::from_slice(&client.call(list).await.unwrap()).unwrap();
        found = list["items"].as_array().unwrap().iter().filter(|object| holds(object)).count();
        if found == count {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("only {found} of {count} {} come to what is asked", resource.plural);
}

#[tokio::test]
async fn pods_are_bound_beside_more_waiting_ones_than_may_send_requests_at_once() {
    let server = server().await;
    let client = Client::from_service(server.service(User::new("admin", ["system:masters"])));
    let resources = json!({"cpu": "400", "memory": "800Gi", "pods": "1000"});
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "only"},
        "status": {"capacity": resources, "allocatable": resources},
    });
    create(&client, &NODES, "", node).await;
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "nobody"},
        "provisioner": "nobody.example.com", "volumeBindingMode": "WaitForFirstConsumer",
    });
    create(&client, &CLASSES, "", class).await;
    let (stop, stopping) = watch::channel(false);
    let scheduler = tokio::spawn(run_scheduler(client.clone(), SchedulerConfig::default(), stopping));
    for i in 0..WAITING {
        let name = format!("waiting-{i}");
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "nobody",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        });
        create(&client, &CLAIMS, "default", claim).await;
        create_pod(&client, &name, json!([{"name": "v", "persistentVolumeClaim": {"claimName": name}}])).await;
    }
    let selected = |claim: &Value| claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] == "only";
    eventually(&client, &CLAIMS, WAITING, selected).await;
    for i in 0..PLAIN {
        create_pod(&client, &format!("plain-{i}"), json!([])).await;
    }
    eventually(&client, &PODS, PLAIN, |pod| pod["spec"]["nodeName"] == "only").await;

    stop.send_replace(true);
    scheduler.await.unwrap().unwrap();
    server.shutdown().await;
}
