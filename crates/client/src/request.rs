//! [`api::Request`](bayplan_model::api::Request) to HTTP and HTTP answers to `Status`, without any IO.

use std::borrow::Cow;
use std::fmt::Write;
use std::time::Duration;

use bayplan_model::api::{DeleteOptions, ListOptions, PatchKind, Request, Resource, Verb, encode};
use bayplan_model::status::{Details, Status, reason};
use bayplan_model::trace::SpanContext;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const PARTIAL_OBJECT: HeaderValue =
    HeaderValue::from_static("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json");
const PARTIAL_LIST: HeaderValue =
    HeaderValue::from_static("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json");

/// What an HTTP request is made of.
pub(crate) struct Parts {
    pub(crate) method: Method,
    pub(crate) path_and_query: String,
    pub(crate) accept: HeaderValue,
    pub(crate) content_type: Option<HeaderValue>,
    pub(crate) body: Bytes,
    /// The span that it is a part of.
    pub(crate) trace: Option<SpanContext>,
}

impl Parts {
    /// A plain GET of any path.
    pub(crate) fn get(path_and_query: String, accept: HeaderValue) -> Self {
        Parts { method: Method::GET, path_and_query, accept, content_type: None, body: Bytes::new(), trace: None }
    }
}

/// One request of a pure core as HTTP.
pub(crate) fn parts(request: Request) -> Parts {
    let mut path = path(&request.resource, &request.namespace, &request.name);
    if let Some(subresource) = request.subresource {
        path.push('/');
        path.push_str(subresource);
    }
    let accept = accept(request.metadata_only, matches!(request.verb, Verb::List(_)));
    let json = |method, body| (method, Some(JSON), body);
    let (method, content_type, body) = match request.verb {
        Verb::Get => (Method::GET, None, Bytes::new()),
        Verb::List(options) => {
            push_query(&mut path, &selectors(&options));
            (Method::GET, None, Bytes::new())
        }
        Verb::Create(body) => json(Method::POST, body),
        Verb::Update(body) => json(Method::PUT, body),
        Verb::Patch(kind, body) => (Method::PATCH, Some(patch_type(kind)), body),
        Verb::Delete(options) => delete(options),
        Verb::DeleteCollection(list, options) => {
            push_query(&mut path, &selectors(&list));
            delete(options)
        }
    };
    Parts { method, path_and_query: path, accept, content_type, body, trace: request.trace }
}

fn delete(options: DeleteOptions) -> (Method, Option<HeaderValue>, Bytes) {
    if options == DeleteOptions::default() {
        return (Method::DELETE, None, Bytes::new());
    }
    (Method::DELETE, Some(JSON), encode(&options))
}

fn patch_type(kind: PatchKind) -> HeaderValue {
    HeaderValue::from_static(match kind {
        PatchKind::Json => "application/json-patch+json",
        PatchKind::Merge => "application/merge-patch+json",
        PatchKind::Strategic => "application/strategic-merge-patch+json",
    })
}

/// The `Accept` header; a server that knows no `PartialObjectMetadata` may answer with whole objects.
pub(crate) fn accept(metadata_only: bool, list: bool) -> HeaderValue {
    match (metadata_only, list) {
        (false, _) => JSON,
        (true, false) => PARTIAL_OBJECT,
        (true, true) => PARTIAL_LIST,
    }
}

/// The URL path of a collection, or of an object in it when `name` is not empty.
pub(crate) fn path(resource: &Resource, namespace: &str, name: &str) -> String {
    let mut path = match &*resource.group {
        "" => format!("/api/{}", resource.version),
        group => format!("/apis/{group}/{}", resource.version),
    };
    if !namespace.is_empty() {
        path.push_str("/namespaces/");
        push_encoded(&mut path, namespace);
    }
    path.push('/');
    path.push_str(&resource.plural);
    if !name.is_empty() {
        path.push('/');
        push_encoded(&mut path, name);
    }
    path
}

