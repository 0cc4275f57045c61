//! The trace of an attempt, from when its pod is taken up until it is bound or goes back to the queue.

use std::sync::Arc;

use bayplan_model::trace::Tracer;

use super::Scheduler;
use crate::framework::QueuedPod;
use crate::metrics::AttemptResult;
use crate::trace::{AttemptEnd, Traces};

impl Scheduler {
    /// Traces attempts. Times are those of the metrics' clock, which is at zero at `zero_nanos` since 1970; without
    /// metrics nothing is traced.
    #[must_use]
    pub fn with_traces(mut self, tracer: Arc<dyn Tracer>, zero_nanos: u64) -> Self {
        self.traces = self.metrics.is_some().then(|| Traces::new(tracer, zero_nanos));
        self
    }

    /// Begins the trace of an attempt, if it is one of those that are traced.
    pub(super) fn begin_trace(&self, pod: &mut QueuedPod) {
        let (Some(traces), Some(metrics)) = (&self.traces, &self.metrics) else { return };
        pod.trace = traces.begin();
        metrics.all.trace.begin(pod.trace.as_ref().map(|trace| trace.context.span_id));
    }

    /// Adds the extension points that have run to the trace of the attempt.
    pub(super) fn collect_points(&self, pod: &QueuedPod) {
        if let (Some(trace), Some(metrics)) = (&pod.trace, &self.metrics) {
            trace.add(metrics.all.trace.take(trace.context.span_id));
        }
    }

    /// Ends the trace of an attempt.
    pub(super) fn end_trace(
        &self,
        pod: &mut QueuedPod,
        result: AttemptResult,
        node: Option<&str>,
        message: Option<&str>,
    ) {
        let Some(trace) = pod.trace.take() else { return };
        let Some(traces) = &self.traces else { return };
        let meta = &pod.info.metadata;
        let end = AttemptEnd {
            started: pod.attempt_started,
            ended: self.metrics_now(),
            namespace: &meta.namespace,
            pod: &meta.name,
            uid: &meta.uid,
            profile: &pod.info.spec.scheduler_name,
            attempt: pod.attempts,
            result: result.label(),
            node,
            message,
        };
        traces.end(&trace, &end);
    }
}
