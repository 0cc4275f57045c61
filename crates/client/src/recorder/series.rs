//! The correlator of events.k8s.io/v1 events: the second of its kind turns an event into a series.

use std::time::Duration;

use bayplan_model::api::{Event, EventType, ObjectReference, Resource, encode};
use bayplan_model::timestamp;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::lru::Lru;
use super::{Names, Write, namespace_of};

const EVENTS: Resource = Resource::new("events.k8s.io", "v1", "events");

/// Kinds of events remembered at once; the least recently used one makes room.
const ENTRIES_MAX: usize = 4096;
/// How often to look for series that have ended.
pub(crate) const TICK: Duration = Duration::from_secs(360);
/// A series is over when nothing was added for this long.
const FINISHED_AFTER: SignedDuration = SignedDuration::from_mins(6);
/// A series that goes on is written this often.
const REFRESHED_AFTER: SignedDuration = SignedDuration::from_mins(30);

/// Events of one kind. The object's version is part of it: a status write starts a new event, as upstream.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Kind {
    event_type: EventType,
    action: String,
    reason: String,
    regarding: ObjectReference,
}

struct Entry {
    namespace: String,
    name: String,
    at: Timestamp,
    /// The event as it was first written.
    body: Value,
    series: Option<Series>,
}

struct Series {
    count: u64,
    last: Timestamp,
    written_count: u64,
    written_at: Timestamp,
}

pub(crate) struct SeriesEvents {
    controller: String,
    instance: String,
    names: Names,
    entries: Lru<Kind, Entry>,
}

impl SeriesEvents {
    pub(crate) fn new(controller: &str, instance: &str) -> Self {
        SeriesEvents {
            controller: controller.into(),
            instance: instance.into(),
            names: Names::default(),
            entries: Lru::new(ENTRIES_MAX),
        }
    }

    /// What to write for an event, if anything.
    pub(crate) fn observe(&mut self, event: Event, now: Timestamp) -> Option<Write> {
        let kind = Kind {
            event_type: event.event_type,
            action: event.action.to_string(),
            reason: event.reason.to_string(),
            regarding: event.regarding.clone(),
        };
        if let Some(entry) = self.entries.get_mut(&kind) {
            return entry.repeat(now);
        }
        let entry = self.entry(&event, now);
        let write = entry.write(None);
        self.entries.get_or_insert_with(&kind, || entry);
        Some(write)
    }

    /// Writes the series that are over (and forgets them) or have not been written for long.
    pub(crate) fn tick(&mut self, now: Timestamp) -> Vec<Write> {
        let mut writes = Vec::new();
        let mut finished = Vec::new();
        for (kind, entry) in self.entries.iter_mut() {
            let last = entry.series.as_ref().map_or(entry.at, |series| series.last);
            let over = now.duration_since(last) > FINISHED_AFTER;
            if over {
                finished.push(kind.clone());
            }
            writes.extend(entry.catch_up(over, now));
        }
        finished.iter().for_each(|kind| self.entries.remove(kind));
        writes.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        writes
    }

    fn entry(&mut self, event: &Event, now: Timestamp) -> Entry {
        let namespace = namespace_of(event).to_owned();
        let name = self.names.next(&event.regarding.name, now);
        let body = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": { "name": name, "namespace": namespace },
            "eventTime": timestamp::micros(now),
            "reportingController": self.controller,
            "reportingInstance": self.instance,
            "action": event.action,
            "reason": event.reason,
            "regarding": event.regarding,
            "note": event.note,
            "type": event.event_type,
        });
        Entry { namespace, name, at: now, body, series: None }
    }
}

impl Entry {
    /// The same happened again: the second time is written, the further ones are only counted.
    fn repeat(&mut self, now: Timestamp) -> Option<Write> {
        if let Some(series) = &mut self.series {
            series.count += 1;
            series.last = now;
            return None;
        }
        self.series = Some(Series { count: 2, last: now, written_count: 2, written_at: now });
        Some(self.write(self.series.as_ref()))
    }

    /// Writes a series whose count has moved on, when it is over or was not written for long.
    fn catch_up(&mut self, over: bool, now: Timestamp) -> Option<Write> {
        let series = self.series.as_mut()?;
        let due = over || now.duration_since(series.written_at) >= REFRESHED_AFTER;
        if !due || series.count == series.written_count {
            return None;
        }
        series.written_count = series.count;
        series.written_at = now;
        Some(self.write(self.series.as_ref()))
    }

