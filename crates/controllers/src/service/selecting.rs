//! Which Services select a pod: asked for every change of every pod, so that a pod is not compared with all Services of
//! its namespace.

use std::collections::BTreeSet;
use std::sync::Arc;

use bayplan_model::delta::Delta;
use bayplan_model::keyed::KeyedMap;
use bayplan_model::meta::Map;

use super::Service;
use crate::cache::Cache;
use crate::pod::Pod;

/// The Services by the first label that their selector asks for.
#[derive(Debug, Default)]
pub(crate) struct Selecting {
    /// `namespace/label=value` and the names of Services.
    names: KeyedMap<String, BTreeSet<String>>,
}

fn entry(namespace: &str, label: &str, value: &str) -> String {
    format!("{namespace}/{label}={value}")
}

fn entry_of(service: &Service) -> Option<String> {
    let (label, value) = service.spec.selector.iter().next()?;
    Some(entry(&service.metadata.namespace, label, value))
}

impl Selecting {
    /// Follows a change of a Service.
    pub(crate) fn observe(&mut self, delta: &Delta<Arc<Service>>) {
        match delta {
            Delta::Added(service) => self.insert(service),
            Delta::Updated { old, new } => {
                self.remove(old);
                self.insert(new);
            }
            Delta::Deleted(service) => self.remove(service),
        }
    }

    fn insert(&mut self, service: &Service) {
        if let Some(entry) = entry_of(service) {
            self.names.entry(entry).or_default().insert(service.metadata.name.clone());
        }
    }

    fn remove(&mut self, service: &Service) {
        let Some(entry) = entry_of(service) else { return };
        if let Some(names) = self.names.get_mut(&entry) {
            names.remove(&service.metadata.name);
            if names.is_empty() {
                self.names.remove(&entry);
            }
        }
    }

    /// The keys of the Services that a change of a pod concerns; upstream's `GetServicesToUpdate`.
    pub(crate) fn concerned(&self, delta: &Delta<Arc<Pod>>, cache: &Cache) -> BTreeSet<String> {
        let of = |pod: &Pod| self.of(&pod.metadata.namespace, &pod.metadata.labels, cache);
        let (old, new) = match delta {
            Delta::Added(pod) | Delta::Deleted(pod) => return of(pod),
            // Said again in a resync, which says all Services again, too.
            Delta::Updated { old, new } if old.metadata.resource_version == new.metadata.resource_version => {
                return BTreeSet::new();
            }
            Delta::Updated { old, new } => (old, new),
        };
        let renamed = old.metadata.labels != new.metadata.labels || old.hostname() != new.hostname();
        match (changes_endpoint(old, new), renamed) {
            (false, false) => BTreeSet::new(),
            (true, false) => of(new),
            (true, true) => of(old).union(&of(new)).cloned().collect(),
            (false, true) => of(old).symmetric_difference(&of(new)).cloned().collect(),
        }
    }

    /// The keys of the Services that select these labels.
    fn of(&self, namespace: &str, labels: &Map, cache: &Cache) -> BTreeSet<String> {
        let asked = labels.iter().filter_map(|(label, value)| self.names.get(&entry(namespace, label, value)));
        let services = cache.services();
        let found = asked.flatten().filter_map(|name| services.get(namespace, name));
        found.filter(|service| service.matches(labels)).map(|service| service.metadata.key()).collect()
    }
}

/// Whether what endpoints show of a pod may have changed. Upstream takes every change of a pod that is being deleted
/// for one.
fn changes_endpoint(old: &Pod, new: &Pod) -> bool {
    old.metadata.uid != new.metadata.uid
        || old.metadata.deletion_timestamp.is_some()
        || new.metadata.deletion_timestamp.is_some()
        || old.ready != new.ready
        || old.ips() != new.ips()
}
