//! One request from its first byte to its last: authentication, impersonation, priority, authorization, body, route.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bayplan_model::status::Status;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, LengthLimitError, Limited};

use super::response::full;
use super::{ResponseBody, Shared, non_resource, resource};
use crate::authn::Peer;
use crate::authn::impersonation::impersonate;
use crate::authz::{Action, Attributes};
use crate::negotiation::{self, Format};
use crate::request::{Query, RequestInfo};
use crate::status_errors;
use crate::user::User;

/// The largest request body, as upstream.
const BODY_MAX: usize = 3 * 1024 * 1024;
/// The longest time a request may take unless it is a watch, as upstream.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

static AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// An authorized request with its body.
pub(super) struct RequestContext<'a> {
    pub(super) shared: &'a Arc<Shared>,
    pub(super) info: &'a RequestInfo,
    pub(super) method: &'a Method,
    pub(super) query: &'a Query,
    pub(super) headers: &'a HeaderMap,
    pub(super) user: &'a User,
    pub(super) body: Bytes,
}

impl RequestContext<'_> {
    /// The media type of the body; one that is no text is a type that nobody knows, not a missing one.
    pub(super) fn content_type(&self) -> Option<&str> {
        self.headers.get(CONTENT_TYPE).map(negotiation::header_text)
    }
}

/// The body of a request, from the network or from this process.
pub(super) type RequestBody = UnsyncBoxBody<Bytes, String>;

/// Answers a request; every failure, a panic included, becomes a `Status`.
///
/// Body and future are boxed so that all of this is compiled once, and not for each kind of body in each crate that
/// calls the server.
pub(super) fn handle<B>(
    shared: Arc<Shared>,
    peer: Option<Arc<Peer>>,
    request: Request<B>,
) -> BoxFuture<'static, Response<ResponseBody>>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: std::fmt::Display,
{
    handle_boxed(shared, peer, request.map(|body| body.map_err(|error| error.to_string()).boxed_unsync()))
}

fn handle_boxed(
    shared: Arc<Shared>,
    peer: Option<Arc<Peer>>,
    request: Request<RequestBody>,
) -> BoxFuture<'static, Response<ResponseBody>> {
    Box::pin(answer(shared, peer, request))
}

async fn answer(shared: Arc<Shared>, peer: Option<Arc<Peer>>, request: Request<RequestBody>) -> Response<ResponseBody> {
    let (parts, body) = request.into_parts();
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let info = RequestInfo::parse(&parts.method, parts.uri.path(), &query);
    let served = with_timeout(&info, &query, serve(&shared, peer, &parts, &query, &info, body));
    let mut response = match AssertUnwindSafe(served).catch_unwind().await {
        Ok(Ok(response)) => response,
        Ok(Err(status)) => failure(status.code, &status, &parts.headers, &query),
        Err(_panic) => {
            tracing::error!(method = %parts.method, path = parts.uri.path(), "a request handler panicked");
            let status = status_errors::plain(format!(
                "This request caused apiserver to panic. Look in the logs for details. {}",
                parts.uri.path()
            ));
            failure(500, &status, &parts.headers, &query)
        }
    };
    let headers = response.headers_mut();
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
    if let Ok(id) = HeaderValue::from_str(&uuid::Uuid::new_v4().to_string()) {
        headers.insert(AUDIT_ID.clone(), id);
    }
    response
}

fn failure(code: u16, status: &Status, headers: &HeaderMap, query: &Query) -> Response<ResponseBody> {
    negotiation::status(code, status, Format::for_status(headers, query)).map(full)
}

/// Gives up on a request that takes longer than its `timeout` parameter, or than upstream's limit.
async fn with_timeout<F>(info: &RequestInfo, query: &Query, served: F) -> Result<Response<ResponseBody>, Status>
where
    F: Future<Output = Result<Response<ResponseBody>, Status>>,
{
    if info.long_running() {
        return served.await;
    }
    let limit = match query.get("timeout") {
        None | Some("") => REQUEST_TIMEOUT,
        Some(text) => go_duration(text)
            .filter(|limit| !limit.is_zero())
            .ok_or_else(|| {
                status_errors::bad_request(format!(
                    "invalid timeout specified in the request URL - time: invalid duration {text:?}"
                ))
            })?
            .min(REQUEST_TIMEOUT),
    };
    match tokio::time::timeout(limit, served).await {
        Ok(answered) => answered,
        Err(_) => Err(status_errors::timeout("request did not complete within the allotted timeout")),
    }
}

/// Parses a duration in Go's format: `1m30s`, `500ms`.
fn go_duration(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        let unit_end = rest[digits..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |at| digits + at);
        let seconds = match &rest[digits..unit_end] {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        total += Duration::try_from_secs_f64(number * seconds).ok()?;
        rest = &rest[unit_end..];
    }
    Some(total)
}

async fn serve(
    shared: &Arc<Shared>,
    peer: Option<Arc<Peer>>,
    parts: &http::request::Parts,
    query: &Query,
    info: &RequestInfo,
    body: RequestBody,
) -> Result<Response<ResponseBody>, Status> {
    let registry = &*shared.registry;
    let user = shared.authenticator.authenticate(peer.as_deref(), &parts.headers, registry, registry.now()).await?;
    let user = impersonate(user, &parts.headers, info, &shared.authorizer)?;
    let _seat = shared.in_flight.enter(info).await?;
    authorize(shared, &user, info)?;
    let body = read_body(parts, body).await?;
    let (method, headers) = (&parts.method, &parts.headers);
    let context = RequestContext { shared, info, method, query, headers, user: &user, body };
    if info.is_resource { resource::serve(&context).await } else { non_resource::serve(&context).await }
}

fn authorize(shared: &Shared, user: &User, info: &RequestInfo) -> Result<(), Status> {
    shared.authorizer.check(&Attributes { user, verb: &info.verb, action: Action::of(info) })
}

async fn read_body(parts: &http::request::Parts, body: RequestBody) -> Result<Bytes, Status> {
    if matches!(parts.method, Method::GET | Method::HEAD) {
        return Ok(Bytes::new());
    }
    match Limited::new(body, BODY_MAX).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(status_errors::too_large(BODY_MAX)),
        Err(error) => Err(status_errors::bad_request(format!("the body could not be read: {error}"))),
    }
}
