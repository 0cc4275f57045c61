//! The verbs on stored objects from a client's point of view.

mod support;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};
use support::{cluster, config_map, pod, read};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

#[tokio::test]
async fn objects_are_created_read_changed_and_deleted() {
    let cluster = cluster().await;
    let admin = &cluster.admin;
    let created = admin.create(MAPS, config_map("a", json!({"x": "1"}))).await;
    assert_eq!(created["kind"], "ConfigMap");
    assert!(created["metadata"]["uid"].is_string() && created["metadata"]["creationTimestamp"].is_string());
    let path = format!("{MAPS}/a");
    assert_eq!(admin.get(&path).await, (200, created.clone()));

    let (code, status) = admin.json("POST", MAPS, config_map("a", json!({}))).await;
    assert_eq!((code, &status["reason"]), (409, &json!("AlreadyExists")));

    // An update without a change writes nothing.
    assert_eq!(admin.json("PUT", &path, created.clone()).await, (200, created.clone()));
    let mut changed = created.clone();
    changed["data"]["k"] = json!("w");
    let (code, updated) = admin.json("PUT", &path, changed.clone()).await;
    assert_eq!(code, 200);
    assert_ne!(updated["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"]);
    let (code, status) = admin.json("PUT", &path, changed).await;
    assert_eq!((code, &status["reason"]), (409, &json!("Conflict")));

    let (code, status) = admin.json("DELETE", &path, Value::Null).await;
    assert_eq!((code, &status["status"]), (200, &json!("Success")));
    assert_eq!(admin.get(&path).await.0, 404);
}

