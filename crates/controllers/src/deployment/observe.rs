//! Which Deployments a change concerns.

use std::sync::Arc;

use bayplan_model::delta::Delta;
use bayplan_model::meta::OwnerReference;

use super::{DeploymentController, KIND, replica_set_key};
use crate::cache::ControllerKey;
use crate::controller::Wakeup;
use crate::pod::Pod;
use crate::workload::{Deployment, ReplicaSet};

impl DeploymentController {
    pub(super) fn observe_deployment(&self, delta: &Delta<Arc<Deployment>>) -> Vec<Wakeup> {
        let (Delta::Added(d) | Delta::Updated { new: d, .. } | Delta::Deleted(d)) = delta;
        vec![Wakeup::now(d.metadata.key())]
    }

    pub(super) fn observe_replica_set(&self, delta: &Delta<Arc<ReplicaSet>>) -> Vec<Wakeup> {
        match delta {
            Delta::Deleted(rs) => self.owner(rs),
            Delta::Added(rs) if rs.metadata.controller().is_some() || rs.metadata.deletion_timestamp.is_some() => {
                self.owner(rs)
            }
            Delta::Added(rs) => self.matching(rs),
            Delta::Updated { old, new } => {
                if old.metadata.resource_version == new.metadata.resource_version {
                    return Vec::new();
                }
                let (was, is) = (old.metadata.controller(), new.metadata.controller());
                let mut wakeups = if was != is { self.owner(old) } else { Vec::new() };
                match is {
                    Some(_) => wakeups.extend(self.owner(new)),
                    None if was.is_some() || old.metadata.labels != new.metadata.labels => {
                        wakeups.extend(self.matching(new));
                    }
                    None => {}
                }
                wakeups
            }
        }
    }

    /// Wakes the Deployment when the last old pod of a Recreate rollout is deleted: nothing else would.
    pub(super) fn observe_pod(&self, delta: &Delta<Arc<Pod>>) -> Vec<Wakeup> {
        let Delta::Deleted(pod) = delta else { return Vec::new() };
        let Some(owner) = pod.metadata.controller().filter(|owner| owner.kind == "ReplicaSet") else {
            return Vec::new();
        };
        let Some(rs) = self.cache.replica_sets().get(&pod.metadata.namespace, &owner.name) else { return Vec::new() };
        let Some(d) = rs.metadata.controller().and_then(|owner| self.resolve(&rs.metadata.namespace, owner)) else {
            return Vec::new();
        };
        if rs.metadata.uid != owner.uid || d.spec.strategy.strategy_type != "Recreate" {
            return Vec::new();
        }
        let (sets, pods) = (self.cache.replica_sets(), self.cache.pods());
        let own = sets.controlled_by(&ControllerKey::of(KIND, &d.metadata));
        let mut left = own.flat_map(|rs| pods.controlled_by(&replica_set_key(rs)));
        if left.next().is_some() { Vec::new() } else { vec![Wakeup::now(d.metadata.key())] }
    }

    fn owner(&self, rs: &ReplicaSet) -> Vec<Wakeup> {
        let d = rs.metadata.controller().and_then(|owner| self.resolve(&rs.metadata.namespace, owner));
        d.map(|d| Wakeup::now(d.metadata.key())).into_iter().collect()
    }

    fn resolve(&self, namespace: &str, owner: &OwnerReference) -> Option<Arc<Deployment>> {
        let d = (owner.kind == KIND).then(|| self.cache.deployments().get(namespace, &owner.name)).flatten()?;
        (d.metadata.uid == owner.uid).then_some(d)
    }

    /// The Deployments that might adopt an orphan.
    fn matching(&self, rs: &ReplicaSet) -> Vec<Wakeup> {
        if rs.metadata.labels.is_empty() {
            return Vec::new();
        }
        let deployments = self.cache.deployments();
        let wants =
            |d: &&Arc<Deployment>| !d.spec.selector.is_everything() && d.spec.selector.matches(&rs.metadata.labels);
        deployments.namespace(&rs.metadata.namespace).filter(wants).map(|d| Wakeup::now(d.metadata.key())).collect()
    }
}
