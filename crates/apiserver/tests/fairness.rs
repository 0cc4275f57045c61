//! Priority and fairness as its users see it: objects that steer, headers, statuses, and what is restored.

mod support;

use std::time::Duration;

use bayplan_apiserver::User;
use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use support::{Client, Cluster, cluster};

const GROUP: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";
const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const LEVELS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";
/// A request waits for a seat for a quarter of its time.
const MAPS: &str = "/api/v1/namespaces/default/configmaps?timeout=400ms";

/// A level that lets nobody through while it has no shares.
fn level(name: &str, shares: u32) -> Value {
    let queuing = json!({"queues": 1, "handSize": 1, "queueLengthLimit": 1});
    let limited = json!({
        "nominalConcurrencyShares": shares, "borrowingLimitPercent": 0,
        "limitResponse": {"type": "Queue", "queuing": queuing},
    });
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
        "metadata": {"name": name}, "spec": {"type": "Limited", "limited": limited},
    })
}

/// A schema that leads a user to a level.
fn schema(name: &str, user: &str, level: &str) -> Value {
    let anything = json!({
        "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true,
    });
    let rule = json!({"subjects": [{"kind": "User", "user": {"name": user}}], "resourceRules": [anything]});
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": {"name": name},
        "spec": {
            "priorityLevelConfiguration": {"name": level}, "matchingPrecedence": 150,
            "distinguisherMethod": {"type": "ByUser"}, "rules": [rule],
        },
    })
}

/// The code of an answer, and the uids of the schema and of the level in its headers.
async fn asked(client: &Client, path: &str) -> (u16, String, String) {
    let response = client.send("GET", path, "", Bytes::new()).await;
    let uid = |header: &str| {
        let uid = response.headers().get(header).and_then(|uid| uid.to_str().ok());
        uid.map(str::to_owned).unwrap_or_default()
    };
    let (schema, level) = (uid("X-Kubernetes-PF-FlowSchema-UID"), uid("X-Kubernetes-PF-PriorityLevel-UID"));
    (response.status().as_u16(), schema, level)
}

/// Asks until the answer is the right one: the configuration follows the objects with a delay.
async fn until<T>(mut ask: impl AsyncFnMut() -> T, right: impl Fn(&T) -> bool) -> T {
    for _ in 0..500 {
        let answer = ask().await;
        if right(&answer) {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the answer is never the right one");
}

async fn uid(cluster: &Cluster, path: &str) -> String {
    let (_, object) = cluster.admin.get(path).await;
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

/// The condition of a schema: status, reason and message.
async fn condition(cluster: &Cluster, schema: &str) -> [String; 3] {
    let (_, object) = cluster.admin.get(&format!("{SCHEMAS}/{schema}")).await;
    let condition = &object["status"]["conditions"][0];
    ["status", "reason", "message"].map(|field| condition[field].as_str().unwrap_or_default().to_owned())
}

/// A user who may read everything.
async fn reader(cluster: &Cluster, name: &str) -> Client {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}],
    });
    cluster.admin.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await;
    cluster.client(name)
}

#[tokio::test]
async fn a_level_holds_back_whom_its_schema_names_as_long_as_it_says_so() {
    let cluster = cluster().await;
    let (alice, bob) = (reader(&cluster, "alice").await, reader(&cluster, "bob").await);
    let default = uid(&cluster, &format!("{SCHEMAS}/global-default")).await;
    let default_level = uid(&cluster, &format!("{LEVELS}/global-default")).await;
    assert_eq!(asked(&alice, MAPS).await, (200, default.clone(), default_level.clone()));
    let jail = cluster.admin.create(LEVELS, level("jail", 0)).await["metadata"]["uid"].clone();
    let mine = cluster.admin.create(SCHEMAS, schema("mine", "alice", "jail")).await["metadata"]["uid"].clone();
    let (code, _, by) = until(async || asked(&alice, MAPS).await, |(_, schema, _)| *schema == mine).await;
    assert_eq!((code, by), (429, jail.as_str().unwrap().to_owned()));
    assert_eq!(asked(&bob, MAPS).await, (200, default.clone(), default_level));
    // Shares let her through, and the next request is served at once.
    let shares = json!({"spec": {"limited": {"nominalConcurrencyShares": 100}}});
    assert_eq!(cluster.admin.patch(&format!("{LEVELS}/jail"), "merge", shares).await.0, 200);
    let (_, schema, _) = until(async || asked(&alice, MAPS).await, |(code, ..)| *code == 200).await;
    assert_eq!(schema, mine);
    // Without the schema she is one of many again.
    assert_eq!(cluster.admin.json("DELETE", &format!("{SCHEMAS}/mine"), Value::Null).await.0, 200);
    until(async || asked(&alice, MAPS).await, |(code, schema, _)| (*code, schema) == (200, &default)).await;
    cluster.server.shutdown().await;
}

