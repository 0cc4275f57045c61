//! The paths that name no resource: health, version, discovery, OpenAPI and the issuer of service account tokens.

use bayplan_model::status::Status;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use http::{Method, Response};
use serde_json::{Value, json};

use super::handler::RequestContext;
use super::response::{content, full, text};
use super::{ResponseBody, flow, health};
use crate::negotiation::{self, Format};
use crate::registry::Answer;
use crate::{discovery, openapi, status_errors};

/// Answers a request whose path names no resource.
pub(super) async fn serve(request: &RequestContext<'_>) -> Result<Response<ResponseBody>, Status> {
    let path = request.info.path.as_str();
    let get = *request.method == Method::GET;
    if let Some(response) = health::answer(request.shared, path, request.query).await {
        return if get { Ok(response) } else { Err(status_errors::method_not_allowed()) };
    }
    if path == "/version" || path == "/version/" {
        return if get { version(request) } else { Err(status_errors::method_not_allowed()) };
    }
    if let Some(page) = request.shared.pages.answer(path, request.shared.started.elapsed()) {
        return if get { Ok(text(200, &page)) } else { Err(status_errors::method_not_allowed()) };
    }
    if let Some(table) = flow::dump(&request.shared.flow, path, request.query, request.shared.registry.now()) {
        return if get { Ok(text(200, &table)) } else { Err(status_errors::method_not_allowed()) };
    }
    let found = discovery::answer(path, request.headers, &request.shared.address, request.shared.simulated_usage)
        .or_else(|| openapi::answer(path, request.query.get("hash"), request.headers));
    if let Some(response) = found {
        return if get { Ok(response.map(full)) } else { Err(status_errors::method_not_allowed()) };
    }
    match path {
        "/metrics" if get => Ok(with_type(request.shared.metrics.scrape(&request.shared.registry).await)),
        _ if bayplan_metrics::is_profile(path) => Ok(text(501, bayplan_metrics::NO_PROFILES)),
        "/openid/v1/jwks" if get => json(request, request.shared.tokens.key_set()),
        "/.well-known/openid-configuration" if get => {
            json(request, request.shared.tokens.openid_configuration(&request.shared.address))
        }
        _ => not_found(path),
    }
}

/// The 404 of a path: a `Status` below a group that is served, otherwise plain text.
pub(super) fn not_found(path: &str) -> Result<Response<ResponseBody>, Status> {
    let mut parts = path.trim_matches('/').split('/');
    let served = match (parts.next(), parts.next(), parts.next()) {
        (Some("api"), Some(_), _) => true,
        (Some("apis"), Some(group), Some(_)) => bayplan_kinds::served().any(|r| r.group == group),
        _ => false,
    };
    if served { Err(status_errors::path_not_found()) } else { Ok(text(404, "404 page not found\n")) }
}

fn with_type(metrics: String) -> Response<ResponseBody> {
    let mut response = text(200, &metrics);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(bayplan_metrics::text::CONTENT_TYPE));
    response
}

fn json(request: &RequestContext<'_>, value: Value) -> Result<Response<ResponseBody>, Status> {
    render(request, value, Format::negotiate_text(request.headers, request.query)?)
}

fn version(request: &RequestContext<'_>) -> Result<Response<ResponseBody>, Status> {
    let accept = request.headers.get(ACCEPT).map_or("*/*", negotiation::header_text);
    if !accept.contains("application/json") && !accept.contains("*/*") {
        return Err(negotiation::unavailable("application/json"));
    }
    let platform = format!("{}/{}", std::env::consts::OS, go_architecture());
    let value = json!({
        "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
        "gitVersion": concat!("v1.36.4+bayplan-", env!("CARGO_PKG_VERSION")),
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "rust", "compiler": "rustc", "platform": platform,
    });
    render(request, value, Format { pretty: true, ..Format::JSON })
}

fn render(request: &RequestContext<'_>, value: Value, format: Format) -> Result<Response<ResponseBody>, Status> {
    let answer = Answer::value(200, value);
    negotiation::render(answer, format, request.shared.registry.now()).map(|response| response.map(content))
}

/// This machine's architecture, in Go's word.
fn go_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
