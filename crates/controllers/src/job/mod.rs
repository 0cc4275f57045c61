//! Jobs: pods that run to their end, counted exactly once each.
//!
//! ```text
//!   pods ─▶ tally ─▶ verdict ─▶ manage (create, delete) ─▶ release: uncounted ─▶ finalizer ─▶ counted ─▶ finished
//! ```

pub mod backoff;
mod conditions;
pub mod failure_policy;
pub mod indexes;
mod manage;
mod memory;
mod object;
mod observe;
mod orphans;
mod pods;
mod release;
pub mod success_policy;
pub mod surplus;
pub mod tally;
#[cfg(test)]
mod tests;
mod verdict;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bayplan_model::api::ObjectReference;
use bayplan_model::keyed::KeyedSet;
use bayplan_model::work_queue::RetryLimits;
use futures::future::{BoxFuture, join_all};

use crate::cache::{AnyDelta, Cache, ControllerKey, Kind};
use crate::claim::Claimant;
use crate::consistency::{Consistency, is_older};
use crate::controller::{Context, Controller, Requeue, Wakeup, lock, split_key};
use crate::error::{Error, not_found};
use crate::expectations::Expectations;
use crate::pod::Pod;
use crate::pod_control::delete_pod;
use crate::requests::{JOBS, PODS};
use crate::workload::{Selector, event_reference};
pub use conditions::Condition;
pub(crate) use conditions::{COMPLETE, FAILED};
use conditions::{SUSPENDED, Verdict};
use manage::Managed;
use memory::Memory;
pub use object::{
    BATCH_V1, Job, JobSpec, JobStatus, OnExitCodes, OnPodCondition, PodFailurePolicy, PodFailureRule, SuccessPolicy,
    SuccessRule, TRACKING_FINALIZER, Uncounted,
};
pub use release::UNCOUNTED_MAX;
use tally::{Tally, has_finalizer, saturate};

/// Changes of pods and status within this time are one reconcile.
pub const BATCH_PERIOD: Duration = Duration::from_secs(1);

/// At most this many pods are created or deleted in one reconcile, so that one Job cannot keep a worker and the API
/// server busy while the others wait.
pub const PODS_PER_SYNC_MAX: usize = 500;

/// The Job controller.
pub struct JobController {
    cache: Arc<Cache>,
    expectations: Mutex<Expectations>,
    consistency: Mutex<Consistency>,
    memory: Mutex<Memory>,
}

/// What a key of the work queue asks for. Names have no spaces, so the keys differ.
enum Work<'a> {
    Reconcile,
    FreePod { namespace: &'a str, name: &'a str },
    FreeSelected { namespace: &'a str, selector: &'a str },
}

const FREE_POD: &str = "orphan ";
const FREE_SELECTED: &str = "orphans ";

impl<'a> Work<'a> {
    fn of(key: &'a str) -> Self {
        if let Some(pod) = key.strip_prefix(FREE_POD) {
            let (namespace, name) = split_key(pod);
            return Work::FreePod { namespace, name };
        }
        match key.strip_prefix(FREE_SELECTED).and_then(|rest| rest.split_once('/')) {
            Some((namespace, selector)) => Work::FreeSelected { namespace, selector },
            None => Work::Reconcile,
        }
    }

    fn key(&self) -> String {
        match self {
            Work::Reconcile => String::new(),
            Work::FreePod { namespace, name } => format!("{FREE_POD}{namespace}/{name}"),
            Work::FreeSelected { namespace, selector } => format!("{FREE_SELECTED}{namespace}/{selector}"),
        }
    }
}

/// The reference by which events name a Job.
fn reference(job: &Job) -> ObjectReference {
    event_reference(BATCH_V1, "Job", &job.metadata)
}

/// What one reconcile decided about the pods, before it is written.
struct Decided {
    verdict: Option<Verdict>,
    active: i32,
    suspension_changed: bool,
    wait: Option<Duration>,
    outcome: Result<(), Error>,
}

