//! OTLP's messages of traces, as far as they are sent (opentelemetry-proto 1.x).

use bayplan_model::trace::{AttributeValue, Span as ModelSpan, SpanContext, SpanKind};

use crate::Service;

/// What is traced, as collectors show it.
const SCOPE: &str = "bayplan";
/// `STATUS_CODE_ERROR`.
const ERROR: i32 = 2;
/// The flag of a sampled span.
const SAMPLED: u32 = 1;

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub(crate) rejected_spans: i64,
    #[prost(string, tag = "2")]
    pub(crate) error_message: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    pub(crate) resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub(crate) attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    pub(crate) scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) spans: Vec<Span>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Scope {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) version: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Span {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    pub(crate) parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    pub(crate) name: String,
    #[prost(int32, tag = "6")]
    pub(crate) kind: i32,
    #[prost(fixed64, tag = "7")]
    pub(crate) start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    pub(crate) end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    pub(crate) attributes: Vec<KeyValue>,
    #[prost(message, repeated, tag = "13")]
    pub(crate) links: Vec<Link>,
    #[prost(message, optional, tag = "15")]
    pub(crate) status: Option<Status>,
    #[prost(fixed32, tag = "16")]
    pub(crate) flags: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Link {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) span_id: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Status {
    #[prost(string, tag = "2")]
    pub(crate) message: String,
    #[prost(int32, tag = "3")]
    pub(crate) code: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct KeyValue {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AnyValue {
    #[prost(oneof = "Value", tags = "1, 3")]
    pub(crate) value: Option<Value>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Value {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Number(i64),
}

fn attribute(key: &str, value: AttributeValue) -> KeyValue {
    let value = match value {
        AttributeValue::Text(text) => Value::Text(text.into_owned()),
        AttributeValue::Number(number) => Value::Number(number),
    };
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}

fn link(context: SpanContext) -> Link {
    let (trace_id, span_id) = (context.trace_id.to_be_bytes().to_vec(), context.span_id.to_be_bytes().to_vec());
    Link { trace_id, span_id }
}

fn span(span: ModelSpan) -> Span {
    Span {
        trace_id: span.context.trace_id.to_be_bytes().to_vec(),
        span_id: span.context.span_id.to_be_bytes().to_vec(),
        parent_span_id: span.parent.map(|id| id.to_be_bytes().to_vec()).unwrap_or_default(),
        name: span.name.into_owned(),
        kind: match span.kind {
            SpanKind::Internal => 1,
            SpanKind::Server => 2,
        },
        start_time_unix_nano: span.start_nanos,
        end_time_unix_nano: span.end_nanos,
        attributes: span.attributes.into_iter().map(|(key, value)| attribute(key, value)).collect(),
        links: span.links.into_iter().map(link).collect(),
        status: span.error.map(|message| Status { message, code: ERROR }),
        flags: SAMPLED,
    }
}

/// The message that tells a collector of these spans.
pub(crate) fn request(service: &Service, spans: Vec<ModelSpan>) -> ExportRequest {
    let resource = [("service.name", service.name.clone()), ("service.instance.id", service.instance.clone())];
    let scope = Scope { name: SCOPE.to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
    ExportRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(Resource {
                attributes: resource.into_iter().map(|(key, value)| attribute(key, value.into())).collect(),
            }),
            scope_spans: vec![ScopeSpans { scope: Some(scope), spans: spans.into_iter().map(span).collect() }],
        }],
    }
}
