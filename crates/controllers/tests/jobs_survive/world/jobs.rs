//! The lives of Jobs, the part of kubelets in them, and what must be true of them in the end: every pod that ended is
//! counted, and counted once.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use bayplan_controllers::job::TRACKING_FINALIZER;
use bayplan_controllers::job::indexes::Indexes;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::server::Server;
use super::{POD_START, World};

/// A pod ends this long after it began to run.
const POD_RUN: Duration = Duration::from_secs(3);

/// A pod that runs takes this long to go.
const POD_STOP: Duration = Duration::from_secs(1);

const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// A Job whose pods end as `outcome` says: `succeed`, `fail`, `run` (never), `mixed` (some fail) or `odd` (those of an
/// odd index fail).
fn job(name: &str, outcome: &str, spec: Value) -> Value {
    let mut job = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "parallelism": 2,
            "completions": 2,
            "backoffLimit": 6,
            "completionMode": "NonIndexed",
            "suspend": false,
            "podReplacementPolicy": "TerminatingOrFailed",
            "template": {
                "metadata": {"annotations": {"outcome": outcome}},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "task"}]},
            },
        },
        "status": {},
    });
    for (field, value) in spec.as_object().unwrap() {
        job["spec"][field] = value.clone();
    }
    select_own_pods(&mut job);
    job
}

/// As the API server does, by name here.
pub(super) fn select_own_pods(job: &mut Value) {
    let labels = json!({"job-name": job["metadata"]["name"]});
    job["spec"]["selector"] = json!({"matchLabels": labels});
    job["spec"]["template"]["metadata"]["labels"] = labels;
}

/// The user has some work done, has other work fail in every way, pauses a Job before it begins, and lets it go.
pub(crate) const STAGES: usize = 7;

pub(crate) fn begin(stage: usize, server: &Server) {
    let start = |name: &str, outcome: &str, spec: Value| server.put("jobs", job(name, outcome, spec));
    match stage {
        0 => start("plain", "mixed", json!({"completions": 4})),
        1 => start("ix", "mixed", json!({"completions": 3, "completionMode": "Indexed"})),
        2 => start("bad", "fail", json!({"backoffLimit": 1})),
        3 => start("late", "run", json!({"activeDeadlineSeconds": 7})),
        4 => {
            let spec = json!({
                "completions": 3, "parallelism": 3, "completionMode": "Indexed", "backoffLimit": i32::MAX,
                "backoffLimitPerIndex": 1,
            });
            start("px", "odd", spec);
        }
        5 => {
            start("paused", "succeed", json!({"suspend": true}));
            start("brief", "succeed", json!({"ttlSecondsAfterFinished": 30}));
        }
        _ => server.edit("jobs", "paused", |job| job["spec"]["suspend"] = json!(false)),
    }
}

/// Lets the stages pass, each to its end.
pub(crate) fn live_through(stages: Range<usize>, mut world: World) -> World {
    for stage in stages {
        begin(stage, &world.server);
        world.settle();
    }
    world
}

/// A CronJob of every minute, whose Jobs take a few seconds.
pub(crate) fn cron_job(policy: &str) -> Value {
    let template = job("", "mixed", json!({"completions": 1, "parallelism": 1}))["spec"].clone();
    json!({
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "tick"},
        "spec": {
            "schedule": "* * * * *",
            "concurrencyPolicy": policy,
            "suspend": false,
            "successfulJobsHistoryLimit": 2,
            "failedJobsHistoryLimit": 1,
            "jobTemplate": {"spec": template},
        },
        "status": {},
    })
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str().map(|text| text.parse().unwrap())
}

/// Whether a Job holds the pod.
pub(super) fn is_held(pod: &Value) -> bool {
    pod["metadata"]["finalizers"].as_array().is_some_and(|all| all.contains(&json!(TRACKING_FINALIZER)))
}

/// Whether its containers run.
pub(super) fn runs(pod: &Value) -> bool {
    pod["status"]["phase"] == "Running"
}

fn has_ended(pod: &Value) -> bool {
    matches!(text(&pod["status"]["phase"]), "Succeeded" | "Failed")
}

/// The name of the Job it belongs to.
pub(super) fn owner(pod: &Value) -> Option<String> {
    pod["metadata"]["ownerReferences"][0]["name"].as_str().map(ToOwned::to_owned)
}

