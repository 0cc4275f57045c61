//! The example plugin in a whole scheduler, against the embedded API server.

#![allow(clippy::unwrap_used)] // Helpers of tests, not the product.

#[path = "../examples/out_of_tree/plugin.rs"]
mod plugin;

use std::sync::Arc;
use std::time::Duration;

use bayplan_apiserver::certificates::{Names, Pki};
use bayplan_apiserver::{AdmissionPlugins, ApiServer, Config, User};
use bayplan_client::Client;
use bayplan_model::api::{Api, Request, Resource, Verb, encode};
use bayplan_runner::scheduler::{SchedulerConfig, run_scheduler};
use bayplan_scheduler::Registry;
use bayplan_scheduler::config::Configuration;
use bayplan_store::LogStore;
use serde_json::{Value, json};
use tokio::sync::watch;

const CONFIG: &str = include_str!("../examples/out_of_tree/config.yaml");
const NODES: Resource = Resource::new("", "v1", "nodes");
const PODS: Resource = Resource::new("", "v1", "pods");
/// How often the server is asked, at most, before the test gives up; ten seconds.
const ASKED_MAX: usize = 500;

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

async fn create_pod(client: &Client, name: &str) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"example.dev/quiet": "true"}},
        "spec": {"schedulerName": "quiet-scheduler", "containers": [{"name": "c", "image": "img"}]},
    });
    create(client, &PODS, "default", pod).await;
}

/// Waits until the pod satisfies what is asked.
async fn eventually(client: &Client, name: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let mut pod = Value::Null;
    for _ in 0..ASKED_MAX {
        let answer = client.call(Request::object(&PODS, "default", name, Verb::Get)).await.unwrap();
        pod = serde_json::from_slice(&answer).unwrap();
        if holds(&pod) {
            return pod;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{name} does not come to what is asked: {pod}");
}

#[tokio::test]
async fn a_plugin_from_outside_decides_in_a_whole_scheduler() {
    let server = server().await;
    let client = Client::from_service(server.service(User::new("admin", ["system:masters"])));
    let resources = json!({"cpu": "4", "memory": "8Gi", "pods": "10"});
    create(
        &client,
        &NODES,
        "",
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "only"},
            "status": {"capacity": resources, "allocatable": resources},
        }),
    )
    .await;
    let mut registry = Registry::default();
    plugin::register(&mut registry);
    let configuration = Configuration::from_yaml(CONFIG).unwrap();
    let config = SchedulerConfig { configuration, registry, ..SchedulerConfig::default() };
    let (stop, stopping) = watch::channel(false);
    let scheduler = tokio::spawn(run_scheduler(client.clone(), config, stopping));

    create_pod(&client, "first").await;
    eventually(&client, "first", |pod| pod["spec"]["nodeName"] == "only").await;
    create_pod(&client, "second").await;
    let message = |pod: &Value| pod["status"]["conditions"][0]["message"].as_str().unwrap_or_default().to_owned();
    let second = eventually(&client, "second", |pod| !message(pod).is_empty()).await;
    assert!(message(&second).starts_with("0/1 nodes are available: 1 node(s) were too busy."), "{}", message(&second));
    assert_eq!(second["spec"]["nodeName"], Value::Null);

    stop.send_replace(true);
    scheduler.await.unwrap().unwrap();
    server.shutdown().await;
}
