//! Discovery of `metrics.k8s.io`, which only clusters of simulated nodes serve.

use serde_json::{Value, json};

use super::{Document, JSON, group_description};
use crate::resource_metrics::{GROUP, RESOURCES, VERSION};

const VERBS: [&str; 2] = ["get", "list"];

pub(super) fn aggregated_group() -> Value {
    let resources: Vec<Value> = RESOURCES
        .iter()
        .map(|(plural, kind, namespaced)| {
            json!({
                "resource": plural, "responseKind": {"group": "", "version": "", "kind": kind},
                "scope": if *namespaced { "Namespaced" } else { "Cluster" }, "singularResource": "", "verbs": VERBS,
            })
        })
        .collect();
    let version = json!({"version": VERSION, "resources": resources, "freshness": "Current"});
    json!({"metadata": {"name": GROUP}, "versions": [version]})
}

pub(super) fn legacy_documents() -> [(String, Document); 2] {
    let resources: Vec<Value> = RESOURCES
        .iter()
        .map(|(plural, kind, namespaced)| {
            json!({"name": plural, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": VERBS})
        })
        .collect();
    let list = json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/{VERSION}"),
        "resources": resources,
    });
    let mut group = group_description(GROUP, &[VERSION]);
    group.insert("kind".into(), "APIGroup".into());
    group.insert("apiVersion".into(), "v1".into());
    [
        (format!("/apis/{GROUP}"), Document::new(JSON, &group.into())),
        (format!("/apis/{GROUP}/{VERSION}"), Document::new(JSON, &list)),
    ]
}
