//! Background work: deletes old events and compacts the store's history.
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects, reason = "clients choose the numbers"))]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bayplan_model::status::Status;
use bayplan_store::{CompactionTurn, Entry, Revision, Store};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::encode::Encoded;
use crate::registry::Registry;
use crate::status_errors;

/// How often old events are deleted.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);
/// How many events are read at once, so that other requests get their turn.
const SWEEP_CHUNK: usize = 500;
/// How often history is compacted, as upstream. It is kept for one to two intervals: continue tokens and watches may
/// be that old.
const COMPACTION_INTERVAL: Duration = Duration::from_secs(5 * 60);

/// Deletes events so long after they were last written, in a store that does not do it by itself: on etcd their keys
/// have leases. Like there, the deletion passes neither authorization nor admission.
pub(super) async fn expire_events(registry: Arc<Registry>) {
    if registry.store().expires_keys() {
        return;
    }
    let lifetime = SignedDuration::try_from(registry.event_lifetime).unwrap_or(SignedDuration::MAX);
    let mut history = RevisionHistory::new(lifetime);
    loop {
        if let Err(status) = sweep(&registry, &mut history).await {
            tracing::warn!(%status, "old events could not be read");
        }
        tokio::time::sleep(SWEEP_INTERVAL).await;
    }
}

/// Which revisions are an hour old. The times in an event are its author's, who may write any; the revision of its last
/// write is the store's.
struct RevisionHistory {
    /// How old events become.
    lifetime: SignedDuration,
    /// The revision when the server started. It knows no times of older ones.
    start: Option<Revision>,
    /// The newest revision at each sweep, oldest first: an hour of them.
    sweeps: VecDeque<(Timestamp, Revision)>,
}

impl RevisionHistory {
    fn new(lifetime: SignedDuration) -> Self {
        RevisionHistory { lifetime, start: None, sweeps: VecDeque::new() }
    }

    /// Notes the current revision; answers the newest that is as old as events become, if one is.
    fn note(&mut self, now: Timestamp, current: Revision) -> Option<Revision> {
        self.start.get_or_insert(current);
        self.sweeps.push_back((now, current));
        let oldest = now.checked_sub(self.lifetime).unwrap_or(Timestamp::MIN);
        while self.sweeps.get(1).is_some_and(|(at, _)| *at <= oldest) {
            self.sweeps.pop_front();
        }
        self.sweeps.front().filter(|(at, _)| *at <= oldest).map(|(_, revision)| *revision)
    }

    /// Whether an event is from before the server started, so that only its own times tell its age. No later than an
    /// hour after the start it expires whatever they say.
    fn predates(&self, revision: Revision) -> bool {
        self.start.is_some_and(|start| revision <= start)
    }
}

/// Reads all events in chunks: there can be one for each pod that was placed within the hour.
async fn sweep(registry: &Registry, history: &mut RevisionHistory) -> Result<(), Status> {
    let events = bayplan_kinds::find("", "v1", "events").expect("a row of the table");
    let current = registry.store().revision().await.map_err(status_errors::read)?;
    let expired = history.note(registry.now(), current);
    let oldest = registry.now().checked_sub(history.lifetime).unwrap_or(Timestamp::MIN);
    let (mut start, end) = Registry::bounds(events, "");
    loop {
        let range = registry.store().range(&start, &end, None, SWEEP_CHUNK).await.map_err(status_errors::read)?;
        for entry in &range.entries {
            let mut old = expired.is_some_and(|expired| entry.mod_revision <= expired);
            if !old && history.predates(entry.mod_revision) {
                // Not through the watch cache, which would keep the decoded event.
                let event = Encoded::from_store(events, entry.value.clone())?.decode(None)?;
                old = last_seen(&event).is_some_and(|at| at < oldest);
            }
            if old {
                remove(registry, entry).await;
            }
        }
        match range.entries.last() {
            Some(last) if range.remaining > 0 => start = format!("{}\0", last.key),
            _ => return Ok(()),
        }
    }
}

/// The newest time in an event.
fn last_seen(event: &Value) -> Option<Timestamp> {
    let times = [
        &event["metadata"]["creationTimestamp"],
        &event["lastTimestamp"],
        &event["eventTime"],
        &event["series"]["lastObservedTime"],
    ];
    times.iter().filter_map(|time| time.as_str()?.parse().ok()).max()
}

async fn remove(registry: &Registry, event: &Entry) {
    // A conflict means that the event was written again and is no longer old.
    if let Err(error) = registry.store().delete(&event.key, event.mod_revision).await {
        tracing::debug!(key = %event.key, %error, "an old event stays");
    }
}

