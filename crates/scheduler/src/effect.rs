//! What the scheduler asks of the shell: bindings, status patches, evictions and events, as futures over the API.

use std::time::Duration;

use bayplan_model::api::{
    Api, DeleteOptions, Event, EventType, ObjectReference, PatchKind, Recorder, Request, Resource, Verb, encode,
};
use bayplan_model::pod::{Pod, PodCondition};
use bayplan_model::status::{Status as ApiStatus, reason};
use futures::future::join_all;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::bind::Binding;
use crate::cluster::PodInfo;
use crate::cycle::preempt::Preemption;
use crate::framework::Timer;
use crate::scheduler::Input;

const PODS: Resource = Resource::new("", "v1", "pods");

/// Longest note of an event, in bytes; the API server refuses more.
const NOTE_BYTES_MAX: usize = 1024;

/// What effects run with.
#[derive(Clone, Copy)]
pub struct Shell<'a> {
    /// The API server.
    pub api: &'a dyn Api,
    /// Where events go.
    pub recorder: &'a dyn Recorder,
    /// Time.
    pub timer: &'a dyn Timer,
}

/// Something to be done outside the thread that owns the cluster.
///
/// Small, because thousands of them may wait for their turn.
pub enum Effect {
    /// Bind a pod.
    Bind(Box<Binding>),
    /// Tell the API server what became of a pod.
    UpdateStatus(Box<StatusUpdate>),
    /// Evict pods.
    Preempt(Box<Preemption>),
    /// Tell the user something.
    Record {
        /// In the name of this scheduler.
        scheduler: String,
        /// What happened.
        event: Box<Event>,
    },
    /// Ask something of the API server that a plugin wants, one call after the other.
    Call(Vec<Request>),
}

impl Effect {
    /// True for bindings, which have a lane of their own.
    pub fn is_binding(&self) -> bool {
        matches!(self, Effect::Bind(_))
    }

    /// The scheduler in whose name it tells events; empty when it tells none.
    pub fn scheduler_name(&self) -> &str {
        match self {
            Effect::Bind(binding) => &binding.profile.name,
            Effect::Preempt(preemption) => &preemption.preemptor.spec.scheduler_name,
            Effect::Record { scheduler, .. } => scheduler,
            Effect::UpdateStatus(_) | Effect::Call(_) => "",
        }
    }

    /// An event told in the name of a pod's scheduler.
    pub(crate) fn record(by: &PodInfo, event: Event) -> Self {
        Effect::Record { scheduler: by.spec.scheduler_name.clone(), event: Box::new(event) }
    }

    /// Does it; what comes back goes to [`Scheduler::handle`](crate::scheduler::Scheduler::handle).
    pub async fn run(self, shell: Shell<'_>) -> Option<Input> {
        match self {
            Effect::Bind(binding) => Some(Input::Bound(Box::new(binding.run(shell).await))),
            Effect::UpdateStatus(update) => {
                update.run(shell).await;
                None
            }
            Effect::Preempt(preemption) => {
                let result = evict(&preemption, shell).await;
                Some(Input::Preempted { uid: preemption.preemptor.uid().to_owned(), result })
            }
            Effect::Record { event, .. } => {
                shell.recorder.record(*event);
                None
            }
            Effect::Call(calls) => {
                for call in calls {
                    // What was wanted is seen in the objects; a plugin that still wants it asks again in the next cycle.
                    if shell.api.call(call).await.is_err() {
                        break;
                    }
                }
                None
            }
        }
    }
}

/// An event about a pod.
pub(crate) fn event(
    pod: &PodInfo,
    event_type: EventType,
    reason: &'static str,
    action: &'static str,
    note: String,
) -> Event {
    let meta = &pod.metadata;
    Event {
        regarding: ObjectReference {
            api_version: "v1".into(),
            kind: "Pod".into(),
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
        },
        event_type,
        reason: reason.into(),
        action: action.into(),
        note: truncated(note),
    }
}

fn truncated(mut note: String) -> String {
    const ELLIPSIS: &str = " ...";
    if note.len() > NOTE_BYTES_MAX {
        note.truncate(note.floor_char_boundary(NOTE_BYTES_MAX - ELLIPSIS.len()));
        note.push_str(ELLIPSIS);
    }
    note
}

/// A change of a pod's status.
#[derive(Clone, Debug)]
pub struct StatusUpdate {
    namespace: String,
    name: String,
    /// The strategic merge patch.
    pub patch: Value,
}