impl JobController {
    /// A controller over this cache.
    pub fn new(cache: Arc<Cache>) -> Self {
        JobController { cache, expectations: Mutex::default(), consistency: Mutex::default(), memory: Mutex::default() }
    }

    /// Reconciles one Job; upstream's `syncJob`.
    async fn reconcile(&self, key: &str, context: Context<'_>) -> Result<Requeue, Error> {
        self.check_consistency(key)?;
        let (namespace, name) = split_key(key);
        let Some(cached) = self.cache.jobs().get(namespace, name) else {
            lock(&self.consistency).forget(key, None);
            lock(&self.expectations).forget(key);
            lock(&self.memory).forget(key, None);
            return Ok(Requeue::OnChange);
        };
        if cached.is_managed_elsewhere() {
            return Ok(Requeue::OnChange);
        }
        let uid = &cached.metadata.uid;
        if cached.is_finished() {
            lock(&self.consistency).forget(key, Some(uid));
            let mut memory = lock(&self.memory);
            let remembered = memory.entry(key, uid);
            (remembered.backoff, remembered.finished) = Default::default();
            return Ok(Requeue::OnChange);
        }
        if lock(&self.memory).entry(key, uid).finished {
            return Ok(Requeue::OnChange);
        }
        if cached.has_unknown_mode() {
            let note = "Skipped Job sync because completion mode is unknown";
            context.warning(reference(&cached), "UnknownCompletionMode", note.into());
            return Ok(Requeue::OnChange);
        }
        self.reconcile_active(key, (*cached).clone(), context).await
    }

    async fn reconcile_active(&self, key: &str, mut job: Job, context: Context<'_>) -> Result<Requeue, Error> {
        // Asked before the pods are read: a pod that is seen in between is waited for, and not created twice.
        let satisfied = lock(&self.expectations).satisfied(key, context.now);
        let pods = self.pods(key, &job, context).await?;
        job.status.uncounted_terminated_pods.get_or_insert_default();
        if job.status.start_time.is_none() && !job.is_suspended() {
            job.status.start_time = Some(context.second());
        }
        let mut tally = self.tally(key, &job, pods, context).await?;
        let left = verdict::time_left(&job, context.now);
        let decided = self.decide(key, &mut job, &mut tally, satisfied, context).await;
        let status = &mut job.status;
        let changed = decided.suspension_changed
            || (status.active, status.ready, status.terminating)
                != (decided.active, Some(tally.ready), Some(tally.terminating));
        status.active = decided.active;
        status.ready = Some(tally.ready);
        status.terminating = Some(tally.terminating);
        // The deadline is waited for as long as nothing else has ended the Job.
        let left = left.filter(|left| !left.is_zero());
        let wait = decided.wait.into_iter().chain(left).min();
        let tracked = self.track(key, job, &mut tally, decided.verdict, changed, context).await;
        match (tracked.and(decided.outcome), wait) {
            (Ok(()), Some(wait)) => Ok(Requeue::After(wait)),
            (Ok(()), None) => Ok(Requeue::OnChange),
            (Err(error), Some(after)) => Ok(Requeue::Failed { why: error.to_string(), after }),
            (Err(error), None) => Err(error),
        }
    }

    /// Finds out where the Job stands, and creates or deletes pods.
    async fn decide(
        &self,
        key: &str,
        job: &mut Job,
        tally: &mut Tally,
        satisfied: bool,
        context: Context<'_>,
    ) -> Decided {
        let active = saturate(tally.active.len());
        let mut decided = Decided { verdict: None, active, suspension_changed: false, wait: None, outcome: Ok(()) };
        if let Some(verdict) = verdict::reached(job, tally, context.now) {
            let deleted = self.delete_active(job, tally, context).await;
            // While a pod could not be deleted, or one may be unknown still, the Job cannot be said to have ended.
            decided.verdict = (deleted.0 == active && satisfied).then_some(verdict);
            decided.active -= deleted.0;
            decided.outcome = deleted.1;
            return decided;
        }
        let manages = satisfied && job.metadata.deletion_timestamp.is_none();
        if manages {
            let Managed { active, wait, outcome } = self.manage(key, job, tally, context).await;
            (decided.active, decided.wait, decided.outcome) = (active, wait, outcome);
        }
        decided.verdict = verdict::completed(job, tally.succeeded, decided.active);
        if decided.verdict.is_none() && manages {
            decided.suspension_changed = tell_suspension(job, context);
        }
        decided
    }

