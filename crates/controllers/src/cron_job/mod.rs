//! CronJobs: Jobs that start when a schedule says so.
//!
//! ```text
//!   jobs ─▶ history (delete old ones) ─▶ active (who finished, who is missing) ─▶ due ─▶ start ─▶ status
//! ```

pub mod due;
mod object;
mod start;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use bayplan_model::api::{DeleteOptions, ObjectReference};
use bayplan_model::cron::{Schedule, Zone};
use bayplan_model::delta::Delta;
use bayplan_model::keyed::KeyedSet;
use bayplan_model::meta::{ObjectMeta, OwnerReference, PartialObjectMetadata};
use futures::future::BoxFuture;

use crate::cache::{AnyDelta, Cache, Kind};
use crate::controller::{Context, Controller, Requeue, Wakeup, split_key};
use crate::error::{Error, not_found};
use crate::job::{BATCH_V1, COMPLETE, FAILED, Job};
use crate::requests::{self, CRON_JOBS, JOBS};
use crate::workload::event_reference;
pub use object::{CronJob, CronJobSpec, CronJobStatus};
pub use start::{due_start, job, job_name};

/// Asks for a CronJob to be looked at when it is next due, after its schedule changed. Names have no spaces.
const RESCHEDULE: &str = "reschedule ";

/// The CronJob controller.
pub struct CronJobController {
    cache: Arc<Cache>,
}

/// When a CronJob is looked at again.
enum Next {
    OnChange,
    After(Duration),
}

fn reference(cron_job: &CronJob) -> ObjectReference {
    event_reference(BATCH_V1, "CronJob", &cron_job.metadata)
}

/// A text as Go's `%q` writes it.
fn quoted(text: &str) -> String {
    bayplan_model::quoted::Quoted(text).to_string()
}

impl CronJobController {
    /// A controller over this cache.
    pub fn new(cache: Arc<Cache>) -> Self {
        CronJobController { cache }
    }

    async fn reconcile(&self, key: &str, context: Context<'_>) -> Result<Requeue, Error> {
        let (namespace, name) = split_key(key);
        let Some(cron_job) = self.cache.cron_jobs().get(namespace, name) else { return Ok(Requeue::OnChange) };
        let jobs = self.jobs_of(&cron_job);
        let mut cron_job = (*cron_job).clone();
        let mut changed = self.clean_history(&mut cron_job, &jobs, context).await;
        let outcome = self.advance(&mut cron_job, &jobs, &mut changed, context).await;
        if changed {
            let _: CronJob = requests::update_status(context.api, &CRON_JOBS, &cron_job.metadata, &cron_job).await?;
        }
        Ok(match outcome? {
            Next::OnChange => Requeue::OnChange,
            Next::After(wait) => Requeue::After(wait),
        })
    }

    /// All Jobs of the namespace whose controller has this name; like upstream, kind and UID are not asked.
    fn jobs_of(&self, cron_job: &CronJob) -> Vec<Arc<Job>> {
        let named =
            |job: &&Arc<Job>| job.metadata.controller().is_some_and(|owner| owner.name == cron_job.metadata.name);
        self.cache.jobs().namespace(&cron_job.metadata.namespace).filter(named).cloned().collect()
    }

    /// Follows the active Jobs, and starts the next.
    async fn advance(
        &self,
        cron_job: &mut CronJob,
        jobs: &[Arc<Job>],
        changed: &mut bool,
        context: Context<'_>,
    ) -> Result<Next, Error> {
        for job in jobs {
            self.follow(cron_job, job, changed, context).await?;
        }
        self.drop_missing(cron_job, jobs, changed, context).await?;
        if cron_job.metadata.deletion_timestamp.is_some() {
            return Ok(Next::OnChange);
        }
        if let Some(zone) = &cron_job.spec.time_zone
            && let Err(error) = Zone::load(zone)
        {
            let note = format!("invalid timeZone: {}: {error}", quoted(zone));
            context.warning(reference(cron_job), "UnknownTimeZone", note);
            return Ok(Next::OnChange);
        }
        if cron_job.spec.suspend == Some(true) {
            return Ok(Next::OnChange);
        }
        self.start(cron_job, changed, context).await
    }

