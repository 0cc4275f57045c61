//! The status patches a kubelet writes for a pod.

use std::net::Ipv4Addr;

use bayplan_model::timestamp;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::admission::Rejection;
use crate::pod::{Admission, ContainerView, Pod, Stage};
use crate::resize;

/// The conditions that kubelets write.
const KUBELETS_CONDITIONS: [&str; 5] =
    ["PodScheduled", "Ready", "Initialized", "ContainersReady", "PodReadyToStartContainers"];

/// The strategic merge patch of `pods/status`; its uid is a precondition.
pub(crate) fn patch(pod: &Pod, host: Ipv4Addr, now: Timestamp) -> Value {
    let spec = &pod.view.spec;
    if let Admission::Rejected(rejection) = &pod.admission {
        return rejected(pod, rejection);
    }
    let mut status = json!({
        "phase": phase(pod),
        "conditions": conditions(pod, now),
        "hostIP": host,
        "hostIPs": [{ "ip": host }],
        "startTime": timestamp::seconds(pod.seen_at),
        "containerStatuses": spec.containers.iter().map(|c| container(pod, c, state_of_main(pod))).collect::<Value>(),
    });
    if pod.view.metadata.generation > 0 {
        status["observedGeneration"] = pod.view.metadata.generation.into();
    }
    if let Some(address) = pod.address {
        status["podIP"] = address.to_string().into();
        status["podIPs"] = json!([{ "ip": address }]);
    }
    if !spec.init_containers.is_empty() {
        let init = spec.init_containers.iter().enumerate();
        status["initContainerStatuses"] = init.map(|(i, c)| container(pod, c, state_of_init(pod, i, c))).collect();
    }
    json!({ "metadata": { "uid": pod.view.metadata.uid }, "status": status })
}

/// The status of a rejected pod has the reason and nothing else: a kubelet's own conditions are removed, PodScheduled
/// among them.
fn rejected(pod: &Pod, rejection: &Rejection) -> Value {
    let mut status = json!({
        "phase": "Failed",
        "reason": rejection.reason,
        "message": format!("Pod was rejected: {}", rejection.message),
        "startTime": timestamp::seconds(pod.seen_at),
    });
    if pod.view.metadata.generation > 0 {
        status["observedGeneration"] = pod.view.metadata.generation.into();
    }
    let known = pod.view.status.conditions.iter().map(|condition| condition.r#type.as_str());
    let gone = |name: &str| json!({ "type": name, "$patch": "delete" });
    let conditions: Vec<Value> = known.filter(|name| KUBELETS_CONDITIONS.contains(name)).map(gone).collect();
    if !conditions.is_empty() {
        status["conditions"] = conditions.into();
    }
    json!({ "metadata": { "uid": pod.view.metadata.uid }, "status": status })
}

/// What a single container is doing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting(&'static str),
    Running,
    Ended(i32),
    /// Ended, and waiting to be started again.
    Crashed(i32),
}

fn phase(pod: &Pod) -> &'static str {
    match pod.stage {
        Stage::Creating | Stage::Initializing(_) => "Pending",
        Stage::Unready | Stage::Running | Stage::BackingOff => "Running",
        Stage::Finished | Stage::Stopped if pod.exit_code == 0 => "Succeeded",
        Stage::Finished | Stage::Stopped => "Failed",
    }
}

fn state_of_main(pod: &Pod) -> State {
    match pod.stage {
        Stage::Creating if pod.view.spec.init_containers.is_empty() => State::Waiting("ContainerCreating"),
        Stage::Creating | Stage::Initializing(_) => State::Waiting("PodInitializing"),
        Stage::Unready | Stage::Running => State::Running,
        Stage::BackingOff => State::Crashed(pod.exit_code),
        Stage::Finished | Stage::Stopped => State::Ended(pod.exit_code),
    }
}

fn state_of_init(pod: &Pod, index: usize, container: &ContainerView) -> State {
    let over = matches!(pod.stage, Stage::Finished | Stage::Stopped);
    match pod.stage {
        Stage::Creating => State::Waiting("PodInitializing"),
        Stage::Initializing(current) if index > current => State::Waiting("PodInitializing"),
        Stage::Initializing(current) if index == current => State::Running,
        _ if container.is_sidecar && !over => State::Running,
        _ => State::Ended(0),
    }
}

fn container(pod: &Pod, container: &ContainerView, state: State) -> Value {
    let started = timestamp::seconds(pod.started_at);
    let id = format!("bayplan://{}/{}/{}", pod.view.metadata.uid, container.name, pod.restarts);
    let ended = |code: i32| {
        json!({ "terminated": {
            "exitCode": code,
            "reason": if code == 0 { "Completed" } else { "Error" },
            "startedAt": started,
            "finishedAt": timestamp::seconds(pod.finished_at),
            "containerID": id,
        }})
    };
    let is_sidecar = container.is_sidecar;
    let (state_value, last, ready) = match state {
        State::Waiting(reason) => (json!({ "waiting": { "reason": reason } }), json!({}), false),
        State::Running => (json!({ "running": { "startedAt": started } }), json!({}), true),
        // An init container that has done its work counts as ready.
        State::Ended(code) => (ended(code), json!({}), is_init(pod, container) && !is_sidecar && code == 0),
        State::Crashed(code) => {
            let message = format!("back-off restarting failed container={}", container.name);
            let waiting = json!({ "waiting": { "reason": "CrashLoopBackOff", "message": message } });
            (waiting, ended(code), false)
        }
    };
    let mut status = json!({
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "ready": ready
            && !(state == State::Running && is_init(pod, container) && !is_sidecar)
            && (pod.stage != Stage::Unready || container.ready_delay.is_zero()),
        "started": state == State::Running,
        "restartCount": if is_init(pod, container) { 0 } else { pod.restarts },
        "state": state_value,
        "lastState": last,
    });
    let actual = if state == State::Running { pod.actual() } else { pod.allocated() };
    let allocated = resize::container(pod.allocated(), &container.name);
    resize::report(&mut status, allocated, resize::container(actual, &container.name));
    if !matches!(state, State::Waiting(_)) {
        status["imageID"] = format!("bayplan://{}", container.image).into();
        status["containerID"] = id.into();
    }
    status
}

