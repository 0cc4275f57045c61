//! Responses whose body is in memory.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full};

use super::ResponseBody;

/// A body that is sent at once.
pub(super) fn full(body: Bytes) -> ResponseBody {
    Full::new(body).boxed_unsync()
}

/// A plain-text response.
pub(super) fn text(code: u16, body: &str) -> Response<ResponseBody> {
    let mut response = Response::new(full(Bytes::copy_from_slice(body.as_bytes())));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
