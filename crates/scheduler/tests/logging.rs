//! What the scheduler logs at level debug: one line for each step of a pod.

#![allow(clippy::unwrap_used)] // Helpers of tests, not the product.

use std::io;
use std::sync::{Arc, Mutex};

use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::{Input, Object, Registry, Scheduler, TieBreak};
use jiff::Timestamp;
use serde_json::{Value, json};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The lines that are logged at a level while `run` runs.
fn logged(level: tracing::Level, run: impl FnOnce()) -> Vec<String> {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .with_target(false)
        .without_time()
        .finish();
    tracing::subscriber::with_default(subscriber, run);
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    text.lines().map(|line| line.trim().to_owned()).collect()
}

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
