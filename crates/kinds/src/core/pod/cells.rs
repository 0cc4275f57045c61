//! The pod's row: its state is spread over phase, reason, conditions and every container's status.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::object::{list, text};
use crate::printing::age;

fn or_none(text: &str) -> Value {
    Value::from(if text.is_empty() { "<none>" } else { text })
}

/// The condition `Completed` for pods that have finished.
pub(super) fn conditions(pod: &Value) -> Value {
    let (reason, message) = match text(&pod["status"], "phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return Value::Null,
    };
    json!([{ "type": "Completed", "status": "True", "reason": reason, "message": message }])
}

pub(super) fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let summary = Summary::of(pod);
    let restarts = match summary.last_restart {
        Some(last) if summary.restarts != 0 => format!("{} ({} ago)", summary.restarts, age::human(now, last)),
        _ => summary.restarts.to_string(),
    };
    let gates = list(spec, "readinessGates");
    let gates = if gates.is_empty() {
        "<none>".to_owned()
    } else {
        let passed = gates.iter().filter(|gate| has_condition(status, text(gate, "conditionType"))).count();
        format!("{passed}/{}", gates.len())
    };
    let ip = status["podIPs"][0]["ip"].as_str().unwrap_or_else(|| text(status, "podIP"));
    vec![
        pod["metadata"]["name"].clone(),
        format!("{}/{}", summary.ready, summary.total).into(),
        summary.reason.into(),
        restarts.into(),
        age::since(&pod["metadata"]["creationTimestamp"], now).into(),
        or_none(ip),
        or_none(text(spec, "nodeName")),
        or_none(text(status, "nominatedNodeName")),
        gates.into(),
    ]
}

/// True when the first condition of this type is true.
fn has_condition(status: &Value, kind: &str) -> bool {
    let condition = list(status, "conditions").iter().find(|condition| text(condition, "type") == kind);
    condition.is_some_and(|condition| text(condition, "status") == "True")
}

#[derive(Default)]
struct Summary {
    reason: String,
    ready: usize,
    total: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
}

/// Restarts of a group of containers, and when the last one was.
#[derive(Clone, Copy, Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, container: &Value) {
        self.count = self.count.saturating_add(container["restartCount"].as_i64().unwrap_or(0));
        self.last = self.last.max(age::parse(&container["lastState"]["terminated"]["finishedAt"]));
    }
}

impl Summary {
    fn of(pod: &Value) -> Summary {
        let (spec, status) = (&pod["spec"], &pod["status"]);
        // The last of several containers with one name counts.
        let policies: BTreeMap<&str, &str> =
            list(spec, "initContainers").iter().map(|c| (text(c, "name"), text(c, "restartPolicy"))).collect();
        let sidecar = |name: &str| policies.get(name) == Some(&"Always");
        let sidecars = list(spec, "initContainers").iter().filter(|c| text(c, "restartPolicy") == "Always").count();
        let mut summary = Summary { total: list(spec, "containers").len() + sidecars, ..Summary::default() };
        summary.reason = match text(status, "reason") {
            "" => text(status, "phase").to_owned(),
            reason => reason.to_owned(),
        };
        let gated = |condition: &Value| {
            text(condition, "type") == "PodScheduled" && text(condition, "reason") == "SchedulingGated"
        };
        if list(status, "conditions").iter().any(gated) {
            summary.reason = "SchedulingGated".to_owned();
        }
        let (mut all, mut of_sidecars) = (Restarts::default(), Restarts::default());
        let mut initializing = false;
        for (index, container) in list(status, "initContainerStatuses").iter().enumerate() {
            let is_sidecar = sidecar(text(container, "name"));
            all.add(container);
            if is_sidecar {
                of_sidecars.add(container);
            }
            let terminated = container["state"].get("terminated").filter(|state| !state.is_null());
            if terminated.is_some_and(|state| state["exitCode"].as_i64().unwrap_or(0) == 0) {
                continue;
            }
            if is_sidecar && container["started"] == true {
                summary.ready += usize::from(container["ready"] == true);
                continue;
            }
            let waiting = text(&container["state"]["waiting"], "reason");
            summary.reason = match terminated {
                Some(state) => format!("Init:{}", ended(state)),
                None if !waiting.is_empty() && waiting != "PodInitializing" => format!("Init:{waiting}"),
                None => format!("Init:{index}/{}", list(spec, "initContainers").len()),
            };
            initializing = true;
            break;
        }
        let mut restarts = all;
        if !initializing || has_true_condition(status, "Initialized") {
            restarts = of_sidecars;
            summary.read_containers(status, &mut restarts);
        }
        if pod["metadata"].get("deletionTimestamp").is_some_and(|time| !time.is_null()) {
            if text(status, "reason") == "NodeLost" {
                summary.reason = "Unknown".to_owned();
            } else if !matches!(text(status, "phase"), "Succeeded" | "Failed") {
                summary.reason = "Terminating".to_owned();
            }
        }
        (summary.restarts, summary.last_restart) = (restarts.count, restarts.last);
        summary
    }

    /// Takes the reason from the first container that does not run.
    fn read_containers(&mut self, status: &Value, restarts: &mut Restarts) {
        let (mut running, mut failure) = (false, None);
        for container in list(status, "containerStatuses").iter().rev() {
            restarts.add(container);
            let state = &container["state"];
            let waiting = text(&state["waiting"], "reason");
            if !waiting.is_empty() {
                self.reason = waiting.to_owned();
            } else if let Some(terminated) = state.get("terminated").filter(|state| !state.is_null()) {
                self.reason = ended(terminated);
                if terminated["exitCode"].as_i64().unwrap_or(0) != 0 {
                    failure = Some(self.reason.clone());
                }
            } else if container["ready"] == true && state.get("running").is_some_and(|state| !state.is_null()) {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" {
            if running && has_true_condition(status, "Ready") {
                self.reason = "Running".to_owned();
            } else if let Some(failure) = failure {
                self.reason = failure;
            } else if running {
                self.reason = "NotReady".to_owned();
            }
        }
    }
}

/// True when any condition of this type is true.
fn has_true_condition(status: &Value, kind: &str) -> bool {
    list(status, "conditions").iter().any(|c| text(c, "type") == kind && text(c, "status") == "True")
}

/// Why a container terminated.
fn ended(terminated: &Value) -> String {
    match (text(terminated, "reason"), terminated["signal"].as_i64().unwrap_or(0)) {
        ("", 0) => format!("ExitCode:{}", terminated["exitCode"].as_i64().unwrap_or(0)),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}
