//! What the scheduler logs at level debug: one line for each step of a pod.

#![allow(clippy::unwrap_used)] // Helpers of tests, not the product.

use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::{Input, Object, Registry, Scheduler, TieBreak};
use bayplan_testkit::logged;
use jiff::Timestamp;
use serde_json::{Value, json};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn node(name: &str, cpu: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10"}},
    })
}

fn pod(name: &str, cpu: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "d", "uid": name},
        "spec": {
            "schedulerName": "default-scheduler",
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}],
        },
    })
}

fn schedule() {
    let configuration = Configuration::default();
    let mut scheduler = Scheduler::new(&configuration, &Registry::default(), TieBreak::SmallestName).unwrap();
    let upsert = |scheduler: &mut Scheduler, object: Value| {
        scheduler.handle(Input::upsert(Object::decode(&object).unwrap().unwrap()), NOW);
        while scheduler.schedule_one(NOW) {}
    };
    upsert(&mut scheduler, node("small", "2"));
    upsert(&mut scheduler, node("large", "8"));
    upsert(&mut scheduler, pod("web", "1"));
    upsert(&mut scheduler, pod("huge", "20"));
    upsert(&mut scheduler, node("huge", "64"));
}

#[test]
fn each_step_of_a_pod_is_a_line_at_level_debug() {
    let lines = logged(tracing::Level::DEBUG, schedule);
    let has = |wanted: &[&str]| {
        let found = lines.iter().any(|line| wanted.iter().all(|part| line.contains(part)));
        assert!(found, "{wanted:?} in\n{}", lines.join("\n"));
    };
    has(&["pod queued pod=d/web", r#"queue="active""#, r#"cause="UnschedulablePodAdd""#]);
    has(&["pod popped pod=d/web attempt=1"]);
    has(&["node chosen pod=d/web", r#"node="large""#, "score=", r#"runner_up="small""#, "runner_up_score="]);
    has(&["binding started pod=d/web", r#"node="large""#]);
    has(&["pod not scheduled pod=d/huge", r#"reason="Unschedulable""#, "0/2 nodes are available: 2 Insufficient cpu."]);
    has(&["pod queued pod=d/huge", r#"queue="unschedulable""#, r#"cause="ScheduleAttemptFailure""#]);
    has(&["pod queued pod=d/huge", r#"queue="backoff""#, r#"cause="NodeAdd""#]);
    assert_eq!(logged(tracing::Level::INFO, schedule), [""; 0]);
}
