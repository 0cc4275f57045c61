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
    progress.clear();
    reader.set_origin(Origin {
        kind: OriginKind::Live,
        time: Some(time),
        resource_version: version.map(|version| version.to_string()),
    });
    Ok(reader.finish())
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