#[tokio::test]
async fn names_are_generated_and_dry_runs_leave_nothing_behind() {
    let cluster = cluster().await;
    let mut object = config_map("", json!({}));
    object["metadata"] = json!({"generateName": "gen-"});
    let created = cluster.admin.create(MAPS, object).await;
    let name = created["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("gen-") && name.len() == 9, "{name}");
    let (code, dry) = cluster.admin.json("POST", &format!("{MAPS}?dryRun=All"), config_map("dry", json!({}))).await;
    assert_eq!(code, 201);
    assert!(dry["metadata"]["uid"].is_string() && dry["metadata"].get("resourceVersion").is_none());
    assert_eq!(cluster.admin.get(&format!("{MAPS}/dry")).await.0, 404);
}

#[tokio::test]
async fn the_three_patches_apply() {
    let cluster = cluster().await;
    let admin = &cluster.admin;
    admin.create(MAPS, config_map("a", json!({}))).await;
    let path = format!("{MAPS}/a");
    let (code, patched) = admin.patch(&path, "merge", json!({"metadata": {"labels": {"m": "1"}}})).await;
    assert_eq!((code, &patched["metadata"]["labels"]["m"]), (200, &json!("1")));
    let (code, _) = admin.patch(&path, "strategic", json!({"data": {"k": null, "n": "2"}})).await;
    assert_eq!(code, 200);
    let operations =
        json!([{"op": "test", "path": "/data/n", "value": "2"}, {"op": "add", "path": "/data/j", "value": "3"}]);
    let (code, patched) = admin.patch(&path, "json", operations).await;
    assert_eq!((code, &patched["data"]), (200, &json!({"n": "2", "j": "3"})));
    // A patch without a change keeps the resource version, and so does a failed test.
    let version = patched["metadata"]["resourceVersion"].clone();
    let (_, same) = admin.patch(&path, "merge", json!({"data": {"n": "2"}})).await;
    assert_eq!(same["metadata"]["resourceVersion"], version);
    let (code, _) = admin.patch(&path, "json", json!([{"op": "test", "path": "/data/n", "value": "9"}])).await;
    assert_eq!(code, 422);
    let stale = json!({"metadata": {"resourceVersion": "1"}, "data": {"n": "5"}});
    assert_eq!(admin.patch(&path, "merge", stale).await.0, 409);
    assert_eq!(admin.patch(&format!("{MAPS}/absent"), "merge", json!({})).await.0, 404);
}

#[tokio::test]
async fn lists_come_in_pages_of_one_snapshot() {
    let cluster = cluster().await;
    let admin = &cluster.admin;
    for index in 0..5 {
        let parity = if index % 2 == 0 { "even" } else { "odd" };
        admin.create(MAPS, config_map(&format!("c{index}"), json!({"par": parity}))).await;
    }
    let names = |list: &Value| -> Vec<String> {
        list["items"].as_array().unwrap().iter().map(|i| i["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    let (_, first) = admin.get(&format!("{MAPS}?limit=2")).await;
    assert_eq!(names(&first), ["c0", "c1"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    // The next page reads the same snapshot, although an object was deleted in between.
    admin.json("DELETE", &format!("{MAPS}/c3"), Value::Null).await;
    let (_, second) = admin.get(&format!("{MAPS}?limit=9&continue={token}")).await;
    assert_eq!(names(&second), ["c2", "c3", "c4"]);
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);

    let (_, even) = admin.get(&format!("{MAPS}?limit=2&labelSelector=par%3Deven")).await;
    assert_eq!(names(&even), ["c0", "c2"]);
    assert!(even["metadata"].get("remainingItemCount").is_none());
    let token = even["metadata"]["continue"].as_str().unwrap();
    let (_, rest) = admin.get(&format!("{MAPS}?limit=2&labelSelector=par%3Deven&continue={token}")).await;
    assert_eq!(names(&rest), ["c4"]);
    let (_, one) = admin.get(&format!("{MAPS}?fieldSelector=metadata.name%3Dc1")).await;
    assert_eq!(names(&one), ["c1"]);
}

#[tokio::test]
async fn an_expired_page_is_410_with_a_token_for_the_rest() {
    let cluster = cluster().await;
    let admin = &cluster.admin;
    for index in 0..3 {
        admin.create(MAPS, config_map(&format!("c{index}"), json!({}))).await;
    }
    let (_, first) = admin.get(&format!("{MAPS}?limit=1")).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    admin.create(MAPS, config_map("later", json!({}))).await;
    cluster.store.compact(cluster.store.revision().await.unwrap()).await.unwrap();
    let (code, status) = admin.get(&format!("{MAPS}?limit=9&continue={token}")).await;
    assert_eq!((code, &status["reason"]), (410, &json!("Expired")));
    let fresh = status["metadata"]["continue"].as_str().unwrap();
    let (code, rest) = admin.get(&format!("{MAPS}?limit=9&continue={fresh}")).await;
    assert_eq!((code, rest["items"].as_array().unwrap().len()), (200, 3));
    let version = first["metadata"]["resourceVersion"].as_str().unwrap();
    let (code, _) = admin.get(&format!("{MAPS}?resourceVersion={version}&resourceVersionMatch=Exact")).await;
    assert_eq!(code, 410);
}

#[tokio::test]
async fn pods_are_deleted_gracefully_and_finalizers_delay_it() {
    let cluster = cluster().await;
    let admin = &cluster.admin;
    admin.create(PODS, pod("bound", "n1")).await;
    let path = format!("{PODS}/bound");
    let (_, marked) = admin.json("DELETE", &path, Value::Null).await;
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 30);
    let (_, shorter) = admin.json("DELETE", &format!("{path}?gracePeriodSeconds=5"), Value::Null).await;
    assert_eq!(shorter["metadata"]["deletionGracePeriodSeconds"], 5);
    let (_, unchanged) = admin.json("DELETE", &format!("{path}?gracePeriodSeconds=60"), Value::Null).await;
    assert_eq!(unchanged["metadata"]["resourceVersion"], shorter["metadata"]["resourceVersion"]);
    admin.json("DELETE", &format!("{path}?gracePeriodSeconds=0"), Value::Null).await;
    assert_eq!(admin.get(&path).await.0, 404);

    admin.create(PODS, pod("pending", "")).await;
    admin.json("DELETE", &format!("{PODS}/pending"), Value::Null).await;
    assert_eq!(admin.get(&format!("{PODS}/pending")).await.0, 404);

    let mut held = config_map("held", json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/keep"]);
    admin.create(MAPS, held).await;
    let path = format!("{MAPS}/held");
    let (_, marked) = admin.json("DELETE", &path, Value::Null).await;
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    let (code, _) = admin.patch(&path, "merge", json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(code, 200);
    assert_eq!(admin.get(&path).await.0, 404);
}

#[tokio::test]
async fn collections_are_deleted_by_selector() {
    let cluster = cluster().await;
    let admin = &cluster.admin;
    admin.create(MAPS, config_map("a", json!({"x": "1"}))).await;
    admin.create(MAPS, config_map("b", json!({"x": "2"}))).await;
    let (code, deleted) = admin.json("DELETE", &format!("{MAPS}?labelSelector=x%3D1"), Value::Null).await;
    assert_eq!((code, deleted["items"].as_array().unwrap().len()), (200, 1));
    assert_eq!(admin.get(&format!("{MAPS}/a")).await.0, 404);
    assert_eq!(admin.get(&format!("{MAPS}/b")).await.0, 200);
}

#[tokio::test]
async fn a_pod_is_bound_once() {
    let cluster = cluster().await;
    let admin = &cluster.admin;
    let created = admin.create(PODS, pod("p", "")).await;
    let binding = |name: &str, uid: &Value| {
        json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "uid": uid},
            "target": {"kind": "Node", "name": "n1"},
        })
    };
    let path = format!("{PODS}/p/binding");
    let (code, _) = admin.json("POST", &path, binding("other", &Value::Null)).await;
    assert_eq!(code, 400);
    let (code, _) = admin.json("POST", &path, binding("p", &json!("11111111-2222-3333-4444-555555555555"))).await;
    assert_eq!(code, 409);
    let (code, status) = admin.json("POST", &path, binding("p", &created["metadata"]["uid"])).await;
    assert_eq!((code, &status["status"]), (201, &json!("Success")));
    let (code, status) = admin.json("POST", &path, binding("p", &Value::Null)).await;
    assert_eq!((code, &status["details"]["kind"]), (409, &json!("pods/binding")));
    let (_, bound) = admin.get(&format!("{PODS}/p")).await;
    assert_eq!(bound["spec"]["nodeName"], "n1");
    assert_eq!(bound["status"]["conditions"][0]["type"], "PodScheduled");
    assert_eq!(bound["status"]["conditions"][0]["status"], "True");
}

#[tokio::test]
async fn evictions_use_up_the_disruption_budget() {
    let cluster = cluster().await;
    let admin = &cluster.admin;
    for name in ["a", "b"] {
        admin.create(PODS, pod(name, "n1")).await;
        let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        admin.patch(&format!("{PODS}/{name}/status"), "strategic", status).await;
    }
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    admin
        .create(
            budgets,
            json!({
                "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
                "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
            }),
        )
        .await;
    let evict = |name: &str| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    let (code, status) = admin.json("POST", &format!("{PODS}/a/eviction"), evict("a")).await;
    assert_eq!((code, &status["details"]["causes"][0]["reason"]), (429, &json!("DisruptionBudget")));
    let status = json!({"status": {
        "observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2,
    }});
    admin.patch(&format!("{budgets}/b/status"), "merge", status).await;
    assert_eq!(admin.json("POST", &format!("{PODS}/a/eviction"), evict("a")).await.0, 201);
    assert_eq!(admin.json("POST", &format!("{PODS}/b/eviction"), evict("b")).await.0, 429);
    let (_, evicted) = admin.get(&format!("{PODS}/a")).await;
    assert!(evicted["metadata"]["deletionTimestamp"].is_string());
}

#[tokio::test]
async fn scale_changes_the_replicas_and_the_generation() {
    let cluster = cluster().await;
    let admin = &cluster.admin;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    admin
        .create(
            deployments,
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
                "spec": {
                    "replicas": 2, "selector": {"matchLabels": {"app": "d"}},
                    "template": {
                        "metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "i"}]},
                    },
                },
            }),
        )
        .await;
    let path = format!("{deployments}/d/scale");
    let (_, scale) = admin.get(&path).await;
    assert_eq!((&scale["spec"]["replicas"], &scale["status"]["selector"]), (&json!(2), &json!("app=d")));
    let (code, scale) = admin.patch(&path, "merge", json!({"spec": {"replicas": 5}})).await;
    assert_eq!((code, &scale["spec"]["replicas"]), (200, &json!(5)));
    let (_, deployment) = admin.get(&format!("{deployments}/d")).await;
    assert_eq!((&deployment["spec"]["replicas"], &deployment["metadata"]["generation"]), (&json!(5), &json!(2)));
    let request = Request::get(&path).header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let (_, table) = read(admin.call(request.body(Full::default()).unwrap()).await).await;
    let columns: Vec<_> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|each| each["name"].clone()).collect();
    assert_eq!(columns, ["Name", "Desired", "Available", "Age"]);
    assert_eq!(table["rows"][0]["cells"].as_array().unwrap()[..3], [json!("d"), json!(5), json!(0)]);
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(admin.patch(&path, "merge", json!({"spec": {"replicas": -1}})).await.0, 422);
    let unnamed = "the name of the object (d based on URL) was undeterminable: name must be provided";
    let other = "the name of the object (other) does not match the name on the URL (d)";
    for (metadata, expected) in
        [(json!({"name": "d"}), (200, "")), (json!({}), (400, unnamed)), (json!({"name": "other"}), (400, other))]
    {
        let (code, answer) = admin.json("PUT", &path, json!({"metadata": metadata, "spec": {"replicas": 6}})).await;
        assert_eq!((code, answer["message"].as_str().unwrap_or_default()), expected, "{metadata}");
    }
    let (code, answer) = admin.patch(&path, "merge", json!({"metadata": {"name": null}})).await;
    assert_eq!((code, &answer["message"]), (400, &json!(unnamed)));
}

