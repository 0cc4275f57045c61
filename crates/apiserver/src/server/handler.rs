//! One request from its first byte to its last.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bayplan_model::status::Status;
use bytes::Bytes;
use futures::{FutureExt, StreamExt};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited, StreamBody};
use serde_json::json;

use super::{ResponseBody, Shared, health};
use crate::authn::impersonation::impersonate;
use crate::authz::{Action, Attributes};
use crate::codec::{self, Kind};
use crate::negotiation::{self, Format};
use crate::registry::{Answer, Body, Call, Change, PatchKind, Shown};
use crate::request::{DeleteOptions, GetOptions, ListOptions, Preconditions, Query, RequestInfo, WriteOptions};
use crate::resources::{self, Resource};
use crate::selection::Selection;
use crate::user::User;
use crate::{defaults, discovery, openapi, reviews, serviceaccounts, status_errors, subresources, watch};

/// The largest body, as upstream.
const BODY_MAX: usize = 3 * 1024 * 1024;
/// How long a request may take unless it is a watch, as upstream.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

static AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// Everything of a request that its handler needs.
struct Asked<'a> {
    shared: &'a Arc<Shared>,
    info: &'a RequestInfo,
    method: &'a Method,
    query: &'a Query,
    headers: &'a HeaderMap,
    user: &'a User,
    body: Bytes,
}

/// Answers a request; never fails, never panics.
pub(super) async fn handle<B>(
    shared: Arc<Shared>,
    peer: Option<Arc<User>>,
    request: Request<B>,
) -> Response<ResponseBody>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: std::fmt::Display,
{
    let (parts, body) = request.into_parts();
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let info = RequestInfo::parse(&parts.method, parts.uri.path(), &query);
    let format = Format::for_status(&parts.headers, &query);
    let work = answer(&shared, peer, &parts, &query, &info, body);
    let answered = AssertUnwindSafe(within_time(&info, &query, work)).catch_unwind().await;
    let mut response = match answered {
        Ok(Ok(response)) => response,
        Ok(Err(status)) => negotiation::status(status.code, &status, format).map(full),
        Err(_panic) => {
            tracing::error!(method = %parts.method, path = parts.uri.path(), "a request handler panicked");
            let status = status_errors::plain(format!(
                "This request caused apiserver to panic. Look in the logs for details. {}",
                parts.uri.path()
            ));
            negotiation::status(500, &status, format).map(full)
        }
    };
    let headers = response.headers_mut();
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
    if let Ok(id) = HeaderValue::from_str(&uuid::Uuid::new_v4().to_string()) {
        headers.insert(AUDIT_ID.clone(), id);
    }
    response
}

