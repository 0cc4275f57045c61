//! Which ReplicaSets a change concerns, and which expectations it meets.

use std::sync::Arc;
use std::time::Duration;

use bayplan_model::delta::Delta;
use bayplan_model::meta::OwnerReference;

use super::ReplicaSetController;
use crate::controller::{Wakeup, lock};
use crate::pod::Pod;
use crate::workload::ReplicaSet;

impl ReplicaSetController {
    pub(super) fn observe_replica_set(&self, delta: &Delta<Arc<ReplicaSet>>) -> Vec<Wakeup> {
        match delta {
            Delta::Added(rs) => vec![Wakeup::now(rs.metadata.key())],
            Delta::Updated { old, new } => {
                if old.metadata.uid != new.metadata.uid {
                    self.forget(old);
                }
                vec![Wakeup::now(new.metadata.key())]
            }
            Delta::Deleted(rs) => {
                self.forget(rs);
                vec![Wakeup::now(rs.metadata.key())]
            }
        }
    }

    fn forget(&self, rs: &ReplicaSet) {
        let key = rs.metadata.key();
        lock(&self.consistency).forget(&key, Some(&rs.metadata.uid));
        lock(&self.expectations).forget(&key);
    }

    pub(super) fn observe_pod(&self, delta: &Delta<Arc<Pod>>) -> Vec<Wakeup> {
        match delta {
            Delta::Added(pod) if pod.metadata.deletion_timestamp.is_some() => self.pod_deleted(pod),
            Delta::Added(pod) => self.pod_added(pod),
            Delta::Updated { old, new } => self.pod_updated(old, new),
            Delta::Deleted(pod) => self.pod_deleted(pod),
        }
    }

    fn pod_added(&self, pod: &Pod) -> Vec<Wakeup> {
        let Some(owner) = pod.metadata.controller() else { return self.matching(pod) };
        let Some(rs) = self.resolve(&pod.metadata.namespace, owner) else { return Vec::new() };
        let key = rs.metadata.key();
        lock(&self.expectations).creation_observed(&key);
        vec![Wakeup::now(key)]
    }

    fn pod_updated(&self, old: &Pod, new: &Pod) -> Vec<Wakeup> {
        if old.metadata.resource_version == new.metadata.resource_version {
            return Vec::new();
        }
        let relabelled = old.metadata.labels != new.metadata.labels;
        if new.metadata.deletion_timestamp.is_some() {
            let mut wakeups = self.pod_deleted(new);
            if relabelled {
                wakeups.extend(self.pod_deleted(old));
            }
            return wakeups;
        }
        let namespace = &new.metadata.namespace;
        let (was, is) = (old.metadata.controller(), new.metadata.controller());
        let mut wakeups = Vec::new();
        if was != is
            && let Some(rs) = was.and_then(|owner| self.resolve(namespace, owner))
        {
            wakeups.push(Wakeup::now(rs.metadata.key()));
        }
        match is {
            Some(owner) => {
                let Some(rs) = self.resolve(namespace, owner) else { return wakeups };
                wakeups.push(Wakeup::now(rs.metadata.key()));
                if !old.ready && new.ready && rs.spec.min_ready_seconds > 0 {
                    let available = Duration::from_secs(rs.spec.min_ready_seconds.unsigned_abs().into());
                    wakeups.push(Wakeup::after(rs.metadata.key(), available));
                }
            }
            None if relabelled || was.is_some() => wakeups.extend(self.matching(new)),
            None => {}
        }
        wakeups
    }

    fn pod_deleted(&self, pod: &Pod) -> Vec<Wakeup> {
        let rs = pod.metadata.controller().and_then(|owner| self.resolve(&pod.metadata.namespace, owner));
        let Some(rs) = rs else { return Vec::new() };
        let key = rs.metadata.key();
        lock(&self.expectations).deletion_observed(&key, &pod.metadata.key());
        vec![Wakeup::now(key)]
    }

    /// The ReplicaSet a pod names as its controller, if it is still the same one.
    fn resolve(&self, namespace: &str, owner: &OwnerReference) -> Option<Arc<ReplicaSet>> {
        let ours = owner.kind == self.owner.kind();
        let rs = ours.then(|| self.owner.get(&self.cache, namespace, &owner.name)).flatten()?;
        (rs.metadata.uid == owner.uid).then_some(rs)
    }

    /// The ReplicaSets that might adopt an orphan.
    fn matching(&self, pod: &Pod) -> Vec<Wakeup> {
        if pod.metadata.labels.is_empty() {
            return Vec::new();
        }
        let sets = self.owner.namespace(&self.cache, &pod.metadata.namespace);
        let wants =
            |rs: &&Arc<ReplicaSet>| !rs.spec.selector.is_everything() && rs.spec.selector.matches(&pod.metadata.labels);
        sets.iter().filter(wants).map(|rs| Wakeup::now(rs.metadata.key())).collect()
    }
}
