//! The CronJob controller: schedules.

use bayplan_controllers::cron_job::due::{self, Deadline, MissedStarts};
use bayplan_controllers::cron_job::{CronJob, due_start, job};
use bayplan_model::cron::Schedule;
use bayplan_testkit::FakeApi;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Outcome, Types, context, equal, parse};

pub(super) const TYPES: Types = &[("cronSchedule", cron_schedule)];

/// How many of the next times a case asks for.
const NEXT: usize = 5;

fn cron_schedule(case: &Value) -> Outcome {
    let input = &case["input"];
    let now: Timestamp = parse(&input["now"])?;
    let cron_job: CronJob = parse(&json!({
        "metadata": {"name": "c", "namespace": "ns", "creationTimestamp": input["creationTimestamp"]},
        "spec": {
            "schedule": input["schedule"],
            "timeZone": input["timeZone"],
            "startingDeadlineSeconds": input["startingDeadlineSeconds"],
        },
        "status": {"lastScheduleTime": input["lastScheduleTime"]},
    }))?;
    let effective = due::effective_schedule(&cron_job);
    let mut answer = json!({"effectiveSchedule": effective});
    match Schedule::parse(&effective) {
        Err(error) => answer["parseError"] = json!(error),
        Ok(schedule) => describe(&mut answer, &cron_job, &schedule, now),
    }
    let api = FakeApi::new(|_| Ok(Value::Null));
    if let Some((_, Some(start))) = due_start(&cron_job, context(&api, now)) {
        let job = job(&cron_job, start);
        answer["startAt"] = json!(start);
        answer["jobName"] = job["metadata"]["name"].clone();
        answer["jobAnnotations"] = job["metadata"]["annotations"].clone();
    }
    // The events of a schedule that cannot be read or makes no sense repeat the error, which is compared by itself.
    let events =
        api.events().into_iter().filter(|event| !["UnparseableSchedule", "InvalidSchedule"].contains(&&*event.reason));
    let events = events.map(|event| format!("{:?} {} {}", event.event_type, event.reason, event.note));
    answer["events"] = events.collect();
    equal(&answer, &case["expect"])
}

fn describe(answer: &mut Value, cron_job: &CronJob, schedule: &Schedule, now: Timestamp) {
    let mut next = Vec::new();
    let mut at = now;
    while next.len() < NEXT {
        let Some(then) = schedule.next(at) else {
            next.push(json!("never"));
            break;
        };
        next.push(json!(then));
        at = then;
    }
    answer["next"] = json!(next);
    let (earliest, latest) = due::latest(cron_job, schedule, now, Deadline::Heeded);
    answer["mostRecent"] = json!({"earliest": earliest, "missed": "none"});
    match latest {
        Err(error) => {
            answer["mostRecent"]["error"] = json!(error);
            answer["startError"] = json!(error);
        }
        Ok(latest) => {
            answer["mostRecent"]["time"] = json!(latest.start);
            answer["mostRecent"]["missed"] = json!(match latest.missed {
                MissedStarts::None => "none",
                MissedStarts::Few => "few",
                MissedStarts::Many => "many",
            });
            answer["requeueAfterSeconds"] = json!(due::wait(cron_job, schedule, now).as_secs_f64());
        }
    }
}
