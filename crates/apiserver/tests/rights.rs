//! What a user may do beyond the rights that their bindings name: nothing.

mod support;

use bytes::Bytes;
use http::{HeaderValue, Request};
use http_body_util::Full;
use serde_json::{Value, json};
use support::{Client, Cluster, cluster, config_map, pod, read};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Gives alice these rules everywhere, and answers her client.
async fn alice(cluster: &Cluster, rules: Value) -> Client {
    let group = "rbac.authorization.k8s.io";
    let role = json!({"metadata": {"name": "alice"}, "rules": rules});
    let binding = json!({"metadata": {"name": "alice"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "alice"}],
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "alice"}});
    cluster.admin.create(&format!("{RBAC}/clusterroles"), role).await;
    cluster.admin.create(&format!("{RBAC}/clusterrolebindings"), binding).await;
    cluster.client("alice")
}

fn message(status: &Value) -> &str {
    status["message"].as_str().unwrap_or_default()
}

/// The smallest valid object of a kind that a PUT can create.
fn smallest(kind: &str) -> Value {
    let role_ref = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"});
    let involved = json!({"namespace": "default", "name": "x", "kind": "Pod"});
    match kind {
        "RuntimeClass" => json!({"handler": "h"}),
        "Role" | "ClusterRole" => json!({"rules": []}),
        "RoleBinding" | "ClusterRoleBinding" => json!({"roleRef": role_ref, "subjects": []}),
        "Lease" | "Endpoints" => json!({}),
        "LimitRange" => json!({"spec": {"limits": []}}),
        "Service" => json!({"spec": {"ports": [{"port": 80}]}}),
        "Event" => json!({"involvedObject": involved}),
        _ => panic!("{kind}: say what the smallest one is"),
    }
}

#[tokio::test]
async fn a_put_that_creates_needs_the_right_to_create() {
    let cluster = cluster().await;
    let rule = |verbs: Value| json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": verbs}]);
    let alice = alice(&cluster, rule(json!(["get", "update", "patch", "bind"]))).await;
    let kinds: Vec<_> =
        bayplan_kinds::served().filter(|kind| kind.stored() && kind.strategy.allow_create_on_update).collect();
    assert!(kinds.len() >= 10, "{}", kinds.len());
    for kind in kinds {
        let (prefix, group) = match kind.group {
            "" => ("/api/v1".to_owned(), ""),
            group => (format!("/apis/{}", kind.api_version()), group),
        };
        // Events of both groups are stored in one place.
        let name = format!("new-{}-{}", kind.plural, kind.group.len());
        let (path, scope) = match kind.namespaced() {
            true => (format!("{prefix}/namespaces/default/{}/{name}", kind.plural), "in the namespace \"default\""),
            false => (format!("{prefix}/{}/{name}", kind.plural), "at the cluster scope"),
        };
        let mut body = smallest(kind.kind);
        if group == "events.k8s.io" {
            let (regarding, time) = (&body["involvedObject"], "2026-05-28T11:30:00.000000Z");
            body = json!({"regarding": regarding, "eventTime": time, "type": "Normal", "action": "a", "reason": "r",
                "reportingController": "a.b/c", "reportingInstance": "i"});
        }
        body["apiVersion"] = kind.api_version().into();
        body["kind"] = kind.kind.into();
        body["metadata"] = json!({"name": name});
        for query in ["", "?dryRun=All"] {
            let (code, status) = alice.json("PUT", &format!("{path}{query}"), body.clone()).await;
            let qualified = if group.is_empty() { kind.plural.to_owned() } else { format!("{}.{group}", kind.plural) };
            let expected = format!(
                "{qualified} \"{name}\" is forbidden: User \"alice\" cannot create resource \"{}\" in API group \
                 \"{group}\" {scope}",
                kind.plural
            );
            assert_eq!((code, message(&status)), (403, expected.as_str()), "{path}");
        }
        assert_eq!(cluster.admin.get(&path).await.0, 404, "{path}");
        let (code, created) = cluster.admin.json("PUT", &path, body.clone()).await;
        assert_eq!(code, 201, "{path}: {created}");
    }
    // With the right, a PUT creates.
    let mut more = cluster.admin.get(&format!("{RBAC}/clusterroles/alice")).await.1;
    more["rules"] = rule(json!(["update", "create"]));
    assert_eq!(cluster.admin.json("PUT", &format!("{RBAC}/clusterroles/alice"), more).await.0, 200);
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "mine"}});
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/mine";
    assert_eq!(alice.json("PUT", path, lease).await.0, 201);
}