    fn write(&self, series: Option<&Series>) -> Write {
        let series = series.map(|s| json!({ "count": s.count, "lastObservedTime": timestamp::micros(s.last) }));
        let mut body = self.body.clone();
        let patch = series.map(|series| {
            body["series"] = series.clone();
            encode(&json!({ "series": series }))
        });
        let (namespace, name) = (self.namespace.clone(), self.name.clone());
        Write { resource: EVENTS, namespace, name, patch, create: encode(&body) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{at, event};
    use super::*;

    fn scheduler() -> SeriesEvents {
        SeriesEvents::new("default-scheduler", "default-scheduler-host")
    }

    fn counts(writes: &[Write]) -> Vec<u64> {
        let count = |w: &Write| {
            let patch: Value = serde_json::from_slice(w.patch.as_ref().unwrap()).unwrap();
            patch["series"]["count"].as_u64().unwrap()
        };
        writes.iter().map(count).collect()
    }

    #[test]
    fn an_event_is_written_as_upstreams_scheduler_writes_it() {
        let write = scheduler().observe(event("web", "FailedScheduling", "0/3 nodes"), at(0)).unwrap();
        assert_eq!(write.patch, None);
        assert_eq!(
            serde_json::from_slice::<Value>(&write.create).unwrap(),
            json!({
                "apiVersion": "events.k8s.io/v1", "kind": "Event",
                "metadata": { "name": write.name, "namespace": "shop" },
                "eventTime": "2026-01-01T00:00:00.000000Z",
                "reportingController": "default-scheduler", "reportingInstance": "default-scheduler-host",
                "action": "Scheduling", "reason": "FailedScheduling", "note": "0/3 nodes", "type": "Warning",
                "regarding": {
                    "apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "web", "uid": "uid-web",
                    "resourceVersion": "7",
                },
            })
        );
    }

    #[test]
    fn the_second_occurrence_starts_a_series_and_the_end_tells_the_rest() {
        let mut series = scheduler();
        let happen = |series: &mut SeriesEvents, second| series.observe(event("web", "Failed", "note"), at(second));
        let first = happen(&mut series, 0).unwrap();
        let second = happen(&mut series, 10).unwrap();
        assert_eq!((&second.name, counts(std::slice::from_ref(&second))), (&first.name, vec![2]));
        assert_eq!(
            serde_json::from_slice::<Value>(second.patch.as_ref().unwrap()).unwrap(),
            json!({ "series": { "count": 2, "lastObservedTime": "2026-01-01T00:00:10.000000Z" } })
        );
        assert_eq!((happen(&mut series, 20), happen(&mut series, 30)), (None, None));
        assert!(series.tick(at(300)).is_empty(), "the series is neither over nor old");
        assert_eq!(counts(&series.tick(at(391))), [4]);
        let next = happen(&mut series, 400).unwrap();
        assert!(next.patch.is_none() && next.name != first.name, "a finished series is not continued");
    }

    #[test]
    fn a_long_series_is_refreshed_every_half_hour() {
        let mut series = scheduler();
        let mut refreshed = Vec::new();
        for minute in 0..100 {
            series.observe(event("web", "Failed", "note"), at(minute * 60));
            if minute % 6 == 0 {
                refreshed.extend(counts(&series.tick(at(minute * 60))).into_iter().map(|count| (minute, count)));
            }
        }
        assert_eq!(refreshed, [(36, 37), (66, 67), (96, 97)]);
    }

    #[test]
    fn another_version_of_the_object_is_another_event() {
        let mut series = scheduler();
        let mut changed = event("web", "Failed", "note");
        changed.regarding.resource_version = "8".into();
        assert!(series.observe(event("web", "Failed", "note"), at(0)).unwrap().patch.is_none());
        assert!(series.observe(changed, at(1)).unwrap().patch.is_none());
    }

    #[test]
    fn single_events_are_forgotten_without_a_write() {
        let mut series = scheduler();
        series.observe(event("web", "Failed", "note"), at(0));
        assert!(series.tick(at(361)).is_empty());
        assert!(series.observe(event("web", "Failed", "note"), at(362)).unwrap().patch.is_none());
    }
}
