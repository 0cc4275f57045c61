use super::*;
use http::StatusCode;
use http::header::{CONTENT_TYPE, ETAG, IF_NONE_MATCH};

fn get(path: &str, accept: Option<&str>) -> (StatusCode, String, Value) {
    let mut headers = HeaderMap::new();
    if let Some(accept) = accept {
        headers.insert(ACCEPT, accept.parse().unwrap());
    }
    let response = answer(path, &headers, "127.0.0.1:6443", false).unwrap();
    let content_type = response.headers()[CONTENT_TYPE].to_str().unwrap().to_owned();
    (response.status(), content_type, serde_json::from_slice(response.body()).unwrap())
}

#[test]
fn old_and_new_clients_get_the_form_they_accept() {
    let modern = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                  application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
    let beta = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
    for (path, accept, content_type, kind) in [
        ("/api", Some(modern), AGGREGATED, "APIGroupDiscoveryList"),
        ("/apis", Some(modern), AGGREGATED, "APIGroupDiscoveryList"),
        ("/apis/", Some(modern), AGGREGATED, "APIGroupDiscoveryList"),
        ("/api", Some(beta), JSON, "APIVersions"),
        ("/apis", Some(beta), JSON, "APIGroupList"),
        ("/apis", None, JSON, "APIGroupList"),
        ("/apis", Some("*/*"), JSON, "APIGroupList"),
        ("/apis/apps", None, JSON, "APIGroup"),
        ("/apis/apps/v1", Some(modern), JSON, "APIResourceList"),
        ("/api/v1", None, JSON, "APIResourceList"),
    ] {
        let (status, got_type, body) = get(path, accept);
        assert_eq!((status, got_type.as_str(), &body["kind"]), (StatusCode::OK, content_type, &kind.into()), "{path}");
    }
    assert!(answer("/apis/nope", &HeaderMap::new(), "", false).is_none());
}

#[test]
fn deployments_are_described_as_upstream_does() {
    let find = |list: &Value, key: &str, name: &str| {
        list.as_array().unwrap().iter().find(|entry| entry[key] == name).cloned().unwrap()
    };
    let (_, _, list) = get("/apis/apps/v1", None);
    let deployments = find(&list["resources"], "name", "deployments");
    assert_eq!(deployments["storageVersionHash"], "8aSe+NMegvE=");
    assert_eq!(deployments["shortNames"], json!(["deploy"]));
    let scale = find(&list["resources"], "name", "deployments/scale");
    assert_eq!(
        scale,
        json!({
            "name": "deployments/scale", "singularName": "", "namespaced": true, "group": "autoscaling",
            "version": "v1", "kind": "Scale", "verbs": ["get", "patch", "update"],
        })
    );
    let (_, _, all) = get("/apis", Some(AGGREGATED));
    let apps = all["items"].as_array().unwrap().iter().find(|item| item["metadata"]["name"] == "apps").unwrap();
    let deployments = find(&apps["versions"][0]["resources"], "resource", "deployments");
    assert_eq!(deployments["responseKind"], json!({"group": "", "version": "", "kind": "Deployment"}));
    assert_eq!(
        find(&deployments["subresources"], "subresource", "scale")["responseKind"],
        json!({"group": "autoscaling", "version": "v1", "kind": "Scale"})
    );
}

#[test]
fn both_views_of_events_share_a_storage_version() {
    let hash = |path: &str| {
        let (_, _, list) = get(path, None);
        let events = list["resources"].as_array().unwrap().iter().find(|entry| entry["name"] == "events").cloned();
        events.unwrap()["storageVersionHash"].clone()
    };
    assert_eq!(hash("/api/v1"), "r2yiGXH7wu8=");
    assert_eq!(hash("/apis/events.k8s.io/v1"), "r2yiGXH7wu8=");
}

#[test]
fn a_client_that_knows_the_document_gets_304() {
    let tag = answer("/apis", &HeaderMap::new(), "", false).unwrap().headers()[ETAG].clone();
    let mut headers = HeaderMap::new();
    headers.insert(IF_NONE_MATCH, tag);
    let response = answer("/apis", &headers, "", false).unwrap();
    assert_eq!((response.status(), response.body().len()), (StatusCode::NOT_MODIFIED, 0));
}

#[test]
fn the_root_lists_the_paths() {
    let (_, _, root) = get("/", None);
    let paths: Vec<&str> = root["paths"].as_array().unwrap().iter().map(|path| path.as_str().unwrap()).collect();
    assert!(paths.is_sorted());
    for path in ["/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/openapi/v3", "/version"] {
        assert!(paths.contains(&path), "{path}");
    }
}

#[test]
fn the_group_of_a_metrics_server_is_found_where_usage_is_simulated() {
    let text = |path: &str, simulated: bool| {
        let found = answer(path, &HeaderMap::new(), "", simulated);
        found.map(|response| String::from_utf8(response.body().to_vec()).unwrap()).unwrap_or_default()
    };
    for path in ["/apis", "/apis/metrics.k8s.io", "/apis/metrics.k8s.io/v1beta1", "/"] {
        assert!(text(path, true).contains("metrics.k8s.io"), "{path}");
        assert!(!text(path, false).contains("metrics.k8s.io"), "{path}");
    }
    assert!(text("/apis/metrics.k8s.io/v1beta1", true).contains("PodMetrics"));
}