    /// Deletes all active pods; their finalizers stay until they are counted. Returns how many are going.
    async fn delete_active(&self, job: &Job, tally: &mut Tally, context: Context<'_>) -> (i32, Result<(), Error>) {
        let regarding = reference(job);
        let deletions = tally.active.iter().map(|pod| delete_pod(context, &pod.metadata, &regarding));
        let answers = join_all(deletions).await;
        let refused: Vec<_> = answers.into_iter().filter_map(Result::err).filter(|status| !not_found(status)).collect();
        let deleted = saturate(tally.active.len()).saturating_sub(saturate(refused.len()));
        tally.terminating = tally.terminating.saturating_add(deleted);
        // Like upstream, whether a ready pod could be deleted is not asked here.
        tally.ready -= saturate(tally.active.iter().filter(|pod| pod.ready).count());
        (deleted, refused.into_iter().next().map_or(Ok(()), |status| Err(Error::Api(status))))
    }

    fn check_consistency(&self, key: &str) -> Result<(), Error> {
        let pods = self.cache.pods().version().to_owned();
        let jobs = self.cache.jobs().version().to_owned();
        lock(&self.consistency).check(key, &pods, &jobs).map_err(|(read, written, is_pod)| Error::Stale {
            read,
            written,
            resource: if is_pod { "pods" } else { "jobs.batch" },
        })
    }

    /// Counts the pods. Where others have written the Job since the pods were seen, they may have counted pods which
    /// seem to be uncounted here: then the server itself is asked.
    async fn tally(&self, key: &str, job: &Job, pods: Vec<Arc<Pod>>, context: Context<'_>) -> Result<Tally, Error> {
        let (record, releasing, foreign) = {
            let mut memory = lock(&self.memory);
            let remembered = memory.entry(key, &job.metadata.uid);
            if remembered.written != job.metadata.resource_version {
                remembered.foreign.clone_from(&job.metadata.resource_version);
            }
            (remembered.backoff.clone(), remembered.releasing.clone(), remembered.foreign.clone())
        };
        let tally = Tally::new(job, pods, &record, releasing);
        let seen = self.cache.pods().version().to_owned();
        if !is_older(&seen, &foreign) || !counts_anything(job, &tally, context) {
            return Ok(tally);
        }
        let selector = job.spec.selector.as_ref().and_then(Selector::compiled).map(ToString::to_string);
        let held = release::held_pods(context.api, &job.metadata.namespace, selector.unwrap_or_default()).await?;
        let known: KeyedSet<&str> = tally.pods.iter().map(|pod| pod.metadata.uid.as_str()).collect();
        if held.iter().any(|uid| !known.contains(uid.as_str())) {
            return Err(Error::Stale { read: seen, written: foreign, resource: "pods" });
        }
        let gone = tally.pods.iter().map(|pod| &pod.metadata.uid).filter(|uid| !held.contains(*uid));
        let released: KeyedSet<String> = tally.released.iter().chain(gone).cloned().collect();
        Ok(Tally::new(job, tally.pods, &record, released))
    }

