//! Traces to an OpenTelemetry collector.
//!
//! ```text
//!   Tracer::begin ─▶ sampler        Tracer::end ─▶ bounded queue ─▶ batches ─▶ OTLP over gRPC ─▶ collector
//!                                                     │ full                       │ away
//!                                                     ▼ dropped, counted           ▼ tried again, or dropped, counted
//! ```
//!
//! Nothing that makes spans ever waits for the collector. The messages are written by hand, as etcd's are: they are
//! few, and the OpenTelemetry crates would bring a second registry of metrics, logs and contexts with them.

mod config;
mod export;
mod proto;

use std::sync::Arc;

use bayplan_metrics::{Counter, Registry};
use bayplan_model::trace::{Span, SpanContext, Tracer};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

pub use config::{ConfigError, TracingConfig};
use export::Exporter;

/// Spans that wait to be sent, as upstream's batch processor: with attributes about 2 MiB.
pub const QUEUE_MAX: usize = 2048;

/// The component whose spans these are.
#[derive(Clone, Debug)]
pub struct Service {
    /// Its name: `apiserver`, `kube-scheduler`.
    pub name: String,
    /// Which of several it is.
    pub instance: String,
}

/// What becomes of spans.
#[derive(Clone)]
struct SpanMetrics {
    exported: Arc<Counter>,
    dropped: Arc<Counter>,
}

impl SpanMetrics {
    fn new(registry: &Registry) -> Self {
        SpanMetrics {
            exported: registry.one("bayplan_trace_spans_exported_total", "Spans that the collector has taken.", ()),
            dropped: registry.one(
                "bayplan_trace_spans_dropped_total",
                "Spans that were dropped because the queue was full or the collector away.",
                (),
            ),
        }
    }
}

/// Sends spans to a collector.
pub struct OtlpTracer {
    queue: mpsc::Sender<Span>,
    /// New traces with an id below this are sampled.
    sampled_below: u64,
    metrics: SpanMetrics,
}

/// The task that sends spans.
pub struct Export {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Export {
    /// Sends what waits, within a limit, and ends.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        let _ = self.task.await;
    }
}

/// Starts to send the spans of a component as a configuration says. Whether a collector is there shows later.
pub fn start(
    config: &TracingConfig,
    service: Service,
    registry: &Registry,
) -> Result<(Arc<OtlpTracer>, Export), ConfigError> {
    let (queue, spans) = mpsc::channel(QUEUE_MAX);
    let metrics = SpanMetrics::new(registry);
    let exporter = Exporter::new(config, service, metrics.clone())?;
    let (stop, stopping) = watch::channel(false);
    let task = tokio::spawn(exporter.run(spans, stopping));
    let tracer = OtlpTracer { queue, sampled_below: config.sampled_below(), metrics };
    Ok((Arc::new(tracer), Export { stop, task }))
}

impl Tracer for OtlpTracer {
    fn begin(&self, parent: Option<SpanContext>) -> Option<SpanContext> {
        let trace_id = match parent {
            Some(parent) if !parent.sampled => return None,
            Some(parent) => parent.trace_id,
            None => {
                let trace_id = rand::random::<u128>().max(1);
                // By the lower half of the id, as OpenTelemetry's `TraceIDRatioBased`: every component that knows the
                // trace and the ratio decides alike.
                if (trace_id as u64) >> 1 >= self.sampled_below {
                    return None;
                }
                trace_id
            }
        };
        Some(SpanContext { trace_id, span_id: rand::random::<u64>().max(1), sampled: true })
    }

    fn end(&self, span: Span) {
        if self.queue.try_send(span).is_err() {
            self.metrics.dropped.inc();
        }
    }
}
