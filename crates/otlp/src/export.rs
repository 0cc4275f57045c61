//! Sends spans in batches; a collector that is away is tried again for a while, and then spans are dropped.

use std::time::Duration;

use bayplan_model::trace::Span;
use http::uri::PathAndQuery;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use crate::proto::{self, ExportRequest, ExportResponse};
use crate::{ConfigError, Service, SpanMetrics, TracingConfig};

const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// The spans of one message, as upstream's batch processor.
const BATCH_MAX: usize = 512;
/// How long a batch waits to become full.
const BATCH_DELAY: Duration = Duration::from_secs(5);
/// How long a collector may take to connect, and to answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a batch is tried again before it is dropped. What comes meanwhile waits in the queue, or is dropped too.
const RETRY_FOR: Duration = Duration::from_secs(60);
const BACKOFF_FIRST: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(15);
/// How long the end of the process waits for the last spans to be sent.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) struct Exporter {
    channel: Channel,
    endpoint: String,
    service: Service,
    metrics: SpanMetrics,
    /// Whether the collector was away when it was last tried: told once, not at every batch.
    is_away: bool,
}

impl Exporter {
    pub(crate) fn new(config: &TracingConfig, service: Service, metrics: SpanMetrics) -> Result<Self, ConfigError> {
        let channel = config.connection()?.connect_timeout(CONNECT_TIMEOUT).connect_lazy();
        Ok(Exporter { channel, endpoint: config.endpoint.clone(), service, metrics, is_away: false })
    }

    /// Sends spans until `stopping` is true, and then what is left.
    pub(crate) async fn run(mut self, mut spans: mpsc::Receiver<Span>, mut stopping: watch::Receiver<bool>) {
        let mut batch = Vec::new();
        loop {
            let stopped = tokio::select! {
                () = fill(&mut spans, &mut batch) => false,
                _ = stopping.wait_for(|stop| *stop) => true,
            };
            match (stopped, batch.is_empty()) {
                (true, _) => break,
                (false, true) => return,
                (false, false) => self.send_until(std::mem::take(&mut batch), &mut stopping).await,
            }
        }
        let flush = async {
            loop {
                while batch.len() < BATCH_MAX
                    && let Ok(span) = spans.try_recv()
                {
                    batch.push(span);
                }
                if batch.is_empty() {
                    return;
                }
                self.send_once(std::mem::take(&mut batch)).await;
            }
        };
        let _ = tokio::time::timeout(FLUSH_TIMEOUT, flush).await;
    }

    /// Sends a batch, again and again while the collector is away.
    async fn send_until(&mut self, batch: Vec<Span>, stopping: &mut watch::Receiver<bool>) {
        let (many, until) = (batch.len() as u64, Instant::now() + RETRY_FOR);
        let request = proto::request(&self.service, batch);
        let mut backoff = BACKOFF_FIRST;
        loop {
            let status = match self.export(request.clone()).await {
                Ok(rejected) => return self.sent(many, rejected),
                Err(status) => status,
            };
            self.note_failure(&status);
            if !may_repeat(&status) || Instant::now() + backoff >= until {
                return self.metrics.dropped.add(many);
            }
            tokio::select! {
                () = tokio::time::sleep(backoff) => {}
                _ = stopping.wait_for(|stop| *stop) => return self.metrics.dropped.add(many),
            }
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }

    async fn send_once(&mut self, batch: Vec<Span>) {
        let many = batch.len() as u64;
        match self.export(proto::request(&self.service, batch)).await {
            Ok(rejected) => self.sent(many, rejected),
            Err(_) => self.metrics.dropped.add(many),
        }
    }

    fn sent(&mut self, many: u64, rejected: u64) {
        let rejected = rejected.min(many);
        self.metrics.exported.add(many - rejected);
        self.metrics.dropped.add(rejected);
        if std::mem::take(&mut self.is_away) {
            tracing::info!(endpoint = self.endpoint, "the collector takes traces again");
        }
    }

    fn note_failure(&mut self, status: &Status) {
        if !std::mem::replace(&mut self.is_away, true) {
            let endpoint = &self.endpoint;
            tracing::warn!(endpoint, "the collector does not take traces: {}", status.message());
        }
    }

    /// Sends one message; the number of spans that the collector rejected.
    async fn export(&self, request: ExportRequest) -> Result<u64, Status> {
        let mut request = Request::new(request);
        request.set_timeout(EXPORT_TIMEOUT);
        let mut grpc = Grpc::new(self.channel.clone());
        let answered = tokio::time::timeout(EXPORT_TIMEOUT, async {
            grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            let codec = ProstCodec::<ExportRequest, ExportResponse>::default();
            grpc.unary(request, PathAndQuery::from_static(EXPORT), codec).await
        });
        let late = || Err(Status::deadline_exceeded(format!("no answer within {} s", EXPORT_TIMEOUT.as_secs())));
        let answer = answered.await.unwrap_or_else(|_| late())?.into_inner();
        let Some(partial) = answer.partial_success else { return Ok(0) };
        if !partial.error_message.is_empty() {
            tracing::warn!(rejected = partial.rejected_spans, "the collector: {}", partial.error_message);
        }
        Ok(u64::try_from(partial.rejected_spans).unwrap_or(0))
    }
}

/// What OTLP says may be sent again.
fn may_repeat(status: &Status) -> bool {
    use Code::{Aborted, Cancelled, DataLoss, DeadlineExceeded, OutOfRange, ResourceExhausted, Unavailable, Unknown};
    // A connection that cannot be made is an unknown error to the channel.
    matches!(
        status.code(),
        Cancelled | DeadlineExceeded | ResourceExhausted | Aborted | OutOfRange | Unavailable | DataLoss | Unknown
    )
}

/// Waits for spans: a full batch, or those of a short while; none when nobody makes any more. What has come stays in
/// the batch when it is given up before it is done.
async fn fill(spans: &mut mpsc::Receiver<Span>, batch: &mut Vec<Span>) {
    let Some(first) = spans.recv().await else { return };
    batch.push(first);
    let until = Instant::now() + BATCH_DELAY;
    while batch.len() < BATCH_MAX {
        match tokio::time::timeout_at(until, spans.recv()).await {
            Ok(Some(span)) => batch.push(span),
            Ok(None) | Err(_) => return,
        }
    }
}
