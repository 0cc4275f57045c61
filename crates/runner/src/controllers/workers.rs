//! A worker: takes a key from the queue, reconciles it, logs the result, and requeues the key when it has to be.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use bayplan_client::{Client, EventRecorder, clock};
use bayplan_controllers::{Context, Error, Requeue};
use bayplan_model::api::Api;
use bayplan_model::trace::{Span, SpanContext, SpanKind, TracedApi};
use futures::FutureExt;
use tokio::time::Instant;

use super::write_log::{self, LoggedApi};
use super::{Loop, SharedTracer};
use crate::metrics::unix_nanos;

/// A key rests this many times as long as its reconcile took. An object with thousands of dependents that each change a
/// few times is then reconciled once for many of those changes.
const REST_TIMES: u32 = 4;

/// No key rests longer, so that the delay stays unnoticed.
const REST_MAX: Duration = Duration::from_millis(20);

/// Shorter rests are skipped: timers are coarser.
const REST_MIN: Duration = Duration::from_millis(2);

/// Works until the queue is shut down.
pub(super) async fn work(each: Loop, client: Client, recorder: EventRecorder, tracer: Option<SharedTracer>) {
    while let Some(key) = each.queue.get().await {
        let started = Instant::now();
        // A poison object fails its own reconcile, and never takes the worker down.
        let span = tracer.as_ref().and_then(ReconcileSpan::begin);
        let context = span.as_ref().map(|span| span.context);
        let outcome = AssertUnwindSafe(reconcile(&each, &key, &client, &recorder, context)).catch_unwind().await;
        let duration = started.elapsed();
        if let Some(span) = span {
            span.end(each.controller.name(), &key, &outcome);
        }
        match outcome {
            Ok(Ok(requeue)) => {
                tracing::debug!(controller = each.controller.name(), key, ?duration, ?requeue, "reconciled");
                follow(&each, &key, requeue);
            }
            Ok(Err(error)) => retry(&each, &key, Some(error), duration),
            Err(_) => retry(&each, &key, None, duration),
        }
        match (duration * REST_TIMES).min(REST_MAX) {
            rest if rest < REST_MIN => each.queue.done(&key),
            rest => each.queue.done_resting(key, rest),
        }
    }
}

/// Reconciles a key; its calls are logged while level debug is enabled, and belong to its span if it is traced.
async fn reconcile(
    each: &Loop,
    key: &str,
    client: &Client,
    recorder: &EventRecorder,
    span: Option<SpanContext>,
) -> Result<Requeue, Error> {
    let traced = span.map(|span| TracedApi { api: client, span });
    let client = traced.as_ref().map_or(client as &dyn Api, |traced| traced);
    let logged = LoggedApi { api: client, controller: each.controller.name(), key };
    let api: &dyn Api = if write_log::is_enabled() { &logged } else { client };
    each.controller.sync(key, Context { now: clock::now(), api, recorder }).await
}

/// The span of a reconcile.
struct ReconcileSpan<'a> {
    tracer: &'a SharedTracer,
    context: SpanContext,
    start_nanos: u64,
}

impl<'a> ReconcileSpan<'a> {
    fn begin(tracer: &'a SharedTracer) -> Option<Self> {
        let context = tracer.0.begin(None)?;
        Some(ReconcileSpan { tracer, context, start_nanos: unix_nanos() })
    }

    fn end<P>(self, controller: &'static str, key: &str, outcome: &Result<Result<Requeue, Error>, P>) {
        self.tracer.0.end(Span {
            context: self.context,
            parent: None,
            name: "Reconcile".into(),
            kind: SpanKind::Internal,
            start_nanos: self.start_nanos,
            end_nanos: unix_nanos(),
            attributes: vec![("controller", controller.into()), ("key", key.to_owned().into())],
            links: Vec::new(),
            error: match outcome {
                Ok(Ok(_)) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("reconcile panicked".to_owned()),
            },
        });
    }
}

fn follow(each: &Loop, key: &String, requeue: Requeue) {
    let again = match requeue {
        Requeue::OnChange => false,
        Requeue::After(delay) => {
            each.queue.add_after(key.clone(), delay);
            false
        }
        Requeue::RateLimited => true,
        Requeue::Failed { why, after } => {
            tracing::info!(controller = each.controller.name(), key, error = why, "reconcile failed");
            each.queue.add_after(key.clone(), after);
            true
        }
        Requeue::Keys { keys, again } => {
            for wakeup in keys {
                each.queue.add_after(wakeup.key, wakeup.after);
            }
            again
        }
    };
    if again { each.queue.add_rate_limited(key.clone()) } else { each.queue.forget(key) }
}

/// Requeues a failed key; without an error its reconcile panicked.
fn retry(each: &Loop, key: &String, error: Option<Error>, duration: Duration) {
    let controller = each.controller.name();
    match &error {
        Some(error) if error.is_namespace_terminating() => {
            tracing::debug!(controller, key, ?duration, %error, "reconcile given up: the namespace is terminating");
            return each.queue.forget(key);
        }
        // Expected while the cache lags behind our own writes.
        Some(error @ (Error::Stale { .. } | Error::Outdated(_))) => {
            tracing::debug!(controller, key, ?duration, %error, "reconcile postponed")
        }
        Some(error) => tracing::info!(controller, key, ?duration, %error, "reconcile failed"),
        None => tracing::error!(controller, key, ?duration, "reconcile panicked"),
    }
    if each.queue.requeues(key) < each.controller.max_retries() {
        each.queue.add_rate_limited(key.clone());
    } else {
        tracing::warn!(controller, key, "given up until its next change");
        each.queue.forget(key);
    }
}
