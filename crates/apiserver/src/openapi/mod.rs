//! OpenAPI documents of what is served: v3 by group version, and v2 (JSON and protobuf) for older clients.
//!
//! ```text
//!   model's schema facts ─┐
//!                         ├─▶ operations ─▶ v3: /openapi/v3, /openapi/v3/{api,apis/…} (kubectl create, apply, explain)
//!   table of resources ───┘            └─▶ v2: /openapi/v2 as JSON, and as gnostic's protobuf
//! ```
//!
//! Documents are built on first use and kept.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use bayplan_kinds::served;
use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, EXPIRES, LOCATION};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde_json::{Map, Value, json};

use crate::discovery::Document;
use crate::negotiation::header_text;

mod operations;
mod passed_on;
mod protobuf;
mod v2;
mod v3;

const JSON: &str = "application/json";
/// The protobuf type that kubectl up to about 1.26 asks for. It is not a valid media type, and these clients cannot
/// parse it in an answer, so the answer has the later name.
const V2_PROTOBUF_OLD: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
/// The same under its later name.
const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

const V2_PATH: &str = "/openapi/v2";
const V3_PATH: &str = "/openapi/v3";

static V2_JSON: LazyLock<Document> = LazyLock::new(|| Document::new(JSON, &v2::document()));
static V2_PROTO: LazyLock<Document> =
    LazyLock::new(|| Document::encoded(V2_PROTOBUF, protobuf::encode(&v2::document())));
/// By path below [`V3_PATH`]: `api/v1`, `apis/apps/v1`.
static V3: LazyLock<BTreeMap<String, Document>> = LazyLock::new(|| {
    let mut documents = BTreeMap::new();
    for row in served() {
        let path = if row.group.is_empty() {
            format!("api/{}", row.version)
        } else {
            format!("apis/{}/{}", row.group, row.version)
        };
        documents.entry(path).or_insert_with(|| Document::new(JSON, &v3::document(row.group, row.version)));
    }
    documents
});
static V3_ROOT: LazyLock<Document> = LazyLock::new(|| {
    let paths: Map<String, Value> = V3
        .iter()
        .map(|(path, document)| (path.clone(), json!({"serverRelativeURL": v3_url(path, document)})))
        .collect();
    Document::new(JSON, &json!({ "paths": paths }))
});

/// Answers an OpenAPI path; `None` if there is no such document. `hash` is the query parameter of that name.
pub(crate) fn answer(path: &str, hash: Option<&str>, headers: &HeaderMap) -> Option<Response<Bytes>> {
    match path.trim_end_matches('/') {
        V2_PATH => Some(v2_for(headers).respond(headers)),
        V3_PATH => Some(V3_ROOT.respond(headers)),
        path => {
            let path = path.strip_prefix(V3_PATH)?.strip_prefix('/')?;
            Some(v3_answer(path, V3.get(path)?, hash, headers))
        }
    }
}

fn v2_for(headers: &HeaderMap) -> &'static Document {
    let accept = headers.get_all(ACCEPT).iter().map(header_text);
    for clause in accept.flat_map(|value| value.split(',')) {
        match clause.split(';').next().unwrap_or_default().trim() {
            V2_PROTOBUF_OLD | V2_PROTOBUF => return &V2_PROTO,
            JSON | "application/*" | "*/*" => return &V2_JSON,
            _ => {}
        }
    }
    &V2_JSON
}

fn v3_url(path: &str, document: &Document) -> String {
    format!("{V3_PATH}/{path}?hash={}", document.hash())
}

/// A URL with the current hash may be cached for ever; one with another hash is redirected to it.
fn v3_answer(path: &str, document: &Document, hash: Option<&str>, headers: &HeaderMap) -> Response<Bytes> {
    match hash {
        None | Some("") => document.respond(headers),
        Some(hash) if hash == document.hash() => {
            let mut response = document.respond(headers);
            let answer = response.headers_mut();
            answer.insert(CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
            answer.insert(EXPIRES, next_year());
            response
        }
        Some(_) => {
            let mut response = Response::new(Bytes::new());
            *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
            let location = HeaderValue::try_from(v3_url(path, document)).expect("paths and hashes are plain ASCII");
            response.headers_mut().insert(LOCATION, location);
            response
        }
    }
}

fn next_year() -> HeaderValue {
    let at = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(365 * 24);
    HeaderValue::try_from(at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()).expect("dates are plain ASCII")
}

/// The title and version of every document.
fn info() -> Value {
    json!({"title": "Kubernetes", "version": "v1.36.4"})
}

#[cfg(test)]
mod tests;
