//! What a loop knows of the EndpointSlices it manages: which belong to which Service, and which of its own writes the
//! cache must have before the next reconcile.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bayplan_model::delta::Delta;
use bayplan_model::keyed::{KeyedMap, KeyedSet};
use bayplan_model::meta::ObjectMeta;

use super::object::EndpointSlice;
use super::{MANAGED_BY, SERVICE_NAME};
use crate::cache::Cache;
use crate::consistency::is_behind;
use crate::controller::{Wakeup, lock, split_key};
use crate::error::Error;

/// What a loop wrote last.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Written {
    /// A generation, and the version at which it was written.
    Generation(i64, String),
    Deletion,
}

/// The slices of one loop.
#[derive(Debug)]
pub(crate) struct Tracker {
    /// The value of label `endpointslice.kubernetes.io/managed-by` of its slices.
    manager: &'static str,
    /// How long the Service of a slice that somebody else changed waits.
    delay: Duration,
    /// By Service, then by UID.
    written: Mutex<KeyedMap<String, KeyedMap<String, Written>>>,
    /// The names of the slices of each Service.
    names: Mutex<KeyedMap<String, BTreeSet<String>>>,
}

/// The key of a slice's Service; none when its label is missing.
fn service_of(slice: &EndpointSlice) -> Option<String> {
    let name = slice.label(SERVICE_NAME);
    (!name.is_empty()).then(|| format!("{}/{name}", slice.metadata.namespace))
}

impl Tracker {
    pub(crate) fn new(manager: &'static str, delay: Duration) -> Self {
        Tracker { manager, delay, written: Mutex::default(), names: Mutex::default() }
    }

    fn manages(&self, slice: &EndpointSlice) -> bool {
        slice.label(MANAGED_BY) == self.manager
    }

    /// The slices of a Service in the cache, those that were written longest ago first.
    pub(crate) fn slices(&self, service: &str, cache: &Cache) -> Vec<Arc<EndpointSlice>> {
        let names = lock(&self.names);
        let Some(names) = names.get(service) else { return Vec::new() };
        let (namespace, _) = split_key(service);
        let slices = cache.endpoint_slices();
        let found = names.iter().filter_map(|name| slices.get(namespace, name));
        let its = found.filter(|slice| self.manages(slice) && service_of(slice).as_deref() == Some(service));
        let mut its: Vec<_> = its.collect();
        // Names are in order already, and part those that have no version.
        its.sort_by_key(|slice| slice.metadata.resource_version.parse::<u64>().unwrap_or(0));
        its
    }

    /// Follows a change of a slice; the keys of Services that must look at it.
    pub(crate) fn observe(&self, delta: &Delta<Arc<EndpointSlice>>) -> Vec<Wakeup> {
        self.index(delta);
        let concerned: Vec<&EndpointSlice> = match delta {
            Delta::Added(slice) if self.manages(slice) && self.is_news(slice) => vec![slice],
            // A generation does not count changes of this label.
            Delta::Updated { old, new } if old.label(SERVICE_NAME) != new.label(SERVICE_NAME) => vec![new, old],
            Delta::Updated { old, new }
                if self.manages(old) != self.manages(new) || (self.manages(new) && self.is_news(new)) =>
            {
                vec![new]
            }
            Delta::Deleted(slice) if self.manages(slice) && self.is_unexpected(slice) => vec![slice],
            _ => Vec::new(),
        };
        concerned.into_iter().filter_map(service_of).map(|key| Wakeup::after(key, self.delay)).collect()
    }

