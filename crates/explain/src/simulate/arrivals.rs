//! Arrivals: a list of what comes and goes, one JSON object a line, or the events of a SimKube trace as JSON.
//!
//! ```text
//!   {"time": "2026-01-01T00:00:00Z", "action": "create", "object": {…}}
//!   {"time": 3.5, "action": "create", "pod": {…}, "runSeconds": 600}
//!   {"time": 9, "action": "delete", "pod": "default/web-1"}
//!   {"events": [{"ts": 1710000000, "applied_objs": [{…}], "deleted_objs": [{…}]}, …]}
//! ```

use std::sync::Arc;

use bayplan_model::pod::Pod;
use bayplan_scheduler::Object;
use jiff::{SignedDuration, Timestamp};
use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde_json::{Value, json};

use super::history::{Change, Event, History};
use crate::completion::{Completion, DEFAULT_NAMESPACE, text};
use crate::whatif::{WorkloadPods, is_workload};

/// The most notes about lines that cannot be read.
const NOTES_MAX: usize = 20;

/// Why arrivals cannot be read at all.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ArrivalsError {
    /// No line of it is an event.
    #[error("no line is an event such as {{\"time\": 0, \"action\": \"create\", \"object\": {{…}}}}{0}")]
    Nothing(String),
}

/// Reads arrivals line by line.
pub struct Arrivals {
    completion: Completion,
    /// What counts as time 0.
    start: Timestamp,
    as_written: bool,
    history: History,
    /// How many pods workloads have, by kind, namespace and name.
    workloads: FxHashMap<String, WorkloadPods>,
    line: usize,
    unread: usize,
}

#[derive(Deserialize)]
struct Line {
    #[serde(default)]
    time: Value,
    #[serde(default)]
    action: String,
    #[serde(default)]
    object: Value,
    #[serde(default)]
    pod: Value,
    #[serde(default, rename = "runSeconds")]
    run_seconds: Option<f64>,
}

impl Arrivals {
    /// A reader. Times that are numbers are seconds from `start`, unless they are so large that they are a date.
    pub fn new(completion: Completion, start: Timestamp, as_written: bool) -> Self {
        let (history, workloads) = (History::default(), FxHashMap::default());
        Arrivals { completion, start, as_written, history, workloads, line: 0, unread: 0 }
    }

