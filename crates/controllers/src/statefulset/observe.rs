//! Which StatefulSets a change concerns.

use std::sync::Arc;
use std::time::Duration;

use bayplan_model::delta::Delta;
use bayplan_model::meta::{ObjectMeta, OwnerReference};
use bayplan_model::storage::PersistentVolumeClaim;

use super::object::StatefulSet;
use super::{KIND, StatefulSetController, identity};
use crate::controller::{Wakeup, lock};
use crate::pod::Pod;

impl StatefulSetController {
    pub(super) fn observe_stateful_set(&self, delta: &Delta<Arc<StatefulSet>>) -> Vec<Wakeup> {
        let (Delta::Added(set) | Delta::Updated { new: set, .. } | Delta::Deleted(set)) = delta;
        let gone = match delta {
            Delta::Updated { old, new } => (old.metadata.uid != new.metadata.uid).then_some(old),
            Delta::Deleted(set) => Some(set),
            Delta::Added(_) => None,
        };
        if let Some(gone) = gone {
            let key = gone.metadata.key();
            lock(&self.consistency).forget(&key, Some(&gone.metadata.uid));
            lock(&self.same_meaning).remove(&key);
        }
        vec![Wakeup::now(set.metadata.key())]
    }

    pub(super) fn observe_pod(&self, delta: &Delta<Arc<Pod>>) -> Vec<Wakeup> {
        match delta {
            Delta::Added(pod) if pod.metadata.deletion_timestamp.is_some() => self.owner(&pod.metadata),
            Delta::Added(pod) if pod.metadata.controller().is_none() => self.matching(&pod.metadata),
            Delta::Added(pod) | Delta::Deleted(pod) => self.owner(&pod.metadata),
            Delta::Updated { old, new } => self.pod_updated(old, new),
        }
    }

    fn pod_updated(&self, old: &Pod, new: &Pod) -> Vec<Wakeup> {
        if old.metadata.resource_version == new.metadata.resource_version {
            return Vec::new();
        }
        let (was, is) = (old.metadata.controller(), new.metadata.controller());
        let mut wakeups = if was == is { Vec::new() } else { self.owner(&old.metadata) };
        let Some(owner) = is else {
            if old.metadata.labels != new.metadata.labels || was.is_some() {
                wakeups.extend(self.matching(&new.metadata));
            }
            return wakeups;
        };
        let Some(set) = self.resolve(&new.metadata.namespace, owner) else { return wakeups };
        wakeups.push(Wakeup::now(set.metadata.key()));
        if !old.ready && new.ready && set.spec.min_ready_seconds > 0 {
            let available = Duration::from_secs(set.spec.min_ready_seconds.unsigned_abs().into());
            wakeups.push(Wakeup::after(set.metadata.key(), available));
        }
        wakeups
    }

    /// A pod is not created while claims of its predecessor are about to go with that one. Upstream is not told when
    /// they are gone, and waits for something else to happen.
    pub(super) fn observe_claim(&self, delta: &Delta<Arc<PersistentVolumeClaim>>) -> Vec<Wakeup> {
        let Delta::Deleted(claim) = delta else { return Vec::new() };
        let pods = claim.metadata.owner_references.iter().filter(|owner| owner.kind == "Pod");
        let sets = pods.filter_map(|pod| identity::parent(&pod.name)).filter_map(|parent| {
            let set = self.cache.stateful_sets().get(&claim.metadata.namespace, parent)?;
            set.deletes_claims().0.then(|| Wakeup::now(set.metadata.key()))
        });
        sets.collect()
    }

    /// The StatefulSet that a pod names as its controller.
    fn owner(&self, pod: &ObjectMeta) -> Vec<Wakeup> {
        let set = pod.controller().and_then(|owner| self.resolve(&pod.namespace, owner));
        set.into_iter().map(|set| Wakeup::now(set.metadata.key())).collect()
    }

    /// The StatefulSet that a reference names, if it is still the same one.
    fn resolve(&self, namespace: &str, owner: &OwnerReference) -> Option<Arc<StatefulSet>> {
        let set = (owner.kind == KIND).then(|| self.cache.stateful_sets().get(namespace, &owner.name)).flatten()?;
        (set.metadata.uid == owner.uid).then_some(set)
    }

    /// The StatefulSets that might adopt an orphan.
    fn matching(&self, orphan: &ObjectMeta) -> Vec<Wakeup> {
        if orphan.labels.is_empty() {
            return Vec::new();
        }
        let wants =
            |set: &&Arc<StatefulSet>| !set.spec.selector.is_everything() && set.spec.selector.matches(&orphan.labels);
        let sets = self.cache.stateful_sets();
        sets.namespace(&orphan.namespace).filter(wants).map(|set| Wakeup::now(set.metadata.key())).collect()
    }
}
