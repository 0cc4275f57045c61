//! A worker: takes a key, reconciles it, and puts it back when it is not done yet.

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use bayplan_client::{Client, EventRecorder};
use bayplan_controllers::{Context, Error, Next};
use futures::FutureExt;
use jiff::Timestamp;

use super::Loop;

/// A key rests this many times as long as it took, so that one object with thousands of dependents, each of which changes
/// a few times, is not looked at for each of those changes by itself.
const REST_TIMES: u32 = 4;

/// No key rests longer: nobody notices.
const REST_MAX: Duration = Duration::from_millis(20);

/// A shorter rest is none: timers are coarser.
const REST_MIN: Duration = Duration::from_millis(2);

/// Works until the queue is shut down.
pub(super) async fn work(each: Loop, client: Client, recorder: EventRecorder) {
    while let Some(key) = each.queue.get().await {
        let begun = Instant::now();
        let context = Context { now: Timestamp::now(), api: &client, recorder: &recorder };
        // A poison object fails its own reconcile, and never takes the worker down.
        let outcome = AssertUnwindSafe(each.controller.sync(&key, context)).catch_unwind().await;
        match outcome {
            Ok(Ok(next)) => follow(&each, &key, next),
            Ok(Err(error)) => retry(&each, &key, Some(error)),
            Err(_) => retry(&each, &key, None),
        }
        match (begun.elapsed() * REST_TIMES).min(REST_MAX) {
            rest if rest < REST_MIN => each.queue.done(&key),
            rest => each.queue.done_resting(key, rest),
        }
    }
}

fn follow(each: &Loop, key: &String, next: Next) {
    let again = match next {
        Next::Wait => false,
        Next::After(delay) => {
            each.queue.add_after(key.clone(), delay);
            false
        }
        Next::RateLimited => true,
        Next::Wake { keys, again } => {
            for wakeup in keys {
                each.queue.add_after(wakeup.key, wakeup.after);
            }
            again
        }
    };
    if again { each.queue.add_rate_limited(key.clone()) } else { each.queue.forget(key) }
}

/// Puts a failed key back; without an error it panicked.
fn retry(each: &Loop, key: &String, error: Option<Error>) {
    let controller = each.controller.name();
    if error.as_ref().is_some_and(Error::is_namespace_terminating) {
        return each.queue.forget(key);
    }
    match &error {
        Some(Error::Stale { .. }) => tracing::debug!(controller, key, "the cache is behind"),
        Some(error) => tracing::info!(controller, key, "reconcile failed: {error}"),
        None => tracing::error!(controller, key, "reconcile panicked"),
    }
    if each.queue.requeues(key) < each.controller.max_retries() {
        each.queue.add_rate_limited(key.clone());
    } else {
        tracing::warn!(controller, key, "given up until its next change");
        each.queue.forget(key);
    }
}
