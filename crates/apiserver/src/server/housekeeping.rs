//! What the server does unasked: forget old events and old history.

use std::sync::Arc;
use std::time::Duration;

use bayplan_store::Store;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::registry::{Objects, Registry, metadata};
use crate::resources;

/// How long an event is kept, as upstream.
const EVENT_LIFETIME: SignedDuration = SignedDuration::from_hours(1);
/// How often old events are looked for.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);
/// History is kept for one to two of these, as upstream: continue tokens and watches may be that old.
const COMPACTION_INTERVAL: Duration = Duration::from_secs(5 * 60);

/// Removes events an hour after they were last written.
pub(super) async fn expire_events(registry: Arc<Registry>) {
    let events = resources::find("", "v1", "events").expect("a row of the table");
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        match Objects::list(&*registry, events, "").await {
            Ok(found) => {
                let oldest = registry.now() - EVENT_LIFETIME;
                for event in found.iter().filter(|event| last_seen(event).is_some_and(|at| at < oldest)) {
                    remove(&registry, event).await;
                }
            }
            Err(status) => tracing::warn!(%status, "old events could not be read"),
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

async fn remove(registry: &Registry, event: &Value) {
    let events = resources::find("", "v1", "events").expect("a row of the table");
    let key = Registry::key(events, metadata::text(event, "namespace"), metadata::text(event, "name"));
    let Some(version) = metadata::resource_version(event).and_then(|v| v.parse().ok()) else { return };
    // A conflict means that the event was just written again: it is not old any more.
    if let Err(error) = registry.store().delete(&key, version).await {
        tracing::debug!(%key, %error, "an old event stays");
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