/// Selectors as query parameters.
pub(crate) fn selectors(options: &ListOptions) -> Vec<(&'static str, Cow<'_, str>)> {
    [("labelSelector", &options.label_selector), ("fieldSelector", &options.field_selector)]
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| (name, Cow::Borrowed(value.as_str())))
        .collect()
}

/// Appends query parameters to a path that may have some already.
pub(crate) fn push_query(path: &mut String, parameters: &[(&str, Cow<'_, str>)]) {
    for (name, value) in parameters {
        path.push(if path.contains('?') { '&' } else { '?' });
        path.push_str(name);
        path.push('=');
        push_encoded(path, value);
    }
}

/// Text as a part of a URL or of a header's name.
pub(crate) fn encoded(text: &str) -> String {
    let mut out = String::new();
    push_encoded(&mut out, text);
    out
}

fn push_encoded(out: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte) {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").expect("writing to a string never fails");
        }
    }
}

/// A Go duration as the `timeout` parameter wants it.
pub(crate) fn go_seconds(timeout: Duration) -> String {
    format!("{}s", timeout.as_secs_f64())
}

/// The `Status` of an answer that is not a success.
pub(crate) fn failure(code: u16, headers: &HeaderMap, body: &[u8]) -> Status {
    let mut status = match serde_json::from_slice::<Status>(body) {
        Ok(mut status) => {
            status.code = code;
            status
        }
        Err(_) => {
            let text = String::from_utf8_lossy(body);
            let message = match text.trim() {
                "" => format!("the server answered {code} without a reason"),
                text => text.chars().take(MESSAGE_CHARS_MAX).collect(),
            };
            Status::failure(code, reason_of(code), message)
        }
    };
    if let Some(seconds) = headers.get(header::RETRY_AFTER).and_then(|v| v.to_str().ok()?.parse().ok()) {
        let details = status.details.get_or_insert_with(|| Box::new(Details::default()));
        if details.retry_after_seconds == 0 {
            details.retry_after_seconds = seconds;
        }
    }
    status
}

/// A proxy's error page is cut here: enough to recognise it in a log line.
const MESSAGE_CHARS_MAX: usize = 1024;

/// A failure to reach the server, or to receive its whole answer.
pub(crate) fn unreachable(error: &(dyn std::error::Error + 'static)) -> Status {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if !message.contains(&text) {
            message.push_str(": ");
            message.push_str(&text);
        }
        source = cause.source();
    }
    if is_outside_validity(error) {
        message.push_str("; does the clock of this machine or of the server go wrong?");
    }
    Status::failure(0, reason::SERVICE_UNAVAILABLE, message)
}

/// Whether the time of the server's certificate is over or has not begun: more often a wrong clock than a forgotten
/// renewal.
fn is_outside_validity(error: &(dyn std::error::Error + 'static)) -> bool {
    use rustls::CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
    let mut next = Some(error);
    while let Some(error) = next {
        // An io::Error leaves out of its chain the error that it was made of.
        let made_of = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        let tls = error.downcast_ref().or_else(|| made_of?.downcast_ref());
        if let Some(rustls::Error::InvalidCertificate(why)) = tls {
            return matches!(why, Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. });
        }
        next = error.source();
    }
    false
}

