//! What health checks and writes answer while the store's disk is full, and afterwards.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod support;

use std::sync::Arc;

use bayplan_store::disk::SimulatedDisk;
use bayplan_store::{LogStore, Options};
use serde_json::{Value, json};
use support::over;

#[tokio::test]
async fn readiness_tells_of_a_full_disk_and_liveness_does_not() {
    let disk = SimulatedDisk::new();
    let options = Options { free_bytes_low: 1 << 20, ..Options::default() };
    let cluster = over(Arc::new(LogStore::open(Arc::new(disk.clone()), options).unwrap())).await;
    let client = &cluster.admin;
    let create = async |name: &str| {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        client.json("POST", "/api/v1/namespaces/default/configmaps", map).await.0
    };
    let check = async |path: &str| client.json("GET", path, Value::Null).await;
    let verbose = async || check("/readyz?verbose").await.1.as_str().unwrap().to_owned();
    assert_eq!(create("before").await, 201);
    assert_eq!(check("/readyz").await.0, 200);
    assert!(verbose().await.contains("[+]etcd-readiness ok\n"), "{}", verbose().await);

    disk.set_capacity(Some(0));
    assert!(verbose().await.contains("[+]etcd-readiness ok, but the disk is nearly full\n"), "{}", verbose().await);
    assert_eq!(create("during").await, 500);
    for (path, code) in [("/readyz", 500), ("/readyz/etcd-readiness", 500), ("/livez", 200), ("/healthz", 200)] {
        assert_eq!(check(path).await.0, code, "{path}");
    }
    let report = check("/readyz").await.1;
    assert!(report.as_str().unwrap().contains("[-]etcd-readiness failed: reason withheld\n"), "{report}");
    assert_eq!(check("/api/v1/namespaces/default/configmaps/before").await.0, 200);

    // Asking is enough: nobody has to write before the server is ready again.
    disk.set_capacity(None);
    assert_eq!(check("/readyz").await.0, 200);
    assert_eq!(create("after").await, 201);
    assert_eq!(check("/api/v1/namespaces/default/configmaps/during").await.0, 404);
}
