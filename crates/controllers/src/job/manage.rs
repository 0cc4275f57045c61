//! Creates missing pods and deletes surplus ones; upstream's `manageJob`.

use std::sync::Arc;
use std::time::Duration;

use bayplan_model::api::ObjectReference;
use bayplan_model::status::Status;
use futures::future::join_all;

use super::object::Job;
use super::pods::PodMaker;
use super::tally::{Tally, has_finalizer, index_wait, saturate};
use super::{BATCH_PERIOD, JobController, PODS_PER_SYNC_MAX, release, surplus};
use crate::controller::{Context, lock};
use crate::error::{Error, namespace_terminating, not_found};
use crate::pod::Pod;
use crate::pod_control::{create_pod, delete_pod};
use crate::slow_start::slow_start;

/// What managing the pods led to.
#[derive(Debug)]
pub(super) struct Managed {
    /// The number of active pods afterwards.
    pub(super) active: i32,
    /// How long pods that failed before hold up the next ones.
    pub(super) wait: Option<Duration>,
    pub(super) outcome: Result<(), Error>,
}

impl JobController {
    /// Brings the number of active pods to what the Job asks for; deletes or creates, never both.
    pub(super) async fn manage(&self, key: &str, job: &Job, tally: &mut Tally, context: Context<'_>) -> Managed {
        let active = saturate(tally.active.len());
        if job.is_suspended() {
            let pods = surplus::to_delete(job, &tally.active, tally.active.len());
            return self.delete(key, job, tally, pods, context).await;
        }
        let wanted = wanted_active(job, tally.succeeded, active);
        let at_least = usize::try_from(active.saturating_sub(wanted)).unwrap_or(0);
        let mut pods = surplus::to_delete(job, &tally.active, at_least);
        pods.truncate(PODS_PER_SYNC_MAX);
        if !pods.is_empty() {
            return self.delete(key, job, tally, pods, context).await;
        }
        let waited_for = if job.replaces_only_failed() { tally.terminating } else { 0 };
        let missing = usize::try_from(wanted.saturating_sub(waited_for).saturating_sub(active)).unwrap_or(0);
        self.create(key, job, tally, missing.min(PODS_PER_SYNC_MAX), context).await
    }

    async fn create(&self, key: &str, job: &Job, tally: &Tally, missing: usize, context: Context<'_>) -> Managed {
        let active = saturate(tally.active.len());
        let idle = |wait: Option<Duration>| Managed { active, wait, outcome: Ok(()) };
        if missing == 0 {
            return idle(None);
        }
        let per_index = job.spec.backoff_limit_per_index.is_some();
        let wait = if per_index { Duration::ZERO } else { tally.backoff.remaining(context.now) };
        if !wait.is_zero() {
            return idle(Some(wait.max(BATCH_PERIOD)));
        }
        let indexes = job.is_indexed().then(|| tally.pending_indexes(job, missing));
        let indexes = match indexes {
            Some(indexes) if per_index => match ready_indexes(&indexes, tally, context) {
                Ok(ready) => Some(ready),
                Err(wait) => return idle(Some(wait.max(BATCH_PERIOD))),
            },
            indexes => indexes,
        };
        let count = indexes.as_ref().map_or(missing, Vec::len);
        let (created, outcome) = self.create_pods(key, job, tally, count, indexes.as_deref(), context).await;
        Managed { active: active.saturating_add(saturate(created)), wait: None, outcome }
    }

