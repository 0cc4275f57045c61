//! The server's side of WebSocket (RFC 6455), for clients that can do nothing else, and for sessions.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bayplan_listener::{ResponseBody, Upgrade, UpgradedStream};
use bayplan_model::status::Status;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{SinkExt, Stream, StreamExt};
use http::header::{CONNECTION, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, UPGRADE};
use http::header::{SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use crate::negotiation::Media;
use crate::status_errors;

/// Begins the subprotocol by which browsers give their token: they can set no other header.
pub(crate) const BEARER_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// The largest message of a client. What clients say to a watch is not read, and sessions of simulated pods have none.
const MESSAGE_MAX: usize = 64 * 1024;
/// What every key is hashed with (RFC 6455, section 1.3).
const KEY_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// True if a request asks for WebSocket.
pub(crate) fn is_asked(headers: &HeaderMap) -> bool {
    upgrade_of(headers).is_some_and(|protocol| protocol.eq_ignore_ascii_case("websocket"))
}

/// The protocol that a request asks to change to.
pub(crate) fn upgrade_of(headers: &HeaderMap) -> Option<&str> {
    tokens(headers, &CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade")).then_some(())?;
    headers.get(UPGRADE)?.to_str().ok()
}

/// The subprotocols that a client offers.
pub(crate) fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    tokens(headers, &SEC_WEBSOCKET_PROTOCOL).filter(|protocol| !protocol.starts_with(BEARER_PROTOCOL))
}

pub(crate) fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|token| !token.is_empty())
}

/// A connection on which messages are sent.
pub(crate) struct Socket(WebSocketStream<UpgradedStream>);

impl Socket {
    /// Sends a text.
    pub(crate) async fn text(&mut self, text: String) -> bool {
        self.0.send(Message::text(text)).await.is_ok()
    }

    /// Sends bytes.
    pub(crate) async fn binary(&mut self, bytes: Bytes) -> bool {
        self.0.send(Message::binary(bytes)).await.is_ok()
    }

    /// Waits until the client closes the connection, or breaks the protocol.
    pub(crate) async fn closed(&mut self) {
        while let Some(Ok(_)) = self.0.next().await {}
    }

    /// Says that nothing follows.
    pub(crate) async fn close(&mut self) {
        let _ = self.0.close(Some(CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::default() })).await;
    }

    /// Sends each event of a watch as a message, until there is no more or the client goes.
    async fn events(mut self, events: impl Stream<Item = Bytes> + Send, media: Media) {
        let mut events = std::pin::pin!(events);
        loop {
            let chunk = tokio::select! {
                chunk = events.next() => chunk,
                () = self.closed() => return,
            };
            let Some(chunk) = chunk else { return self.close().await };
            for event in split(&chunk, media) {
                let sent = match media {
                    Media::Protobuf => self.binary(event).await,
                    Media::Json | Media::Yaml => self.text(String::from_utf8_lossy(&event).into_owned()).await,
                };
                if !sent {
                    return;
                }
            }
        }
    }
}

/// The events of a chunk of a stream: lines, or frames without their length.
fn split(chunk: &Bytes, media: Media) -> Vec<Bytes> {
    let (mut rest, mut events) = (chunk.clone(), Vec::new());
    while !rest.is_empty() {
        if media == Media::Protobuf {
            let Some(length) = rest.first_chunk::<4>().map(|length| u32::from_be_bytes(*length) as usize) else {
                break;
            };
            let frame = rest.split_to(rest.len().min(4 + length));
            events.push(frame.slice(4..));
        } else {
            let end = rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |at| at + 1);
            events.push(rest.split_to(end));
        }
    }
    events
}

/// Answers a request for a watch over WebSocket. As upstream, a client may name one subprotocol, whatever it is.
pub(crate) fn watch(
    headers: &HeaderMap,
    events: impl Stream<Item = Bytes> + Send + 'static,
    media: Media,
) -> Result<Response<ResponseBody>, Status> {
    let mut offered = protocols(headers);
    let protocol = offered.next().unwrap_or_default();
    if offered.next().is_some() {
        return Err(status_errors::bad_request("a watch has no subprotocols to choose from: name one or none"));
    }
    switch(headers, protocol, move |socket| Box::pin(socket.events(events, media)))
}

