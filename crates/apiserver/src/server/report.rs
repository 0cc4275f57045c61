//! What is told of a request besides metrics: a line of the log, as upstream's httplog, and a span of a trace, as
//! upstream's otelhttp.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bayplan_model::trace::{AttributeValue, Span, SpanContext, SpanKind, Tracer};
use http::header::{CONTENT_LENGTH, HOST, USER_AGENT};
use http::request::Parts;
use http::{HeaderMap, Version};
use tokio::time::Instant;

use crate::request::RequestInfo;
use crate::user::{GROUP_MASTERS, User};

/// The group of those who monitor the cluster; upstream takes traces over from them, too.
const GROUP_MONITORING: &str = "system:monitoring";

/// Where requests are logged, at level debug: `-v=3` switches it on, as upstream's.
const TARGET: &str = "bayplan_apiserver::requests";

/// A request that is logged, traced or both.
pub(super) struct Report {
    method: String,
    uri: String,
    path: String,
    user_agent: String,
    audit_id: String,
    verb: &'static str,
    started: Instant,
    is_logged: bool,
    trace: Option<Trace>,
}

struct Trace {
    tracer: Arc<dyn Tracer>,
    name: String,
    context: SpanContext,
    parent: Option<u64>,
    link: Option<SpanContext>,
    start_nanos: u64,
    host: Option<String>,
    body_size: Option<i64>,
    protocol: &'static str,
}

impl Report {
    /// The report of a request; none when nobody wants one.
    pub(super) fn begin(
        tracer: Option<&Arc<dyn Tracer>>,
        parts: &Parts,
        verb: &'static str,
        audit_id: &str,
    ) -> Option<Box<Report>> {
        let is_logged = tracing::enabled!(target: TARGET, tracing::Level::DEBUG);
        if !is_logged && tracer.is_none() {
            return None;
        }
        Some(Box::new(Report {
            method: parts.method.as_str().to_owned(),
            uri: parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
            path: parts.uri.path().to_owned(),
            user_agent: text(&parts.headers, &USER_AGENT),
            audit_id: audit_id.to_owned(),
            verb,
            started: Instant::now(),
            is_logged,
            trace: None,
        }))
    }

    /// The sender is known, so the span begins. As upstream, that of a privileged user is a part of the user's trace;
    /// that of anybody else begins a trace and links to the user's.
    pub(super) fn authenticated(
        &mut self,
        tracer: Option<&Arc<dyn Tracer>>,
        user: &User,
        parts: &Parts,
        info: &RequestInfo,
    ) {
        let Some(tracer) = tracer else { return };
        let header = parts.headers.get(SpanContext::HEADER).and_then(|value| value.to_str().ok());
        let remote = header.and_then(SpanContext::parse);
        let trusted = user.in_group(GROUP_MASTERS) || user.in_group(GROUP_MONITORING);
        let (parent, link) = if trusted { (remote, None) } else { (None, remote) };
        let Some(context) = tracer.begin(parent) else { return };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let start = now.saturating_sub(self.started.elapsed());
        let host = parts.uri.authority().map(ToString::to_string).unwrap_or_else(|| text(&parts.headers, &HOST));
        self.trace = Some(Trace {
            tracer: Arc::clone(tracer),
            name: span_name(&self.method, info),
            context,
            parent: parent.map(|parent| parent.span_id),
            link,
            start_nanos: u64::try_from(start.as_nanos()).unwrap_or(u64::MAX),
            host: Some(host).filter(|host| !host.is_empty()),
            body_size: text(&parts.headers, &CONTENT_LENGTH).parse().ok().filter(|size| *size > 0),
            protocol: match parts.version {
                Version::HTTP_2 => "2",
                Version::HTTP_10 => "1.0",
                _ => "1.1",
            },
        });
    }

    /// The last byte of the answer was taken, or nothing more will be.
    pub(super) fn end(mut self: Box<Self>, code: u16, bytes: u64) {
        let latency = self.started.elapsed();
        if self.is_logged {
            tracing::debug!(
                target: TARGET,
                verb = self.verb,
                URI = self.uri,
                latency = ?latency,
                userAgent = self.user_agent,
                "audit-ID" = self.audit_id,
                resp = code,
                "HTTP"
            );
        }
        let Some(trace) = self.trace.take() else { return };
        let end_nanos = trace.start_nanos.saturating_add(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
        let attributes = self.attributes(&trace, code, bytes);
        trace.tracer.end(Span {
            context: trace.context,
            parent: trace.parent,
            name: trace.name.into(),
            kind: SpanKind::Server,
            start_nanos: trace.start_nanos,
            end_nanos,
            attributes,
            links: trace.link.into_iter().collect(),
            error: (code >= 500).then(String::new),
        });
    }

    /// What otelhttp says of a request and its answer, and what kube-apiserver adds.
    fn attributes(&self, trace: &Trace, code: u16, bytes: u64) -> Vec<(&'static str, AttributeValue)> {
        let mut attributes: Vec<(&'static str, AttributeValue)> = vec![
            ("http.request.method", self.method.clone().into()),
            ("url.scheme", "https".into()),
            ("url.path", self.path.clone().into()),
            ("network.protocol.version", trace.protocol.into()),
            ("http.target", self.uri.clone().into()),
            ("audit-id", self.audit_id.clone().into()),
            ("http.response.status_code", i64::from(code).into()),
        ];
        if let Some(host) = &trace.host {
            let (name, port) = host.rsplit_once(':').unwrap_or((host, ""));
            attributes.push(("server.address", name.to_owned().into()));
            attributes.extend(port.parse::<i64>().ok().map(|port| ("server.port", port.into())));
        }
        if !self.user_agent.is_empty() {
            attributes.push(("user_agent.original", self.user_agent.clone().into()));
        }
        attributes.extend(trace.body_size.map(|size| ("http.request.body.size", size.into())));
        if bytes > 0 {
            let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
            attributes.push(("http.response.body.size", bytes.into()));
        }
        attributes
    }
}

fn text(headers: &HeaderMap, name: &http::HeaderName) -> String {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).unwrap_or_default()
}