    /// The pods that belong to the Job, after adoption and release.
    async fn pods(&self, key: &str, job: &Job, context: Context<'_>) -> Result<Vec<Arc<Pod>>, Error> {
        let Some(selector) = &job.spec.selector else { return Ok(Vec::new()) };
        if let Some(error) = selector.error() {
            return Err(Error::Invalid(format!("couldn't convert Job selector: {error}")));
        }
        let (mut own, others) = {
            let pods = self.cache.pods();
            let owner = ControllerKey::of("Job", &job.metadata);
            let selected = |pod: &&Arc<Pod>| selector.matches(&pod.metadata.labels);
            let (own, mut others): (Vec<_>, Vec<_>) =
                pods.controlled_by(&owner).cloned().partition(|pod| selected(&pod));
            others.extend(pods.orphans(&job.metadata.namespace).filter(selected).cloned());
            (own, others)
        };
        let claimant = Claimant {
            kind: "Job",
            api_version: BATCH_V1,
            resource: JOBS,
            meta: &job.metadata,
            selector,
            object_kind: "Pod",
            object_resource: PODS,
        };
        let claims = claimant.claim_with_finalizer(context.api, others, Some(TRACKING_FINALIZER)).await;
        let mut consistency = lock(&self.consistency);
        for pod in claims.written.iter().filter(|pod| pod.controller().is_some_and(|o| o.uid == job.metadata.uid)) {
            consistency.wrote_pod(key, &job.metadata.uid, &pod.resource_version);
        }
        drop(consistency);
        Error::collect(claims.errors)?;
        if !claims.claimed.is_empty() {
            own.extend(claims.claimed.into_iter().map(with_finalizer));
            own.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        }
        Ok(own)
    }
}

/// A pod as its adoption left it.
fn with_finalizer(pod: Arc<Pod>) -> Arc<Pod> {
    if has_finalizer(&pod) {
        return pod;
    }
    let mut adopted = (*pod).clone();
    adopted.metadata.finalizers.push(TRACKING_FINALIZER.into());
    Arc::new(adopted)
}

/// Whether this reconcile would put a pod into the counters.
fn counts_anything(job: &Job, tally: &Tally, context: Context<'_>) -> bool {
    let uncounted = job.status.uncounted_terminated_pods.as_ref();
    let ended = |pod: &&Arc<Pod>| !pod.is_active() && tally.is_tracked(pod);
    uncounted.is_some_and(|uncounted| !uncounted.succeeded.is_empty() || !uncounted.failed.is_empty())
        || tally.pods.iter().find(ended).is_some()
        || (!tally.pods.is_empty() && verdict::reached(job, tally, context.now).is_some())
}

/// Brings the condition that says whether the Job is suspended up to date; answers whether it changed.
fn tell_suspension(job: &mut Job, context: Context<'_>) -> bool {
    let second = context.second();
    let (condition, reason, start) = match job.is_suspended() {
        true => (Condition::new(SUSPENDED, "True", "JobSuspended", "Job suspended", second), "Suspended", None),
        false => (Condition::new(SUSPENDED, "False", "JobResumed", "Job resumed", second), "Resumed", Some(second)),
    };
    let note = condition.message.clone();
    let changed = conditions::set(&mut job.status.conditions, condition);
    if changed {
        job.status.start_time = start;
        context.normal(reference(job), reason, note);
    }
    changed
}

impl Controller for JobController {
    fn name(&self) -> &'static str {
        "job-controller"
    }

    fn watches(&self) -> &'static [Kind] {
        &[Kind::Job, Kind::Pod]
    }

    fn retry_limits(&self) -> RetryLimits {
        let delay_max = Duration::from_secs(60);
        // Each key is slowed down by itself; there is no bucket for all of them.
        RetryLimits { delay_min: BATCH_PERIOD, delay_max, retries_per_second: f64::MAX, burst: u32::MAX }
    }

    fn observe(&self, delta: &AnyDelta) -> Vec<Wakeup> {
        match delta {
            AnyDelta::Job(delta) => self.observe_job(delta),
            AnyDelta::Pod(delta) => self.observe_pod(delta),
            _ => Vec::new(),
        }
    }

    fn sync<'a>(&'a self, key: &'a str, context: Context<'a>) -> BoxFuture<'a, Result<Requeue, Error>> {
        Box::pin(async move {
            match Work::of(key) {
                Work::Reconcile => self.reconcile(key, context).await,
                Work::FreePod { namespace, name } => self.free_pod(namespace, name, context).await,
                Work::FreeSelected { namespace, selector } => self.free_selected(namespace, selector, context).await,
            }
        })
    }
}