#[tokio::test]
async fn every_answer_names_the_schema_and_the_level_of_its_request() {
    let cluster = cluster().await;
    let alice = reader(&cluster, "alice").await;
    let uids = async |schema: &str, level: &str| {
        let schema = uid(&cluster, &format!("{SCHEMAS}/{schema}")).await;
        (schema, uid(&cluster, &format!("{LEVELS}/{level}")).await)
    };
    let (schema, level) = uids("global-default", "global-default").await;
    for (path, code) in [
        ("/api/v1/namespaces/default/configmaps", 200),
        ("/api/v1/namespaces/default/configmaps/none", 404),
        ("/api/v1/namespaces/default/secrets", 403),
        ("/api/v1/namespaces/default/configmaps?watch=1", 200),
        ("/version", 200),
    ] {
        assert_eq!(asked(&alice, path).await, (code, schema.clone(), level.clone()), "{path}");
    }
    let (schema, level) = uids("probes", "exempt").await;
    assert_eq!(asked(&alice, "/readyz").await, (200, schema, level.clone()));
    let (schema, _) = uids("exempt", "exempt").await;
    assert_eq!(asked(&cluster.admin, "/api/v1/nodes").await, (200, schema, level));
    cluster.server.shutdown().await;
}

#[tokio::test]
async fn statuses_say_whether_the_level_of_a_schema_exists() {
    let cluster = cluster().await;
    until(async || condition(&cluster, "catch-all").await, |[status, ..]| status == "False").await;
    cluster.admin.create(SCHEMAS, schema("mine", "alice", "my-level")).await;
    let said = "This FlowSchema references the PriorityLevelConfiguration object named \"my-level\"";
    let [_, reason, message] = until(async || condition(&cluster, "mine").await, |[status, ..]| status == "True").await;
    assert_eq!((reason.as_str(), message), ("NotFound", format!("{said} but there is no such object")));
    cluster.admin.create(LEVELS, level("my-level", 1)).await;
    let [_, reason, message] =
        until(async || condition(&cluster, "mine").await, |[status, ..]| status == "False").await;
    assert_eq!((reason.as_str(), message), ("Found", format!("{said} and it exists")));
    // What somebody else writes is put right.
    let other = json!({"status": {"conditions": [{"type": "Dangling", "status": "Unknown"}]}});
    assert_eq!(cluster.admin.patch(&format!("{SCHEMAS}/mine/status"), "merge", other).await.0, 200);
    until(async || condition(&cluster, "mine").await, |[status, ..]| status == "False").await;
    let (_, object) = cluster.admin.get(&format!("{SCHEMAS}/mine")).await;
    let managed = object["metadata"]["managedFields"].as_array().unwrap();
    let writer = managed.iter().find(|by| by["manager"] == "api-priority-and-fairness-config-consumer-v1").unwrap();
    assert_eq!((&writer["operation"], &writer["subresource"]), (&json!("Apply"), &json!("status")));
    assert!(writer["fieldsV1"]["f:status"]["f:conditions"]["k:{\"type\":\"Dangling\"}"].is_object(), "{writer}");
    let (_, table) = cluster.admin.get(&format!("{GROUP}/flowschemas")).await;
    assert!(table["items"].as_array().unwrap().iter().all(|schema| schema["status"]["conditions"][0].is_object()));
    cluster.server.shutdown().await;
}

