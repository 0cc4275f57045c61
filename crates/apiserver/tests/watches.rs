//! Watches from a client's point of view.

mod support;

use serde_json::{Value, json};
use support::{cluster, config_map};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn named(event_type: &str, name: &str) -> (String, String) {
    (event_type.to_owned(), name.to_owned())
}

#[tokio::test]
async fn a_watch_sends_the_state_then_every_change() {
    let cluster = cluster().await;
    let admin = &cluster.admin;
    admin.create(MAPS, config_map("a", json!({}))).await;
    let mut watch = admin.watch(&format!("{MAPS}?watch=1")).await;
    assert_eq!(watch.event().await, named("ADDED", "a"));
    admin.create(MAPS, config_map("b", json!({}))).await;
    assert_eq!(watch.event().await, named("ADDED", "b"));
    let (_, patched) = admin.patch(&format!("{MAPS}/b"), "merge", json!({"data": {"k": "w"}})).await;
    let event = watch.next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]), (&json!("MODIFIED"), &patched));
    admin.json("DELETE", &format!("{MAPS}/b"), Value::Null).await;
    let event = watch.next().await.unwrap();
    assert_eq!(event["type"], "DELETED");
    let version = |object: &Value| object["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    assert!(version(&event["object"]) > version(&patched), "a deletion carries its own revision");
    // Changes in other namespaces are not sent.
    admin.create("/api/v1/namespaces/kube-system/configmaps", config_map("z", json!({}))).await;
    admin.create(MAPS, config_map("c", json!({}))).await;
    assert_eq!(watch.event().await, named("ADDED", "c"));
}

#[tokio::test]
async fn a_watch_resumes_from_a_resource_version() {
    let cluster = cluster().await;
    let admin = &cluster.admin;
    let first = admin.create(MAPS, config_map("a", json!({}))).await;
    admin.create(MAPS, config_map("b", json!({}))).await;
    let version = first["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = admin.watch(&format!("{MAPS}?watch=1&resourceVersion={version}")).await;
    assert_eq!(watch.event().await, named("ADDED", "b"));
}

#[tokio::test]
async fn objects_enter_and_leave_a_selection() {
    let cluster = cluster().await;
    let admin = &cluster.admin;
    admin.create(MAPS, config_map("a", json!({"x": "1"}))).await;
    let mut watch = admin.watch(&format!("{MAPS}?watch=1&labelSelector=x%3D1")).await;
    assert_eq!(watch.event().await, named("ADDED", "a"));
    let path = format!("{MAPS}/a");
    admin.patch(&path, "merge", json!({"metadata": {"labels": {"x": "2"}}})).await;
    let gone = watch.next().await.unwrap();
    assert_eq!((&gone["type"], &gone["object"]["metadata"]["labels"]["x"]), (&json!("DELETED"), &json!("1")));
    admin.patch(&path, "merge", json!({"data": {"k": "unseen"}})).await;
    admin.patch(&path, "merge", json!({"metadata": {"labels": {"x": "1"}}})).await;
    assert_eq!(watch.event().await, named("ADDED", "a"));
}

#[tokio::test]
async fn a_watch_of_one_object_sends_its_changes_only_from_the_requested_version() {
    let cluster = cluster().await;
    let admin = &cluster.admin;
    let first = admin.create(MAPS, config_map("a", json!({}))).await;
    admin.create(MAPS, config_map("b", json!({}))).await;
    let version = first["metadata"]["resourceVersion"].as_str().unwrap();
    let selection = "watch=1&fieldSelector=metadata.name%3Db";
    let mut early = admin.watch(&format!("{MAPS}?{selection}&resourceVersion={version}")).await;
    let mut late = admin.watch(&format!("{MAPS}?{selection}")).await;
    for watch in [&mut early, &mut late] {
        assert_eq!(watch.event().await, named("ADDED", "b"));
    }
    for round in 0..3 {
        admin.patch(&format!("{MAPS}/a"), "merge", json!({"data": {"k": round.to_string()}})).await;
        let (_, patched) = admin.patch(&format!("{MAPS}/b"), "merge", json!({"data": {"k": round.to_string()}})).await;
        for watch in [&mut early, &mut late] {
            let event = watch.next().await.unwrap();
            assert_eq!((&event["type"], &event["object"]), (&json!("MODIFIED"), &patched));
        }
    }
    admin.json("DELETE", &format!("{MAPS}/a"), Value::Null).await;
    admin.json("DELETE", &format!("{MAPS}/b"), Value::Null).await;
    for watch in [&mut early, &mut late] {
        assert_eq!(watch.event().await, named("DELETED", "b"));
    }
}

#[tokio::test]
async fn initial_events_end_with_a_bookmark() {
    let cluster = cluster().await;
    let admin = &cluster.admin;
    admin.create(MAPS, config_map("a", json!({}))).await;
    let options = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = admin.watch(&format!("{MAPS}?{options}")).await;
    assert_eq!(watch.event().await, named("ADDED", "a"));
    let bookmark = watch.next().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(bookmark["object"]["kind"], "ConfigMap");
    assert_eq!(bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    let (code, _) = admin.get(&format!("{MAPS}?watch=1&sendInitialEvents=true")).await;
    assert_eq!(code, 422);
}

#[tokio::test]
async fn a_restarted_server_sends_the_history_of_its_store() {
    let before = cluster().await;
    let first = before.admin.create(MAPS, config_map("a", json!({}))).await;
    before.admin.create(MAPS, config_map("b", json!({}))).await;
    before.server.shutdown().await;
    let after = support::over(before.store).await;
    let version = first["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = after.admin.watch(&format!("{MAPS}?watch=1&resourceVersion={version}")).await;
    assert_eq!(watch.event().await, named("ADDED", "b"));
    after.admin.create(MAPS, config_map("c", json!({}))).await;
    assert_eq!(watch.event().await, named("ADDED", "c"));
}

#[tokio::test]
async fn a_compacted_version_is_an_error_event() {
    let before = cluster().await;
    before.admin.create(MAPS, config_map("a", json!({}))).await;
    before.server.shutdown().await;
    before.store.compact(before.store.revision().await.unwrap()).await.unwrap();
    let after = support::over(before.store).await;
    let mut watch = after.admin.watch(&format!("{MAPS}?watch=1&resourceVersion=2")).await;
    let event = watch.next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(event["object"]["reason"], "Expired");
    assert!(watch.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_at_its_timeout_and_when_the_server_stops() {
    let cluster = cluster().await;
    let mut watch = cluster.admin.watch(&format!("{MAPS}?watch=1&resourceVersion=1000000&timeoutSeconds=5")).await;
    assert!(watch.next().await.is_none());
    let mut watch = cluster.admin.watch(&format!("{MAPS}?watch=1")).await;
    cluster.server.shutdown().await;
    assert!(watch.next().await.is_none());
}

#[tokio::test]
async fn metadata_and_tables_are_streamed_too() {
    let cluster = cluster().await;
    let admin = &cluster.admin;
    admin.create(MAPS, config_map("a", json!({}))).await;
    for (kind, check) in [("PartialObjectMetadata", "metadata"), ("Table", "rows")] {
        let request = http::Request::get(format!("{MAPS}?watch=1"))
            .header("Accept", format!("application/json;as={kind};v=v1;g=meta.k8s.io"))
            .body(http_body_util::Full::default())
            .unwrap();
        let body = admin.call(request).await.into_body();
        let mut watch = support::Watch::of(body);
        let event = watch.next().await.unwrap();
        assert_eq!(event["object"]["kind"], kind);
        assert!(!event["object"][check].is_null(), "{event}");
    }
}
