//! What one look at a Job's pods tells: who runs, who ended, and which indexes are done.

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_model::keyed::KeyedSet;

use super::backoff::{self, Record, finished_at};
use super::failure_policy::{self, Action, Judgement};
use super::indexes::{Indexes, completion_index, of_pods};
use super::object::{Job, TRACKING_FINALIZER};
use crate::pod::{Phase, Pod};

/// How often the pods of an index failed before this one.
pub(super) const FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-failure-count";
/// How many further failures a rule ignored.
pub(super) const IGNORED_FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

/// The pods of a Job, counted.
#[derive(Debug)]
pub struct Tally {
    /// Its pods.
    pub pods: Vec<Arc<Pod>>,
    /// Those that neither ended nor are being deleted.
    pub active: Vec<Arc<Pod>>,
    /// How many of those are ready.
    pub ready: i32,
    /// How many are being deleted and have not ended.
    pub terminating: i32,
    /// How many succeeded so far.
    pub succeeded: i32,
    /// How many failed so far.
    pub failed: i32,
    /// The indexes that the status says have succeeded.
    pub succeeded_before: Indexes,
    /// The indexes that have succeeded.
    pub succeeded_indexes: Indexes,
    /// The indexes that have failed for good, of a Job that limits the failures of each.
    pub failed_indexes: Option<Indexes>,
    /// The failures since the last success.
    pub backoff: Record,
    /// The last failed pod of each index that waits for its replacement, which inherits its count of failures.
    pub replaceable: BTreeMap<i64, Arc<Pod>>,
    /// Pods whose finalizer is removed, although the cache may not show it yet.
    pub released: KeyedSet<String>,
}

impl Tally {
    /// Counts the pods; `record` is what is known of failures, and `released` names pods without finalizer.
    pub fn new(job: &Job, pods: Vec<Arc<Pod>>, record: &Record, released: KeyedSet<String>) -> Self {
        let active: Vec<Arc<Pod>> = pods.iter().filter(|pod| pod.is_active()).cloned().collect();
        let mut tally = Tally {
            ready: saturate(active.iter().filter(|pod| pod.ready).count()),
            terminating: saturate(pods.iter().filter(|pod| pod.is_terminating()).count()),
            active,
            succeeded: 0,
            failed: 0,
            succeeded_before: Indexes::default(),
            succeeded_indexes: Indexes::default(),
            failed_indexes: None,
            backoff: Record::default(),
            replaceable: BTreeMap::new(),
            released,
            pods,
        };
        tally.count_ended(job, record);
        if job.is_indexed() {
            tally.count_indexes(job);
        }
        tally
    }

    fn count_ended(&mut self, job: &Job, record: &Record) {
        let uncounted = job.status.uncounted_terminated_pods.clone().unwrap_or_default();
        let ended = |counted: &[String], filter: &dyn Fn(&Pod) -> bool| -> Vec<Arc<Pod>> {
            let counted: KeyedSet<&str> = counted.iter().map(String::as_str).collect();
            let new = |pod: &&Arc<Pod>| !counted.contains(pod.metadata.uid.as_str()) && filter(pod);
            self.pods.iter().filter(|pod| self.is_tracked(pod) && has_place(job, pod)).filter(new).cloned().collect()
        };
        let succeeded = ended(&uncounted.succeeded, &|pod| pod.phase == Phase::Succeeded);
        let failed = ended(&uncounted.failed, &|pod| is_failed(job, pod));
        let counting = failed.iter().filter(|pod| judge(job, pod).counts()).count();
        let sum = |status: i32, new: usize, uncounted: &[String]| {
            status.saturating_add(saturate(new)).saturating_add(saturate(uncounted.len()))
        };
        self.succeeded = sum(job.status.succeeded, succeeded.len(), &uncounted.succeeded);
        self.failed = sum(job.status.failed, counting, &uncounted.failed);
        self.backoff = record.with(&succeeded, &failed);
    }

    fn count_indexes(&mut self, job: &Job) {
        let count = job.index_count();
        let ended_now = |filter: &dyn Fn(&Pod) -> bool| {
            let new = self.pods.iter().filter(|pod| has_finalizer(pod) && has_place(job, pod) && filter(pod));
            of_pods(new)
        };
        self.succeeded_before = Indexes::parse(&job.status.completed_indexes, count);
        self.succeeded_indexes = self.succeeded_before.union(&ended_now(&|pod| pod.phase == Phase::Succeeded));
        self.succeeded = i32::try_from(self.succeeded_indexes.total()).unwrap_or(i32::MAX);
        if job.spec.backoff_limit_per_index.is_some() {
            let before = Indexes::parse(job.status.failed_indexes.as_deref().unwrap_or_default(), count);
            let failed = before.union(&ended_now(&|pod| fails_its_index(job, pod)));
            self.replaceable = self.replaceable_pods(job, &failed);
            self.failed_indexes = Some(failed);
        }
    }

