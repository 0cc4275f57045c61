//! What events say of failed attempts to schedule pods: how many there were, and when the last one was.
//!
//! kube-scheduler records one Event for a pod and counts in it; an Event that was not repeated for some minutes is
//! followed by another. Events expire after an hour, so a count is the least that there were.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::limits::{ATTEMPT_EVENTS_MAX, ATTEMPT_MESSAGE_BYTES_MAX};

/// The reason of the events that count.
pub(crate) const REASON: &str = "FailedScheduling";

/// The versions of Event; one object is served in both groups.
const API_VERSIONS: [&str; 3] = ["v1", "events.k8s.io/v1", "events.k8s.io/v1beta1"];

/// Failed attempts to schedule one pod, as its events count them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailedAttempts {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// The pod's UID; empty when the events do not say it.
    pub uid: String,
    /// How many there were at least.
    pub count: u64,
    /// The first that is known.
    pub first: Option<Timestamp>,
    /// The last that is known.
    pub last: Option<Timestamp>,
    /// What the scheduler said then.
    pub message: String,
}

impl FailedAttempts {
    /// One event that says the same.
    pub(crate) fn as_event(&self) -> Value {
        let mut event = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": self.namespace, "name": self.name},
            "involvedObject": {"kind": "Pod", "namespace": self.namespace, "name": self.name, "uid": self.uid},
            "reason": REASON,
            "count": self.count,
            "message": self.message,
        });
        for (field, time) in [("firstTimestamp", self.first), ("lastTimestamp", self.last)] {
            if let Some(time) = time {
                event[field] = time.to_string().into();
            }
        }
        event
    }
}

/// Whether objects of this kind are events.
pub(crate) fn is_event(api_version: &str, kind: &str) -> bool {
    kind == "Event" && API_VERSIONS.contains(&api_version)
}

/// An Event as far as it is read, in either group.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Event {
    metadata: Name,
    involved_object: Option<Regarding>,
    regarding: Option<Regarding>,
    reason: String,
    /// Null in a snapshot without names.
    message: Option<String>,
    note: Option<String>,
    count: Option<u64>,
    deprecated_count: Option<u64>,
    first_timestamp: Option<Timestamp>,
    last_timestamp: Option<Timestamp>,
    deprecated_first_timestamp: Option<Timestamp>,
    deprecated_last_timestamp: Option<Timestamp>,
    event_time: Option<Timestamp>,
    series: Option<Series>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Name {
    namespace: String,
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Regarding {
    kind: String,
    namespace: String,
    name: String,
    uid: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Series {
    count: u64,
    last_observed_time: Option<Timestamp>,
}

/// What one event counts.
#[derive(Debug, Default)]
struct Counted {
    uid: String,
    count: u64,
    first: Option<Timestamp>,
    last: Option<Timestamp>,
    message: String,
}

/// The pod's namespace and name, and the event's: dumps hold an event several times.
type Key = (String, String, String, String);

/// The events of all sources so far.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    events: BTreeMap<Key, Counted>,
    pub(crate) beyond_limit: usize,
}

impl Attempts {
    /// Takes in an event, if it is about a failed attempt.
    pub(crate) fn add(&mut self, json: &RawValue) {
        if !json.get().contains(REASON) {
            return;
        }
        let Ok(event) = serde_json::from_str::<Event>(json.get()) else { return };
        let Some(pod) = event.involved_object.or(event.regarding).filter(|about| about.kind == "Pod") else { return };
        if event.reason != REASON || pod.name.is_empty() {
            return;
        }
        let key = (pod.namespace, pod.name, event.metadata.namespace, event.metadata.name);
        if self.events.len() >= ATTEMPT_EVENTS_MAX && !self.events.contains_key(&key) {
            self.beyond_limit += 1;
            return;
        }
        let series = event.series.unwrap_or_default();
        let counts = [event.count, event.deprecated_count, Some(series.count)];
        let first = [event.first_timestamp, event.deprecated_first_timestamp, event.event_time];
        let last = [event.last_timestamp, event.deprecated_last_timestamp, event.event_time, series.last_observed_time];
        let mut message = event.message.or(event.note).unwrap_or_default();
        message.truncate(message.floor_char_boundary(ATTEMPT_MESSAGE_BYTES_MAX));
        let counted = Counted {
            uid: pod.uid,
            count: counts.into_iter().flatten().max().unwrap_or(0).max(1),
            first: first.into_iter().flatten().min(),
            last: last.into_iter().flatten().max(),
            message,
        };
        let known = self.events.entry(key).or_default();
        // Of two versions of an event the one that counts more is the newer one.
        if counted.count > known.count {
            *known = counted;
        }
    }

    /// The attempts of the pods for which `uid_of` gives a UID: those that wait. Events about a pod of the same name
    /// that was there before do not count.
    pub(crate) fn finish(self, uid_of: impl Fn(&str, &str) -> Option<String>) -> Vec<FailedAttempts> {
        let mut all: Vec<FailedAttempts> = Vec::new();
        for ((namespace, name, ..), event) in self.events {
            let Some(uid) = uid_of(&namespace, &name) else { continue };
            if !uid.is_empty() && !event.uid.is_empty() && uid != event.uid {
                continue;
            }
            let is_same = all.last().is_some_and(|last| last.namespace == namespace && last.name == name);
            if !is_same {
                all.push(FailedAttempts { namespace, name, uid, ..FailedAttempts::default() });
            }
            let Some(of_pod) = all.last_mut() else { continue };
            of_pod.count = of_pod.count.saturating_add(event.count);
            of_pod.first = [of_pod.first, event.first].into_iter().flatten().min();
            if of_pod.message.is_empty() || event.last >= of_pod.last {
                of_pod.message = event.message;
            }
            of_pod.last = of_pod.last.max(event.last);
        }
        all
    }

    /// Whether there are events about a pod.
    pub(crate) fn is_about(&self, namespace: &str, name: &str) -> bool {
        let first = (namespace.to_owned(), name.to_owned(), String::new(), String::new());
        self.events.range(first..).next().is_some_and(|((of, pod, ..), _)| of == namespace && pod == name)
    }

    /// True when nothing was counted.
    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }
}