/// When a kubelet next changes the pod.
pub(super) fn due(pod: &Value) -> Option<Timestamp> {
    let deleted = time(&pod["metadata"]["deletionTimestamp"]);
    if has_ended(pod) {
        return None;
    }
    match (runs(pod), deleted) {
        (true, Some(deleted)) => Some(deleted + POD_STOP),
        (true, None) if pod["metadata"]["annotations"]["outcome"] == "run" => None,
        (true, None) => time(&pod["status"]["startTime"]).map(|started| started + POD_RUN),
        (false, Some(_)) => None,
        (false, None) => time(&pod["metadata"]["creationTimestamp"]).map(|created| created + POD_START),
    }
}

/// The next step of a pod's life.
pub(super) fn live(server: &Server, mut pod: Value, now: Timestamp) {
    let ready = |status: &str| json!([{"type": "Ready", "status": status, "lastTransitionTime": now}]);
    let deleted = !pod["metadata"]["deletionTimestamp"].is_null();
    if !runs(&pod) {
        pod["spec"]["nodeName"] = json!("n");
        pod["status"] = json!({"phase": "Running", "startTime": now, "conditions": ready("True")});
        return server.put("pods", pod);
    }
    let failed = deleted || fails(&pod);
    pod["status"]["phase"] = json!(if failed { "Failed" } else { "Succeeded" });
    pod["status"]["conditions"] = ready("False");
    let state = json!({"terminated": {"exitCode": i32::from(failed), "finishedAt": now}});
    pod["status"]["containerStatuses"] = json!([{"name": "c", "restartCount": 0, "state": state}]);
    let name = text(&pod["metadata"]["name"]).to_owned();
    server.put("pods", pod);
    if deleted {
        server.remove("pods", &name);
    }
}

fn fails(pod: &Value) -> bool {
    let annotations = &pod["metadata"]["annotations"];
    let number = |text: &Value| text.as_str().and_then(|text| text.parse::<u64>().ok()).unwrap_or_default();
    match text(&annotations["outcome"]) {
        "fail" => true,
        "mixed" => number(&annotations["ordinal"]) % 4 == 2,
        "odd" => number(&annotations[INDEX]) % 2 == 1,
        _ => false,
    }
}

/// A pod at the moment in which its Job let it go.
#[derive(Clone, Debug)]
pub(crate) struct Released {
    job: String,
    index: Option<i64>,
    phase: String,
    deleted: bool,
    /// Its Job was over: it is not counted any more.
    after_the_end: bool,
}

impl Released {
    pub(super) fn of(pod: &Value, job: Option<&Value>) -> Released {
        let metadata = &pod["metadata"];
        Released {
            job: text(&metadata["ownerReferences"][0]["uid"]).to_owned(),
            index: metadata["annotations"][INDEX].as_str().and_then(|index| index.parse().ok()),
            phase: text(&pod["status"]["phase"]).to_owned(),
            deleted: !metadata["deletionTimestamp"].is_null(),
            after_the_end: job.is_none_or(|job| ending(job).is_some()),
        }
    }

    fn succeeded(&self) -> bool {
        self.phase == "Succeeded"
    }

    /// One that neither ended nor goes was one too many, and is nobody's failure.
    fn failed(&self) -> bool {
        self.phase == "Failed" || (self.deleted && !self.succeeded())
    }
}

fn conditions(job: &Value) -> Vec<&Value> {
    job["status"]["conditions"].as_array().into_iter().flatten().collect()
}

fn is_true(job: &Value, kind: &str) -> bool {
    conditions(job).iter().any(|condition| condition["type"] == kind && condition["status"] == "True")
}

/// How a Job has ended.
fn ending(job: &Value) -> Option<&'static str> {
    ["Complete", "Failed"].into_iter().find(|kind| is_true(job, kind))
}

fn count(value: &Value) -> usize {
    value.as_u64().unwrap_or_default() as usize
}

impl World {
    /// Every Job has ended (unless it is suspended) and says so once; every pod that ended is counted once; no pod is
    /// held.
    pub(crate) fn assert_jobs_are_counted(&self, when: &str) {
        let released = self.server.released();
        for pod in self.server.objects("pods") {
            assert!(!is_held(&pod), "{when}: {} is held", pod["metadata"]["name"]);
        }
        for job in self.server.objects("jobs") {
            let when = format!("{when}: {}", text(&job["metadata"]["name"]));
            self.assert_conditions(&job, &when);
            let status = &job["status"];
            for none in ["active", "ready", "terminating"] {
                assert_eq!(count(&status[none]), 0, "{when}: {none}");
            }
            for kind in ["succeeded", "failed"] {
                assert!(status["uncountedTerminatedPods"][kind].is_null(), "{when}: {status}");
            }
            let own = released.iter().filter(|pod| job["metadata"]["uid"] == pod.job.as_str() && !pod.after_the_end);
            assert_counts(&job, &own.collect::<Vec<_>>(), &when);
        }
    }

