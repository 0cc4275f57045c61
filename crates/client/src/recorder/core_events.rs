//! The correlator of core/v1 events: equal events are counted, similar ones combined, spam is dropped.

use std::time::Duration;

use bayplan_model::api::{Event, EventType, ObjectReference, Resource, encode};
use bayplan_model::keyed::KeyedSet;
use bayplan_model::timestamp;
use bayplan_model::token_bucket::TokenBucket;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::lru::Lru;
use super::{Names, Write, namespace_of};

const EVENTS: Resource = Resource::new("", "v1", "events");

/// Each of the three memories keeps this many entries, as upstream does.
const ENTRIES_MAX: usize = 4096;
/// From this many different messages on,
const SIMILAR_MAX: usize = 10;
/// each within this time of the one before, similar events are combined into one.
const SIMILAR_WITHIN: SignedDuration = SignedDuration::from_mins(10);
const COMBINED_PREFIX: &str = "(combined from similar events): ";
/// An object may have this many events at once,
const SPAM_BURST: u32 = 25;
/// and then one more every five minutes.
const SPAM_PER_SECOND: f64 = 1.0 / 300.0;

/// Events that differ in their message only.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Similar {
    regarding: ObjectReference,
    event_type: EventType,
    reason: String,
}

/// Events that are equal, or have been combined (then the message is empty).
#[derive(Clone, PartialEq, Eq, Hash)]
struct Equal {
    similar: Similar,
    message: String,
}

struct Messages {
    seen: KeyedSet<String>,
    last: Timestamp,
}

struct Counted {
    name: String,
    count: u64,
    first: Timestamp,
}

/// The correlator: takes events and the time, and returns what to write. It does no IO.
pub struct CoreEvents {
    component: String,
    names: Names,
    similar: Lru<Similar, Messages>,
    counts: Lru<Equal, Counted>,
    spam: Lru<ObjectReference, TokenBucket>,
}

impl CoreEvents {
    /// A correlator of the events of this component.
    pub fn new(component: &str) -> Self {
        CoreEvents {
            component: component.into(),
            names: Names::default(),
            similar: Lru::new(ENTRIES_MAX),
            counts: Lru::new(ENTRIES_MAX),
            spam: Lru::new(ENTRIES_MAX),
        }
    }

    /// What to write for an event, if anything.
    pub fn observe(&mut self, event: Event, now: Timestamp) -> Option<Write> {
        let (key, message) = self.combine(&event, now);
        let names = &mut self.names;
        let counted = self.counts.get_or_insert_with(&key, || Counted {
            name: names.next(&event.regarding.name, now),
            count: 0,
            first: now,
        });
        counted.count += 1;
        let (name, count, first) = (counted.name.clone(), counted.count, counted.first);

        // The count goes on even when the event is not written: the next one that is carries it.
        let bucket =
            self.spam.get_or_insert_with(&key.similar.regarding, || TokenBucket::new(SPAM_PER_SECOND, SPAM_BURST));
        if !bucket.try_take(since_epoch(now)) {
            return None;
        }
        let patch = (count > 1)
            .then(|| encode(&json!({ "count": count, "lastTimestamp": timestamp::seconds(now), "message": message })));
        let namespace = namespace_of(&event).to_owned();
        // Upstream creates combined events without their reporter.
        let reporting_component = if key.message == message { self.component.as_str() } else { "" };
        let create = encode(&json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": { "name": name, "namespace": namespace },
            "involvedObject": event.regarding,
            "reason": event.reason,
            "message": message,
            "source": { "component": self.component },
            "firstTimestamp": timestamp::seconds(first),
            "lastTimestamp": timestamp::seconds(now),
            "count": count,
            "type": event.event_type,
            "reportingComponent": reporting_component,
            "reportingInstance": "",
        }));
        Some(Write { resource: EVENTS, namespace, name, patch, create })
    }

    /// Which events this one is counted with, and under which message.
    fn combine(&mut self, event: &Event, now: Timestamp) -> (Equal, String) {
        // The same object at another version is still the same object.
        let regarding = ObjectReference { resource_version: String::new(), ..event.regarding.clone() };
        let similar = Similar { regarding, event_type: event.event_type, reason: event.reason.to_string() };
        let messages = self.similar.get_or_insert_with(&similar, || Messages { seen: KeyedSet::default(), last: now });
        if now.duration_since(messages.last) > SIMILAR_WITHIN {
            messages.seen.clear();
        }
        messages.last = now;
        messages.seen.insert(event.note.clone());
        if messages.seen.len() < SIMILAR_MAX {
            return (Equal { similar, message: event.note.clone() }, event.note.clone());
        }
        // Any message makes room, so that the set stays bounded and the next new message is combined as well.
        if let Some(any) = messages.seen.iter().next().cloned() {
            messages.seen.remove(&any);
        }
        (Equal { similar, message: String::new() }, format!("{COMBINED_PREFIX}{}", event.note))
    }
}