#[tokio::test]
async fn an_address_and_a_port_belong_to_one_service_until_it_gives_them_up() {
    let cluster = cluster().await;
    let admin = &cluster.admin;
    let services = "/api/v1/namespaces/default/services";
    let service = |name: &str, address: &str, port: u16| {
        let ports = json!([{"port": 80, "nodePort": port}]);
        json!({"metadata": {"name": name}, "spec": {"type": "NodePort", "clusterIP": address, "ports": ports}})
    };
    admin.create(services, service("a", "10.96.0.50", 30_050)).await;
    for taken in [service("b", "10.96.0.50", 30_051), service("b", "10.96.0.51", 30_050)] {
        assert_eq!(admin.json("POST", services, taken).await.0, 422);
    }
    // An update keeps what the service has, or gives it up.
    let (_, mut a) = admin.get(&format!("{services}/a")).await;
    a["spec"]["ports"][0]["nodePort"] = json!(30_052);
    assert_eq!(admin.json("PUT", &format!("{services}/a"), a).await.0, 200);
    admin.create(services, service("b", "10.96.0.51", 30_050)).await;
    assert_eq!(admin.json("DELETE", &format!("{services}/a"), json!({})).await.0, 200);
    admin.create(services, service("c", "10.96.0.50", 30_052)).await;
    assert_eq!(admin.json("POST", services, service("d", "10.96.0.50", 30_053)).await.0, 422);
}

