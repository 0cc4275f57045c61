//! Responses with the headers that every one of them has.

use bayplan_listener::ResponseBody;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};

use crate::assets::Tagged;

/// The page asks nobody but this server, runs nothing but its own scripts, and is shown in no frame.
pub(super) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     img-src 'self' data:; base-uri 'none'; frame-ancestors 'none'; form-action 'none'";

fn response(code: u16, content_type: &'static str, body: Bytes, cache: &'static str) -> Response<ResponseBody> {
    let mut response = Response::new(Full::new(body).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let fixed = [
        (header::CONTENT_TYPE, content_type),
        (header::CACHE_CONTROL, cache),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in fixed {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// An answer; nobody keeps it.
pub(super) fn json(body: Bytes) -> Response<ResponseBody> {
    response(200, "application/json", body, "no-store")
}

/// Why there is none, in a line.
pub(super) fn problem(code: u16, why: &str) -> Response<ResponseBody> {
    response(code, "text/plain; charset=utf-8", Bytes::from(format!("{why}\n")), "no-store")
}

/// Sends the browser elsewhere with a cookie.
pub(super) fn redirect(to: &'static str, cookie: &str) -> Response<ResponseBody> {
    let mut response = response(303, "text/plain; charset=utf-8", Bytes::new(), "no-store");
    response.headers_mut().insert(header::LOCATION, HeaderValue::from_static(to));
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

/// A file of the page, unless the browser has it.
pub(super) fn static_file(found: &'static Tagged, headers: &HeaderMap) -> Response<ResponseBody> {
    let has = headers.get(header::IF_NONE_MATCH).is_some_and(|tag| tag.as_bytes() == found.tag.as_bytes());
    let (code, body) = if has { (304, Bytes::new()) } else { (200, Bytes::from_static(found.asset.text.as_bytes())) };
    let mut response = response(code, found.asset.content_type, body, "no-cache");
    if let Ok(tag) = HeaderValue::from_str(&found.tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}
