//! Large answers are compressed for clients that ask for it, while they are sent.

use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::Response;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderMap, HeaderValue, VARY};

use super::Content;

/// Smaller answers are not compressed, as upstream.
const BYTES_MIN: usize = 128 * 1024;
/// How much is compressed at once: some hundred microseconds of work.
const STEP: usize = 32 * 1024;

/// Compresses an answer if it is large and its client accepts it.
pub(crate) fn compressed(response: Response<Content>, headers: &HeaderMap) -> Response<Content> {
    if !accepts_gzip(headers) {
        return response;
    }
    let (mut parts, content) = response.into_parts();
    let content = match large(content) {
        Ok(pieces) => {
            parts.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            parts.headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
            Content::Pieces(Box::new(Compressed { pieces, rest: Bytes::new(), encoder: Some(encoder()) }))
        }
        Err(small) => small,
    };
    Response::from_parts(parts, content)
}

/// True if a clause of the header is `gzip` and nothing else, as upstream reads it.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let header = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    header.split(',').any(|encoding| encoding.trim() == "gzip")
}

type Pieces = Box<dyn Iterator<Item = Bytes> + Send>;

/// The pieces of content that is large enough, or the content.
fn large(content: Content) -> Result<Pieces, Content> {
    match content {
        Content::Whole(bytes) if bytes.len() > BYTES_MIN => Ok(Box::new(std::iter::once(bytes))),
        Content::Whole(bytes) => Err(Content::Whole(bytes)),
        Content::Pieces(mut pieces) => {
            let (mut first, mut size) = (Vec::new(), 0);
            while size <= BYTES_MIN {
                let Some(piece) = pieces.next() else {
                    return Err(Content::Pieces(Box::new(first.into_iter())));
                };
                size += piece.len();
                first.push(piece);
            }
            Ok(Box::new(first.into_iter().chain(pieces)))
        }
    }
}

fn encoder() -> GzEncoder<Vec<u8>> {
    GzEncoder::new(Vec::new(), Compression::fast())
}

/// Pieces as they are compressed.
struct Compressed {
    pieces: Pieces,
    /// What is left of the last piece.
    rest: Bytes,
    /// None at the end.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl Iterator for Compressed {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        loop {
            let encoder = self.encoder.as_mut()?;
            if self.rest.is_empty() {
                self.rest = match self.pieces.next() {
                    Some(piece) => piece,
                    None => return self.encoder.take().and_then(|encoder| encoder.finish().ok()).map(Bytes::from),
                };
            }
            let step = self.rest.split_to(self.rest.len().min(STEP));
            encoder.write_all(&step).expect("memory takes every write");
            if encoder.get_ref().len() >= STEP / 4 {
                return Some(Bytes::from(std::mem::take(encoder.get_mut())));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::*;

    fn answer(content: Content, accept: &str) -> (bool, Vec<u8>) {
        let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, accept.parse().unwrap())]);
        let response = compressed(Response::new(content), &headers);
        let encoded = response.headers().contains_key(CONTENT_ENCODING);
        assert_eq!(encoded, response.headers().contains_key(VARY));
        (encoded, response.into_body().whole().to_vec())
    }

    #[test]
    fn large_answers_are_compressed_for_those_who_ask() {
        let text: Vec<u8> = (0..BYTES_MIN as u32 / 2).flat_map(u32::to_le_bytes).collect();
        let text = Bytes::from(text);
        let pieces = |size: usize| -> Vec<Bytes> { text.chunks(size).map(Bytes::copy_from_slice).collect() };
        let contents = || {
            [
                Content::Whole(text.clone()),
                Content::Pieces(Box::new(pieces(1000).into_iter())),
                Content::Pieces(Box::new(pieces(100_000).into_iter())),
            ]
        };
        for content in contents() {
            let (encoded, body) = answer(content, "deflate, gzip");
            assert!(encoded && body.len() < text.len());
            let mut read = Vec::new();
            GzDecoder::new(&*body).read_to_end(&mut read).unwrap();
            assert_eq!(read, text);
        }
        for content in contents() {
            assert_eq!(answer(content, "deflate, gzip;q=1.0"), (false, text.to_vec()));
        }
    }

    #[test]
    fn small_answers_are_sent_as_they_are() {
        let text = Bytes::from(vec![b'x'; BYTES_MIN]);
        let pieces: Vec<Bytes> = text.chunks(1000).map(Bytes::copy_from_slice).collect();
        assert_eq!(answer(Content::Whole(text.clone()), "gzip"), (false, text.to_vec()));
        assert_eq!(answer(Content::Pieces(Box::new(pieces.into_iter())), "gzip"), (false, text.to_vec()));
    }
}
