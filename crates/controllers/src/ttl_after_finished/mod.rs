//! Deletes finished Jobs when the time is up that they may stay.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bayplan_model::api::{DeleteOptions, Preconditions};
use bayplan_model::delta::Delta;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};

use crate::cache::{AnyDelta, Cache, Kind};
use crate::controller::{Context, Controller, Requeue, Wakeup, split_key};
use crate::error::{Error, not_found};
use crate::job::Job;
use crate::requests::{self, JOBS};

/// The controller of `spec.ttlSecondsAfterFinished`.
pub struct TtlAfterFinishedController {
    cache: Arc<Cache>,
}

impl TtlAfterFinishedController {
    /// A controller over this cache.
    pub fn new(cache: Arc<Cache>) -> Self {
        TtlAfterFinishedController { cache }
    }

    async fn reconcile(&self, key: &str, context: Context<'_>) -> Result<Requeue, Error> {
        let (namespace, name) = split_key(key);
        let Some(job) = self.cache.jobs().get(namespace, name) else { return Ok(Requeue::OnChange) };
        match time_left(&job, context.now)? {
            None => return Ok(Requeue::OnChange),
            Some(left) if !left.is_zero() => return Ok(Requeue::After(left)),
            Some(_) => {}
        }
        // The time may have been changed a moment ago; nothing is deleted on old news.
        let live: Result<Job, _> = requests::get(context.api, &JOBS, namespace, name).await;
        let live = match live {
            Err(status) if not_found(&status) => return Ok(Requeue::OnChange),
            live => live?,
        };
        match time_left(&live, context.now)? {
            None => return Ok(Requeue::OnChange),
            Some(left) if !left.is_zero() => return Ok(Requeue::After(left)),
            Some(_) => {}
        }
        let options = DeleteOptions {
            propagation_policy: Some("Foreground".into()),
            preconditions: Some(Preconditions { uid: Some(live.metadata.uid.clone()), ..Preconditions::default() }),
            ..DeleteOptions::default()
        };
        requests::delete(context.api, &JOBS, &live.metadata, options).await?;
        Ok(Requeue::OnChange)
    }
}

fn is_limited(job: &Job) -> bool {
    job.metadata.deletion_timestamp.is_none() && job.spec.ttl_seconds_after_finished.is_some() && job.is_finished()
}

/// How long a finished Job may still stay; none when nothing limits it.
fn time_left(job: &Job, now: Timestamp) -> Result<Option<Duration>, Error> {
    let finished = job.finished_condition().filter(|_| is_limited(job));
    let (Some(finished), Some(ttl)) = (finished, job.spec.ttl_seconds_after_finished) else { return Ok(None) };
    let Some(at) = finished.last_transition_time else {
        let key = job.metadata.key();
        return Err(Error::Invalid(format!("unable to find the time when the Job {key} finished")));
    };
    let left = SignedDuration::from_secs(i64::from(ttl)).saturating_sub(now.duration_since(at));
    Ok(Some(Duration::try_from(left).unwrap_or(Duration::ZERO)))
}

impl Controller for TtlAfterFinishedController {
    fn name(&self) -> &'static str {
        "ttl-after-finished-controller"
    }

    fn watches(&self) -> &'static [Kind] {
        &[Kind::Job]
    }

    fn observe(&self, delta: &AnyDelta) -> Vec<Wakeup> {
        match delta {
            AnyDelta::Job(Delta::Added(job) | Delta::Updated { new: job, .. }) if is_limited(job) => {
                vec![Wakeup::now(job.metadata.key())]
            }
            _ => Vec::new(),
        }
    }

    fn sync<'a>(&'a self, key: &'a str, context: Context<'a>) -> BoxFuture<'a, Result<Requeue, Error>> {
        Box::pin(self.reconcile(key, context))
    }
}
