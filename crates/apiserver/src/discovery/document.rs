//! A document that does not change while the server runs: encoded once, with its entity tag.

use std::io::Write as _;
use std::sync::OnceLock;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde_json::Value;

/// Smaller documents are not compressed, as upstream.
const GZIP_BYTES_MIN: usize = 128 * 1024;

/// An encoded document.
pub(crate) struct Document {
    content_type: &'static str,
    body: Bytes,
    compressed: OnceLock<Bytes>,
    hash: String,
}

impl Document {
    /// Encodes a JSON document.
    pub(crate) fn new(content_type: &'static str, value: &Value) -> Self {
        Self::encoded(content_type, value.to_string().into_bytes())
    }

    /// Wraps a document that is encoded already.
    pub(crate) fn encoded(content_type: &'static str, body: Vec<u8>) -> Self {
        let hash = sha256(&body).iter().map(|byte| format!("{byte:02X}")).collect();
        Document { content_type, body: body.into(), compressed: OnceLock::new(), hash }
    }

    /// The hash in the entity tag.
    pub(crate) fn hash(&self) -> &str {
        &self.hash
    }

    /// Answers a request with these headers: the document, compressed if it is large, or 304.
    pub(crate) fn respond(&self, headers: &HeaderMap) -> Response<Bytes> {
        let tag = format!("\"{}\"", self.hash);
        let known = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
        let known = known.flat_map(|value| value.split(',')).any(|value| value.trim().trim_start_matches("W/") == tag);
        let mut response = Response::new(Bytes::new());
        let answer = response.headers_mut();
        answer.insert(ETAG, HeaderValue::try_from(tag).expect("hexadecimal digits are a header value"));
        answer.insert(VARY, HeaderValue::from_static("Accept"));
        if known {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            return response;
        }
        answer.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        if self.body.len() >= GZIP_BYTES_MIN && accepts_gzip(headers) {
            answer.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            *response.body_mut() = self.compressed().clone();
        } else {
            *response.body_mut() = self.body.clone();
        }
        response
    }

    fn compressed(&self) -> &Bytes {
        self.compressed.get_or_init(|| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(&self.body).and_then(|()| encoder.finish()).expect("memory takes every write").into()
        })
    }
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let encodings = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    encodings.flat_map(|value| value.split(',')).any(|encoding| encoding.trim().starts_with("gzip"))
}

/// SHA-256, from the library that TLS depends on.
pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}