#[tokio::test]
async fn broken_and_greedy_objects_neither_stop_the_server_nor_starve_others() {
    let cluster = cluster().await;
    let alice = reader(&cluster, "alice").await;
    for (key, value) in [
        ("prioritylevelconfigurations/broken", json!({"metadata": {"name": "broken"}, "spec": {"type": "Limited"}})),
        ("prioritylevelconfigurations/odd", json!({"metadata": {"name": "odd"}, "spec": 7})),
        ("flowschemas/odd", json!({"metadata": {"name": "odd"}, "spec": {"rules": [{"subjects": {}}]}})),
    ] {
        let key = format!("/registry/{key}");
        cluster.store.create(&key, Bytes::from(value.to_string())).await.unwrap();
    }
    for number in 0..20 {
        let mut greedy = level(&format!("greedy-{number}"), i32::MAX as u32);
        greedy["spec"]["limited"]["limitResponse"]["queuing"] =
            json!({"queues": 10_000_000, "handSize": 2, "queueLengthLimit": i32::MAX});
        cluster.admin.create(LEVELS, greedy).await;
    }
    cluster.admin.create(SCHEMAS, schema("of-broken", "alice", "broken")).await;
    cluster.admin.create(SCHEMAS, schema("of-greedy", "bob", "greedy-7")).await;
    let [_, reason, _] = until(async || condition(&cluster, "of-broken").await, |[status, ..]| status == "True").await;
    assert_eq!(reason, "NotFound");
    assert_eq!(asked(&alice, MAPS).await.0, 200);
    let scheduler = Client::of(cluster.server.service(User::new("system:kube-scheduler", [""; 0])));
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler";
    assert_eq!(asked(&scheduler, lease).await.0, 404);
    let anonymous = Client::of(cluster.server.network_service());
    assert_eq!(asked(&anonymous, "/livez").await.0, 200);
    cluster.server.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn what_every_cluster_has_is_restored_within_a_minute() {
    let cluster = cluster().await;
    let path = |plural: &str, name: &str| format!("{GROUP}/{plural}/{name}");
    let before = uid(&cluster, &path("flowschemas", "exempt")).await;
    for (plural, name) in [
        ("flowschemas", "probes"),
        ("flowschemas", "exempt"),
        ("prioritylevelconfigurations", "catch-all"),
        ("prioritylevelconfigurations", "system"),
    ] {
        assert_eq!(cluster.admin.json("DELETE", &path(plural, name), Value::Null).await.0, 200, "{name}");
    }
    // What somebody has taken over stays as it is; what the server keeps does not.
    let change = |automatic: &str| {
        let annotations = json!({"apf.kubernetes.io/autoupdate-spec": automatic});
        json!({"metadata": {"annotations": annotations}, "spec": {"matchingPrecedence": 4_321}})
    };
    for (name, automatic) in [("global-default", "f"), ("service-accounts", "True")] {
        let (code, _) = cluster.admin.patch(&path("flowschemas", name), "merge", change(automatic)).await;
        assert_eq!(code, 200, "{name}");
    }
    // What says that the server keeps it, but is unknown to it, goes.
    let mut unknown = schema("of-another-version", "alice", "exempt");
    unknown["metadata"]["annotations"] = json!({"apf.kubernetes.io/autoupdate-spec": "true"});
    cluster.admin.create(SCHEMAS, unknown).await;
    cluster.admin.create(SCHEMAS, schema("mine", "alice", "exempt")).await;
    // Without its object, the mandatory schema still steers; it has no uid then.
    let (code, schema, _) =
        until(async || asked(&cluster.admin, "/api/v1/nodes").await, |(_, schema, _)| *schema != before).await;
    assert_eq!((code, schema.as_str()), (200, ""));
    tokio::time::sleep(Duration::from_secs(125)).await;
    for (plural, name) in [
        ("flowschemas", "probes"),
        ("flowschemas", "exempt"),
        ("flowschemas", "mine"),
        ("prioritylevelconfigurations", "catch-all"),
        ("prioritylevelconfigurations", "system"),
    ] {
        assert_eq!(cluster.admin.get(&path(plural, name)).await.0, 200, "{name}");
    }
    assert_eq!(cluster.admin.get(&path("flowschemas", "of-another-version")).await.0, 404);
    let precedence = async |name: &str| {
        let (_, object) = cluster.admin.get(&path("flowschemas", name)).await;
        (object["spec"]["matchingPrecedence"].as_i64(), object["metadata"]["annotations"].clone())
    };
    let said = |word: &str| json!({"apf.kubernetes.io/autoupdate-spec": word});
    assert_eq!(precedence("global-default").await, (Some(4_321), said("f")));
    assert_eq!(precedence("service-accounts").await, (Some(9_000), said("True")));
    cluster.server.shutdown().await;
}

#[tokio::test]
async fn administrators_see_the_levels_and_their_queues() {
    let cluster = cluster().await;
    let alice = reader(&cluster, "alice").await;
    cluster.admin.create(LEVELS, level("jail", 0)).await;
    let mine = cluster.admin.create(SCHEMAS, schema("mine", "alice", "jail")).await["metadata"]["uid"].clone();
    until(async || asked(&alice, MAPS).await, |(_, schema, _)| *schema == mine).await;
    let waits = tokio::spawn({
        let alice = alice.clone();
        async move { asked(&alice, "/api/v1/namespaces/default/configmaps?timeout=60s").await }
    });
    let table = async |path: &str| {
        let path = format!("/debug/api_priority_and_fairness/{path}");
        let response = cluster.admin.send("GET", &path, "", Bytes::new()).await;
        assert_eq!(response.status(), 200);
        let text = response.into_body().collect().await.unwrap().to_bytes();
        let cells = |line: &str| line.split(',').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
        String::from_utf8(text.to_vec()).unwrap().lines().map(cells).collect::<Vec<_>>()
    };
    let of_jail = |rows: &[Vec<String>]| rows.iter().find(|row| row[0] == "jail").cloned().unwrap_or_default();
    let row = until(async || of_jail(&table("dump_priority_levels").await), |row| row[4] == "1").await;
    assert_eq!(row[1..8], ["1", "false", "false", "1", "0", "0", "1"]);
    let queues = table("dump_queues").await;
    assert_eq!(queues[0][..4], ["PriorityLevelName", "Index", "PendingRequests", "ExecutingRequests"]);
    assert_eq!(of_jail(&queues)[1..5], ["0", "1", "0", "0"]);
    let requests = table("dump_requests?includeRequestDetails=1").await;
    let row = of_jail(&requests);
    assert_eq!((row[1].as_str(), row[10].as_str(), row[11].as_str()), ("mine", "alice", "list"));
    assert_eq!(asked(&alice, "/debug/api_priority_and_fairness/dump_queues").await.0, 403);
    waits.abort();
    cluster.server.shutdown().await;
}
