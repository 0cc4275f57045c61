//! The controller's calls, in order: what a crash between any two of them leaves behind depends on it.

use serde_json::{Value, json};

use super::*;
use crate::script::{ANY, Script, Step, now, refused};

fn job(spec: &Value, status: Value, version: &str) -> Value {
    let labels = json!({"job": "x"});
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "x", "namespace": "ns", "uid": "j", "resourceVersion": version, "generation": 1},
        "spec": {
            "parallelism": 1, "completions": 1, "backoffLimit": 6, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [], "restartPolicy": "Never"}},
        },
        "status": status,
    });
    for (field, value) in spec.as_object().unwrap() {
        job["spec"][field] = value.clone();
    }
    job
}

fn pod(name: &str, version: &str, status: Value) -> Value {
    let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "x", "uid": "j", "controller": true});
    json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": name, "resourceVersion": version, "labels": {"job": "x"},
            "ownerReferences": [owner], "finalizers": [TRACKING_FINALIZER], "creationTimestamp": now(),
        },
        "status": status,
    })
}

fn controller(job: &Value, pods: &[Value]) -> JobController {
    let controller = JobController::new(Arc::new(Cache::default()));
    let see = |kind, object: &Value| {
        let change = controller.cache.set(kind, object.to_string().as_bytes()).unwrap();
        controller.observe(&change);
    };
    see(Kind::Job, job);
    pods.iter().for_each(|pod| see(Kind::Pod, pod));
    controller
}

fn status(spec: &Value, status: Value, version: &str) -> Step {
    let stored = job(spec, status.clone(), version);
    ("PUT ns/jobs/x/status", ANY, Ok(stored))
}

#[test]
fn a_success_is_noted_released_counted_and_ends_the_job_in_that_order() {
    let spec = json!({});
    let active = json!({"active": 1, "ready": 0, "terminating": 0, "uncountedTerminatedPods": {}, "startTime": now()});
    let done = pod("p", "9", json!({"phase": "Succeeded"}));
    let controller = controller(&job(&spec, active, "8"), std::slice::from_ref(&done));
    let met = json!({
        "type": "SuccessCriteriaMet", "status": "True", "reason": "CompletionsReached",
        "message": "Reached expected number of succeeded pods", "lastProbeTime": now(), "lastTransitionTime": now(),
    });
    let noted = json!({
        "conditions": [met], "startTime": now(), "terminating": 0, "ready": 0,
        "uncountedTerminatedPods": {"succeeded": ["p"]},
    });
    let mut complete = met.clone();
    complete["type"] = json!("Complete");
    let counted = json!({
        "conditions": [met, complete], "startTime": now(), "completionTime": now(), "terminating": 0, "ready": 0,
        "succeeded": 1, "uncountedTerminatedPods": {},
    });
    let removal = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [TRACKING_FINALIZER]}});
    let script = Script::new(
        "success",
        [
            ("PUT ns/jobs/x/status", job(&spec, noted.clone(), "8"), Ok(job(&spec, noted, "10"))),
            ("STRATEGIC-PATCH ns/pods/p", removal, Ok(done)),
            ("PUT ns/jobs/x/status", job(&spec, counted.clone(), "10"), Ok(job(&spec, counted, "12"))),
        ],
    );
    assert_eq!(script.play(&controller, "ns/x").unwrap(), Requeue::OnChange);
    assert_eq!(script.events(), ["Completed"]);
}

#[test]
fn pods_that_somebody_else_may_have_counted_are_asked_for_before_they_count() {
    let spec = json!({"completions": 2});
    let counted = json!({"succeeded": 1, "uncountedTerminatedPods": {}, "startTime": now()});
    // The pod is as it was before the Job was last written, and by somebody else.
    let stale = pod("p", "8", json!({"phase": "Succeeded"}));
    let seen = controller(&job(&spec, counted.clone(), "10"), std::slice::from_ref(&stale));
    let mut freed = stale.clone();
    freed["metadata"]["finalizers"] = json!([]);
    let script = Script::new(
        "counted",
        [
            ("LIST ns/pods metadata", ANY, Ok(json!({"items": [freed]}))),
            ("POST ns/pods", ANY, Ok(pod("q", "11", json!({})))),
            status(&spec, json!({"succeeded": 1, "active": 1}), "12"),
        ],
    );
    assert_eq!(script.play(&seen, "ns/x").unwrap(), Requeue::OnChange);

    let other = pod("unseen", "9", json!({"phase": "Running"}));
    let seen = controller(&job(&spec, counted, "10"), std::slice::from_ref(&stale));
    let script = Script::new("unseen", [("LIST ns/pods metadata", ANY, Ok(json!({"items": [stale, other]})))]);
    let error = script.play(&seen, "ns/x").unwrap_err().to_string();
    assert_eq!(error, "read version: 8 is not as new as written version: 10 for group resource pods");
}

#[test]
fn a_pod_that_ended_in_the_meantime_is_not_deleted_uncounted() {
    let spec = json!({"suspend": true});
    let running = pod("p", "9", json!({"phase": "Running"}));
    let controller = controller(&job(&spec, json!({"active": 1, "startTime": now()}), "8"), &[running]);
    let removal = json!({
        "metadata": {"$deleteFromPrimitiveList/finalizers": [TRACKING_FINALIZER], "resourceVersion": "9"},
    });
    let script = Script::new(
        "changed",
        [("STRATEGIC-PATCH ns/pods/p", removal, refused(409)), status(&spec, json!({"active": 1}), "10")],
    );
    assert_eq!(script.play(&controller, "ns/x").unwrap_err().to_string(), "refused with 409");
}
