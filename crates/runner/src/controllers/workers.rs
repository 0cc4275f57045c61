//! A worker: takes a key from the queue, reconciles it, logs the result, and requeues the key when it has to be.

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use bayplan_client::{Client, EventRecorder};
use bayplan_controllers::{Context, Error, Requeue};
use bayplan_model::api::Api;
use futures::FutureExt;
use jiff::Timestamp;

use super::Loop;
use super::write_log::{self, LoggedApi};

/// A key rests this many times as long as its reconcile took. An object with thousands of dependents that each change a
/// few times is then reconciled once for many of those changes.
const REST_TIMES: u32 = 4;

/// No key rests longer, so that the delay stays unnoticed.
const REST_MAX: Duration = Duration::from_millis(20);

/// Shorter rests are skipped: timers are coarser.
const REST_MIN: Duration = Duration::from_millis(2);

/// Works until the queue is shut down.
pub(super) async fn work(each: Loop, client: Client, recorder: EventRecorder) {
    while let Some(key) = each.queue.get().await {
        let started = Instant::now();
        // A poison object fails its own reconcile, and never takes the worker down.
        let outcome = AssertUnwindSafe(reconcile(&each, &key, &client, &recorder)).catch_unwind().await;
        let duration = started.elapsed();
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

/// Reconciles a key; its calls are logged while level debug is enabled.
async fn reconcile(each: &Loop, key: &str, client: &Client, recorder: &EventRecorder) -> Result<Requeue, Error> {
    let logged = LoggedApi { api: client, controller: each.controller.name(), key };
    let api: &dyn Api = if write_log::is_enabled() { &logged } else { client };
    each.controller.sync(key, Context { now: Timestamp::now(), api, recorder }).await
}

fn follow(each: &Loop, key: &String, requeue: Requeue) {
    let again = match requeue {
        Requeue::OnChange => false,
        Requeue::After(delay) => {
            each.queue.add_after(key.clone(), delay);
            false
        }
        Requeue::RateLimited => true,
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
        Some(error @ Error::Stale { .. }) => tracing::debug!(controller, key, ?duration, %error, "reconcile postponed"),
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