    /// Takes note of how one of its Jobs is.
    async fn follow(
        &self,
        cron_job: &mut CronJob,
        job: &Job,
        changed: &mut bool,
        context: Context<'_>,
    ) -> Result<(), Error> {
        let (uid, name) = (&job.metadata.uid, &job.metadata.name);
        let active = cron_job.has_active(uid);
        let Some(finished) = job.finished_condition() else {
            if !active {
                let (namespace, name) = (&cron_job.metadata.namespace, &cron_job.metadata.name);
                let live: CronJob = requests::get(context.api, &CRON_JOBS, namespace, name).await?;
                if live.has_active(uid) {
                    *cron_job = live;
                    return Ok(());
                }
                let name = &job.metadata.name;
                let note = format!("Saw a job that the controller did not create or forgot: {name}");
                context.warning(reference(cron_job), "UnexpectedJob", note);
            }
            return Ok(());
        };
        if active {
            cron_job.forget_active(uid);
            let note = format!("Saw completed job: {name}, condition: {}", finished.condition_type);
            context.normal(reference(cron_job), "SawCompletedJob", note);
            *changed = true;
        }
        let (last, ended) = (cron_job.status.last_successful_time, job.status.completion_time);
        if finished.condition_type == COMPLETE && (last.is_none() || ended > last) {
            cron_job.status.last_successful_time = ended;
            *changed = true;
        }
        Ok(())
    }

    /// Forgets active Jobs that are gone: a live read says so, because the cache may lag.
    async fn drop_missing(
        &self,
        cron_job: &mut CronJob,
        jobs: &[Arc<Job>],
        changed: &mut bool,
        context: Context<'_>,
    ) -> Result<(), Error> {
        let known: KeyedSet<&str> = jobs.iter().map(|job| job.metadata.uid.as_str()).collect();
        for active in cron_job.status.active.clone() {
            if known.contains(active.uid.as_str()) {
                continue;
            }
            let live: Result<PartialObjectMetadata, _> =
                requests::get(context.api, &JOBS, &active.namespace, &active.name).await;
            match live {
                Ok(_) => {}
                Err(status) if not_found(&status) => {
                    let note = format!("Active job went missing: {}", active.name);
                    context.normal(reference(cron_job), "MissingJob", note);
                    cron_job.forget_active(&active.uid);
                    *changed = true;
                }
                Err(status) => return Err(Error::Api(status)),
            }
        }
        Ok(())
    }

    /// Deletes the oldest finished Jobs beyond the limits; answers whether the status changed.
    async fn clean_history(&self, cron_job: &mut CronJob, jobs: &[Arc<Job>], context: Context<'_>) -> bool {
        let spec = &cron_job.spec;
        let limits = [(COMPLETE, spec.successful_jobs_history_limit), (FAILED, spec.failed_jobs_history_limit)];
        let mut changed = false;
        for (end, limit) in limits {
            let Some(limit) = limit else { continue };
            let ended = |job: &&Arc<Job>| job.finished_condition().is_some_and(|c| c.condition_type == end);
            let mut ended: Vec<&Arc<Job>> = jobs.iter().filter(ended).collect();
            let surplus = ended.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
            if surplus == 0 {
                continue;
            }
            ended.sort_by(|a, b| by_start(a, b));
            for job in &ended[..surplus] {
                changed |= self.delete_job(cron_job, &job.metadata, context).await;
            }
        }
        changed
    }

    /// Deletes a Job and forgets it; answers whether it is going.
    async fn delete_job(&self, cron_job: &mut CronJob, job: &ObjectMeta, context: Context<'_>) -> bool {
        let background = DeleteOptions { propagation_policy: Some("Background".into()), ..DeleteOptions::default() };
        match requests::delete(context.api, &JOBS, job, background).await {
            Ok(()) => {
                cron_job.forget_active(&job.uid);
                context.normal(reference(cron_job), "SuccessfulDelete", format!("Deleted job {}", job.name));
                true
            }
            Err(status) => {
                context.warning(reference(cron_job), "FailedDelete", format!("Deleted job: {status}"));
                false
            }
        }
    }