    /// Reads one line.
    pub fn line(&mut self, line: &str) {
        self.line += 1;
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return;
        }
        let read = match serde_json::from_str::<Value>(line) {
            Ok(value) if value["events"].is_array() => self.simkube(&value["events"]),
            Ok(value) => Line::deserialize(value).map_err(|error| error.to_string()).and_then(|line| self.event(line)),
            Err(error) => Err(error.to_string()),
        };
        if let Err(why) = read {
            self.unread += 1;
            if self.history.notes.len() < NOTES_MAX {
                self.history.notes.push(format!("line {} of the arrivals is left out: {why}", self.line));
            }
        }
    }

    /// All that was read, in order of time.
    pub fn finish(mut self) -> Result<History, ArrivalsError> {
        if self.history.events.is_empty() {
            let first = self.history.notes.first().map(|note| format!("; {note}")).unwrap_or_default();
            return Err(ArrivalsError::Nothing(first));
        }
        if self.unread > NOTES_MAX {
            self.history.notes.push(format!("{} lines of the arrivals are left out", self.unread));
        }
        self.history.sort();
        Ok(self.history)
    }

    fn event(&mut self, line: Line) -> Result<(), String> {
        let time = self.time(&line.time)?;
        let mut object = if line.object.is_object() { line.object } else { line.pod };
        if let Value::String(name) = &object {
            object = named_pod(name);
        }
        if !object.is_object() {
            return Err("it has no object and no pod".into());
        }
        if object.get("kind").is_none() {
            object["apiVersion"] = "v1".into();
            object["kind"] = "Pod".into();
        }
        let run = line.run_seconds.filter(|seconds| seconds.is_finite() && *seconds >= 0.0);
        let run = run.and_then(|seconds| SignedDuration::try_from_secs_f64(seconds).ok());
        match line.action.as_str() {
            "create" | "apply" | "update" | "add" | "" => self.create(time, object, run),
            "delete" | "remove" => self.delete(time, object),
            other => Err(format!("action {other:?} is neither create nor delete")),
        }
    }

    fn simkube(&mut self, events: &Value) -> Result<(), String> {
        for event in events.as_array().into_iter().flatten() {
            let time = self.time(&event["ts"])?;
            for object in event["applied_objs"].as_array().into_iter().flatten() {
                self.create(time, object.clone(), None)?;
            }
            for object in event["deleted_objs"].as_array().into_iter().flatten() {
                self.delete(time, object.clone())?;
            }
        }
        Ok(())
    }

    /// A date, seconds since 1970, or seconds from the start.
    fn time(&self, value: &Value) -> Result<Timestamp, String> {
        /// Seconds beyond this are a date: nobody simulates thirty years.
        const DATE_FROM: f64 = 1e9;
        let invalid = || format!("time {value} is neither a date nor a number of seconds");
        match value {
            Value::String(text) => text.parse().map_err(|_| invalid()),
            Value::Number(number) => {
                let seconds = number.as_f64().filter(|seconds| seconds.is_finite()).ok_or_else(invalid)?;
                let from = if seconds >= DATE_FROM { Timestamp::UNIX_EPOCH } else { self.start };
                let duration = SignedDuration::try_from_secs_f64(seconds).map_err(|_| invalid())?;
                from.checked_add(duration).map_err(|_| invalid())
            }
            _ => Err(invalid()),
        }
    }

    fn completed(&self, object: Value) -> Result<Value, String> {
        if self.as_written {
            return Ok(object);
        }
        self.completion.complete(object, self.start).map_err(|error| error.to_string())
    }

    fn create(&mut self, time: Timestamp, mut object: Value, runs_for: Option<SignedDuration>) -> Result<(), String> {
        name(&mut object);
        if is_workload(&object) {
            return self.apply_workload(time, object);
        }
        if object["kind"] == "Pod" {
            let written = if is_stored(&object) { object } else { self.completed(object)? };
            let pod = Pod::deserialize(&written).map_err(|error| error.to_string())?;
            self.push(time, Change::CreatePod { pod: Arc::new(pod), runs_for });
            return Ok(());
        }
        let kind = text(&object, "/kind").to_owned();
        self.completion.learn(&kind, &object);
        match Object::decode(&object).transpose().map_err(|error| error.to_string())? {
            Some(object) => self.push(time, Change::Put(object)),
            None => return Err(format!("no decision reads objects of kind {kind}")),
        }
        Ok(())
    }

    fn apply_workload(&mut self, time: Timestamp, object: Value) -> Result<(), String> {
        let object = self.completed(object)?;
        let key = workload_key(&object);
        let pods = WorkloadPods::new(&object, &self.completion, self.as_written, self.start);
        let mut pods = pods.map_err(|error| error.to_string())?;
        let former = self.workloads.remove(&key);
        let former_count = former.as_ref().filter(|former| former.same_template(&pods)).map_or(0, WorkloadPods::count);
        if let Some(former) = former.filter(|former| !former.same_template(&pods) || former.count() > pods.count()) {
            let kept = if former.same_template(&pods) { pods.count() } else { 0 };
            (kept..former.count()).for_each(|number| self.delete_number(time, &former, number));
        }
        for number in former_count..pods.count() {
            let pod = Arc::new(pods.pod(number));
            self.push(time, Change::CreatePod { pod, runs_for: None });
        }
        for owner in pods.take_owners() {
            self.push(time, Change::Put(owner));
        }
        self.workloads.insert(key, pods);
        Ok(())
    }

    fn delete_number(&mut self, time: Timestamp, pods: &WorkloadPods, number: usize) {
        let pod = pods.pod(number);
        self.push(time, Change::DeletePod(pod.metadata.namespace, pod.metadata.name));
    }

    fn delete(&mut self, time: Timestamp, mut object: Value) -> Result<(), String> {
        name(&mut object);
        if is_workload(&object) {
            let former = self.workloads.remove(&workload_key(&object)).ok_or("it was not created before")?;
            (0..former.count()).for_each(|number| self.delete_number(time, &former, number));
            return Ok(());
        }
        let part = |pointer: &str| text(&object, pointer).to_owned();
        if object["kind"] == "Pod" {
            self.push(time, Change::DeletePod(part("/metadata/namespace"), part("/metadata/name")));
            return Ok(());
        }
        match Object::decode(&object).transpose().map_err(|error| error.to_string())? {
            Some(object) => self.push(time, Change::Delete(object)),
            None => return Err(format!("no decision reads objects of kind {}", part("/kind"))),
        }
        Ok(())
    }

    fn push(&mut self, time: Timestamp, change: Change) {
        self.history.events.push(Event { time, change });
    }
}

/// A pod that an API server stored already has its priority and need not be completed.
fn is_stored(pod: &Value) -> bool {
    !text(pod, "/metadata/uid").is_empty() && pod["spec"]["priority"].is_number()
}

fn named_pod(name: &str) -> Value {
    let (namespace, name) = name.split_once('/').unwrap_or((DEFAULT_NAMESPACE, name));
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": namespace, "name": name}})
}

fn workload_key(object: &Value) -> String {
    format!("{}/{}/{}", text(object, "/kind"), text(object, "/metadata/namespace"), text(object, "/metadata/name"))
}

/// Gives objects that live in namespaces the default one.
fn name(object: &mut Value) {
    let namespaced =
        crate::completion::resource(object).map_or_else(|| is_workload(object), |resource| resource.namespaced);
    if namespaced && text(object, "/metadata/namespace").is_empty() {
        object["metadata"]["namespace"] = DEFAULT_NAMESPACE.into();
    }
}
