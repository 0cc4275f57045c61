//! Starts the Job that is due; the second half of upstream's `syncCronJob`.

use bayplan_model::api::ObjectReference;
use bayplan_model::cron::{Schedule, Zone, rfc1123};
use bayplan_model::meta::PartialObjectMetadata;
use bayplan_model::status::reason;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::due::{self, Deadline, MissedStarts};
use super::object::CronJob;
use super::{CronJobController, Next, reference};
use crate::controller::Context;
use crate::error::Error;
use crate::job::BATCH_V1;
use crate::requests::{self, JOBS};
use crate::workload::controller_reference;

/// The annotation with the time for which a Job was started.
const SCHEDULED_TIMESTAMP: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// The name of the Job of a start: the same start has the same name, so it happens once.
pub fn job_name(cron_job: &str, start: Timestamp) -> String {
    format!("{cron_job}-{}", start.as_second() / 60)
}

/// The Job of a start.
pub fn job(cron_job: &CronJob, start: Timestamp) -> Value {
    let template = &cron_job.spec.job_template;
    let part = |pointer: &str| template.pointer(pointer).filter(|value| value.is_object()).cloned();
    let zone = Zone::load(cron_job.spec.time_zone.as_deref().unwrap_or_default()).unwrap_or_else(|_| Zone::utc());
    let mut annotations = part("/metadata/annotations").unwrap_or_else(|| json!({}));
    annotations[SCHEDULED_TIMESTAMP] = json!(zone.rfc3339(start));
    let mut metadata = json!({
        "name": job_name(&cron_job.metadata.name, start),
        "namespace": cron_job.metadata.namespace,
        "annotations": annotations,
        "ownerReferences": [controller_reference(BATCH_V1, "CronJob", &cron_job.metadata)],
    });
    if let Some(labels) = part("/metadata/labels") {
        metadata["labels"] = labels;
    }
    let spec = template.get("spec").cloned().unwrap_or_default();
    json!({"apiVersion": BATCH_V1, "kind": "Job", "metadata": metadata, "spec": spec})
}

impl CronJobController {
    /// Starts what is due; `changed` becomes true when the status has to be written.
    pub(super) async fn start(
        &self,
        cron_job: &mut CronJob,
        changed: &mut bool,
        context: Context<'_>,
    ) -> Result<Next, Error> {
        let Some((schedule, start)) = due_start(cron_job, context) else { return Ok(Next::OnChange) };
        let later = |cron_job: &CronJob| Ok(Next::After(due::wait(cron_job, &schedule, context.now)));
        let Some(start) = start else { return later(cron_job) };
        if self.is_held_back(cron_job, start, context) {
            return later(cron_job);
        }
        if cron_job.spec.concurrency_policy == "Replace" {
            self.replace(cron_job, changed, context).await?;
        }
        let Some(started) = self.create(cron_job, start, context).await? else { return Ok(Next::OnChange) };
        cron_job.status.active.push(started);
        cron_job.status.last_schedule_time = Some(start);
        *changed = true;
        later(cron_job)
    }

    /// Whether the start that is due does not happen, or has happened.
    fn is_held_back(&self, cron_job: &CronJob, start: Timestamp, context: Context<'_>) -> bool {
        let late = cron_job.spec.starting_deadline_seconds.is_some_and(|seconds| {
            start.as_nanosecond() + i128::from(seconds) * 1_000_000_000 < context.now.as_nanosecond()
        });
        if late {
            let note = format!("Missed scheduled time to start a job: {}", rfc1123(start));
            context.warning(reference(cron_job), "MissSchedule", note);
            return true;
        }
        let name = job_name(&cron_job.metadata.name, start);
        let named = |job: &ObjectReference| job.name == name && job.namespace == cron_job.metadata.namespace;
        if cron_job.status.active.iter().any(named) || cron_job.status.last_schedule_time == Some(start) {
            return true;
        }
        let forbidden = cron_job.spec.concurrency_policy == "Forbid" && !cron_job.status.active.is_empty();
        if forbidden {
            let note = "Not starting job because prior execution is running and concurrency policy is Forbid";
            context.normal(reference(cron_job), "JobAlreadyActive", note.into());
        }
        forbidden
    }

