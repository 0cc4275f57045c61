//! `bayplan apiserver` and kube-apiserver on one etcd, both written to at once: each must serve what the other wrote.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bayplan_client::Client;
use bayplan_model::api::{Api, DeleteOptions, PatchKind, Request, Resource, Verb};
use bayplan_testkit::Rng;
use serde_json::{Value, json};

use crate::control_plane::{ControlPlane, eventually};

const CONFIG_MAPS: Resource = Resource::new("", "v1", "configmaps");
const SERVICES: Resource = Resource::new("", "v1", "services");
/// How many writers each server has.
const WRITERS: u64 = 4;
/// How many names all of them fight for.
const NAMES: usize = 12;

/// Writes at random for a time; answers how many writes were acknowledged.
async fn write(client: Client, seed: u64, until: Instant) -> u64 {
    let mut rng = Rng::new(seed);
    let mut acknowledged = 0;
    while Instant::now() < until {
        let (resource, name) = if rng.below(3) == 0 {
            (&SERVICES, format!("s-{}", rng.below(NAMES)))
        } else {
            (&CONFIG_MAPS, format!("c-{}", rng.below(NAMES)))
        };
        let value = format!("{seed}-{acknowledged}");
        let request = match rng.below(4) {
            0 => Request::object(resource, "default", &name, Verb::Delete(DeleteOptions::default())),
            1 => {
                let object = match &*resource.plural {
                    "services" => json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
                        "spec": {"type": "NodePort", "selector": {"a": "b"}, "ports": [{"port": 80}]}}),
                    _ => json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
                        "data": {"value": value}}),
                };
                Request::collection(resource, "default", Verb::Create(object.to_string().into()))
            }
            _ => {
                let patch = json!({"metadata": {"annotations": {"written-by": value}}});
                Request::object(resource, "default", &name, Verb::Patch(PatchKind::Merge, patch.to_string().into()))
            }
        };
        // Others may have been faster; whatever else is refused shows in the comparison.
        acknowledged += u64::from(client.call(request).await.is_ok());
    }
    acknowledged
}

async fn list(client: &Client, path: &str) -> Value {
    let answer = client.get(path, "application/json").await.unwrap_or_else(|status| panic!("{path}: {status}"));
    serde_json::from_slice(&answer).unwrap()
}

fn by_name(list: &Value) -> BTreeMap<String, Value> {
    let name = |object: &Value| {
        let metadata = &object["metadata"];
        format!("{}/{}", metadata["namespace"].as_str().unwrap_or_default(), metadata["name"].as_str().unwrap())
    };
    list["items"].as_array().unwrap().iter().map(|object| (name(object), object.clone())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_kinds_of_server_on_one_etcd_serve_the_same_objects_at_the_same_revisions() {
    let Some(plane) = ControlPlane::start().await else { return };
    let data = plane.folder().join("ours");
    let flags = ["--port=0", "--service-cluster-ip-range=10.0.0.0/16", "--disable-admission-plugins=ServiceAccount"];
    let folder = format!("--data-dir={}", data.display());
    let etcd = format!("--etcd-servers={}", plane.etcd());
    let _server = plane.bayplan("our-apiserver", &[&["apiserver", &folder, &etcd], &flags[..]].concat());
    let kubeconfig = data.join("kubeconfig");
    let ours = eventually("our API server is up", async || {
        let client = Client::from_kubeconfig(Some(&kubeconfig), None).await.ok()?;
        client.get("/readyz", "*/*").await.ok().map(|_| client)
    })
    .await;
    let seconds = std::env::var("BAYPLAN_SIDE_BY_SIDE_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(10);
    let until = Instant::now() + Duration::from_secs(seconds);
    let writers = (0..2 * WRITERS).map(|seed| {
        let client = if seed % 2 == 0 { ours.clone() } else { plane.client().clone() };
        tokio::spawn(write(client, seed, until))
    });
    let mut compared = 0;
    let writers: Vec<_> = writers.collect();
    // While they write: equal lists at equal revisions.
    while Instant::now() < until {
        compared += compare(&ours, plane.client()).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let mut acknowledged = 0;
    for writer in writers {
        acknowledged += writer.await.unwrap();
    }
    compared += compare(&ours, plane.client()).await;
    assert!(acknowledged > 20 * seconds && compared > 4 * seconds, "{acknowledged} writes, {compared} lists");
    nothing_was_given_twice(&list(&ours, "/api/v1/services").await);
}

/// Compares the lists of both at the revision that one of them has just listed; answers how many.
async fn compare(ours: &Client, theirs: &Client) -> u64 {
    let paths = [
        "/api/v1/configmaps",
        "/api/v1/services",
        "/apis/networking.k8s.io/v1/ipaddresses",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    ];
    for (round, path) in paths.iter().enumerate() {
        let (first, second) = if round % 2 == 0 { (ours, theirs) } else { (theirs, ours) };
        let newest = list(first, path).await;
        let version = newest["metadata"]["resourceVersion"].as_str().unwrap();
        let exact = format!("{path}?resourceVersion={version}&resourceVersionMatch=Exact");
        let other = list(second, &exact).await;
        assert_eq!(other["metadata"]["resourceVersion"], version);
        let (newest, other) = (by_name(&newest), by_name(&other));
        for name in newest.keys().chain(other.keys()) {
            assert_eq!(newest.get(name), other.get(name), "{path} {name} at {version}");
        }
    }
    paths.len() as u64
}

/// No two services have a cluster IP or a node port in common.
fn nothing_was_given_twice(services: &Value) {
    let mut given = BTreeSet::new();
    for (name, service) in by_name(services) {
        let ports =
            service["spec"]["ports"].as_array().into_iter().flatten().filter_map(|port| port["nodePort"].as_i64());
        let address = service["spec"]["clusterIP"].as_str().unwrap_or_default().to_owned();
        for holding in ports.map(|port| port.to_string()).chain([address]) {
            assert!(given.insert(holding.clone()), "{name} has {holding}, and so has another service");
        }
    }
    assert!(given.len() > 2, "services were left: {given:?}");
}
