//! What the server does unasked: forget old events and old history.

use std::sync::Arc;
use std::time::Duration;

use bayplan_model::status::Status;
use bayplan_store::{Entry, Store};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::encode::Encoded;
use crate::registry::Registry;
use crate::{resources, status_errors};

/// How long an event is kept, as upstream.
const EVENT_LIFETIME: SignedDuration = SignedDuration::from_hours(1);
/// How often old events are looked for.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);
/// How many events are looked at before others get their turn.
const SWEPT_AT_ONCE: usize = 500;
/// History is kept for one to two of these, as upstream: continue tokens and watches may be that old.
const COMPACTION_INTERVAL: Duration = Duration::from_secs(5 * 60);

/// Removes events an hour after they were last written.
pub(super) async fn expire_events(registry: Arc<Registry>) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        if let Err(status) = sweep(&registry).await {
            tracing::warn!(%status, "old events could not be read");
        }
    }
}

/// Looks at all events, some at a time: there are as many as pods that were ever placed in an hour.
async fn sweep(registry: &Registry) -> Result<(), Status> {
    let events = resources::find("", "v1", "events").expect("a row of the table");
    let oldest = registry.now() - EVENT_LIFETIME;
    let (mut start, end) = Registry::bounds(events, "");
    loop {
        let range = registry.store().range(&start, &end, None, SWEPT_AT_ONCE).await.map_err(status_errors::read)?;
        for entry in &range.entries {
            // Not through the cache, which would keep what was decoded.
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

/// The newest time an event names.
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
    // A conflict means that the event was just written again: it is not old any more.
    if let Err(error) = registry.store().delete(&event.key, event.mod_revision).await {
        tracing::debug!(key = %event.key, %error, "an old event stays");
    }
}

/// Forgets history older than one interval.
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
    use crate::admission::Plugins;
    use crate::registry::{Objects, ServiceRange};

    #[tokio::test]
    async fn every_event_that_is_an_hour_old_goes_however_many_there_are() {
        let now: Timestamp = "2026-05-28T12:00:00Z".parse().unwrap();
        let store = Arc::new(LogStore::in_memory().unwrap());
        let registry = Registry::new(store, Arc::new(move || now), Plugins::default(), ServiceRange::default());
        let events = resources::find("", "v1", "events").unwrap();
        for number in 0..2 * SWEPT_AT_ONCE + 1 {
            // Every other one was told again since.
            let again = if number % 2 == 0 { "2026-05-28T11:30:00Z" } else { "2026-05-28T10:59:59Z" };
            let event = json!({
                "apiVersion": "v1", "kind": "Event", "lastTimestamp": again,
                "metadata": {"name": format!("e{number}"), "namespace": "ns", "creationTimestamp": "2026-05-28T10:00:00Z"},
            });
            let encoded = Encoded::new(events, &event);
            let key = Registry::key(events, "ns", &format!("e{number}"));
            registry.store().create(&key, encoded.bytes().clone()).await.unwrap();
        }
        sweep(&registry).await.unwrap();
        let left = Objects::list(&registry, events, "").await.unwrap();
        assert_eq!(left.len(), SWEPT_AT_ONCE + 1);
        assert!(left.iter().all(|event| event["lastTimestamp"] == "2026-05-28T11:30:00Z"));
    }
}
