//! Reads a live cluster: lists what decisions read, page by page, and writes nothing.

use anyhow::{Context, Result, anyhow, bail};
use bayplan_client::Client;
use bayplan_model::status::Status;
use bayplan_sources::{ClusterObjects, Given, Origin, OriginKind, RESOURCES, Resource, SourceReader};
use jiff::Timestamp;
use serde::Deserialize;

use super::load::LoadProgress;
use crate::args::source::Source;

/// Objects of one page; a server that holds large pods then answers in a few megabytes.
const PAGE_OBJECTS: usize = 1000;

/// Without these nothing can be answered.
const INDISPENSABLE: &[&str] = &["nodes", "pods"];

/// The events about attempts to schedule pods, and how many pages of them are read: attempts are worth knowing, but not
/// every one of a cluster in which nothing fits for an hour.
const EVENTS: &str = "/api/v1/events?fieldSelector=involvedObject.kind%3DPod%2Creason%3DFailedScheduling";
const EVENT_PAGES_MAX: usize = 50;

/// What a page says about itself.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Page {
    metadata: PageMetadata,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PageMetadata {
    resource_version: String,
    #[serde(rename = "continue")]
    next: String,
}

/// Connects as the flags say, under Bayplan's name.
pub(crate) async fn connect(source: &Source) -> Result<Client> {
    Ok(Client::connect(source.kubeconfig.as_deref(), source.context.as_deref(), None).await?)
}

/// Reads all that decisions depend on. What may not be read or is not served becomes a note, unless nothing can be
/// answered without it.
pub(crate) async fn read(client: &Client) -> Result<ClusterObjects> {
    let mut reader = SourceReader::default();
    let mut progress = LoadProgress::new();
    let time = Timestamp::now();
    let mut version: Option<u64> = None;
    for resource in RESOURCES {
        match list(client, resource, &mut reader, &mut progress).await {
            Ok(seen) => version = version.max(seen.parse().ok()),
            Err(Failure::Status(status)) if matches!(status.code, 403 | 404) => {
                let why = if status.code == 403 { "may not be read" } else { "are not served" };
                if INDISPENSABLE.contains(&resource.name) {
                    bail!("{} {why} on {}: {}", resource.name, client.host(), status.message);
                }
                reader.note(format!("{} {why}: {}", resource.name, status.message));
            }
            Err(Failure::Status(status)) => {
                let error = anyhow!("{}", status.message);
                return Err(error.context(format!("cannot list {} of {}", resource.name, client.host())));
            }
            Err(Failure::Answer(error)) => return Err(error),
        }
    }
    read_events(client, &mut reader).await;
    progress.clear();
    reader.set_origin(Origin {
        kind: OriginKind::Live,
        time: Some(time),
        resource_version: version.map(|version| version.to_string()),
    });
    Ok(reader.finish())
}

/// Reads what events say of attempts. No decision depends on them: what cannot be read is a line.
async fn read_events(client: &Client, reader: &mut SourceReader) {
    let mut next = String::new();
    for _ in 0..EVENT_PAGES_MAX {
        let more = if next.is_empty() { String::new() } else { format!("&continue={}", encoded(&next)) };
        let answer = match client.get(&format!("{EVENTS}&limit={PAGE_OBJECTS}{more}"), "application/json").await {
            Ok(answer) => answer,
            // The list took longer than its version is kept; what was read counts.
            Err(status) if status.code == 410 => return,
            Err(status) => {
                let why = if status.code == 403 { "may not be read" } else { "cannot be read" };
                return reader.note(format!("events {why}, so attempts are not counted: {}", status.message));
            }
        };
        reader.read("events", &mut &*answer, Given::Directly);
        match serde_json::from_slice::<Page>(&answer) {
            Ok(page) if !page.metadata.next.is_empty() => next = page.metadata.next,
            _ => return,
        }
    }
    let read = EVENT_PAGES_MAX * PAGE_OBJECTS;
    reader.note(format!("there are more than {read} events about failed attempts: the rest is not counted"));
}

/// Why a list failed.
enum Failure {
    /// The server refused.
    Status(Box<Status>),
    /// The server's answer cannot be used.
    Answer(anyhow::Error),
}

/// Lists one resource and returns the `resourceVersion` of the list.
async fn list(
    client: &Client,
    resource: &'static Resource,
    reader: &mut SourceReader,
    progress: &mut LoadProgress,
) -> Result<String, Failure> {
    let mut next = String::new();
    let mut paged = true;
    loop {
        let query = match (paged, next.is_empty()) {
            (false, _) => String::new(),
            (true, true) => format!("?limit={PAGE_OBJECTS}"),
            (true, false) => format!("?limit={PAGE_OBJECTS}&continue={}", encoded(&next)),
        };
        let answer = match client.get(&format!("{}{query}", path_of(resource)), "application/json").await {
            Ok(answer) => answer,
            // The list took longer than its version is kept. What was read stays; the whole list replaces it.
            Err(status) if status.code == 410 && paged => {
                (paged, next) = (false, String::new());
                continue;
            }
            Err(status) => return Err(Failure::Status(Box::new(status))),
        };
        let page: Page = serde_json::from_slice(&answer)
            .with_context(|| format!("{} answered a list of {} with something else", client.host(), resource.name))
            .map_err(Failure::Answer)?;
        reader.read(resource.name, &mut &*answer, Given::Directly);
        progress.report(|| format!("reading the cluster: {} objects, now {}", reader.seen(), resource.name));
        if page.metadata.next.is_empty() {
            return Ok(page.metadata.resource_version);
        }
        next = page.metadata.next;
    }
}

