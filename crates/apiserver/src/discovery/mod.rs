//! Discovery of what is served: aggregated (v2) and legacy, generated from the table of resources.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use bayplan_kinds::{Kind, Scope, Subresource, served};
use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderMap, Response};
use serde_json::{Map, Value, json};

use crate::negotiation::header_text;
use crate::resource_metrics;

mod document;
mod usage;

pub(crate) use document::{Document, sha256};

const JSON: &str = "application/json";
/// Clients compare `g`, `v` and `as` of the content type with their request.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Answers a discovery path; `None` for other paths. `server` is the `host:port` that clients may use.
///
/// `simulated_usage` adds the group of a metrics server.
pub(crate) fn answer(path: &str, headers: &HeaderMap, server: &str, simulated_usage: bool) -> Option<Response<Bytes>> {
    let path = path.trim_end_matches('/');
    let documents = if simulated_usage { &*WITH_USAGE } else { &*WITHOUT_USAGE };
    match path {
        "" => return Some(documents.root.respond(headers)),
        "/api" if wants_aggregated(headers) => return Some(AGGREGATED_CORE.respond(headers)),
        "/apis" if wants_aggregated(headers) => return Some(documents.aggregated_groups.respond(headers)),
        // This document names the address of the server, so it is not built in advance.
        "/api" => return Some(Document::new(JSON, &core_versions(server)).respond(headers)),
        _ => {}
    }
    documents.legacy.get(path).map(|document| document.respond(headers))
}

/// The documents that differ with what is served.
struct Documents {
    aggregated_groups: Document,
    legacy: BTreeMap<String, Document>,
    /// The list of paths at `/`.
    root: Document,
}

impl Documents {
    fn new(simulated_usage: bool) -> Documents {
        let legacy = legacy(simulated_usage);
        let mut paths: Vec<&str> = OTHER_PATHS.into_iter().chain(legacy.keys().map(String::as_str)).collect();
        paths.sort_unstable();
        let root = Document::new(JSON, &json!({ "paths": paths }));
        let metrics = simulated_usage.then(usage::aggregated_group);
        Documents { aggregated_groups: aggregated(|group| !group.is_empty(), metrics), legacy, root }
    }
}

static WITH_USAGE: LazyLock<Documents> = LazyLock::new(|| Documents::new(true));
static WITHOUT_USAGE: LazyLock<Documents> = LazyLock::new(|| Documents::new(false));

/// The paths that are served beside resources and their discovery.
const OTHER_PATHS: [&str; 11] = [
    "/.well-known/openid-configuration",
    "/api",
    "/apis/",
    "/healthz",
    "/livez",
    "/openapi/v2",
    "/openapi/v3",
    "/openapi/v3/",
    "/openid/v1/jwks",
    "/readyz",
    "/version",
];

static AGGREGATED_CORE: LazyLock<Document> = LazyLock::new(|| aggregated(|group| group.is_empty(), None));

/// True if the first clause of `Accept` that is served asks for aggregated discovery.
fn wants_aggregated(headers: &HeaderMap) -> bool {
    let accept = headers.get_all(ACCEPT).iter().map(header_text).flat_map(|v| v.split(','));
    for clause in accept {
        let mut parts = clause.split(';').map(str::trim);
        if !matches!(parts.next(), Some(JSON | "application/*" | "*/*")) {
            continue;
        }
        let parameters: BTreeMap<&str, &str> = parts.filter_map(|part| part.split_once('=')).collect();
        match (parameters.get("g"), parameters.get("v"), parameters.get("as")) {
            (Some(&"apidiscovery.k8s.io"), Some(&"v2"), Some(&"APIGroupDiscoveryList")) => return true,
            (None, None, None) => return false,
            _ => {}
        }
    }
    false
}

/// The groups in the order of the table, each with its versions in the order of the table.
fn groups() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for resource in served() {
        match groups.iter_mut().find(|(group, _)| *group == resource.group) {
            Some((_, versions)) if versions.contains(&resource.version) => {}
            Some((_, versions)) => versions.push(resource.version),
            None => groups.push((resource.group, vec![resource.version])),
        }
    }
    groups
}

/// The resources of a group version, by name.
fn resources_of(group: &str, version: &str) -> Vec<&'static Kind> {
    let mut rows: Vec<_> = served().filter(|row| row.group == group && row.version == version).collect();
    rows.sort_by_key(|row| row.plural);
    rows
}