/// The UID of a pod that waits for a node; none for one that is bound or has finished.
pub(crate) fn uid_if_waiting(pod: &RawValue) -> Option<String> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Pod {
        metadata: Metadata,
        spec: Spec,
        status: Status,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Metadata {
        uid: String,
    }
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Spec {
        node_name: String,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Status {
        phase: String,
    }
    let pod: Pod = serde_json::from_str(pod.get()).ok()?;
    let waits = pod.spec.node_name.is_empty() && !matches!(pod.status.phase.as_str(), "Succeeded" | "Failed");
    waits.then_some(pod.metadata.uid)
}

#[cfg(test)]
mod tests {
    use serde_json::value::to_raw_value;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn event(name: &str, more: Value) -> Box<RawValue> {
        let mut event = json!({"metadata": {"namespace": "a", "name": name}, "reason": REASON});
        let about = json!({"kind": "Pod", "namespace": "a", "name": "p", "uid": "u"});
        let field = if more.get("note").is_some() { "regarding" } else { "involvedObject" };
        event[field] = about;
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        to_raw_value(&event).unwrap()
    }

    fn finished(events: &[Box<RawValue>], uid: &str) -> Vec<FailedAttempts> {
        let mut attempts = Attempts::default();
        events.iter().for_each(|event| attempts.add(event));
        attempts.finish(|_, name| (name == "p").then(|| uid.to_owned()))
    }

    #[test]
    fn both_groups_count_and_the_last_message_stays() {
        let old = event(
            "e1",
            json!({"count": 3, "firstTimestamp": at(100).to_string(), "lastTimestamp": at(200).to_string(),
                "message": "first", "eventTime": null, "series": null}),
        );
        let new = event(
            "e2",
            json!({"note": "second", "eventTime": at(300).to_string(), "deprecatedCount": 1,
                "series": {"count": 4, "lastObservedTime": at(400).to_string()}}),
        );
        let expected = FailedAttempts {
            namespace: "a".into(),
            name: "p".into(),
            uid: "u".into(),
            count: 7,
            first: Some(at(100)),
            last: Some(at(400)),
            message: "second".into(),
        };
        assert_eq!(finished(&[new.clone(), old.clone(), new, old], "u"), std::slice::from_ref(&expected));
        let written = to_raw_value(&expected.as_event()).unwrap();
        assert_eq!(finished(&[written], "u"), [expected], "an event that is written says the same when it is read");
    }

    #[test]
    fn other_events_and_events_about_others_do_not_count() {
        let scheduled = event("e1", json!({"reason": "Scheduled", "message": "not FailedScheduling"}));
        let mut about_node = event("e2", json!({}));
        about_node = RawValue::from_string(about_node.get().replace("\"Pod\"", "\"Node\"")).unwrap();
        assert_eq!(finished(&[scheduled, about_node], "u"), []);
        assert_eq!(finished(&[event("e1", json!({}))], "another pod of this name"), []);
        assert_eq!(finished(&[event("e1", json!({}))], "")[0].count, 1);
        let broken = RawValue::from_string(format!("[\"{REASON}\"]")).unwrap();
        assert_eq!(finished(&[broken], "u"), []);
    }

    #[test]
    fn only_pods_without_a_node_wait() {
        let uid = |json: &str| uid_if_waiting(&RawValue::from_string(json.to_owned()).unwrap());
        assert_eq!(uid(r#"{"metadata":{"uid":"u"},"spec":{},"status":{"phase":"Pending"}}"#), Some("u".into()));
        assert_eq!(uid(r#"{"metadata":{"uid":"u"},"spec":{"nodeName":"n"}}"#), None);
        assert_eq!(uid(r#"{"metadata":{"uid":"u"},"status":{"phase":"Failed"}}"#), None);
    }
}