async fn within_time<F>(info: &RequestInfo, query: &Query, work: F) -> Result<Response<ResponseBody>, Status>
where
    F: Future<Output = Result<Response<ResponseBody>, Status>>,
{
    if info.long_running() {
        return work.await;
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
    match tokio::time::timeout(limit, work).await {
        Ok(answered) => answered,
        Err(_) => Err(status_errors::timeout("request did not complete within the allotted timeout")),
    }
}

/// Reads a duration as Go writes it: `1m30s`, `500ms`.
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

fn full(body: Bytes) -> ResponseBody {
    Full::new(body).boxed_unsync()
}

/// An answer for people.
pub(super) fn text(code: u16, body: &str) -> Response<ResponseBody> {
    let mut response = Response::new(full(Bytes::copy_from_slice(body.as_bytes())));
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

async fn answer<B>(
    shared: &Arc<Shared>,
    peer: Option<Arc<User>>,
    parts: &http::request::Parts,
    query: &Query,
    info: &RequestInfo,
    body: B,
) -> Result<Response<ResponseBody>, Status>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: std::fmt::Display,
{
    let user = shared.authenticator.authenticate(peer.as_deref(), &parts.headers, &*shared.registry).await?;
    let user = impersonate(user, &parts.headers, &shared.authorizer)?;
    let _seat = shared.in_flight.enter(info).await?;
    authorize(shared, &user, info)?;
    let body = read_body(parts, body).await?;
    let (method, headers) = (&parts.method, &parts.headers);
    let asked = Asked { shared, info, method, query, headers, user: &user, body };
    if info.is_resource { asked.resource().await } else { asked.path().await }
}

fn authorize(shared: &Shared, user: &User, info: &RequestInfo) -> Result<(), Status> {
    let action = if info.is_resource {
        Action::Resource {
            group: &info.group,
            resource: &info.plural,
            subresource: &info.subresource,
            name: &info.name,
            namespace: &info.namespace,
        }
    } else {
        Action::Path(&info.path)
    };
    shared.authorizer.check(&Attributes { user, verb: &info.verb, action })
}

async fn read_body<B>(parts: &http::request::Parts, body: B) -> Result<Bytes, Status>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: std::fmt::Display,
{
    if matches!(parts.method, Method::GET | Method::HEAD) {
        return Ok(Bytes::new());
    }
    let body = body.map_err(|error| error.to_string());
    match Limited::new(body, BODY_MAX).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(status_errors::too_large(BODY_MAX)),
        Err(error) => Err(status_errors::bad_request(format!("the body could not be read: {error}"))),
    }
}

impl Asked<'_> {
    fn content_type(&self) -> Option<&str> {
        self.headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok())
    }

    fn render(&self, answer: Answer) -> Result<Response<ResponseBody>, Status> {
        let format = Format::negotiate(self.headers, self.query)?;
        negotiation::render(answer, format, self.shared.registry.now()).map(|response| response.map(full))
    }

    /// Paths outside the resources.
    async fn path(&self) -> Result<Response<ResponseBody>, Status> {
        let path = self.info.path.as_str();
        let get = *self.method == Method::GET;
        if let Some(response) = health::answer(self.shared, path, self.query).await {
            return if get { Ok(response) } else { Err(status_errors::method_not_allowed()) };
        }
        if path == "/version" || path == "/version/" {
            return if get { self.version() } else { Err(status_errors::method_not_allowed()) };
        }
        let found = discovery::answer(path, self.headers, &self.shared.address)
            .or_else(|| openapi::answer(path, self.query.get("hash"), self.headers));
        if let Some(response) = found {
            return if get { Ok(response.map(full)) } else { Err(status_errors::method_not_allowed()) };
        }
        match path {
            "/openid/v1/jwks" if get => self.json(self.shared.tokens.key_set()),
            "/.well-known/openid-configuration" if get => {
                self.json(self.shared.tokens.openid_configuration(&self.shared.address))
            }
            _ => Ok(self.unknown_path(path)),
        }
    }

    /// Unknown versions of known groups are a `Status`, anything else is plain text.
    fn unknown_path(&self, path: &str) -> Response<ResponseBody> {
        let mut parts = path.trim_matches('/').split('/');
        let known = match (parts.next(), parts.next(), parts.next()) {
            (Some("api"), Some(_), _) => true,
            (Some("apis"), Some(group), Some(_)) => known_group(group),
            _ => false,
        };
        if known {
            let status = status_errors::path_not_found();
            return negotiation::status(404, &status, Format::for_status(self.headers, self.query)).map(full);
        }
        text(404, "404 page not found\n")
    }

    fn json(&self, value: serde_json::Value) -> Result<Response<ResponseBody>, Status> {
        self.render(Answer::value(200, value))
    }

    fn version(&self) -> Result<Response<ResponseBody>, Status> {
        let accept = self.headers.get(http::header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or("*/*");
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
        negotiation::render(
            Answer::value(200, value),
            Format { pretty: true, ..Format::JSON },
            self.shared.registry.now(),
        )
        .map(|response| response.map(full))
    }

    /// Paths of resources.
    async fn resource(&self) -> Result<Response<ResponseBody>, Status> {
        let info = self.info;
        let Some(resource) = info.resource() else { return Ok(self.unknown_path(&info.path)) };
        if !self.placed(resource) || self.info.path.contains("//") {
            return Err(status_errors::path_not_found());
        }
        check_segment("Name", &info.name)?;
        check_segment("Namespace", &info.namespace)?;
        if !info.subresource.is_empty() && (info.subresource().is_none() || !info.rest.is_empty()) {
            return Err(status_errors::path_not_found());
        }
        let verbs = info.subresource().map_or(resource.verbs, |sub| sub.verbs);
        let offered = verbs.contains(&&*info.verb) && *self.method != Method::HEAD && self.scoped(resource);
        if !offered {
            return Err(status_errors::method_not_allowed());
        }
        let namespace = if resource.namespaced() { info.namespace.as_str() } else { "" };
        let name = if info.named { info.name.as_str() } else { "" };
        let call = Call { resource, subresource: &info.subresource, namespace, name, user: self.user, dry_run: false };
        if !resource.stored() || matches!(info.subresource.as_str(), "binding" | "eviction" | "token" | "scale") {
            return self.special(call).await;
        }
        self.verb(call).await
    }

    /// True when the path has the form of the resource's scope.
    fn placed(&self, resource: &'static Resource) -> bool {
        let info = self.info;
        if resource.namespaced() {
            return !info.namespace.is_empty() || !info.named;
        }
        info.namespace.is_empty() || (resource.plural == "namespaces" && info.namespace == info.name)
    }

    /// Collections are listed, watched, created in and emptied; the rest is for objects. Across all namespaces there are
    /// only lists and watches.
    fn scoped(&self, resource: &'static Resource) -> bool {
        let of_collection = matches!(&*self.info.verb, "list" | "create" | "deletecollection");
        let of_either = self.info.verb == "watch" || !self.info.subresource.is_empty();
        if !of_either && of_collection == self.info.named {
            return false;
        }
        !resource.namespaced() || !self.info.namespace.is_empty() || matches!(&*self.info.verb, "list" | "watch")
    }

    async fn verb(&self, call: Call<'_>) -> Result<Response<ResponseBody>, Status> {
        // What cannot be rendered must not happen.
        Format::negotiate(self.headers, self.query)?;
        let registry = &self.shared.registry;
        let answer = match &*self.info.verb {
            "get" => registry.get(call, &GetOptions::parse(self.query).resource_version).await?,
            "list" => {
                let options = ListOptions::parse(self.query)?;
                let selection = Selection::parse(call.resource, &options.label_selector, &options.field_selector)?;
                let list = registry.list(call.resource, call.namespace, &selection, &options).await?;
                Answer { code: 200, body: Body::List(list), warnings: Vec::new() }
            }
            "watch" => return self.watch(call).await,
            "create" => {
                let options = WriteOptions::create(self.query)?;
                let decoded = self.decode(Kind::of(call.resource), options.field_validation)?;
                let call = Call { dry_run: options.dry_run, ..call };
                let mut object = decoded.object;
                defaults::apply(call.resource, &mut object);
                registry.create(call, object).await?.with_warnings(decoded.warnings)
            }
            "update" => {
                let options = WriteOptions::update(self.query)?;
                let decoded = self.decode(Kind::of(call.resource), options.field_validation)?;
                let call = Call { dry_run: options.dry_run, ..call };
                let mut object = decoded.object;
                defaults::apply(call.resource, &mut object);
                let change = Change::Replace(object);
                registry.update(call, change, Preconditions::default()).await?.with_warnings(decoded.warnings)
            }
            "patch" => {
                let kind = PatchKind::parse(self.content_type())?;
                let options = WriteOptions::patch(self.query)?;
                let call = Call { dry_run: options.dry_run, ..call };
                registry.patch(call, kind, &self.body, options.field_validation).await?
            }
            "delete" => registry.delete(call, &self.delete_options()?).await?,
            "deletecollection" => {
                let list = ListOptions::parse(self.query)?;
                registry.delete_collection(call, &list, &self.delete_options()?).await?
            }
            _ => return Err(status_errors::method_not_allowed()),
        };
        self.wait_for_rights(call.resource, &answer).await;
        self.render(answer)
    }

    /// Rights follow roles and bindings: the next request of the same client is judged by what it just wrote.
    async fn wait_for_rights(&self, resource: &Resource, answer: &Answer) {
        if resource.group != "rbac.authorization.k8s.io" || matches!(&*self.info.verb, "get" | "list") {
            return;
        }
        let index = &self.shared.authorizer.index;
        match &answer.body {
            Body::Object(_, Shown { revision: Some(revision), .. }) => {
                index.caught_up(resource.plural, *revision).await
            }
            // A dry run changed nothing.
            Body::Object(..) => {}
            // The answer to a removal does not tell its revision.
            _ => index.refresh(resource.plural, &**self.shared.registry.store()).await,
        }
    }

    fn decode(
        &self,
        kind: Kind<'static>,
        field_validation: crate::request::FieldValidation,
    ) -> Result<codec::Decoded, Status> {
        codec::decode_kind(kind, self.content_type(), &self.body, field_validation)
    }

    fn delete_options(&self) -> Result<DeleteOptions, Status> {
        match codec::decode_delete_options(self.content_type(), &self.body)? {
            Some(body) => DeleteOptions::from_body(&body),
            None => DeleteOptions::from_query(self.query),
        }
    }

    async fn watch(&self, call: Call<'_>) -> Result<Response<ResponseBody>, Status> {
        let mut options = ListOptions::parse(self.query)?;
        if self.info.named {
            // The legacy watch of one object is a watch with a selector.
            let by_name = format!("metadata.name={}", self.info.name);
            if !options.field_selector.is_empty() {
                options.field_selector.push(',');
            }
            options.field_selector.push_str(&by_name);
        }
        let transform = Format::negotiate(self.headers, self.query)?.transform;
        let stream = watch::open(
            self.shared.registry.clone(),
            call.resource,
            call.namespace,
            &options,
            transform,
            self.shared.stopping.subscribe(),
        )
        .await?;
        let body = StreamBody::new(stream.map(|line| Ok::<_, Infallible>(Frame::data(line))));
        let mut response = Response::new(body.boxed_unsync());
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(response)
    }

    /// Resources and subresources that are not simply stored.
    async fn special(&self, call: Call<'_>) -> Result<Response<ResponseBody>, Status> {
        Format::negotiate(self.headers, self.query)?;
        let (shared, registry) = (self.shared, &*self.shared.registry);
        let options = match &*self.info.verb {
            "create" => WriteOptions::create(self.query)?,
            "update" => WriteOptions::update(self.query)?,
            "patch" => WriteOptions::patch(self.query)?,
            _ => WriteOptions::default(),
        };
        let call = Call { dry_run: options.dry_run, ..call };
        let kind = match call.resource.subresource(call.subresource) {
            Some(subresource) => Kind::of_subresource(call.resource, subresource),
            None => Kind::of(call.resource),
        };
        let answer = match (call.resource.plural, call.subresource, &*self.info.verb) {
            ("pods", "binding", _) | ("bindings", "", _) => {
                let decoded = self.decode(kind, options.field_validation)?;
                let pods = resources::find("", "v1", "pods").expect("a row of the table");
                let mut binding = decoded.object;
                check_binding_namespace(call.namespace, &mut binding)?;
                subresources::bind(registry, Call { resource: pods, subresource: "binding", ..call }, binding)
                    .await?
                    .with_warnings(decoded.warnings)
            }
            ("pods", "eviction", _) => {
                let decoded = self.decode(kind, options.field_validation)?;
                subresources::evict(registry, call, &decoded.object).await?.with_warnings(decoded.warnings)
            }
            ("serviceaccounts", "token", _) => {
                let decoded = self.decode(kind, options.field_validation)?;
                let now = registry.now();
                let token = serviceaccounts::create_token(
                    &shared.tokens,
                    registry,
                    call.namespace,
                    call.name,
                    &decoded.object,
                    now,
                )
                .await?;
                Answer::value(201, token).with_warnings(decoded.warnings)
            }
            (_, "scale", "get") => subresources::get_scale(registry, call).await?,
            (_, "scale", "update") => {
                let decoded = self.decode(kind, options.field_validation)?;
                subresources::update_scale(registry, call, decoded.object).await?.with_warnings(decoded.warnings)
            }
            (_, "scale", "patch") => {
                let patch = PatchKind::parse(self.content_type())?;
                subresources::patch_scale(registry, call, patch, &self.body, options.field_validation).await?
            }
            _ => {
                let decoded = self.decode(kind, options.field_validation)?;
                let reviews = reviews::Reviews {
                    authenticator: &shared.authenticator,
                    authorizer: &shared.authorizer,
                    objects: registry,
                };
                let now = registry.now();
                let reviewed = reviews.create(call.resource, call.namespace, self.user, decoded.object, now).await?;
                Answer::value(201, reviewed).with_warnings(decoded.warnings)
            }
        };
        self.render(answer)
    }
}

/// Bindings keep the uid and version clients give, but their namespace must be that of the URL.
fn check_binding_namespace(namespace: &str, binding: &mut serde_json::Value) -> Result<(), Status> {
    let given = crate::registry::metadata::text(binding, "namespace");
    if !given.is_empty() && given != namespace {
        return Err(status_errors::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

fn known_group(group: &str) -> bool {
    resources::RESOURCES.iter().any(|r| r.group == group)
}

/// Names that would be paths are refused before they reach the store.
fn check_segment(what: &str, segment: &str) -> Result<(), Status> {
    let why = match segment {
        "." => "may not be '.'".to_owned(),
        ".." => "may not be '..'".to_owned(),
        _ => match segment.chars().find(|c| matches!(c, '/' | '%')) {
            Some(c) => format!("may not contain '{c}'"),
            None => return Ok(()),
        },
    };
    Err(status_errors::bad_request(format!("{what} parameter invalid: {segment:?}: {why}")))
}

fn go_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