    fn replaceable_pods(&self, job: &Job, failed: &Indexes) -> BTreeMap<i64, Arc<Pod>> {
        let active = of_pods(&self.active);
        let mut last: BTreeMap<i64, Arc<Pod>> = BTreeMap::new();
        for pod in self.pods.iter().filter(|pod| self.is_tracked(pod) && has_place(job, pod) && is_failed(job, pod)) {
            let Some(index) = completion_index(pod) else { continue };
            if self.succeeded_indexes.contains(index) || failed.contains(index) || active.contains(index) {
                continue;
            }
            let newer =
                |known: &Arc<Pod>| failures_of(known) <= failures_of(pod) && finished_at(known) <= finished_at(pod);
            if last.get(&index).is_none_or(newer) {
                last.insert(index, pod.clone());
            }
        }
        last
    }

    /// Whether a pod has still to be counted.
    pub(super) fn is_tracked(&self, pod: &Pod) -> bool {
        has_finalizer(pod) && !self.released.contains(&pod.metadata.uid)
    }

    /// The first indexes for which a pod is missing, at most `wanted`.
    pub fn pending_indexes(&self, job: &Job, wanted: usize) -> Vec<i64> {
        let mut taken = self.succeeded_indexes.union(&of_pods(&self.active));
        if job.replaces_only_failed() {
            taken = taken.union(&of_pods(self.pods.iter().filter(|pod| pod.is_terminating())));
        }
        if let Some(failed) = &self.failed_indexes {
            taken = taken.union(failed);
        }
        taken.first_missing(wanted, job.index_count())
    }
}

pub(super) fn saturate(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

pub(super) fn has_finalizer(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().any(|finalizer| finalizer == TRACKING_FINALIZER)
}

/// Whether a pod has an index of the Job, or needs none.
pub(super) fn has_place(job: &Job, pod: &Pod) -> bool {
    !job.is_indexed() || completion_index(pod).is_some_and(|index| index < job.index_count())
}

/// Whether a pod counts as failed. One that is deleted may never come to say so, and counts unless it is waited for.
pub(super) fn is_failed(job: &Job, pod: &Pod) -> bool {
    pod.phase == Phase::Failed || (!job.replaces_only_failed() && pod.is_terminating())
}

/// What the Job's policy says about a failed pod.
pub(super) fn judge(job: &Job, pod: &Pod) -> Judgement {
    failure_policy::judge(job.spec.pod_failure_policy.as_deref(), pod)
}

/// Whether the failure of a pod is the one too many of its index.
fn fails_its_index(job: &Job, pod: &Pod) -> bool {
    if !is_failed(job, pod) {
        return false;
    }
    let judgement = judge(job, pod);
    let limit = job.spec.backoff_limit_per_index.unwrap_or(i32::MAX);
    judgement.action == Some(Action::FailIndex) || (judgement.counts() && counter(pod, FAILURE_COUNT) >= limit)
}

/// A counter in an annotation; 0 for what nobody but a user could have written.
fn counter(pod: &Pod, annotation: &str) -> i32 {
    let text = pod.metadata.annotations.get(annotation);
    text.and_then(|text| text.parse().ok()).filter(|count| *count >= 0).unwrap_or(0)
}

fn failures_of(pod: &Pod) -> i32 {
    counter(pod, FAILURE_COUNT).saturating_add(counter(pod, IGNORED_FAILURE_COUNT))
}

/// The counters of the pod that replaces this one: failures, and ignored ones.
pub(super) fn inherited_failures(job: &Job, replaced: Option<&Arc<Pod>>) -> (i32, i32) {
    let Some(pod) = replaced else { return (0, 0) };
    let (failures, ignored) = (counter(pod, FAILURE_COUNT), counter(pod, IGNORED_FAILURE_COUNT));
    match judge(job, pod).counts() {
        true => (failures.saturating_add(1), ignored),
        false => (failures, ignored.saturating_add(1)),
    }
}

/// How long an index waits for its next pod after the failure of this one.
pub(super) fn index_wait(replaced: Option<&Arc<Pod>>, now: jiff::Timestamp) -> std::time::Duration {
    let Some(pod) = replaced else { return std::time::Duration::ZERO };
    backoff::remaining(failures_of(pod).saturating_add(1), finished_at(pod), now)
}