#[tokio::test]
async fn a_right_to_one_name_reads_and_deletes_that_one_alone() {
    let cluster = cluster().await;
    let verbs = json!(["get", "list", "watch", "delete", "deletecollection"]);
    let alice = alice(
        &cluster,
        json!([{"apiGroups": [""], "resources": ["pods", "configmaps"], "resourceNames": ["mine"], "verbs": verbs}]),
    )
    .await;
    for name in ["mine", "theirs"] {
        cluster.admin.create("/api/v1/namespaces/default/pods", pod(name, "")).await;
        cluster.admin.create("/api/v1/namespaces/default/configmaps", config_map(name, json!({}))).await;
    }
    let pods = "/api/v1/namespaces/default/pods";
    let (code, list) = alice.get(&format!("{pods}?fieldSelector=metadata.name%3Dmine")).await;
    assert_eq!((code, list["items"].as_array().map(Vec::len)), (200, Some(1)));
    for (method, path) in [
        ("GET", pods.to_owned()),
        // The comma is part of a value, so that no name is demanded.
        ("GET", format!("{pods}?fieldSelector=spec.nodeName!%3D%5C,metadata.name%3Dmine")),
        ("GET", format!("{pods}?fieldSelector=spec.nodeName!%3D%5C,metadata.name%3Dmine&watch=1")),
        ("GET", format!("{pods}?fieldSelector=metadata.name!%3Dmine")),
        ("GET", "/api/v1/watch/namespaces/default/pods?fieldSelector=metadata.name%3Dmine".to_owned()),
        ("DELETE", format!("{pods}?fieldSelector=metadata.name%3Dmine")),
        ("DELETE", "/api/v1/namespaces/default/configmaps?fieldSelector=metadata.name%3Dmine".to_owned()),
        ("DELETE", pods.to_owned()),
    ] {
        let (code, status) = alice.json(method, &path, Value::Null).await;
        assert_eq!(code, 403, "{method} {path}: {status}");
    }
    assert_eq!(alice.json("DELETE", "/api/v1/namespaces/default/configmaps/mine", Value::Null).await.0, 200);
}

#[tokio::test]
async fn a_header_that_cannot_be_read_is_not_a_header_that_is_missing() {
    let cluster = cluster().await;
    let cases: [(&str, &[u8], &str, u16); 8] = [
        ("Impersonate-User", b"b\xffb", "GET", 403),
        ("Impersonate-User", "bøb".as_bytes(), "GET", 403),
        ("Impersonate-Group", b"\xff", "GET", 400),
        ("Impersonate-Uid", b"\xff", "GET", 400),
        ("Impersonate-Extra-A", b"\xff", "GET", 400),
        ("Accept", b"application/\xff", "GET", 406),
        ("Content-Type", b"application/\xff", "POST", 415),
        ("Content-Type", b"application/\xff", "PATCH", 415),
    ];
    for (name, value, method, expected) in cases {
        let path = if method == "PATCH" { "/api/v1/namespaces/default" } else { "/api/v1/namespaces" };
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}}).to_string();
        let request = Request::builder().method(method).uri(path).header(name, HeaderValue::from_bytes(value).unwrap());
        let answer = cluster.admin.call(request.body(Full::new(Bytes::from(body))).unwrap()).await;
        let (code, status) = read(answer).await;
        assert_eq!(code, expected, "{name}: {}: {status}", value.escape_ascii());
    }
    assert_eq!(cluster.admin.get("/api/v1/namespaces/new").await.0, 404);
}

#[tokio::test]
async fn a_label_that_would_collect_more_rights_needs_those_rights() {
    let cluster = cluster().await;
    let alice = alice(
        &cluster,
        json!([{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["get", "patch"]}]),
    )
    .await;
    let label = json!({"metadata": {"labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}});
    let (code, status) = alice.patch(&format!("{RBAC}/clusterroles/cluster-admin"), "merge", label).await;
    assert_eq!(code, 403, "{status}");
    assert!(message(&status).contains("is attempting to grant RBAC permissions not currently held:\n"), "{status}");
    let unaggregated = json!({"aggregationRule": null, "rules": []});
    let (code, status) = alice.patch(&format!("{RBAC}/clusterroles/view"), "merge", unaggregated).await;
    let expected = "clusterroles.rbac.authorization.k8s.io \"view\" is forbidden: must have cluster-admin privileges \
                    to use the aggregationRule";
    assert_eq!((code, message(&status)), (403, expected));
    let finalizer = json!({"metadata": {"finalizers": ["example.com/keep"]}});
    assert_eq!(alice.patch(&format!("{RBAC}/clusterroles/cluster-admin"), "merge", finalizer).await.0, 200);
}