    async fn create_pods(
        &self,
        key: &str,
        job: &Job,
        tally: &Tally,
        count: usize,
        indexes: Option<&[i64]>,
        context: Context<'_>,
    ) -> (usize, Result<(), Error>) {
        let maker = match PodMaker::new(job) {
            Ok(maker) => maker,
            Err(error) => return (0, Err(error)),
        };
        lock(&self.expectations).expect_creations(key, count, context.now);
        let regarding = super::reference(job);
        let (successes, outcome) = slow_start(count, 1, |next| {
            let body = match indexes.and_then(|indexes| indexes.get(next)) {
                Some(index) => maker.of_index(*index, tally.replaceable.get(index)),
                None => maker.plain(),
            };
            let regarding = &regarding;
            async move {
                match create_pod(context, &job.metadata.namespace, body, regarding).await {
                    Ok(pod) => lock(&self.consistency).wrote_pod(key, &job.metadata.uid, &pod.resource_version),
                    // Counted as done: the namespace is deleted with the Job, so a retry is pointless.
                    Err(status) if namespace_terminating(&status) => {}
                    Err(status) => return Err(Error::Api(status)),
                }
                Ok(())
            }
        })
        .await;
        let mut expectations = lock(&self.expectations);
        for _ in successes..count {
            expectations.creation_observed(key);
        }
        (successes, outcome)
    }

    /// Deletes pods that are not to be counted: their finalizer goes first.
    async fn delete(
        &self,
        key: &str,
        job: &Job,
        tally: &mut Tally,
        pods: Vec<Arc<Pod>>,
        context: Context<'_>,
    ) -> Managed {
        lock(&self.expectations).expect_deletions(key, pods.iter().map(|pod| pod.metadata.key()), context.now);
        let regarding = super::reference(job);
        let answers = join_all(pods.iter().map(|pod| self.delete_uncounted(key, job, pod, &regarding, context))).await;
        let mut managed = Managed { active: saturate(tally.active.len()), wait: None, outcome: Ok(()) };
        for (pod, answer) in pods.iter().zip(answers) {
            // Like upstream, a ready pod that could not be deleted no longer counts as ready, unless its finalizer
            // could not be removed either.
            let (asked, answer) = answer;
            tally.ready -= i32::from(asked && pod.ready);
            match answer {
                Ok(()) => {
                    managed.active -= 1;
                    tally.terminating = tally.terminating.saturating_add(1);
                }
                Err(status) if managed.outcome.is_ok() => managed.outcome = Err(Error::Api(status)),
                Err(_) => {}
            }
        }
        managed
    }

    /// Removes a pod's finalizer and deletes it; answers whether the deletion was asked for, and what came of it all.
    async fn delete_uncounted(
        &self,
        key: &str,
        job: &Job,
        pod: &Pod,
        regarding: &ObjectReference,
        context: Context<'_>,
    ) -> (bool, Result<(), Status>) {
        let unseen = || lock(&self.expectations).deletion_observed(key, &pod.metadata.key());
        if has_finalizer(pod) {
            // A pod that has ended since it was looked at is counted, and not deleted without a trace.
            match release::remove_finalizer(context.api, &pod.metadata, release::IfUnchanged::Yes).await {
                Ok(written) => lock(&self.consistency).wrote_pod(key, &job.metadata.uid, &written.resource_version),
                Err(status) => {
                    unseen();
                    return (false, if not_found(&status) { Ok(()) } else { Err(status) });
                }
            }
        }
        match delete_pod(context, &pod.metadata, regarding).await {
            Ok(()) => (true, Ok(())),
            Err(status) => {
                unseen();
                (true, if not_found(&status) { Ok(()) } else { Err(status) })
            }
        }
    }
}

/// How many pods should be active.
fn wanted_active(job: &Job, succeeded: i32, active: i32) -> i32 {
    match job.spec.completions {
        // One success ends the Job: what runs may end, and nothing is started any more.
        None if succeeded > 0 => active,
        None => job.parallelism(),
        Some(completions) => completions.saturating_sub(succeeded).min(job.parallelism()).max(0),
    }
}

/// Those of the indexes that need not wait, or how long the first of them waits.
fn ready_indexes(indexes: &[i64], tally: &Tally, context: Context<'_>) -> Result<Vec<i64>, Duration> {
    let wait = |index: &i64| index_wait(tally.replaceable.get(index), context.now);
    let ready: Vec<i64> = indexes.iter().copied().filter(|index| wait(index).is_zero()).collect();
    match indexes.iter().map(wait).min() {
        Some(wait) if ready.is_empty() => Err(wait),
        _ => Ok(ready),
    }
}
