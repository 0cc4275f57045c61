//! The trace of a scheduling attempt: one span, and below it one for each extension point that ran.

use std::sync::{Arc, Mutex, PoisonError};

use bayplan_model::trace::{AttributeValue, Span, SpanContext, SpanKind, Tracer};

/// Where traces of attempts go.
pub(crate) struct Traces {
    tracer: Arc<dyn Tracer>,
    /// When the metrics' clock is at zero, in nanoseconds since 1970.
    zero_nanos: u64,
}

/// An extension point that ran, by the metrics' clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TracedPoint {
    pub(crate) name: &'static str,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The status with which it ended.
    pub(crate) code: &'static str,
}

/// An attempt that is traced.
#[derive(Debug)]
pub(crate) struct AttemptTrace {
    pub(crate) context: SpanContext,
    /// The span of Bind, which the binding request is told: the API server's span is linked to it.
    pub(crate) bind: SpanContext,
    points: Mutex<Vec<TracedPoint>>,
}

/// How an attempt ended.
pub(crate) struct AttemptEnd<'a> {
    pub(crate) started: u64,
    pub(crate) ended: u64,
    pub(crate) namespace: &'a str,
    pub(crate) pod: &'a str,
    pub(crate) uid: &'a str,
    pub(crate) profile: &'a str,
    pub(crate) attempt: u32,
    pub(crate) result: &'static str,
    /// Where the pod was put.
    pub(crate) node: Option<&'a str>,
    /// Why it was not.
    pub(crate) message: Option<&'a str>,
}

impl AttemptTrace {
    /// Points have ended.
    pub(crate) fn add(&self, points: impl IntoIterator<Item = TracedPoint>) {
        self.points.lock().unwrap_or_else(PoisonError::into_inner).extend(points);
    }
}

impl Traces {
    pub(crate) fn new(tracer: Arc<dyn Tracer>, zero_nanos: u64) -> Self {
        Traces { tracer, zero_nanos }
    }

    /// An attempt begins; none when it is not traced.
    pub(crate) fn begin(&self) -> Option<Arc<AttemptTrace>> {
        let context = self.tracer.begin(None)?;
        let bind = self.tracer.begin(Some(context))?;
        Some(Arc::new(AttemptTrace { context, bind, points: Mutex::default() }))
    }

    /// An attempt has ended.
    pub(crate) fn end(&self, trace: &AttemptTrace, end: &AttemptEnd<'_>) {
        let points = std::mem::take(&mut *trace.points.lock().unwrap_or_else(PoisonError::into_inner));
        for point in points {
            let own = if point.name == "Bind" { Some(trace.bind) } else { self.tracer.begin(Some(trace.context)) };
            let Some(context) = own else { continue };
            self.tracer.end(Span {
                context,
                parent: Some(trace.context.span_id),
                name: point.name.into(),
                kind: SpanKind::Internal,
                start_nanos: self.zero_nanos.saturating_add(point.start),
                end_nanos: self.zero_nanos.saturating_add(point.end),
                attributes: vec![("scheduler.status", point.code.into())],
                links: Vec::new(),
                error: (point.code == "Error").then(String::new),
            });
        }
        let mut attributes: Vec<(&'static str, AttributeValue)> = vec![
            ("k8s.namespace.name", end.namespace.to_owned().into()),
            ("k8s.pod.name", end.pod.to_owned().into()),
            ("k8s.pod.uid", end.uid.to_owned().into()),
            ("scheduler.profile", end.profile.to_owned().into()),
            ("scheduler.attempt", i64::from(end.attempt).into()),
            ("scheduler.result", end.result.into()),
        ];
        attributes.extend(end.node.map(|node| ("k8s.node.name", node.to_owned().into())));
        attributes.extend(end.message.map(|message| ("scheduler.message", message.to_owned().into())));
        self.tracer.end(Span {
            context: trace.context,
            parent: None,
            name: "Scheduling attempt".into(),
            kind: SpanKind::Internal,
            start_nanos: self.zero_nanos.saturating_add(end.started),
            end_nanos: self.zero_nanos.saturating_add(end.ended),
            attributes,
            links: Vec::new(),
            error: (end.result == "error").then(|| end.message.unwrap_or_default().to_owned()),
        });
    }
}
