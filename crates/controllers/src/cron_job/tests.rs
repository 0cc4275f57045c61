use serde_json::{Value, json};

use super::*;
use crate::script::{ANY, Script, exists, now};

/// Scripts play at 20:26:40, and this is due every five minutes.
fn cron_job(policy: &str, status: Value) -> Value {
    let created = now() - jiff::SignedDuration::from_mins(7);
    json!({
        "apiVersion": "batch/v1", "kind": "CronJob",
        "metadata": {
            "name": "c", "namespace": "ns", "uid": "c", "resourceVersion": "5", "creationTimestamp": created,
        },
        "spec": {
            "schedule": "*/5 * * * *", "concurrencyPolicy": policy,
            "successfulJobsHistoryLimit": 0, "failedJobsHistoryLimit": 1,
            "jobTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {"template": {}}},
        },
        "status": status,
    })
}

fn job(name: &str, condition: Option<&str>) -> Value {
    let owner = json!({"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "c", "controller": true});
    let conditions: Vec<Value> = condition.iter().map(|end| json!({"type": end, "status": "True"})).collect();
    json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "6", "ownerReferences": [owner]},
        "status": {"conditions": conditions, "completionTime": condition.map(|_| now())},
    })
}

fn controller(cron_job: &Value, jobs: &[Value]) -> CronJobController {
    let cache = Arc::new(Cache::default());
    cache.set(Kind::CronJob, cron_job.to_string().as_bytes()).unwrap();
    jobs.iter().for_each(|job| drop(cache.set(Kind::Job, job.to_string().as_bytes()).unwrap()));
    CronJobController::new(cache)
}

const DUE: &str = "c-29666665";

/// The next start is at 20:30.
fn next() -> Requeue {
    Requeue::After(Duration::from_millis(200_100))
}

#[test]
fn what_is_due_is_started_once_whatever_became_of_the_last_try() {
    let active = json!({"apiVersion": "batch/v1", "kind": "Job", "namespace": "ns", "name": DUE, "uid": DUE,
        "resourceVersion": "6"});
    let started = json!({"active": [active], "lastScheduleTime": "2026-05-28T20:25:00Z"});
    let written = cron_job("Allow", started);
    let write = || ("PUT ns/cronjobs/c/status", written.clone(), Ok(written.clone()));
    let fresh = controller(&cron_job("Allow", json!({})), &[]);
    let script = Script::new("due", [("POST ns/jobs", ANY, Ok(job(DUE, None))), write()]);
    assert_eq!(script.play(&fresh, "ns/c").unwrap(), next());
    assert_eq!(script.events(), ["SuccessfulCreate"]);

    // It was created, and its creator died before the status was written.
    let script = Script::new(
        "again",
        [("POST ns/jobs", ANY, exists()), ("GET ns/jobs/c-29666665", Value::Null, Ok(job(DUE, None))), write()],
    );
    assert_eq!(script.play(&fresh, "ns/c").unwrap(), next());
    assert_eq!(script.events(), [""; 0]);
}

#[test]
fn a_job_that_runs_holds_back_the_next_where_it_must() {
    let active = json!([{"kind": "Job", "namespace": "ns", "name": "old", "uid": "old", "apiVersion": "batch/v1"}]);
    let forbid = controller(&cron_job("Forbid", json!({"active": active})), &[job("old", None)]);
    let script = Script::new("forbid", []);
    assert_eq!(script.play(&forbid, "ns/c").unwrap(), next());
    assert_eq!(script.events(), ["JobAlreadyActive"]);

    let replace = controller(&cron_job("Replace", json!({"active": active})), &[job("old", None)]);
    let background = json!({"propagationPolicy": "Background"});
    let script = Script::new(
        "replace",
        [
            ("GET ns/jobs/old", Value::Null, Ok(job("old", None))),
            ("DELETE ns/jobs/old", background, Ok(json!({}))),
            ("POST ns/jobs", ANY, Ok(job(DUE, None))),
            ("PUT ns/cronjobs/c/status", ANY, Ok(cron_job("Replace", json!({})))),
        ],
    );
    assert_eq!(script.play(&replace, "ns/c").unwrap(), next());
    assert_eq!(script.events(), ["SuccessfulDelete", "SuccessfulCreate"]);
}

#[test]
fn a_changed_schedule_waits_for_its_next_time() {
    let [old, mut new] = [cron_job("Allow", json!({})), cron_job("Allow", json!({}))];
    new["spec"]["schedule"] = json!("0 0 1 1 *");
    let controller = controller(&old, &[]);
    let change = controller.cache.set(Kind::CronJob, new.to_string().as_bytes()).unwrap();
    let [wakeup] = &controller.observe(&change)[..] else { panic!("one key") };
    let outcome = Script::new("changed", []).play(&controller, &wakeup.key).unwrap();
    let Requeue::Keys { keys, again: false } = outcome else { panic!("{outcome:?}") };
    assert_eq!((keys.len(), keys[0].key.as_str()), (1, "ns/c"));
    assert!(keys[0].after > Duration::from_secs(200 * 86_400), "{keys:?}");
}
