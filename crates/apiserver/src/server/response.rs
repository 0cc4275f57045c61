//! The bodies of responses.

use std::convert::Infallible;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};

use super::ResponseBody;
use crate::negotiation::Content;

/// A body that is sent at once.
pub(super) fn full(body: Bytes) -> ResponseBody {
    Full::new(body).boxed_unsync()
}

/// The body of rendered content.
pub(super) fn content(content: Content) -> ResponseBody {
    match content {
        Content::Whole(bytes) => full(bytes),
        Content::Pieces(pieces) => {
            let frames = pieces.map(|piece| Ok::<_, Infallible>(Frame::data(piece)));
            StreamBody::new(futures::stream::iter(frames)).boxed_unsync()
        }
    }
}

/// The answer of a server that is too busy, in upstream's words.
pub(super) fn too_many_requests(retry_after_seconds: u64) -> Response<ResponseBody> {
    let mut response = text(429, "Too many requests, please try again later.\n");
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(retry_after_seconds));
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// A plain-text response.
pub(super) fn text(code: u16, body: &str) -> Response<ResponseBody> {
    let mut response = Response::new(full(Bytes::copy_from_slice(body.as_bytes())));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
