//! `bayplan up` on an etcd that others share: one leader of each kind, and another when it is gone.

use std::path::Path;
use std::time::Instant;

use bayplan_client::Client;
use bayplan_model::api::{Api, Request, Resource, Verb};
use bayplan_testkit::Etcd;
use serde_json::{Value, json};

use crate::{PATIENCE, Server, administrator};

async fn list(client: &Client, path: &str) -> Vec<Value> {
    let answer = client.get(path, "application/json").await.unwrap();
    serde_json::from_slice::<Value>(&answer).unwrap()["items"].as_array().unwrap().clone()
}

/// Creates a Deployment and waits until all its pods run.
async fn deploy(client: &Client, name: &str) {
    let labels = json!({"app": name});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": 3, "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "nginx"}]},
            },
        },
    });
    let resource = Resource::new("apps", "v1", "deployments");
    let request = Request::collection(&resource, "default", Verb::Create(deployment.to_string().into()));
    client.call(request).await.unwrap();
    let begun = Instant::now();
    loop {
        let pods = list(client, &format!("/api/v1/namespaces/default/pods?labelSelector=app%3D{name}")).await;
        if pods.iter().filter(|pod| pod["status"]["phase"] == "Running").count() == 3 {
            assert_eq!(pods.len(), 3);
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{pods:?}");
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
}

fn up(etcd: &Etcd, folder: &Path) -> Server {
    Server::run("up", folder, &["--etcd-servers", &etcd.url(), "--nodes", "3", "--no-page"])
}

#[tokio::test]
async fn a_second_up_joins_the_cluster_stands_by_and_takes_over() {
    let Some(etcd) = Etcd::start("a_second_up_joins_the_cluster_stands_by_and_takes_over") else { return };
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (folder.path().join("one"), folder.path().join("other"));
    let mut first = up(&etcd, &one);
    assert!(first.screen.contains(&format!("  objects     in etcd at {}\n", etcd.url())), "{}", first.screen);
    assert!(first.screen.contains("Ctrl-C stops this member; the objects stay in etcd."), "{}", first.screen);
    deploy(&administrator(&one).await, "before").await;

    // Members of one cluster have the same keys.
    std::fs::create_dir_all(other.join("pki")).unwrap();
    for file in std::fs::read_dir(one.join("pki")).unwrap().map(Result::unwrap) {
        std::fs::copy(file.path(), other.join("pki").join(file.file_name())).unwrap();
    }
    let second = up(&etcd, &other);
    let standby = "  nodes       those of the cluster; this process stands by to simulate them\n";
    assert!(second.screen.contains(standby), "{}", second.screen);
    let client = administrator(&other).await;
    assert_eq!(list(&client, "/api/v1/nodes").await.len(), 3);
    assert_eq!(list(&client, "/api/v1/namespaces/default/pods").await.len(), 3);
    deploy(&client, "through-the-second").await;

    first.process.kill().unwrap();
    first.process.wait().unwrap();
    deploy(&client, "after").await;
    let nodes = list(&client, "/api/v1/nodes").await;
    assert_eq!(nodes.len(), 3);
    assert_eq!(list(&client, "/api/v1/namespaces/default/pods").await.len(), 9);
    second.stop();
}