fn path_of(resource: &Resource) -> String {
    let plural = resource.name.split('.').next().unwrap_or(resource.name);
    match resource.api_version.contains('/') {
        true => format!("/apis/{}/{plural}", resource.api_version),
        false => format!("/api/{}/{plural}", resource.api_version),
    }
}

/// A continue token as a part of a query; other servers' may hold anything.
fn encoded(token: &str) -> String {
    let mut out = String::new();
    for byte in token.bytes() {
        match byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            true => out.push(char::from(byte)),
            false => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use http::{Request, Response};
    use http_body_util::Full;
    use serde_json::{Value, json};

    use super::*;

    /// An API server with three nodes in two pages, of which the second version has expired once if `expires`.
    fn answer(path: &str, query: &str, forbidden: &str, expires: bool) -> (u16, Value) {
        let list = |kind: &str, items: Value, next: &str| {
            let metadata = json!({"resourceVersion": "42", "continue": next});
            (200, json!({"kind": kind, "apiVersion": "v1", "metadata": metadata, "items": items}))
        };
        let node = |name: &str| json!({"metadata": {"name": name}});
        let status = |code: u16, message: &str| (code, json!({"kind": "Status", "code": code, "message": message}));
        if !forbidden.is_empty() && path.ends_with(forbidden) {
            return status(403, "you may not");
        }
        match (path, query) {
            ("/api/v1/nodes", "limit=1000") => list("NodeList", json!([node("a"), node("b")]), "a/b+c"),
            ("/api/v1/nodes", "limit=1000&continue=a%2Fb%2Bc") if expires => status(410, "too old"),
            ("/api/v1/nodes", "limit=1000&continue=a%2Fb%2Bc") => list("NodeList", json!([node("c")]), ""),
            ("/api/v1/nodes", "") => list("NodeList", json!([node("a"), node("b"), node("c")]), ""),
            ("/api/v1/pods", _) => list("PodList", json!([{"metadata": {"namespace": "x", "name": "p"}}]), ""),
            ("/api/v1/services", _) => list("ServiceList", json!([]), ""),
            ("/api/v1/events", query) => {
                assert!(query.starts_with("fieldSelector=involvedObject.kind%3DPod%2Creason%3DFailedScheduling"));
                let about = json!({"kind": "Pod", "namespace": "x", "name": "p"});
                let event = |name: &str| {
                    json!({"metadata": {"namespace": "x", "name": name}, "involvedObject": about,
                    "reason": "FailedScheduling", "count": 2})
                };
                match query.ends_with("&continue=more") {
                    false => list("EventList", json!([event("e1")]), "more"),
                    true => list("EventList", json!([event("e2")]), ""),
                }
            }
            _ => status(404, "the server could not find the requested resource"),
        }
    }

    fn client(forbidden: &'static str, expires: bool) -> Client {
        Client::from_service(tower::service_fn(move |request: Request<bayplan_client::Body>| async move {
            assert_eq!(request.method(), http::Method::GET, "a live cluster is only read");
            let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
            let (code, body) = answer(path, query, forbidden, expires);
            let body = Full::new(Bytes::from(body.to_string()));
            Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
        }))
    }

    #[tokio::test]
    async fn a_live_cluster_is_read_page_by_page() {
        for expires in [false, true] {
            let objects = read(&client("", expires)).await.unwrap();
            let names: Vec<&str> = objects.objects.iter().map(|object| &*object.name).collect();
            let mut sorted = names.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, ["a", "b", "c", "p"], "{names:?}");
            assert_eq!(objects.origin.kind, OriginKind::Live);
            assert_eq!(objects.origin.resource_version.as_deref(), Some("42"));
            assert!(objects.origin.time.is_some());
            assert!(!objects.missing().contains(&"services"), "an empty list was read");
            assert_eq!(objects.failed_attempts[0].count, 4, "{:?}", objects.failed_attempts);
            assert!(objects.missing().contains(&"csinodes.storage.k8s.io"));
            assert!(objects.notes.iter().any(|note| note.starts_with("csinodes.storage.k8s.io are not served: ")));
        }
    }

    #[tokio::test]
    async fn what_may_not_be_read_is_missing_and_pods_are_indispensable() {
        let objects = read(&client("/services", false)).await.unwrap();
        assert!(objects.missing().contains(&"services"));
        assert!(objects.notes.contains(&"services may not be read: you may not".to_owned()), "{:?}", objects.notes);
        let objects = read(&client("/events", false)).await.unwrap();
        assert!(objects.failed_attempts.is_empty());
        let line = "events may not be read, so attempts are not counted: you may not";
        assert!(objects.notes.contains(&line.to_owned()), "{:?}", objects.notes);
        let refused = read(&client("/pods", false)).await.unwrap_err().to_string();
        assert_eq!(refused, "pods may not be read on in-process: you may not");
    }
}