impl StatusUpdate {
    /// Sets a condition, and the nominated node when one is given; none when nothing changes.
    pub(crate) fn of(
        pod: &Pod,
        kind: &str,
        status: &str,
        (reason, message): (&str, &str),
        nominated: Option<&str>,
        now: Timestamp,
    ) -> Option<Self> {
        let mut patch = Map::new();
        if let Some(condition) = condition_patch(pod, kind, status, reason, message, now) {
            let mut order: Vec<Value> = pod.status.conditions.iter().map(|c| json!({"type": c.kind})).collect();
            if pod.condition(kind).is_none() {
                order.push(json!({"type": kind}));
            }
            patch.insert("$setElementOrder/conditions".into(), order.into());
            patch.insert("conditions".into(), json!([condition]));
        }
        if let Some(node) = nominated.filter(|node| *node != pod.status.nominated_node_name) {
            let value = if node.is_empty() { Value::Null } else { node.into() };
            patch.insert("nominatedNodeName".into(), value);
        }
        (!patch.is_empty()).then(|| StatusUpdate::patch(pod, patch))
    }

    /// Sets the nominated node alone; empty clears it.
    pub(crate) fn nominate(pod: &Pod, node: &str) -> Self {
        let value = if node.is_empty() { Value::Null } else { Value::from(node) };
        StatusUpdate::patch(pod, [("nominatedNodeName".to_owned(), value)].into_iter().collect())
    }

    fn patch(pod: &Pod, status: Map<String, Value>) -> Self {
        StatusUpdate {
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
            patch: json!({ "status": status }),
        }
    }

    /// Sends the patch, and again (after 10, 50 and 250 ms) when the server may yet take it.
    pub(crate) async fn run(&self, shell: Shell<'_>) -> Option<ApiStatus> {
        let mut wait = Duration::from_millis(10);
        for attempt in 0.. {
            let verb = Verb::Patch(PatchKind::Strategic, encode(&self.patch));
            let request = Request::object(&PODS, &self.namespace, &self.name, verb).subresource("status");
            match shell.api.call(request).await {
                Ok(_) => return None,
                Err(status) if attempt < 3 && is_transient(&status) => {
                    shell.timer.sleep(wait).await;
                    wait *= 5;
                }
                Err(status) => return Some(status),
            }
        }
        None
    }
}

fn is_transient(status: &ApiStatus) -> bool {
    [reason::INTERNAL_ERROR, reason::SERVICE_UNAVAILABLE, reason::CONFLICT].iter().any(|r| status.is(r))
}

/// The fields of a condition that change, with its merge key; none when status, reason and message stay.
fn condition_patch(
    pod: &Pod,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> Option<Map<String, Value>> {
    let absent = PodCondition::default();
    let old = pod.condition(kind);
    let known = old.unwrap_or(&absent);
    if old.is_some() && known.status == status && known.reason == reason && known.message == message {
        return None;
    }
    let mut patch = Map::new();
    patch.insert("type".into(), kind.into());
    let mut set = |name: &str, changed: bool, value: Value| {
        if changed {
            patch.insert(name.into(), value);
        }
    };
    set("status", known.status != status, status.into());
    set("reason", known.reason != reason, reason.into());
    set("message", known.message != message, message.into());
    set("lastProbeTime", old.is_none(), Value::Null);
    let second = Timestamp::from_second(now.as_second()).unwrap_or(now);
    set("lastTransitionTime", known.status != status, second.to_string().into());
    let generation = pod.metadata.generation;
    set("observedGeneration", generation != 0 && known.observed_generation != generation, generation.into());
    Some(patch)
}

/// Clears the nominations of less important pods, then evicts the victims.
async fn evict(preemption: &Preemption, shell: Shell<'_>) -> Result<(), String> {
    for pod in &preemption.demoted {
        StatusUpdate::nominate(pod, "").run(shell).await;
    }
    let evictions = preemption.victims.iter().map(|victim| evict_one(preemption, victim, shell));
    join_all(evictions).await.into_iter().collect()
}

async fn evict_one(preemption: &Preemption, victim: &PodInfo, shell: Shell<'_>) -> Result<(), String> {
    let by = &preemption.preemptor.spec.scheduler_name;
    let message = format!("{by}: preempting to accommodate a higher priority pod");
    let why = ("PreemptionByScheduler", message.as_str());
    if let Some(update) = StatusUpdate::of(victim, "DisruptionTarget", "True", why, None, shell.timer.now())
        && let Some(failure) = update.run(shell).await
        && !failure.is(reason::NOT_FOUND)
    {
        return Err(failure.message);
    }
    let meta = &victim.metadata;
    let verb = Verb::Delete(DeleteOptions::default());
    match shell.api.call(Request::object(&PODS, &meta.namespace, &meta.name, verb)).await {
        Ok(_) => {}
        Err(failure) if failure.is(reason::NOT_FOUND) => {}
        Err(failure) => return Err(failure.message),
    }
    let note = format!("Preempted by pod {} on node {}", preemption.preemptor.uid(), preemption.node);
    shell.recorder.record(event(victim, EventType::Normal, "Preempted", "Preempting", note));
    Ok(())
}