fn is_init(pod: &Pod, container: &ContainerView) -> bool {
    pod.view.spec.init_containers.iter().any(|c| std::ptr::eq(c, container))
}

fn conditions(pod: &Pod, now: Timestamp) -> Value {
    let names = |containers: &[&ContainerView]| {
        let names: Vec<&str> = containers.iter().map(|c| c.name.as_str()).collect();
        names.join(" ")
    };
    let main: Vec<&ContainerView> = pod.view.spec.containers.iter().collect();
    let waiting: Vec<&ContainerView> = match pod.stage {
        Stage::Unready => main.into_iter().filter(|container| !container.ready_delay.is_zero()).collect(),
        _ => main,
    };
    let unready = Some(("ContainersNotReady", format!("containers with unready status: [{}]", names(&waiting))));
    let ready = match (pod.stage, phase(pod)) {
        (Stage::Running, _) => None,
        (_, "Succeeded") => Some(("PodCompleted", String::new())),
        (_, "Failed") => Some(("PodFailed", String::new())),
        _ => unready,
    };
    let incomplete: Vec<&ContainerView> = match pod.stage {
        Stage::Creating => pod.view.spec.init_containers.iter().collect(),
        Stage::Initializing(current) => pod.view.spec.init_containers.iter().skip(current).collect(),
        _ => Vec::new(),
    };
    let uninitialized = (!incomplete.is_empty())
        .then(|| ("ContainersNotInitialized", format!("containers with incomplete status: [{}]", names(&incomplete))));
    let sandbox = pod.stage != Stage::Creating && !matches!(pod.stage, Stage::Finished | Stage::Stopped);
    let mut conditions = vec![
        condition(pod, now, "PodReadyToStartContainers", sandbox, None),
        condition(pod, now, "Initialized", uninitialized.is_none(), uninitialized),
        condition(pod, now, "Ready", ready.is_none(), ready.clone()),
        condition(pod, now, "ContainersReady", ready.is_none(), ready),
    ];
    // A binding sets PodScheduled; for a pod created with a node only the kubelet can.
    if !pod.view.status.conditions.iter().any(|c| c.r#type == "PodScheduled" && c.status == "True") {
        conditions.push(condition(pod, now, "PodScheduled", true, None));
    }
    conditions.extend(resize_conditions(pod, now));
    conditions.into()
}

/// A condition of a resize that holds.
struct ResizeCondition<'a> {
    generation: i64,
    since: Timestamp,
    message: Option<&'a str>,
}

/// What is said of a resize; what was said before and is over is removed.
fn resize_conditions(pod: &Pod, now: Timestamp) -> Vec<Value> {
    let resize = pod.resize.as_deref();
    let deferred = resize.and_then(|resize| resize.deferred.as_ref());
    let deferred = deferred.map(|one| ResizeCondition {
        generation: one.generation,
        since: one.since,
        message: Some(&one.message),
    });
    let progress = resize.and_then(|resize| resize.progress.as_ref());
    let progress = progress.map(|one| ResizeCondition { generation: one.generation, since: one.since, message: None });
    let said = |(name, holds): (&str, Option<ResizeCondition<'_>>)| {
        let known = pod.view.status.conditions.iter().any(|condition| condition.r#type == name);
        let Some(ResizeCondition { generation, since, message }) = holds else {
            return (known || pod.was_resized).then(|| json!({ "type": name, "$patch": "delete" }));
        };
        let mut condition = json!({
            "type": name, "status": "True", "lastProbeTime": timestamp::seconds(now),
            "lastTransitionTime": timestamp::seconds(since), "observedGeneration": generation,
        });
        if let Some(message) = message {
            condition["reason"] = "Deferred".into();
            condition["message"] = message.into();
        }
        Some(condition)
    };
    [("PodResizePending", deferred), ("PodResizeInProgress", progress)].into_iter().filter_map(said).collect()
}

fn condition(pod: &Pod, now: Timestamp, name: &str, holds: bool, why: Option<(&str, String)>) -> Value {
    let status = if holds { "True" } else { "False" };
    let known = pod.view.status.conditions.iter().find(|c| c.r#type == name && c.status == status);
    let since = known.and_then(|c| c.last_transition_time).unwrap_or(now);
    let mut condition = json!({ "type": name, "status": status, "lastTransitionTime": timestamp::seconds(since) });
    let (reason, message) = why.unwrap_or_default();
    // Null removes a field of an earlier status; without one there is nothing to remove.
    let there = pod.reported || pod.view.status.conditions.iter().any(|c| c.r#type == name);
    for (field, text) in [("reason", reason), ("message", message.as_str())] {
        match text {
            "" if there => condition[field] = Value::Null,
            "" => {}
            text => condition[field] = text.into(),
        }
    }
    if pod.view.metadata.generation > 0 {
        condition["observedGeneration"] = pod.view.metadata.generation.into();
    }
    condition
}