    fn index(&self, delta: &Delta<Arc<EndpointSlice>>) {
        let (gone, there) = match delta {
            Delta::Added(slice) => (None, Some(slice)),
            Delta::Updated { old, new } => (Some(old), Some(new)),
            Delta::Deleted(slice) => (Some(slice), None),
        };
        let mut names = lock(&self.names);
        let managed = |slice: Option<&Arc<EndpointSlice>>| {
            let slice = slice.filter(|slice| self.manages(slice))?;
            Some((service_of(slice)?, slice.metadata.name.clone()))
        };
        if let Some((service, name)) = managed(gone)
            && let Some(known) = names.get_mut(&service)
        {
            known.remove(&name);
            if known.is_empty() {
                names.remove(&service);
            }
        }
        if let Some((service, name)) = managed(there) {
            names.entry(service).or_default().insert(name);
        }
    }

    /// Whether somebody else wrote it.
    fn is_news(&self, slice: &EndpointSlice) -> bool {
        let Some(service) = service_of(slice) else { return true };
        match lock(&self.written).get(&service).and_then(|slices| slices.get(&slice.metadata.uid)) {
            Some(Written::Generation(written, _)) => slice.metadata.generation > *written,
            Some(Written::Deletion) | None => true,
        }
    }

    /// Whether somebody else deleted a slice. Upstream does not notice when a slice is deleted that another process, or
    /// it before its restart, has written.
    fn is_unexpected(&self, slice: &EndpointSlice) -> bool {
        let Some(service) = service_of(slice) else { return false };
        let mut written = lock(&self.written);
        let slices = written.get_mut(&service);
        slices.and_then(|slices| slices.remove(&slice.metadata.uid)) != Some(Written::Deletion)
    }

    /// Whether the cache has what this loop wrote.
    pub(crate) fn check(&self, service: &str, slices: &[Arc<EndpointSlice>], cache: &Cache) -> Result<(), Error> {
        let mut written = lock(&self.written);
        let Some(written) = written.get_mut(service) else { return Ok(()) };
        let is_late = |slice: &Arc<EndpointSlice>| match written.get(&slice.metadata.uid) {
            Some(Written::Generation(generation, _)) => *generation > slice.metadata.generation,
            Some(Written::Deletion) => true,
            None => false,
        };
        let mut late = slices.iter().any(is_late);
        let provided: KeyedSet<&str> = slices.iter().map(|slice| slice.metadata.uid.as_str()).collect();
        let seen = cache.endpoint_slices();
        written.retain(|uid, last| match last {
            // A write that the cache has gone past without keeping the slice: somebody deleted it before this loop
            // knew of its own write.
            Written::Generation(_, version) if !provided.contains(uid.as_str()) => {
                let not_seen = is_behind(seen.version(), version);
                late |= not_seen;
                not_seen
            }
            // Slices are deleted that the cache has; what it does not have any more, it has seen deleted.
            Written::Deletion => provided.contains(uid.as_str()),
            Written::Generation(..) => true,
        });
        match late {
            true => Err(Error::Outdated("EndpointSlice informer cache is out of date".into())),
            false => Ok(()),
        }
    }

    /// This loop wrote a slice, or takes it for its own.
    pub(crate) fn wrote(&self, slice: &EndpointSlice) {
        let ObjectMeta { generation, resource_version, .. } = &slice.metadata;
        self.note(slice, Written::Generation(*generation, resource_version.clone()));
    }

    /// This loop deleted a slice.
    pub(crate) fn deleted(&self, slice: &EndpointSlice) {
        self.note(slice, Written::Deletion);
    }

    fn note(&self, slice: &EndpointSlice, last: Written) {
        if let Some(service) = service_of(slice) {
            lock(&self.written).entry(service).or_default().insert(slice.metadata.uid.clone(), last);
        }
    }

    /// Whether this loop has written it.
    pub(crate) fn knows(&self, slice: &EndpointSlice) -> bool {
        let Some(service) = service_of(slice) else { return false };
        lock(&self.written).get(&service).is_some_and(|slices| slices.contains_key(&slice.metadata.uid))
    }

    /// The Service is gone.
    pub(crate) fn forget(&self, service: &str) {
        lock(&self.written).remove(service);
    }
}
