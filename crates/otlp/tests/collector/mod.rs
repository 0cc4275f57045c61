//! An OpenTelemetry collector that keeps what it is sent: OTLP over gRPC, on loopback. Tests of the binary use it, too.

#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// How long a test waits for a span: exporters send them every few seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// What comes before a message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// A span as it arrived.
#[derive(Clone, Debug, Default)]
pub struct CollectedSpan {
    /// The resource's `service.name`.
    pub service: String,
    /// What was done.
    pub name: String,
    /// The trace, in hexadecimal digits.
    pub trace: String,
    /// The span, in hexadecimal digits.
    pub id: String,
    /// The span it is a part of; empty for the first of a trace.
    pub parent: String,
    /// OTLP's number of the kind: 1 internal, 2 server.
    pub kind: i32,
    /// Spans of other traces: trace and span.
    pub links: Vec<(String, String)>,
    /// Attributes; numbers as text.
    pub attributes: BTreeMap<String, String>,
    /// When it began and ended, in nanoseconds since 1970.
    pub times: (u64, u64),
    /// Whether it failed.
    pub failed: bool,
}

/// A running collector; it ends when it is dropped.
pub struct Collector {
    /// Where it listens.
    pub address: SocketAddr,
    spans: mpsc::UnboundedReceiver<CollectedSpan>,
    seen: Vec<CollectedSpan>,
    _serving: JoinSet<()>,
}

impl Collector {
    /// Starts one on a free port.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
        let address = listener.local_addr().expect("it listens");
        let (sender, spans) = mpsc::unbounded_channel();
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let sender = sender.clone();
                connections.spawn(async move {
                    let answer = service_fn(move |request| take(request, sender.clone()));
                    let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    let _ = http.serve_connection(TokioIo::new(stream), answer).await;
                });
            }
        });
        Collector { address, spans, seen: Vec::new(), _serving: serving }
    }

    /// The text of a `TracingConfiguration` that names it and samples everything.
    pub fn configuration(&self) -> String {
        format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: {}\n\
             samplingRatePerMillion: 1000000\n",
            self.address
        )
    }

    /// The first span that is as wanted, of all that came or come.
    pub async fn find(&mut self, what: &str, wanted: impl Fn(&CollectedSpan) -> bool) -> CollectedSpan {
        if let Some(found) = self.seen.iter().find(|span| wanted(span)) {
            return found.clone();
        }
        let found = tokio::time::timeout(PATIENCE, async {
            loop {
                let span = self.spans.recv().await.expect("it serves as long as it lives");
                self.seen.push(span.clone());
                if wanted(&span) {
                    return span;
                }
            }
        });
        match found.await {
            Ok(span) => span,
            Err(_) => panic!("no {what} among {:#?}", self.seen),
        }
    }

    /// Everything that has come so far.
    pub fn seen(&mut self) -> &[CollectedSpan] {
        while let Ok(span) = self.spans.try_recv() {
            self.seen.push(span);
        }
        &self.seen
    }
}

async fn take(
    request: Request<Incoming>,
    spans: mpsc::UnboundedSender<CollectedSpan>,
) -> Result<Response<impl http_body::Body<Data = Bytes, Error = Infallible>>, Infallible> {
    let is_export = request.uri().path() == "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let export = body.get(PREFIX..).and_then(|message| ExportRequest::decode(message).ok()).filter(|_| is_export);
    let code = if export.is_some() { "0" } else { "12" };
    for resource in export.into_iter().flat_map(|export| export.resource_spans) {
        let attributes = attributes(resource.resource.unwrap_or_default().attributes);
        let service = attributes.get("service.name").cloned().unwrap_or_default();
        for span in resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            // The test may have ended.
            let _ = spans.send(collected(service.clone(), span));
        }
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static(code));
    let body = Full::new(Bytes::from_static(&[0; PREFIX])).with_trailers(async move { Some(Ok(trailers)) });
    let mut response = Response::new(body);
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    Ok(response)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn attributes(pairs: Vec<KeyValue>) -> BTreeMap<String, String> {
    let text = |pair: KeyValue| match pair.value.and_then(|value| value.value) {
        Some(Value::Text(text)) => (pair.key, text),
        Some(Value::Number(number)) => (pair.key, number.to_string()),
        None => (pair.key, String::new()),
    };
    pairs.into_iter().map(text).collect()
}

fn collected(service: String, span: Span) -> CollectedSpan {
    CollectedSpan {
        service,
        name: span.name,
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        kind: span.kind,
        links: span.links.iter().map(|link| (hex(&link.trace_id), hex(&link.span_id))).collect(),
        attributes: attributes(span.attributes),
        times: (span.start_time_unix_nano, span.end_time_unix_nano),
        failed: span.status.is_some_and(|status| status.code == 2),
    }
}

// What is read of OTLP; written apart from what the product writes, so that one tests the other.

#[derive(Clone, PartialEq, prost::Message)]
struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ScopeSpans {
    #[prost(message, repeated, tag = "2")]
    spans: Vec<Span>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Span {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, repeated, tag = "13")]
    links: Vec<Link>,
    #[prost(message, optional, tag = "15")]
    status: Option<Status>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Link {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Status {
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct AnyValue {
    #[prost(oneof = "Value", tags = "1, 3")]
    value: Option<Value>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Value {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Number(i64),
}
