//! Claims that cost much, or that nobody provisions, beside ordinary pods.

use std::time::{Duration, Instant};

use bayplan_model::api::Resource;
use serde_json::{Value, json};

use crate::TURN;
use crate::cluster::claims::{ALLOWED, ATTACK, claim, create_devices};
use crate::cluster::{Cluster, NAMESPACE};
use crate::stopwatch::{ask_beside, probe};

/// How soon ordinary pods have their node beside the attack.
const BOUND_WITHIN: Duration = Duration::from_secs(5);
/// How long the process may take to end: five seconds are for requests that are being answered.
const ENDED_WITHIN: Duration = Duration::from_secs(8);

const PODS: Resource = Resource::new("", "v1", "pods");
const VOLUME_CLAIMS: Resource = Resource::new("", "v1", "persistentvolumeclaims");
const STORAGE_CLASSES: Resource = Resource::new("storage.k8s.io", "v1", "storageclasses");

fn pod(name: &str, more: Value) -> Value {
    let mut spec = json!({"containers": [{"name": "c", "image": "i"}]});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"metadata": {"name": name}, "spec": spec})
}

/// Creates an object as the user of the namespace; answers the code.
async fn create_as_user(cluster: &Cluster, group: &str, collection: &str, object: &Value) -> u16 {
    let line = format!("POST {group}/namespaces/{NAMESPACE}/{collection}");
    let headers = [("Content-Type", "application/json")];
    cluster.ask(&line, &headers, &cluster.user, object.to_string().as_bytes()).await.unwrap().0
}

async fn create_claim(cluster: &Cluster, name: &str, selector: &str) -> u16 {
    create_as_user(cluster, "/apis/resource.k8s.io/v1", "resourceclaims", &claim(name, selector)).await
}

/// Waits until every pod with this start of its name has a node.
async fn bound(cluster: &Cluster, prefix: &str, count: usize) {
    loop {
        let pods = cluster.list(&PODS, NAMESPACE).await;
        let named = |pod: &&Value| pod["metadata"]["name"].as_str().is_some_and(|name| name.starts_with(prefix));
        if pods.iter().filter(named).filter(|pod| pod["spec"]["nodeName"].is_string()).count() == count {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Creates ordinary pods; answers how long it took until all were bound.
async fn bind_ordinary_pods(cluster: &Cluster, count: usize) -> Duration {
    let start = Instant::now();
    for i in 0..count {
        cluster.create(&PODS, NAMESPACE, pod(&format!("plain-{i}"), json!({}))).await;
    }
    let all = tokio::time::timeout(Duration::from_secs(60), bound(cluster, "plain-", count)).await;
    all.expect("ordinary pods are bound within a minute");
    start.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "bounds in seconds, for a release build"]
async fn expensive_selectors_stall_neither_pods_nor_health_nor_the_end() {
    let _turn = TURN.lock().await;
    let cluster = Cluster::start().await;
    create_devices(&cluster).await;
    assert_eq!(create_claim(&cluster, "refused", ATTACK).await, 422);
    for i in 0..12 {
        let (name, selector) = (format!("claim-{i}"), format!("{} || {i} == 100", ALLOWED[i % 2]));
        assert_eq!(create_claim(&cluster, &name, &selector).await, 201);
        let claims = json!({"resourceClaims": [{"name": "r", "resourceClaimName": name}]});
        assert_eq!(create_as_user(&cluster, "/api/v1", "pods", &pod(&format!("costly-{i}"), claims)).await, 201);
    }
    let attack = bind_ordinary_pods(&cluster, 40);
    let (took, probes) = ask_beside(attack, async || probe(&cluster, "/healthz").await).await;
    println!("40 ordinary pods beside 12 expensive claims: {took:?}; probes {probes:?}");
    assert!(took <= BOUND_WITHIN, "{took:?}");
    assert!(probes.are_prompt(), "{probes:?}");
    let asked = Instant::now();
    let ended = tokio::time::timeout(Duration::from_secs(60), cluster.terminate()).await;
    println!("the process ended {:?} after SIGTERM", asked.elapsed());
    assert!(ended.is_ok() && asked.elapsed() <= ENDED_WITHIN, "{:?}", asked.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "bounds in seconds, for a release build"]
async fn volumes_nobody_provisions_keep_no_pod_from_being_bound() {
    let _turn = TURN.lock().await;
    let cluster = Cluster::start().await;
    let class = json!({
        "metadata": {"name": "nobody"}, "provisioner": "nobody.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
    });
    cluster.create(&STORAGE_CLASSES, "", class).await;
    for i in 0..140 {
        let name = format!("waiting-{i}");
        let spec = json!({
            "accessModes": ["ReadWriteOnce"], "storageClassName": "nobody",
            "resources": {"requests": {"storage": "1Gi"}},
        });
        cluster.create(&VOLUME_CLAIMS, NAMESPACE, json!({"metadata": {"name": name}, "spec": spec})).await;
        let volumes = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]});
        cluster.create(&PODS, NAMESPACE, pod(&name, volumes)).await;
    }
    let selected = async {
        let selected =
            |claim: &Value| claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"].is_string();
        while cluster.list(&VOLUME_CLAIMS, NAMESPACE).await.iter().filter(|claim| selected(claim)).count() < 140 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), selected).await.expect("all waiting pods have chosen a node");
    let took = bind_ordinary_pods(&cluster, 20).await;
    println!("20 ordinary pods beside 140 that wait for volumes: {took:?}");
    assert!(took <= BOUND_WITHIN, "{took:?}");
}
