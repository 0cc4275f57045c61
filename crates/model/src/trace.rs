//! Spans of distributed traces: what is told to an OpenTelemetry collector, and the header that carries a trace from
//! one component to the next (W3C Trace Context).

use std::borrow::Cow;
use std::fmt::Write;

use bytes::Bytes;
use futures::future::BoxFuture;

use crate::api::{Api, Request};
use crate::status::Status;

/// Which span of which trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanContext {
    /// The trace; never zero.
    pub trace_id: u128,
    /// The span; never zero.
    pub span_id: u64,
    /// Whether the trace is told to anybody.
    pub sampled: bool,
}

impl SpanContext {
    /// The header that names the span.
    pub const HEADER: &'static str = "traceparent";

    /// Reads the value of the header; none when it is not one.
    pub fn parse(value: &str) -> Option<Self> {
        let mut parts = value.trim().split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let version = hex(version, 2)?;
        // Later versions may add parts, the first may not, and 255 is none.
        if version == 255 || (version == 0 && parts.next().is_some()) {
            return None;
        }
        let span_id = u64::try_from(hex(span, 16)?).ok()?;
        let context = SpanContext { trace_id: hex(trace, 32)?, span_id, sampled: hex(flags, 2)? & 1 == 1 };
        (context.trace_id != 0 && context.span_id != 0).then_some(context)
    }

    /// The value of the header.
    pub fn to_header(self) -> String {
        let mut value = String::with_capacity(55);
        let flags = u8::from(self.sampled);
        // Writing to a string never fails.
        let _ = write!(value, "00-{:032x}-{:016x}-{flags:02x}", self.trace_id, self.span_id);
        value
    }
}

fn hex(text: &str, digits: usize) -> Option<u128> {
    let is_lower_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let well_formed = text.len() == digits && text.bytes().all(is_lower_hex);
    well_formed.then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

/// The part that a span plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// Work within a component.
    Internal,
    /// A request that is answered.
    Server,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttributeValue {
    /// A text.
    Text(Cow<'static, str>),
    /// A number.
    Number(i64),
}

impl From<String> for AttributeValue {
    fn from(text: String) -> Self {
        AttributeValue::Text(text.into())
    }
}

impl From<&'static str> for AttributeValue {
    fn from(text: &'static str) -> Self {
        AttributeValue::Text(text.into())
    }
}

impl From<i64> for AttributeValue {
    fn from(number: i64) -> Self {
        AttributeValue::Number(number)
    }
}

/// A span that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Which one it is.
    pub context: SpanContext,
    /// The span it is a part of, in the same trace.
    pub parent: Option<u64>,
    /// What was done.
    pub name: Cow<'static, str>,
    /// Which part it plays.
    pub kind: SpanKind,
    /// When it began, in nanoseconds since 1970.
    pub start_nanos: u64,
    /// When it ended.
    pub end_nanos: u64,
    /// What is known of it.
    pub attributes: Vec<(&'static str, AttributeValue)>,
    /// Spans of other traces that it has to do with.
    pub links: Vec<SpanContext>,
    /// Why it failed, if it did; perhaps without words.
    pub error: Option<String>,
}

/// An API server, asked as a part of a span: each request names it.
pub struct TracedApi<'a> {
    /// The API server.
    pub api: &'a dyn Api,
    /// The span.
    pub span: SpanContext,
}

impl Api for TracedApi<'_> {
    fn call(&self, mut request: Request) -> BoxFuture<'_, Result<Bytes, Status>> {
        request.trace = Some(self.span);
        self.api.call(request)
    }
}

/// Where spans go. Nothing here waits: a span that finds no room is dropped, and counted.
pub trait Tracer: Send + Sync {
    /// A new span, below another or the first of its trace; none when nobody wants to hear of it.
    fn begin(&self, parent: Option<SpanContext>) -> Option<SpanContext>;

    /// A span has ended.
    fn end(&self, span: Span);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_read_as_the_recommendation_says() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let span = "00f067aa0ba902b7";
        let whole = |version: &str, flags: &str| format!("{version}-{trace}-{span}-{flags}");
        let context = SpanContext::parse(&whole("00", "01")).unwrap();
        assert!(context.sampled);
        assert_eq!(context.to_header(), whole("00", "01"));
        assert!(!SpanContext::parse(&whole("00", "00")).unwrap().sampled);
        assert!(SpanContext::parse(&(whole("01", "01") + "-later")).is_some());
        for wrong in [
            whole("ff", "01"),
            whole("00", "01") + "-more",
            whole("00", "1"),
            whole("00", "0g"),
            whole("00", "01").to_uppercase(),
            format!("00-{}-{span}-01", "0".repeat(32)),
            format!("00-{trace}-{}-01", "0".repeat(16)),
            format!("00-{trace}-+0f067aa0ba902b7-01"),
            String::new(),
        ] {
            assert_eq!(SpanContext::parse(&wrong), None, "{wrong}");
        }
    }
}