/// The reason clients derive from a bare status code.
fn reason_of(code: u16) -> &'static str {
    match code {
        400 => reason::BAD_REQUEST,
        401 => reason::UNAUTHORIZED,
        403 => reason::FORBIDDEN,
        404 => reason::NOT_FOUND,
        405 => reason::METHOD_NOT_ALLOWED,
        406 => reason::NOT_ACCEPTABLE,
        409 => reason::CONFLICT,
        410 => reason::GONE,
        413 => reason::REQUEST_ENTITY_TOO_LARGE,
        415 => reason::UNSUPPORTED_MEDIA_TYPE,
        422 => reason::INVALID,
        429 => reason::TOO_MANY_REQUESTS,
        503 => reason::SERVICE_UNAVAILABLE,
        504 => reason::TIMEOUT,
        _ => reason::INTERNAL_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_of_another_time_makes_one_think_of_the_clock() {
        let message = |why| {
            let tls = rustls::Error::InvalidCertificate(why);
            unreachable(&std::io::Error::new(std::io::ErrorKind::InvalidData, tls)).message
        };
        assert!(
            message(rustls::CertificateError::NotValidYet)
                .ends_with("; does the clock of this machine or of the server go wrong?")
        );
        assert!(!message(rustls::CertificateError::UnknownIssuer).contains("clock"));
    }

    const PODS: Resource = Resource::new("", "v1", "pods");
    const LEASES: Resource = Resource::new("coordination.k8s.io", "v1", "leases");

    #[track_caller]
    fn check(request: Request, expected: &str) {
        let parts = parts(request);
        let content = parts.content_type.as_ref().map_or("", |v| v.to_str().unwrap());
        let body = std::str::from_utf8(&parts.body).unwrap();
        assert_eq!(format!("{} {} {content} {body}", parts.method, parts.path_and_query).trim_end(), expected);
    }

    #[test]
    fn requests_become_the_urls_upstream_clients_use() {
        let body = Bytes::from_static(b"{}");
        check(Request::object(&PODS, "shop", "web-1", Verb::Get), "GET /api/v1/namespaces/shop/pods/web-1");
        check(
            Request::collection(&LEASES, "", Verb::List(ListOptions::default())),
            "GET /apis/coordination.k8s.io/v1/leases",
        );
        check(
            Request::collection(
                &PODS,
                "",
                Verb::List(ListOptions {
                    label_selector: "app in (a,b)".into(),
                    field_selector: "spec.nodeName!=".into(),
                }),
            ),
            "GET /api/v1/pods?labelSelector=app%20in%20%28a%2Cb%29&fieldSelector=spec.nodeName%21%3D",
        );
        check(
            Request::object(&PODS, "shop", "web-1", Verb::Create(body.clone())).subresource("binding"),
            "POST /api/v1/namespaces/shop/pods/web-1/binding application/json {}",
        );
        check(
            Request::object(&PODS, "shop", "web-1", Verb::Patch(PatchKind::Strategic, body)).subresource("status"),
            "PATCH /api/v1/namespaces/shop/pods/web-1/status application/strategic-merge-patch+json {}",
        );
        check(
            Request::object(&PODS, "shop", "web-1", Verb::Delete(DeleteOptions::default())),
            "DELETE /api/v1/namespaces/shop/pods/web-1",
        );
        let now = DeleteOptions { grace_period_seconds: Some(0), ..Default::default() };
        check(
            Request::collection(&PODS, "shop", Verb::DeleteCollection(ListOptions::default(), now)),
            r#"DELETE /api/v1/namespaces/shop/pods application/json {"gracePeriodSeconds":0}"#,
        );
    }

    #[test]
    fn a_name_never_escapes_its_path_segment() {
        check(
            Request::object(&PODS, "a/b", "../x?y=%", Verb::Get),
            "GET /api/v1/namespaces/a%2Fb/pods/..%2Fx%3Fy%3D%25",
        );
    }

    #[test]
    fn metadata_only_asks_for_partial_objects() {
        let request = Request::object(&PODS, "a", "b", Verb::Get).metadata_only();
        assert!(parts(request).accept.to_str().unwrap().contains("as=PartialObjectMetadata;"));
        let request = Request::collection(&PODS, "", Verb::List(ListOptions::default())).metadata_only();
        assert!(parts(request).accept.to_str().unwrap().contains("as=PartialObjectMetadataList;"));
    }

    #[test]
    fn an_answer_that_is_no_status_still_becomes_one() {
        let mut headers = HeaderMap::new();
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("7"));
        let status = failure(429, &headers, b"slow down\n");
        assert_eq!((status.code, &*status.reason, &*status.message), (429, reason::TOO_MANY_REQUESTS, "slow down"));
        assert_eq!(status.details.unwrap().retry_after_seconds, 7);
        let status = failure(409, &HeaderMap::new(), br#"{"kind":"Status","reason":"Conflict","message":"changed"}"#);
        assert_eq!((status.code, &*status.reason, &*status.message), (409, reason::CONFLICT, "changed"));
    }
}