/// The name of a request's span: its method and path, with what differs from object to object left open.
fn span_name(method: &str, info: &RequestInfo) -> String {
    if !info.is_resource {
        return method.to_owned();
    }
    let mut name = match info.group.as_str() {
        "" => format!("{method} /api/{}", info.version),
        group => format!("{method} /apis/{group}/{}", info.version),
    };
    if !info.namespace.is_empty() {
        name.push_str("/namespaces/{:namespace}");
    }
    name.push('/');
    name.push_str(&info.plural);
    if !info.name.is_empty() {
        name.push_str("/{:name}");
    }
    if !info.subresource.is_empty() {
        name.push('/');
        name.push_str(&info.subresource);
    }
    name
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::request::Query;

    /// Samples everything, and keeps it.
    #[derive(Default)]
    struct Kept(Mutex<Vec<Span>>);

    impl Tracer for Kept {
        fn begin(&self, parent: Option<SpanContext>) -> Option<SpanContext> {
            let trace_id = parent.map_or(99, |parent| parent.trace_id);
            Some(SpanContext { trace_id, span_id: 11, sampled: true })
        }

        fn end(&self, span: Span) {
            self.0.lock().unwrap().push(span);
        }
    }

    fn spans(user: &User, uri: &str, code: u16) -> Span {
        let kept = Arc::new(Kept::default());
        let tracer: Arc<dyn Tracer> = kept.clone();
        let remote = SpanContext { trace_id: 5, span_id: 6, sampled: true };
        let request = http::Request::post(uri)
            .header(SpanContext::HEADER, remote.to_header())
            .header(HOST, "api.example:6443")
            .header(CONTENT_LENGTH, "12")
            .body(())
            .unwrap();
        let (parts, ()) = request.into_parts();
        let info = RequestInfo::parse(&parts.method, parts.uri.path(), &Query::parse(""));
        let mut report = Report::begin(Some(&tracer), &parts, "POST", "id").unwrap();
        report.authenticated(Some(&tracer), user, &parts, &info);
        report.end(code, 34);
        let mut spans = kept.0.lock().unwrap();
        spans.pop().unwrap()
    }

    #[test]
    fn the_span_of_a_request_is_a_part_of_the_trace_of_the_privileged_and_linked_to_that_of_others() {
        let masters = User::new("admin", [GROUP_MASTERS]);
        let span = spans(&masters, "/api/v1/namespaces/d/pods/p/binding?x=1", 201);
        assert_eq!(span.name, "POST /api/v1/namespaces/{:namespace}/pods/{:name}/binding");
        assert_eq!((span.context.trace_id, span.parent, span.links.len()), (5, Some(6), 0));
        assert_eq!((span.kind, span.error), (SpanKind::Server, None));
        for (key, value) in [
            ("http.request.method", "POST".into()),
            ("http.target", "/api/v1/namespaces/d/pods/p/binding?x=1".to_owned().into()),
            ("url.path", "/api/v1/namespaces/d/pods/p/binding".to_owned().into()),
            ("server.address", "api.example".to_owned().into()),
            ("server.port", AttributeValue::Number(6443)),
            ("http.response.status_code", AttributeValue::Number(201)),
            ("http.request.body.size", AttributeValue::Number(12)),
            ("http.response.body.size", AttributeValue::Number(34)),
            ("audit-id", "id".to_owned().into()),
        ] {
            assert!(span.attributes.contains(&(key, value)), "{key} in {:?}", span.attributes);
        }
        let span = spans(&User::new("system:kube-scheduler", ["x"]), "/apis/apps/v1/deployments", 500);
        assert_eq!(span.name, "POST /apis/apps/v1/deployments");
        assert_eq!((span.context.trace_id, span.parent), (99, None));
        assert_eq!(span.links, [SpanContext { trace_id: 5, span_id: 6, sampled: true }]);
        assert_eq!(span.error.as_deref(), Some(""));
        assert_eq!(spans(&masters, "/healthz", 200).name, "POST");
    }
}