    fn assert_conditions(&self, job: &Value, when: &str) {
        let all = conditions(job);
        let kinds: BTreeSet<&str> = all.iter().map(|condition| text(&condition["type"])).collect();
        assert_eq!(kinds.len(), all.len(), "{when}: a condition twice: {all:?}");
        if job["spec"]["suspend"] == true && ending(job).is_none() {
            assert!(is_true(job, "Suspended") && job["status"]["startTime"].is_null(), "{when}: {}", job["status"]);
            return;
        }
        let ending = ending(job).unwrap_or_else(|| panic!("{when}: has not ended: {}", job["status"]));
        let (announced, other) = match ending {
            "Complete" => ("SuccessCriteriaMet", ["FailureTarget", "Failed"]),
            _ => ("FailureTarget", ["SuccessCriteriaMet", "Complete"]),
        };
        assert!(other.iter().all(|kind| !is_true(job, kind)), "{when}: both ends: {all:?}");
        let position = |kind: &str| all.iter().position(|condition| condition["type"] == kind);
        let (first, last) = (position(announced), position(ending));
        assert!(first.is_some() && first < last, "{when}: {ending} before {announced}: {all:?}");
        let why = |at: Option<usize>| at.map(|at| (&all[at]["reason"], &all[at]["message"]));
        assert_eq!(why(first), why(last), "{when}");
        assert_eq!(job["status"]["completionTime"].is_string(), ending == "Complete", "{when}: completionTime");
    }

    /// Everything but the accidents of how it came about: how each Job ended, why, and with which indexes.
    pub(crate) fn jobs(&self) -> Value {
        let end = |job: &Value| {
            let conditions = conditions(job).into_iter().map(|c| json!([c["type"], c["status"], c["reason"]]));
            let status = &job["status"];
            let indexes = json!([status["completedIndexes"], status["failedIndexes"]]);
            (text(&job["metadata"]["name"]).to_owned(), json!([conditions.collect::<Vec<_>>(), indexes]))
        };
        let ends: BTreeMap<String, Value> = self.server.objects("jobs").iter().map(end).collect();
        json!(ends)
    }

    /// The CronJob has started every minute's Job once, keeps as many as it may, and knows that none is active.
    pub(crate) fn assert_every_minute_has_its_job(&self, minutes: usize, when: &str) {
        let created = self.server.jobs_created();
        let distinct: BTreeSet<&String> = created.iter().collect();
        assert_eq!(distinct.len(), created.len(), "{when}: a Job was started twice: {created:?}");
        assert_eq!(created.len(), minutes, "{when}: {created:?}");
        let jobs = self.server.objects("jobs");
        for (kind, most) in [("Complete", 2), ("Failed", 1)] {
            let kept = jobs.iter().filter(|job| is_true(job, kind)).count();
            assert!(kept <= most, "{when}: {kept} Jobs that are {kind} are kept");
        }
        let [cron_job] = &self.server.objects("cronjobs")[..] else { panic!("{when}: there is one CronJob") };
        assert!(cron_job["status"]["active"].is_null(), "{when}: {}", cron_job["status"]);
        assert!(cron_job["status"]["lastScheduleTime"].is_string(), "{when}: {}", cron_job["status"]);
    }
}

fn assert_counts(job: &Value, released: &[&Released], when: &str) {
    let status = &job["status"];
    let (succeeded, failed) = (count(&status["succeeded"]), count(&status["failed"]));
    let fails = released.iter().filter(|pod| pod.failed()).count();
    let said = format!("{when}: {succeeded} succeeded, {failed} failed; {released:?}");
    if job["spec"]["completionMode"] == "Indexed" {
        let done: Indexes = released.iter().filter(|pod| pod.succeeded()).filter_map(|pod| pod.index).collect();
        assert_eq!((text(&status["completedIndexes"]), failed), (done.to_string().as_str(), fails), "{said}");
        assert_eq!(succeeded as i64, done.total(), "{said}");
        return;
    }
    let successes = released.iter().filter(|pod| pod.succeeded()).count();
    match ending(job) {
        // What a failing Job stops may have succeeded in that moment: it is counted, as whatever it was seen last.
        Some("Failed") => assert_eq!(succeeded + failed, successes + fails, "{said}"),
        _ => assert_eq!((succeeded, failed), (successes, fails), "{said}"),
    }
    if ending(job) == Some("Complete") {
        assert!(succeeded >= count(&job["spec"]["completions"]), "{said}");
    }
}