    /// Deletes the Jobs that still run.
    async fn replace(&self, cron_job: &mut CronJob, changed: &mut bool, context: Context<'_>) -> Result<(), Error> {
        for active in cron_job.status.active.clone() {
            let job: Result<PartialObjectMetadata, _> =
                requests::get(context.api, &JOBS, &active.namespace, &active.name).await;
            let job = job.inspect_err(|status| {
                context.warning(reference(cron_job), "FailedGet", format!("Get job: {status}"));
            })?;
            if !self.delete_job(cron_job, &job.metadata, context).await {
                return Err(Error::Invalid(format!("could not replace job {}", job.metadata.key())));
            }
            *changed = true;
        }
        Ok(())
    }

    /// Creates the Job of a start, and refers to it; none when somebody else has done so.
    async fn create(
        &self,
        cron_job: &CronJob,
        start: Timestamp,
        context: Context<'_>,
    ) -> Result<Option<ObjectReference>, Error> {
        let namespace = &cron_job.metadata.namespace;
        let body = job(cron_job, start);
        let answer: Result<PartialObjectMetadata, _> = requests::create(context.api, &JOBS, namespace, &body).await;
        let made = match answer {
            Ok(made) => {
                let note = format!("Created job {}", made.metadata.name);
                context.normal(reference(cron_job), "SuccessfulCreate", note);
                made.metadata
            }
            Err(status) if status.is(reason::ALREADY_EXISTS) => {
                let name = job_name(&cron_job.metadata.name, start);
                let there: PartialObjectMetadata = requests::get(context.api, &JOBS, namespace, &name).await?;
                let there = there.metadata;
                // An earlier reconcile may have created it and not lived to write the status.
                let ours = there.controller().is_some_and(|owner| owner.uid == cron_job.metadata.uid);
                if !ours || cron_job.has_active(&there.uid) {
                    return Ok(None);
                }
                there
            }
            Err(status) => {
                if !crate::error::namespace_terminating(&status) {
                    context.warning(reference(cron_job), "FailedCreate", format!("Error creating job: {status}"));
                }
                return Err(Error::Api(status));
            }
        };
        Ok(Some(crate::workload::event_reference(BATCH_V1, "Job", &made)))
    }
}

/// The schedule, if it can be read; if not, an event says so.
fn schedule_of(cron_job: &CronJob, context: Context<'_>) -> Option<Schedule> {
    let text = &cron_job.spec.schedule;
    if due::names_zone(text) {
        let note = format!(
            "CRON_TZ or TZ used in schedule {} is not officially supported, see \
             https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details",
            super::quoted(text)
        );
        context.warning(reference(cron_job), "UnsupportedSchedule", note);
    }
    match Schedule::parse(&due::effective_schedule(cron_job)) {
        Ok(schedule) => Some(schedule),
        Err(error) => {
            let note = format!("unparseable schedule: {} : {error}", super::quoted(text));
            context.warning(reference(cron_job), "UnparseableSchedule", note);
            None
        }
    }
}

/// The schedule and the start that is due, if one is; nothing at all when the schedule makes no sense, which an event
/// says.
pub fn due_start(cron_job: &CronJob, context: Context<'_>) -> Option<(Schedule, Option<Timestamp>)> {
    let schedule = schedule_of(cron_job, context)?;
    let latest = match due::latest(cron_job, &schedule, context.now, Deadline::Heeded).1 {
        Ok(latest) => latest,
        Err(error) => {
            let note = format!("invalid schedule: {} : {error}", cron_job.spec.schedule);
            context.warning(reference(cron_job), "InvalidSchedule", note);
            return None;
        }
    };
    if latest.start.is_some() && latest.missed == MissedStarts::Many {
        let note = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
        context.warning(reference(cron_job), "TooManyMissedTimes", note.into());
    }
    Some((schedule, latest.start))
}
