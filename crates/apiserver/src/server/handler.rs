//! One request from its first byte to its last: authentication, impersonation, authorization, body, seat, route.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bayplan_listener::SendBy;
use bayplan_model::status::Status;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, Response};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use tokio::time::Instant;

use super::body::{self, holding};
use super::flow::{Admitted, Matched, Refused};
use super::metrics::Begun;
use super::report::Report;
use super::response::{full, too_many_requests};
use super::usage::Held;
use super::{ResponseBody, Shared, awaited, non_resource, resource, width};
use crate::authn::Peer;
use crate::authn::impersonation::impersonate;
use crate::authz::{Action, Attributes};
use crate::negotiation::{self, Format};
use crate::request::{Query, RequestInfo, Verb};
use crate::status_errors;
use crate::user::User;

/// The longest time a request may take unless it is a watch, as upstream.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// The part of its time that a request waits for a seat at most, as upstream: a quarter.
const WAIT_SHARE: u32 = 4;

static AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// An authorized request with its body.
pub(crate) struct RequestContext<'a> {
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) info: &'a RequestInfo,
    pub(crate) method: &'a Method,
    pub(crate) query: &'a Query,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) user: &'a User,
    pub(crate) body: Bytes,
    /// When the request must have been answered, and the answer sent.
    pub(crate) deadline: Instant,
    seat: Mutex<Option<Admitted>>,
}