    /// After a change of the schedule the CronJob is looked at when it is next due, and not before.
    fn reschedule(&self, key: &str, context: Context<'_>) -> Requeue {
        let (namespace, name) = split_key(key);
        let Some(cron_job) = self.cache.cron_jobs().get(namespace, name) else { return Requeue::OnChange };
        match Schedule::parse(&due::effective_schedule(&cron_job)) {
            Ok(schedule) => {
                let wait = due::wait(&cron_job, &schedule, context.now);
                Requeue::Keys { keys: vec![Wakeup::after(key, wait)], again: false }
            }
            Err(_) => {
                let note = format!("unparseable schedule for cronjob: {}", cron_job.spec.schedule);
                context.warning(reference(&cron_job), "UnParseableCronJobSchedule", note);
                Requeue::OnChange
            }
        }
    }

    fn observe_cron_job(&self, delta: &Delta<Arc<CronJob>>) -> Vec<Wakeup> {
        let (Delta::Added(new) | Delta::Updated { new, .. } | Delta::Deleted(new)) = delta;
        let key = new.metadata.key();
        match delta {
            Delta::Updated { old, new }
                if (&old.spec.schedule, &old.spec.time_zone) != (&new.spec.schedule, &new.spec.time_zone) =>
            {
                vec![Wakeup::now(format!("{RESCHEDULE}{key}"))]
            }
            _ => vec![Wakeup::now(key)],
        }
    }

    fn observe_job(&self, delta: &Delta<Arc<Job>>) -> Vec<Wakeup> {
        let (old, new) = match delta {
            Delta::Updated { old, new } if old.metadata.resource_version == new.metadata.resource_version => {
                return Vec::new();
            }
            Delta::Updated { old, new } => (Some(old), new),
            Delta::Added(job) | Delta::Deleted(job) => (None, job),
        };
        let owner = new.metadata.controller();
        let before = old.and_then(|old| old.metadata.controller()).filter(|before| owner != Some(*before));
        let owners = before.into_iter().chain(owner);
        owners.filter_map(|owner| self.resolve(&new.metadata.namespace, owner)).map(Wakeup::now).collect()
    }

    /// The key of the CronJob that a reference means, by name and UID.
    fn resolve(&self, namespace: &str, owner: &OwnerReference) -> Option<String> {
        let cron_job = (owner.kind == "CronJob").then(|| self.cache.cron_jobs().get(namespace, &owner.name))??;
        (cron_job.metadata.uid == owner.uid).then(|| cron_job.metadata.key())
    }
}

/// Jobs in the order of their start; those that never started last.
fn by_start(a: &Job, b: &Job) -> Ordering {
    let start = |job: &Job| job.status.start_time;
    start(a)
        .is_none()
        .cmp(&start(b).is_none())
        .then(start(a).cmp(&start(b)))
        .then(a.metadata.name.cmp(&b.metadata.name))
}

impl Controller for CronJobController {
    fn name(&self) -> &'static str {
        "cronjob-controller"
    }

    fn watches(&self) -> &'static [Kind] {
        &[Kind::CronJob, Kind::Job]
    }

    fn observe(&self, delta: &AnyDelta) -> Vec<Wakeup> {
        match delta {
            AnyDelta::CronJob(delta) => self.observe_cron_job(delta),
            AnyDelta::Job(delta) => self.observe_job(delta),
            _ => Vec::new(),
        }
    }

    fn sync<'a>(&'a self, key: &'a str, context: Context<'a>) -> BoxFuture<'a, Result<Requeue, Error>> {
        Box::pin(async move {
            match key.strip_prefix(RESCHEDULE) {
                Some(key) => Ok(self.reschedule(key, context)),
                None => self.reconcile(key, context).await,
            }
        })
    }
}
