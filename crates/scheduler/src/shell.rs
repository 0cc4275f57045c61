//! What effects need from the shell, and the two things they write about a pod: events and status patches.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use bayplan_model::api::{
    Api, Event, EventType, ObjectReference, PatchKind, Recorder, Request, Resource, Verb, encode,
};
use bayplan_model::pod::{Pod, PodCondition};
use bayplan_model::status::{Status as ApiStatus, reason};
use futures::FutureExt;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::cluster::PodInfo;
use crate::framework::Timer;

pub(crate) const PODS: Resource = Resource::new("", "v1", "pods");

/// The longest note of an event, in bytes; the API server refuses more.
const NOTE_BYTES_MAX: usize = 1024;

/// What effects run with.
#[derive(Clone, Copy)]
pub struct Shell<'a> {
    /// The API server.
    pub api: &'a dyn Api,
    /// Records events.
    pub recorder: &'a dyn Recorder,
    /// Clock and timers.
    pub timer: &'a dyn Timer,
}

/// Runs the work of an effect to its end. A plugin that panics fails its own pod: without an answer, the pod would stay
/// assumed for ever.
pub(crate) async fn caught<T>(work: impl Future<Output = T>) -> Result<T, String> {
    AssertUnwindSafe(work).catch_unwind().await.map_err(|panic| {
        let text = said(&*panic);
        tracing::error!(panic = text, "an effect of the scheduler panicked");
        format!("panicked: {text}")
    })
}

/// What a panic says.
fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".into())
}

/// An event about a pod.
pub(crate) fn pod_event(
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

/// A patch of a pod's status.
#[derive(Clone, Debug)]
pub struct StatusUpdate {
    namespace: String,
    name: String,
    /// The pod's UID. The updates of one pod must reach the API server in their order.
    pub uid: String,
    /// The strategic merge patch.
    pub patch: Value,
}

impl StatusUpdate {
    /// Sets a condition, and the nominated node when one is given (empty clears it); none when nothing changes.
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

    /// Sets only the nominated node; empty clears it.
    pub(crate) fn nominate(pod: &Pod, node: &str) -> Self {
        let value = if node.is_empty() { Value::Null } else { Value::from(node) };
        StatusUpdate::patch(pod, [("nominatedNodeName".to_owned(), value)].into_iter().collect())
    }

    /// The nominated node that the update writes, empty when it clears it; none when it leaves it alone.
    pub fn nominated_node(&self) -> Option<&str> {
        self.patch["status"].get("nominatedNodeName").map(|node| node.as_str().unwrap_or_default())
    }

    fn patch(pod: &Pod, status: Map<String, Value>) -> Self {
        StatusUpdate {
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
            patch: json!({ "status": status }),
        }
    }

    /// Makes one update of this one and a later one, which has the last word.
    pub fn append(&mut self, later: StatusUpdate) {
        let Value::Object(later) = later.patch["status"].clone() else { return };
        for (field, value) in later {
            match (field.as_str(), &mut self.patch["status"][&field]) {
                // Both set a single condition, of which they name the fields that change.
                ("conditions", Value::Array(own)) if own[0]["type"] == value[0]["type"] => {
                    let (Some(own), Value::Object(value)) = (own[0].as_object_mut(), value[0].clone()) else {
                        continue;
                    };
                    own.extend(value);
                }
                (_, own) => *own = value,
            }
        }
    }

    /// Sends the patch. After a transient error it is sent again, after 10, 50 and 250 ms; the last error is returned.
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

/// The changed fields of a condition with its merge key; none when status, reason and message are the same.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_update_made_of_two_says_what_both_say_and_the_later_has_the_last_word() {
        let update = |status: Value| {
            let (namespace, name, uid) = (String::new(), String::new(), String::new());
            StatusUpdate { namespace, name, uid, patch: json!({ "status": status }) }
        };
        let order = json!([{"type": "PodScheduled"}]);
        let mut first = update(json!({
            "$setElementOrder/conditions": order, "nominatedNodeName": "a",
            "conditions": [{"type": "PodScheduled", "status": "False", "message": "first"}],
        }));
        first.append(update(json!({
            "$setElementOrder/conditions": order, "conditions": [{"type": "PodScheduled", "message": "second"}],
        })));
        first.append(update(json!({"nominatedNodeName": null})));
        let both = json!({"status": {
            "$setElementOrder/conditions": order, "nominatedNodeName": null,
            "conditions": [{"type": "PodScheduled", "status": "False", "message": "second"}],
        }});
        assert_eq!(first.patch, both);
        let mut nominated = update(json!({"nominatedNodeName": "a"}));
        nominated.append(update(json!({"conditions": [{"type": "PodScheduled"}]})));
        assert_eq!(nominated.patch["status"]["conditions"][0]["type"], "PodScheduled");
    }
}