impl RequestContext<'_> {
    /// The seat of the request, for an answer that is given back before it ends.
    pub(super) fn take_seat(&self) -> Option<Admitted> {
        self.seat.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The media type of the body; one that is no text is a type that nobody knows, not a missing one.
    pub(crate) fn content_type(&self) -> Option<&str> {
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
    let limit = time_limit(&info, &query);
    let deadline = Instant::now() + *limit.as_ref().unwrap_or(&REQUEST_TIMEOUT);
    let audit_id = crate::chance::uuid().to_string();
    let mut begun = shared.metrics.begin(&info, &query);
    let mut matched = None;
    begun.report = Report::begin(shared.tracer.as_ref(), &parts, begun.verb(), &audit_id);
    let served = async {
        limit?;
        with_timeout(
            &info,
            deadline,
            serve(&shared, peer, &parts, &query, &info, body, deadline, (&mut begun, &mut matched)),
        )
        .await
    };
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
    if response.extensions().get::<SendBy>().is_none() {
        response.extensions_mut().insert(SendBy::new(deadline));
    }
    let headers = response.headers_mut();
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
    if let Some(matched) = matched {
        matched.name_in(headers);
    }
    if let Ok(id) = HeaderValue::from_str(&audit_id) {
        headers.insert(AUDIT_ID.clone(), id);
    }
    let code = response.status().as_u16();
    response.map(|body| begun.answered(code, body))
}

fn failure(code: u16, status: &Status, headers: &HeaderMap, query: &Query) -> Response<ResponseBody> {
    negotiation::status(code, status, Format::for_status(headers, query)).map(full)
}

/// How long a request may take: its `timeout` parameter, at most upstream's limit.
fn time_limit(info: &RequestInfo, query: &Query) -> Result<Duration, Status> {
    match query.get("timeout") {
        None | Some("") => Ok(REQUEST_TIMEOUT),
        Some(_) if info.long_running() => Ok(REQUEST_TIMEOUT),
        Some(text) => {
            let limit = go_duration(text).filter(|limit| !limit.is_zero()).ok_or_else(|| {
                status_errors::bad_request(format!(
                    "invalid timeout specified in the request URL - time: invalid duration {text:?}"
                ))
            })?;
            Ok(limit.min(REQUEST_TIMEOUT))
        }
    }
}

/// Gives up on a request that is not answered by its deadline.
async fn with_timeout<F>(info: &RequestInfo, deadline: Instant, served: F) -> Result<Response<ResponseBody>, Status>
where
    F: Future<Output = Result<Response<ResponseBody>, Status>>,
{
    if info.long_running() {
        return served.await;
    }
    match tokio::time::timeout_at(deadline, served).await {
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
        total = total.checked_add(Duration::try_from_secs_f64(number * seconds).ok()?)?;
        rest = &rest[unit_end..];
    }
    Some(total)
}

/// A request takes a seat once there is nothing left to wait for, and keeps it until the last byte of its answer is
/// sent. A watch keeps it until its initial state is sent, other streams until they are open.
#[allow(clippy::too_many_arguments, reason = "what a request consists of")]
async fn serve(
    shared: &Arc<Shared>,
    peer: Option<Arc<Peer>>,
    parts: &http::request::Parts,
    query: &Query,
    info: &RequestInfo,
    body: RequestBody,
    deadline: Instant,
    (begun, named): (&mut Begun, &mut Option<Matched>),
) -> Result<Response<ResponseBody>, Status> {
    let registry = &*shared.registry;
    let now = registry.now();
    if let Some(left) = peer.as_deref().and_then(|peer| peer.life_left(now)) {
        shared.metrics.certificate_life(left);
    }
    let user = shared.authenticator.authenticate(peer.as_deref(), &parts.headers, registry, now).await;
    shared.metrics.authenticated(if user.is_ok() { "success" } else { "failure" });
    let user = user?;
    if let Some(report) = &mut begun.report {
        report.authenticated(shared.tracer.as_ref(), &user, parts, info);
    }
    let user = impersonate(user, &parts.headers, info, &shared.authorizer, &shared.last_modes)?;
    let Some(mut matched) = shared.flow.classify(&user, info) else { return Ok(too_many_requests(1)) };
    // As upstream, whose priority and fairness does not see other streams than watches.
    if shared.flow.is_named() && (!info.long_running() || info.verb == Verb::Watch) {
        *named = Some(matched.clone());
    }
    authorize(shared, &user, info, query)?;
    let (body, held) = match read_body(shared, parts, body, &user).await {
        Ok(read) => read,
        Err(body::Refusal::Status(status)) => return Err(status),
        Err(body::Refusal::Busy) => return Ok(too_many_requests(1)),
    };
    if let Some(revision) = awaited::revision(info, query)
        && shared.registry.revision().await? < revision
    {
        let Some(_waiting) = shared.usage.wait(&user.name) else { return Ok(too_many_requests(1)) };
        shared.registry.wait_for(revision).await?;
    }
    let estimate = width::estimate(shared, info, query);
    let asked = Instant::now();
    let wait = deadline.saturating_duration_since(asked) / WAIT_SHARE;
    let seat = match shared.flow.enter(&mut matched, (&user, info), estimate, wait).await {
        Ok(seat) => seat,
        Err(Refused(seconds)) => return Ok(too_many_requests(seconds)),
    };
    begun.waited(asked.elapsed());
    let (method, headers) = (&parts.method, &parts.headers);
    let seat = Mutex::new(Some(seat));
    let context = RequestContext { shared, info, method, query, headers, user: &user, body, deadline, seat };
    let served = if info.is_resource { resource::serve(&context).await } else { non_resource::serve(&context).await };
    let seat = context.take_seat();
    if info.long_running() { served } else { Ok(served?.map(|body| holding(body, (seat, held)))) }
}

fn authorize(shared: &Shared, user: &User, info: &RequestInfo, query: &Query) -> Result<(), Status> {
    let field_selector = query.get("fieldSelector").unwrap_or_default();
    shared.authorizer.check(&Attributes { user, verb: &info.verb, action: Action::of(info), field_selector })
}

async fn read_body(
    shared: &Shared,
    parts: &http::request::Parts,
    body: RequestBody,
    user: &User,
) -> Result<(Bytes, Option<Held>), body::Refusal> {
    if matches!(parts.method, Method::GET | Method::HEAD) {
        return Ok((Bytes::new(), None));
    }
    body::read(body, &user.name, &shared.usage).await
}