#[tokio::test]
async fn bad_input_gets_upstreams_code_and_reason() {
    let cluster = cluster().await;
    let admin = &cluster.admin;
    let big = format!("{{\"kind\":\"ConfigMap\",\"data\":{{\"k\":\"{}\"}}}}", "x".repeat(4 << 20));
    let wrong_namespace = json!({"metadata": {"name": "x", "namespace": "other"}}).to_string();
    let table: Vec<(&str, String, &str, String, u16, &str)> = vec![
        ("POST", MAPS.into(), "application/json", "{".into(), 400, "BadRequest"),
        ("POST", MAPS.into(), "application/json", r#"{"kind":"Pod","apiVersion":"v1"}"#.into(), 400, "BadRequest"),
        ("POST", MAPS.into(), "application/json", r#"{"kind":"Bogus","apiVersion":"v1"}"#.into(), 400, "BadRequest"),
        ("POST", MAPS.into(), "application/json", wrong_namespace, 400, "BadRequest"),
        ("POST", MAPS.into(), "application/json", big, 413, "RequestEntityTooLarge"),
        ("POST", MAPS.into(), "text/html", "x".into(), 415, "UnsupportedMediaType"),
        ("PATCH", format!("{MAPS}/x"), "application/apply-patch+yaml", "{}".into(), 422, "Invalid"),
        ("GET", "/api/v1/namespaces/default/nopes".into(), "", String::new(), 404, "NotFound"),
        ("GET", format!("{MAPS}/x/nope"), "", String::new(), 404, "NotFound"),
        ("GET", format!("{MAPS}/x"), "", String::new(), 404, "NotFound"),
        ("PUT", MAPS.into(), "application/json", "{}".into(), 405, "MethodNotAllowed"),
        ("DELETE", "/api/v1/configmaps".into(), "", String::new(), 405, "MethodNotAllowed"),
        ("GET", format!("{MAPS}?limit=x"), "", String::new(), 400, "BadRequest"),
        ("GET", format!("{MAPS}?labelSelector=a%20b"), "", String::new(), 400, "BadRequest"),
        ("GET", format!("{MAPS}?fieldSelector=spec.x%3D1"), "", String::new(), 400, "BadRequest"),
        ("GET", format!("{MAPS}?resourceVersionMatch=Exact"), "", String::new(), 422, "Invalid"),
        ("POST", format!("{MAPS}?dryRun=Some"), "application/json", "{}".into(), 422, "Invalid"),
        ("GET", format!("{MAPS}?continue=bogus"), "", String::new(), 400, "BadRequest"),
        ("GET", format!("{MAPS}?timeout=soon"), "", String::new(), 400, "BadRequest"),
    ];
    for (method, path, content_type, body, code, reason) in table {
        let (got, status) = read(admin.send(method, &path, content_type, Bytes::from(body)).await).await;
        assert_eq!((got, status["reason"].as_str().unwrap_or_default()), (code, reason), "{method} {path}: {status}");
    }
    let (code, status) = cluster.client("nobody").get(MAPS).await;
    assert_eq!((code, &status["reason"]), (403, &json!("Forbidden")));
    assert_eq!(admin.get("/healthz").await.0, 200);
}

#[tokio::test]
async fn a_long_list_is_whole_in_every_form() {
    let cluster = cluster().await;
    let text = "x".repeat(2_000);
    for number in 0..200 {
        let object = json!({"metadata": {"name": format!("c{number:03}")}, "data": {"text": text}});
        cluster.admin.create(MAPS, object).await;
    }
    for (accept, query, items, name) in [
        ("application/json", "", "items", "/metadata/name"),
        ("application/json", "?pretty=true", "items", "/metadata/name"),
        ("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "", "items", "/metadata/name"),
        ("application/json;as=Table;v=v1;g=meta.k8s.io", "", "rows", "/cells/0"),
    ] {
        let request = Request::get(format!("{MAPS}{query}")).header("Accept", accept);
        let (code, list) = read(cluster.admin.call(request.body(Full::default()).unwrap()).await).await;
        let names: Vec<_> = list[items].as_array().unwrap().iter().map(|item| item.pointer(name).cloned()).collect();
        let expected: Vec<_> = (0..200).map(|number| Some(json!(format!("c{number:03}")))).collect();
        assert_eq!((code, names), (200, expected), "{accept}{query}");
        assert!(list["metadata"]["resourceVersion"].is_string(), "{accept}{query}");
    }
}

#[tokio::test]
async fn a_large_object_is_whole() {
    let cluster = cluster().await;
    let object = json!({"metadata": {"name": "large"}, "data": {"text": "x".repeat(100_000)}});
    let created = cluster.admin.create(MAPS, object).await;
    let (code, read) = cluster.admin.get(&format!("{MAPS}/large")).await;
    assert_eq!((code, read), (200, created));
}

#[tokio::test]
async fn a_strategic_merge_patch_of_a_wrong_type_is_quoted_and_the_object_is_not() {
    let cluster = cluster().await;
    let labels = json!({"app": "web"});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    });
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    cluster.admin.create(deployments, deployment).await;
    let patch = json!({"spec": {"replicas": "seven", "paused": true}});
    let (code, status) = cluster.admin.patch(&format!("{deployments}/d"), "strategic", patch.clone()).await;
    let quoted = "map[spec:map[paused:true replicas:seven]]";
    let expected = format!(" \"\" is invalid: patch: Invalid value: \"{quoted}\": unrecognized type: int32");
    assert_eq!((code, &status["message"]), (422, &json!(expected)));
    // A merge patch is quoted as what it made of the object.
    let (code, status) = cluster.admin.patch(&format!("{deployments}/d"), "merge", patch).await;
    let message = status["message"].as_str().unwrap();
    assert_eq!(code, 422);
    assert!(message.contains("matchLabels") && message.contains("cannot unmarshal string"), "{message}");
}
