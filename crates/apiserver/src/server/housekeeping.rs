//! Background work: deletes old events and compacts the store's history.

use std::sync::Arc;
use std::time::Duration;

use bayplan_model::status::Status;
use bayplan_store::{Entry, Store};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::encode::Encoded;
use crate::registry::Registry;
use crate::status_errors;

/// How long an event is kept; upstream's `--event-ttl`.
const EVENT_LIFETIME: SignedDuration = SignedDuration::from_hours(1);
/// How often old events are deleted.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);
/// How many events are read at once, so that other requests get their turn.
const SWEEP_CHUNK: usize = 500;
/// How often history is compacted, as upstream. It is kept for one to two intervals: continue tokens and watches may
/// be that old.
const COMPACTION_INTERVAL: Duration = Duration::from_secs(5 * 60);

/// Deletes events an hour after they were last seen. Upstream gives their keys a lease in etcd; like there, the
/// deletion passes neither authorization nor admission.
pub(super) async fn expire_events(registry: Arc<Registry>) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        if let Err(status) = sweep(&registry).await {
            tracing::warn!(%status, "old events could not be read");
        }
    }
}

/// Reads all events in chunks: there can be one for each pod that was placed within the hour.
async fn sweep(registry: &Registry) -> Result<(), Status> {
    let events = bayplan_kinds::find("", "v1", "events").expect("a row of the table");
    let oldest = registry.now() - EVENT_LIFETIME;
    let (mut start, end) = Registry::bounds(events, "");
    loop {
        let range = registry.store().range(&start, &end, None, SWEEP_CHUNK).await.map_err(status_errors::read)?;
        for entry in &range.entries {
            // Not through the watch cache, which would keep the decoded event.
            let event = Encoded::from_store(events, entry.value.clone())?.decode(None)?;
            if last_seen(&event).is_some_and(|at| at < oldest) {
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
    let mut previous = None;
    loop {
        let current = store.revision().await.ok();
        if let Some(oldest) = previous
            && let Err(error) = store.compact(oldest).await
        {
            tracing::debug!(%error, "history was not compacted");
        }
        previous = current;
        tokio::time::sleep(COMPACTION_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use bayplan_store::LogStore;
    use serde_json::json;

    use super::*;
    use crate::admission::AdmissionPlugins;
    use crate::authz::Authorizer;
    use crate::registry::{Objects, ServiceRange};

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
        sweep(&registry).await.unwrap();
        let left = Objects::list(&registry, events, "").await.unwrap();
        assert_eq!(left.len(), SWEEP_CHUNK + 1);
        assert!(left.iter().all(|event| event["lastTimestamp"] == "2026-05-28T11:30:00Z"));
    }
}
