use super::*;
use crate::request::Verb;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, ETAG};

fn get(path: &str, hash: Option<&str>) -> Response<Bytes> {
    answer(path, hash, &HeaderMap::new()).unwrap()
}

fn json_of(response: &Response<Bytes>) -> Value {
    serde_json::from_slice(response.body()).unwrap()
}

#[test]
fn the_root_leads_to_every_group_version() {
    let root = json_of(&get("/openapi/v3", None));
    let url = root["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap();
    let hash = url.strip_prefix("/openapi/v3/apis/apps/v1?hash=").unwrap();
    let document = get("/openapi/v3/apis/apps/v1", Some(hash));
    assert_eq!(document.headers()[CACHE_CONTROL], "public, immutable");
    assert_eq!(json_of(&document)["openapi"], "3.0.0");
    let moved = get("/openapi/v3/apis/apps/v1", Some("0"));
    assert_eq!((moved.status().as_u16(), moved.headers()[LOCATION].to_str().unwrap()), (301, url));
    assert!(answer("/openapi/v3/apis/nope/v1", None, &HeaderMap::new()).is_none());
}

#[test]
fn a_patch_declares_what_kubectl_looks_for() {
    let document = json_of(&get("/openapi/v3/apis/apps/v1", None));
    let patch = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    assert_eq!(patch["operationId"], "patchAppsV1NamespacedDeployment");
    assert_eq!(
        patch["x-kubernetes-group-version-kind"],
        json!({"group": "apps", "version": "v1", "kind": "Deployment"})
    );
    let names: Vec<&Value> =
        patch["parameters"].as_array().unwrap().iter().map(|parameter| &parameter["name"]).collect();
    assert!(names.contains(&&json!("fieldValidation")) && names.contains(&&json!("dryRun")), "{names:?}");
    assert!(patch["requestBody"]["content"]["application/strategic-merge-patch+json"].is_object());
}

#[test]
fn what_is_passed_on_has_upstreams_operations() {
    let document = json_of(&get("/openapi/v3/api/v1", None));
    let pod = "/api/v1/namespaces/{namespace}/pods/{name}";
    for (path, method, id) in [
        (format!("{pod}/log"), "get", "readCoreV1NamespacedPodLog"),
        (format!("{pod}/exec"), "post", "connectCoreV1PostNamespacedPodExec"),
        (format!("{pod}/portforward"), "get", "connectCoreV1GetNamespacedPodPortforward"),
        (format!("{pod}/proxy/{{path}}"), "put", "connectCoreV1PutNamespacedPodProxyWithPath"),
        ("/api/v1/nodes/{name}/proxy".to_owned(), "options", "connectCoreV1OptionsNodeProxy"),
    ] {
        assert_eq!(document["paths"][&path][method]["operationId"], id, "{path}");
    }
    assert_eq!(
        document["paths"][format!("{pod}/exec")]["get"]["x-kubernetes-group-version-kind"]["kind"],
        "PodExecOptions"
    );
}

#[test]
fn schemas_carry_merge_keys_and_resolve_all_references() {
    fn check(value: &Value, schemas: &Map<String, Value>) {
        match value {
            Value::Object(map) => {
                if let Some(reference) = map.get("$ref") {
                    let name = reference.as_str().unwrap().strip_prefix("#/components/schemas/").unwrap();
                    assert!(schemas.contains_key(name), "{name}");
                    assert_eq!(map.len(), 1, "nothing may stand beside {name}");
                }
                map.values().for_each(|value| check(value, schemas));
            }
            Value::Array(list) => list.iter().for_each(|value| check(value, schemas)),
            _ => {}
        }
    }
    for path in V3.keys() {
        let document = json_of(&get(&format!("/openapi/v3/{path}"), None));
        check(&document, document["components"]["schemas"].as_object().unwrap());
    }
    let document = json_of(&get("/openapi/v3/apis/apps/v1", None));
    let containers = &document["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(containers["x-kubernetes-patch-strategy"], "merge");
}

#[test]
fn every_served_kind_has_operations() {
    let document = json_of(&get("/openapi/v2", None));
    for row in served().filter(|row| row.verbs.contains(&Verb::List)) {
        let known = document["paths"].as_object().unwrap().values().filter_map(|item| item["get"].as_object());
        let kind = json!({"group": row.group, "version": row.version, "kind": row.kind});
        let mut kinds = known.map(|operation| &operation["x-kubernetes-group-version-kind"]);
        assert!(kinds.any(|known| known == &kind), "{kind}");
    }
}

#[test]
fn v2_has_the_form_and_encoding_that_the_client_accepts() {
    for (accept, expected) in [
        ("application/json", JSON),
        (V2_PROTOBUF_OLD, V2_PROTOBUF),
        ("application/com.github.proto-openapi.spec.v2.v1.0+protobuf,application/json", V2_PROTOBUF),
    ] {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().unwrap());
        headers.insert(http::header::ACCEPT_ENCODING, "gzip".parse().unwrap());
        let response = answer("/openapi/v2", None, &headers).unwrap();
        assert_eq!(response.headers()[CONTENT_TYPE], expected);
        assert_eq!(response.headers()[CONTENT_ENCODING], "gzip");
        assert!(response.headers().contains_key(ETAG));
    }
}
