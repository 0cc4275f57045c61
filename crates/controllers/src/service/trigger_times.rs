//! When the change happened that endpoints are written for, by which the delay until clients know of it is measured.

use std::sync::Arc;

use bayplan_model::keyed::KeyedMap;
use bayplan_model::meta::Map;
use jiff::Timestamp;

use super::Service;
use crate::pod::Pod;

/// The annotation that says it.
pub(crate) const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// What was last seen of each Service.
#[derive(Debug, Default)]
pub(crate) struct TriggerTimes {
    by_service: KeyedMap<String, Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    service: Option<Timestamp>,
    pods: KeyedMap<String, Timestamp>,
}

impl TriggerTimes {
    /// The oldest change since the last call: a pod that became ready or not, or the Service's creation.
    pub(crate) fn next(&mut self, service: &Service, pods: &[Arc<Pod>]) -> Option<Timestamp> {
        let created = service.metadata.creation_timestamp;
        let key = service.metadata.key();
        let Some(seen) = self.by_service.get_mut(&key) else {
            let pods = pods.iter().filter_map(|pod| Some((pod.metadata.name.clone(), pod.ready_since?))).collect();
            self.by_service.insert(key, Seen { service: created, pods });
            return created;
        };
        let mut first = created.filter(|_| created > seen.service);
        let mut now_seen = KeyedMap::with_capacity_and_hasher(pods.len(), Default::default());
        for pod in pods {
            let Some(since) = pod.ready_since else { continue };
            let name = &pod.metadata.name;
            let (name, before) =
                seen.pods.remove_entry(name).map_or_else(|| (name.clone(), None), |(name, at)| (name, Some(at)));
            if Some(since) > before {
                first = Some(first.map_or(since, |first| first.min(since)));
            }
            now_seen.insert(name, since);
        }
        *seen = Seen { service: created, pods: now_seen };
        first
    }

    /// The Service is gone.
    pub(crate) fn forget(&mut self, key: &str) {
        self.by_service.remove(key);
    }
}

/// Says the time in the annotations of what is about to be written; without a time, none.
pub(crate) fn annotate(annotations: &mut Map, time: Option<Timestamp>) {
    match time {
        Some(time) => drop(annotations.insert(TRIGGER_TIME.into(), time.to_string())),
        None => drop(annotations.remove(TRIGGER_TIME)),
    }
}