/// The groups that are wanted, and one more.
fn aggregated(wanted: impl Fn(&str) -> bool, more: Option<Value>) -> Document {
    let items: Vec<Value> = groups()
        .into_iter()
        .filter(|(group, _)| wanted(group))
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .into_iter()
                .map(|version| {
                    let resources: Vec<Value> =
                        resources_of(group, version).into_iter().map(aggregated_resource).collect();
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let metadata = if group.is_empty() { json!({}) } else { json!({"name": group}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .chain(more)
        .collect();
    let list = json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    });
    Document::new(AGGREGATED, &list)
}

fn aggregated_resource(row: &'static Kind) -> Value {
    let mut entry = json!({
        "resource": row.plural,
        "responseKind": {"group": "", "version": "", "kind": row.kind},
        "scope": match row.scope { Scope::Cluster => "Cluster", Scope::Namespaced => "Namespaced" },
        "singularResource": row.singular,
        "verbs": row.verbs,
    });
    set_names(&mut entry, row);
    if !row.subresources.is_empty() {
        entry["subresources"] = row
            .subresources
            .iter()
            .map(|sub| {
                json!({
                    "subresource": sub.name,
                    "responseKind": {"group": sub.group, "version": sub.version, "kind": sub.kind},
                    "verbs": sub.verbs,
                })
            })
            .collect();
    }
    entry
}

fn set_names(entry: &mut Value, row: &Kind) {
    if !row.short_names.is_empty() {
        entry["shortNames"] = json!(row.short_names);
    }
    if !row.categories.is_empty() {
        entry["categories"] = json!(row.categories);
    }
}

fn core_versions(server: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server}],
    })
}

fn legacy(simulated_usage: bool) -> BTreeMap<String, Document> {
    let mut documents = BTreeMap::new();
    let mut list = Vec::new();
    for (group, versions) in groups() {
        for version in &versions {
            let (path, group_version) = if group.is_empty() {
                (format!("/api/{version}"), (*version).to_owned())
            } else {
                (format!("/apis/{group}/{version}"), format!("{group}/{version}"))
            };
            documents.insert(path, Document::new(JSON, &resource_list(group, version, &group_version)));
        }
        if !group.is_empty() {
            let description = group_description(group, &versions);
            list.push(Value::Object(description.clone()));
            let mut document = description;
            document.insert("kind".into(), "APIGroup".into());
            document.insert("apiVersion".into(), "v1".into());
            documents.insert(format!("/apis/{group}"), Document::new(JSON, &document.into()));
        }
    }
    if simulated_usage {
        list.push(Value::Object(group_description(resource_metrics::GROUP, &[resource_metrics::VERSION])));
        documents.extend(usage::legacy_documents());
    }
    let list = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": list});
    documents.insert("/apis".to_owned(), Document::new(JSON, &list));
    documents
}

fn group_description(group: &str, versions: &[&str]) -> Map<String, Value> {
    let versions: Vec<Value> = versions
        .iter()
        .map(|version| json!({"groupVersion": format!("{group}/{version}"), "version": version}))
        .collect();
    let mut description = Map::new();
    description.insert("name".into(), group.into());
    description.insert("preferredVersion".into(), versions[0].clone());
    description.insert("versions".into(), versions.into());
    description
}

fn resource_list(group: &str, version: &str, group_version: &str) -> Value {
    let mut resources = Vec::new();
    for row in resources_of(group, version) {
        resources.push(legacy_resource(row));
        resources.extend(row.subresources.iter().map(|sub| legacy_subresource(row, sub)));
    }
    let mut list = json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": resources});
    // Upstream's list of the core group has no apiVersion.
    if !group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    list
}

fn legacy_resource(row: &'static Kind) -> Value {
    let mut entry = json!({
        "name": row.plural,
        "singularName": row.singular,
        "namespaced": row.namespaced(),
        "kind": row.kind,
        "verbs": row.verbs,
    });
    set_names(&mut entry, row);
    if row.stored() {
        entry["storageVersionHash"] = storage_version_hash(row.storage()).into();
    }
    entry
}

fn legacy_subresource(row: &Kind, sub: &Subresource) -> Value {
    let mut entry = json!({
        "name": format!("{}/{}", row.plural, sub.name),
        "singularName": "",
        "namespaced": row.namespaced(),
        "kind": sub.kind,
        "verbs": sub.verbs,
    });
    if !sub.group.is_empty() {
        entry["group"] = sub.group.into();
        entry["version"] = sub.version.into();
    }
    entry
}

/// A hash of the storage version.
fn storage_version_hash(row: &Kind) -> String {
    use base64::Engine as _;
    let hash = sha256(format!("{}/{}/{}", row.group, row.version, row.kind).as_bytes());
    base64::engine::general_purpose::STANDARD.encode(&hash[..8])
}

#[cfg(test)]
mod tests;