fn since_epoch(now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(Timestamp::UNIX_EPOCH)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::tests::{at, event};
    use super::*;

    fn body(bytes: &[u8]) -> Value {
        serde_json::from_slice(bytes).unwrap()
    }

    /// One letter per event: `P`OST, `U`pdate (with its count), or `.` for one that is dropped.
    fn trace(events: impl IntoIterator<Item = (Event, i64)>) -> String {
        let mut core = CoreEvents::new("replicaset-controller");
        let texts: Vec<String> = events
            .into_iter()
            .map(|(event, second)| match core.observe(event, at(second)) {
                None => ".".into(),
                Some(Write { patch: None, .. }) => "P".into(),
                Some(Write { patch: Some(patch), .. }) => {
                    let patch = body(&patch);
                    let combined = patch["message"].as_str().unwrap().starts_with(COMBINED_PREFIX);
                    format!("U{}{}", patch["count"], if combined { "c" } else { "" })
                }
            })
            .collect();
        texts.join(" ")
    }

    #[test]
    fn a_new_event_is_written_as_upstream_writes_it() {
        let mut core = CoreEvents::new("replicaset-controller");
        let write = core.observe(event("web", "FailedCreate", "no quota"), at(0)).unwrap();
        assert_eq!((write.namespace.as_str(), write.patch.as_ref()), ("shop", None));
        assert_eq!(
            body(&write.create),
            json!({
                "apiVersion": "v1", "kind": "Event",
                "metadata": { "name": write.name, "namespace": "shop" },
                "involvedObject": {
                    "apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "web", "uid": "uid-web",
                    "resourceVersion": "7",
                },
                "reason": "FailedCreate", "message": "no quota", "type": "Warning", "count": 1,
                "source": { "component": "replicaset-controller" },
                "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z",
                "reportingComponent": "replicaset-controller", "reportingInstance": "",
            })
        );
    }

    #[test]
    fn an_equal_event_patches_the_count_of_the_first() {
        let mut core = CoreEvents::new("x");
        let first = core.observe(event("web", "FailedCreate", "no quota"), at(0)).unwrap();
        let mut again = event("web", "FailedCreate", "no quota");
        again.regarding.resource_version = "8".into();
        let second = core.observe(again, at(5)).unwrap();
        assert_eq!(second.name, first.name);
        assert_eq!(
            body(&second.patch.unwrap()),
            json!({ "count": 2, "lastTimestamp": "2026-01-01T00:00:05Z", "message": "no quota" })
        );
        assert_eq!(body(&second.create)["firstTimestamp"], "2026-01-01T00:00:00Z");
        assert_eq!(body(&second.create)["count"], 2);
    }

    #[test]
    fn a_combined_event_names_its_source_but_no_reporter() {
        let mut core = CoreEvents::new("x");
        let writes: Vec<Write> =
            (0..10).filter_map(|i| core.observe(event("web", "R", &format!("message {i}")), at(i))).collect();
        let bodies: Vec<Value> = writes[8..].iter().map(|write| body(&write.create)).collect();
        assert_eq!([&bodies[0]["reportingComponent"], &bodies[0]["source"]["component"]], ["x", "x"]);
        assert_eq!([&bodies[1]["reportingComponent"], &bodies[1]["source"]["component"]], ["", "x"]);
    }

    #[test]
    fn cluster_scoped_objects_have_their_events_in_default() {
        let mut node = event("node-1", "Starting", "up");
        node.regarding.namespace.clear();
        assert_eq!(CoreEvents::new("x").observe(node, at(0)).unwrap().namespace, "default");
    }

    #[test]
    fn correlation_follows_the_table() {
        let note = |i: i64| format!("message {i}");
        for (what, events, expected) in [
            (
                "ten different messages are combined from the tenth on",
                (0..12).map(|i| (event("web", "R", &note(i)), i)).collect::<Vec<_>>(),
                "P P P P P P P P P P U2c U3c",
            ),
            (
                "messages more than ten minutes apart are not similar",
                (0..12).map(|i| (event("web", "R", &note(i)), i * 601)).collect(),
                "P P P P P P P P P P P P",
            ),
            (
                "an object may have 25 events at once",
                (0..28).map(|_| (event("web", "R", "same"), 0)).collect(),
                "P U2 U3 U4 U5 U6 U7 U8 U9 U10 U11 U12 U13 U14 U15 U16 U17 U18 U19 U20 U21 U22 U23 U24 U25 . . .",
            ),
            (
                "and one more after five minutes, which tells the whole count",
                (0..26).map(|_| (event("web", "R", "same"), 0)).chain([(event("web", "R", "same"), 300)]).collect(),
                "P U2 U3 U4 U5 U6 U7 U8 U9 U10 U11 U12 U13 U14 U15 U16 U17 U18 U19 U20 U21 U22 U23 U24 U25 . U27",
            ),
            (
                "other objects and reasons are counted for themselves",
                vec![(event("a", "R", "m"), 0), (event("b", "R", "m"), 0), (event("a", "S", "m"), 0)],
                "P P P",
            ),
        ] {
            assert_eq!(trace(events), expected, "{what}");
        }
    }
}