/// Compacts history that is older than one interval.
pub(super) async fn compact(store: Arc<dyn Store>) {
    let mut turn = CompactionTurn::default();
    loop {
        match store.compact_turn(turn).await {
            Ok(next) => turn = next,
            Err(error) => tracing::debug!(%error, "history was not compacted"),
        }
        tokio::time::sleep(COMPACTION_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use bayplan_store::LogStore;
    use serde_json::json;

    use super::*;
    use crate::admission::AdmissionPlugins;
    use crate::authz::Authorizer;
    use crate::registry::{Objects, ServiceRange};

    #[tokio::test]
    async fn an_event_expires_an_hour_after_its_last_write_whatever_times_it_carries() {
        let start: Timestamp = "2026-05-28T12:00:00Z".parse().unwrap();
        let minutes = Arc::new(AtomicI64::new(0));
        let clock = minutes.clone();
        let now = move || start + SignedDuration::from_mins(clock.load(Ordering::Relaxed));
        let store = Arc::new(LogStore::in_memory().unwrap());
        let registry = Registry::new(
            store,
            Arc::new(now),
            AdmissionPlugins::default(),
            ServiceRange::default(),
            Authorizer::default(),
        );
        let events = bayplan_kinds::find("", "v1", "events").unwrap();
        let write = async |name: &str, seen: &str| {
            let event = json!({
                "apiVersion": "v1", "kind": "Event", "lastTimestamp": seen, "eventTime": "9999-01-01T00:00:00.000000Z",
                "metadata": {"name": name, "namespace": "ns", "creationTimestamp": "2026-05-28T12:00:00Z"},
            });
            let (key, value) = (Registry::key(events, "ns", name), Encoded::new(events, &event).bytes().clone());
            match registry.store().get(&key).await.unwrap() {
                None => registry.store().create(&key, value).await.unwrap(),
                Some(entry) => registry.store().update(&key, value, entry.mod_revision).await.unwrap(),
            }
        };
        let mut history = RevisionHistory::new(SignedDuration::from_hours(1));
        write("before-the-start", "9999-12-30T00:00:00Z").await;
        for minute in 0..=125 {
            minutes.store(minute, Ordering::Relaxed);
            sweep(&registry, &mut history).await.unwrap();
            match minute {
                0 => {
                    write("written-once", "9999-12-30T00:00:00Z").await;
                }
                10 => {
                    write("written-again", "9999-12-30T00:00:00Z").await;
                }
                50 => {
                    write("written-again", "1999-12-30T00:00:00Z").await;
                }
                _ => {}
            }
            let mut left = Vec::new();
            for event in Objects::list(&registry, events, "").await.unwrap() {
                left.push(event["metadata"]["name"].as_str().unwrap().to_owned());
            }
            let expected: &[&str] = match minute {
                0..10 => &["before-the-start", "written-once"],
                10..60 => &["before-the-start", "written-again", "written-once"],
                60 => &["written-again", "written-once"],
                61..=110 => &["written-again"],
                _ => &[],
            };
            assert_eq!(left, expected, "after {minute} minutes");
        }
    }

    #[tokio::test]
    async fn all_events_that_are_an_hour_old_are_deleted() {
        let now: Timestamp = "2026-05-28T12:00:00Z".parse().unwrap();
        let store = Arc::new(LogStore::in_memory().unwrap());
        let plugins = AdmissionPlugins::default();
        let registry =
            Registry::new(store, Arc::new(move || now), plugins, ServiceRange::default(), Authorizer::default());
        let events = bayplan_kinds::find("", "v1", "events").unwrap();
        for number in 0..2 * SWEEP_CHUNK + 1 {
            // Every other event was seen again later.
            let again = if number % 2 == 0 { "2026-05-28T11:30:00Z" } else { "2026-05-28T10:59:59Z" };
            let event = json!({
                "apiVersion": "v1", "kind": "Event", "lastTimestamp": again,
                "metadata": {
                    "name": format!("e{number}"), "namespace": "ns", "creationTimestamp": "2026-05-28T10:00:00Z",
                },
            });
            let encoded = Encoded::new(events, &event);
            let key = Registry::key(events, "ns", &format!("e{number}"));
            registry.store().create(&key, encoded.bytes().clone()).await.unwrap();
        }
        sweep(&registry, &mut RevisionHistory::new(SignedDuration::from_hours(1))).await.unwrap();
        let left = Objects::list(&registry, events, "").await.unwrap();
        assert_eq!(left.len(), SWEEP_CHUNK + 1);
        assert!(left.iter().all(|event| event["lastTimestamp"] == "2026-05-28T11:30:00Z"));
    }
}
