//! Whether a Job has come to its end, and why: the first of upstream's criteria that applies.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::conditions::Verdict;
use super::object::Job;
use super::success_policy;
use super::tally::{Tally, is_failed, judge};
use crate::pod::Phase;

/// The end that the Job has come to, other than by the number of its completions.
pub(super) fn reached(job: &Job, tally: &Tally, now: Timestamp) -> Option<Verdict> {
    Verdict::announced(&job.status.conditions)
        .or_else(|| failed_by_policy(job, tally))
        .or_else(|| failed_by_limit(job, tally, now))
        .or_else(|| failed_by_indexes(job, tally))
        .or_else(|| succeeded_by_policy(job, tally))
}

/// The end by completions: enough pods have succeeded, and none runs.
pub(super) fn completed(job: &Job, succeeded: i32, active: i32) -> Option<Verdict> {
    let enough = job.spec.completions.map_or(succeeded > 0, |completions| succeeded >= completions);
    (enough && active == 0).then(|| Verdict::success("CompletionsReached", "Reached expected number of succeeded pods"))
}

/// How long the Job may still be active; none when nothing limits it now.
pub(super) fn time_left(job: &Job, now: Timestamp) -> Option<Duration> {
    let (seconds, start) = (job.spec.active_deadline_seconds?, job.status.start_time?);
    if job.is_suspended() {
        return None;
    }
    let left = SignedDuration::from_secs(seconds).saturating_sub(now.duration_since(start));
    Some(Duration::try_from(left).unwrap_or(Duration::ZERO))
}

fn failed_by_policy(job: &Job, tally: &Tally) -> Option<Verdict> {
    job.spec.pod_failure_policy.as_ref()?;
    let failed = tally.pods.iter().filter(|pod| is_failed(job, pod));
    let message = failed.filter_map(|pod| judge(job, pod).fail_job).next()?;
    Some(Verdict::failure("PodFailurePolicy", message))
}

fn failed_by_limit(job: &Job, tally: &Tally, now: Timestamp) -> Option<Verdict> {
    if tally.failed > job.backoff_limit() || restarted_too_often(job, tally) {
        return Some(Verdict::failure("BackoffLimitExceeded", "Job has reached the specified backoff limit"));
    }
    let late = time_left(job, now).is_some_and(|left| left.is_zero());
    late.then(|| Verdict::failure("DeadlineExceeded", "Job was active longer than specified deadline"))
}

/// Pods that restart in place fail no pod, so their restarts count instead.
fn restarted_too_often(job: &Job, tally: &Tally) -> bool {
    if job.spec.template.pointer("/spec/restartPolicy").and_then(|policy| policy.as_str()) != Some("OnFailure") {
        return false;
    }
    let running = tally.pods.iter().filter(|pod| matches!(pod.phase, Phase::Running | Phase::Pending));
    let restarts = running.fold(0_i32, |sum, pod| sum.saturating_add(pod.restarts_total));
    // A limit of 0 allows the first start.
    restarts >= job.backoff_limit().max(1)
}

fn failed_by_indexes(job: &Job, tally: &Tally) -> Option<Verdict> {
    let failed = tally.failed_indexes.as_ref()?.total();
    if job.spec.max_failed_indexes.is_some_and(|most| failed > i64::from(most)) {
        let message = "Job has exceeded the specified maximal number of failed indexes";
        return Some(Verdict::failure("MaxFailedIndexesExceeded", message));
    }
    let all_ended = failed.saturating_add(tally.succeeded_indexes.total()) >= job.index_count();
    (failed > 0 && all_ended).then(|| Verdict::failure("FailedIndexes", "Job has failed indexes"))
}

fn succeeded_by_policy(job: &Job, tally: &Tally) -> Option<Verdict> {
    if !job.is_indexed() {
        return None;
    }
    let policy = job.spec.success_policy.as_ref();
    let message = success_policy::matches(policy, job.index_count(), &tally.succeeded_indexes)?;
    Some(Verdict::success("SuccessPolicy", message))
}