/// Accepts a request for WebSocket with a subprotocol (empty for none), and runs this on it.
pub(crate) fn switch(
    headers: &HeaderMap,
    protocol: &str,
    run: impl FnOnce(Socket) -> BoxFuture<'static, ()> + Send + 'static,
) -> Result<Response<ResponseBody>, Status> {
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let key = text(&SEC_WEBSOCKET_KEY);
    if text(&SEC_WEBSOCKET_VERSION) != "13" || STANDARD.decode(key).map_or(0, |key| key.len()) != 16 {
        return Err(status_errors::bad_request("the request is no WebSocket handshake of version 13"));
    }
    let hash = aws_lc_rs::digest::digest(
        &aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY,
        format!("{key}{KEY_SUFFIX}").as_bytes(),
    );
    let accept = HeaderValue::try_from(STANDARD.encode(hash)).expect("base64 is a header value");
    let mut response = switching("websocket", move |stream| {
        Box::pin(async move {
            let config = WebSocketConfig::default()
                .max_message_size(Some(MESSAGE_MAX))
                .max_frame_size(Some(MESSAGE_MAX))
                .read_buffer_size(MESSAGE_MAX / 16);
            run(Socket(WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await)).await;
        })
    });
    response.headers_mut().insert(SEC_WEBSOCKET_ACCEPT, accept);
    if let Ok(protocol) = HeaderValue::from_str(protocol)
        && !protocol.is_empty()
    {
        response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    Ok(response)
}

/// The response after which the connection speaks another protocol.
pub(crate) fn switching(
    protocol: &'static str,
    run: impl FnOnce(UpgradedStream) -> BoxFuture<'static, ()> + Send + 'static,
) -> Response<ResponseBody> {
    let mut response = Response::new(Empty::new().boxed_unsync());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    response.headers_mut().insert(UPGRADE, HeaderValue::from_static(protocol));
    response.extensions_mut().insert(Upgrade::new(run));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn a_handshake_is_answered_as_the_protocol_says() {
        let asked = headers(&[
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "WebSocket"),
            ("sec-websocket-version", "13"),
            // The example of RFC 6455.
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ]);
        assert!(is_asked(&asked));
        let response = switch(&asked, "v5.channel.k8s.io", |_| Box::pin(async {})).unwrap();
        assert_eq!(response.status(), 101);
        assert_eq!(response.headers()[SEC_WEBSOCKET_ACCEPT], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(response.headers()[SEC_WEBSOCKET_PROTOCOL], "v5.channel.k8s.io");
        assert_eq!(response.headers()[CONNECTION], "Upgrade");
    }

    #[test]
    fn what_is_no_handshake_is_refused() {
        let upgrade = [("connection", "upgrade"), ("upgrade", "websocket"), ("sec-websocket-version", "13")];
        for more in [[("sec-websocket-key", "short")], [("sec-websocket-protocol", "a")]] {
            let asked = headers(&[upgrade.as_slice(), &more].concat());
            assert!(is_asked(&asked));
            assert_eq!(switch(&asked, "", |_| Box::pin(async {})).map(|_| ()).unwrap_err().code, 400);
        }
        assert!(!is_asked(&headers(&[("upgrade", "websocket")])), "the connection is not asked to change");
        assert!(!is_asked(&headers(&[("connection", "upgrade"), ("upgrade", "SPDY/3.1")])));
    }

    #[test]
    fn a_token_is_no_subprotocol() {
        let asked = headers(&[("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.dA, v5, ")]);
        assert_eq!(protocols(&asked).collect::<Vec<_>>(), ["v5"]);
    }

    #[test]
    fn each_event_of_a_chunk_is_a_message() {
        let lines = Bytes::from_static(b"{\"a\":1}\n{\"b\":2}\n");
        assert_eq!(split(&lines, Media::Json), ["{\"a\":1}\n", "{\"b\":2}\n"]);
        let frames = Bytes::from_static(b"\0\0\0\x01a\0\0\0\x02bc");
        assert_eq!(split(&frames, Media::Protobuf), ["a", "bc"]);
        assert_eq!(split(&Bytes::new(), Media::Json), [""; 0]);
    }
}
