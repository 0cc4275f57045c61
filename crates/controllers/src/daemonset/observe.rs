//! Which DaemonSets a change concerns, and which expectations it meets.
//!
//! Nodes wake their own key, a name without a namespace; its reconcile finds out which DaemonSets have something to do
//! on the node.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bayplan_model::delta::Delta;
use bayplan_model::meta::{HasMeta, ObjectMeta, OwnerReference};

use super::nodes::fit;
use super::object::DaemonSet;
use super::{DaemonSetController, KIND};
use crate::controller::{Requeue, Wakeup, lock};
use crate::node::Node;
use crate::pod::Pod;

/// The clock of a kubelet may be a little ahead: a pod is looked at again this long after it should be available.
const SKEW: Duration = Duration::from_secs(1);

fn is_daemon(pod: &Pod) -> bool {
    pod.metadata.controller().is_some_and(|owner| owner.kind == KIND)
}

/// The change as it concerns the pods of DaemonSets; a pod becomes one of them by adoption.
fn of_daemons(delta: &Delta<Arc<Pod>>) -> Option<Delta<Arc<Pod>>> {
    match delta {
        Delta::Updated { old, new } => match (is_daemon(old), is_daemon(new)) {
            (true, true) => Some(delta.clone()),
            (false, true) => Some(Delta::Added(new.clone())),
            (true, false) => Some(Delta::Deleted(old.clone())),
            (false, false) => None,
        },
        Delta::Added(pod) | Delta::Deleted(pod) => is_daemon(pod).then(|| delta.clone()),
    }
}

impl DaemonSetController {
    pub(super) fn observe_daemon_set(&self, delta: &Delta<Arc<DaemonSet>>) -> Vec<Wakeup> {
        let ds = match delta {
            Delta::Added(ds) => ds,
            Delta::Updated { old, new } => {
                if old.metadata.uid != new.metadata.uid {
                    self.forget(old);
                }
                new
            }
            Delta::Deleted(ds) => {
                self.forget(ds);
                ds
            }
        };
        vec![Wakeup::now(ds.metadata.key())]
    }

    fn forget(&self, ds: &DaemonSet) {
        let key = ds.metadata.key();
        lock(&self.consistency).forget(&key, Some(&ds.metadata.uid));
        lock(&self.expectations).forget(&key);
    }

    pub(super) fn observe_node(&self, delta: &Delta<Arc<Node>>) -> Vec<Wakeup> {
        let concerns =
            |old: &Node, new: &Node| old.metadata.labels != new.metadata.labels || old.spec.taints != new.spec.taints;
        match delta {
            Delta::Added(node) => vec![Wakeup::now(&node.metadata.name)],
            Delta::Updated { old, new } if concerns(old, new) => vec![Wakeup::now(&new.metadata.name)],
            // The pods of a node that is gone are the pod garbage collector's.
            Delta::Updated { .. } | Delta::Deleted(_) => Vec::new(),
        }
    }

    /// Wakes the DaemonSets that have something to do on a node; upstream's `syncNodeUpdate`.
    pub(super) fn reconcile_node(&self, name: &str) -> Requeue {
        let Some(node) = self.cache.nodes().get("", name) else { return Requeue::OnChange };
        let pods = lock(&self.daemons_by_node).on(name, &self.cache);
        let scheduled: BTreeSet<(&str, &str)> = pods
            .iter()
            .filter_map(|pod| Some((pod.metadata.namespace.as_str(), pod.metadata.controller()?.name.as_str())))
            .collect();
        let concerned = |ds: &&Arc<DaemonSet>| {
            let fit = fit(&ds.spec.template, &node);
            let scheduled = scheduled.contains(&(ds.metadata.namespace.as_str(), ds.metadata.name.as_str()));
            match scheduled {
                false => fit.should_run,
                true => !fit.should_continue || ds.status.number_misscheduled > 0,
            }
        };
        let keys: Vec<Wakeup> = {
            let sets = self.cache.daemon_sets();
            sets.all().filter(concerned).map(|ds| Wakeup::now(ds.metadata.key())).collect()
        };
        Requeue::Keys { keys, again: false }
    }

    pub(super) fn observe_pod(&self, delta: &Delta<Arc<Pod>>) -> Vec<Wakeup> {
        if let Some(delta) = of_daemons(delta) {
            lock(&self.daemons_by_node).observe(&delta);
        }
        match delta {
            Delta::Added(pod) if pod.metadata.deletion_timestamp.is_some() => self.pod_deleted(pod),
            Delta::Added(pod) => self.pod_added(pod),
            Delta::Updated { old, new } => self.pod_updated(old, new),
            Delta::Deleted(pod) => self.pod_deleted(pod),
        }
    }

    fn pod_added(&self, pod: &Pod) -> Vec<Wakeup> {
        let Some(owner) = pod.metadata.controller() else { return self.matching(&pod.metadata) };
        let Some(ds) = self.resolve(&pod.metadata.namespace, owner) else { return Vec::new() };
        let key = ds.metadata.key();
        lock(&self.expectations).creation_observed(&key);
        vec![Wakeup::now(key)]
    }

    fn pod_updated(&self, old: &Pod, new: &Pod) -> Vec<Wakeup> {
        if old.metadata.resource_version == new.metadata.resource_version {
            return Vec::new();
        }
        if new.metadata.deletion_timestamp.is_some() {
            return self.pod_deleted(new);
        }
        let (mut wakeups, owner) = self.owners_of_changed(&old.metadata, &new.metadata);
        if let Some(ds) = owner
            && !old.ready
            && new.ready
            && ds.spec.min_ready_seconds > 0
        {
            let available = Duration::from_secs(ds.spec.min_ready_seconds.unsigned_abs().into());
            wakeups.push(Wakeup::after(ds.metadata.key(), available + SKEW));
        }
        wakeups
    }

    fn pod_deleted(&self, pod: &Pod) -> Vec<Wakeup> {
        let ds = pod.metadata.controller().and_then(|owner| self.resolve(&pod.metadata.namespace, owner));
        let Some(ds) = ds else { return Vec::new() };
        let key = ds.metadata.key();
        lock(&self.expectations).deletion_observed(&key, &pod.metadata.key());
        vec![Wakeup::now(key)]
    }

    /// Revisions belong to DaemonSets as pods do.
    pub(super) fn observe_revision<T: HasMeta>(&self, delta: &Delta<Arc<T>>) -> Vec<Wakeup> {
        let owner = |meta: &ObjectMeta| {
            let ds = meta.controller().and_then(|owner| self.resolve(&meta.namespace, owner));
            ds.into_iter().map(|ds| Wakeup::now(ds.metadata.key())).collect()
        };
        match delta {
            Delta::Deleted(revision) => owner(revision.meta()),
            Delta::Added(revision) => match (revision.meta().deletion_timestamp, revision.meta().controller()) {
                (Some(_), _) => owner(revision.meta()),
                // Whoever created it knows.
                (None, Some(_)) => Vec::new(),
                (None, None) => self.matching(revision.meta()),
            },
            Delta::Updated { old, new } if old.meta().resource_version == new.meta().resource_version => Vec::new(),
            Delta::Updated { old, new } => self.owners_of_changed(old.meta(), new.meta()).0,
        }
    }

    /// The DaemonSets that a changed pod or revision concerns, and the one that is its owner now.
    fn owners_of_changed(&self, old: &ObjectMeta, new: &ObjectMeta) -> (Vec<Wakeup>, Option<Arc<DaemonSet>>) {
        let (was, is) = (old.controller(), new.controller());
        let mut wakeups = Vec::new();
        if was != is
            && let Some(ds) = was.and_then(|owner| self.resolve(&new.namespace, owner))
        {
            wakeups.push(Wakeup::now(ds.metadata.key()));
        }
        let owner = is.and_then(|owner| self.resolve(&new.namespace, owner));
        match &owner {
            Some(ds) => wakeups.push(Wakeup::now(ds.metadata.key())),
            None if is.is_none() && (old.labels != new.labels || was.is_some()) => wakeups.extend(self.matching(new)),
            None => {}
        }
        (wakeups, owner)
    }

    /// The DaemonSet that an object names as its controller, if it is still the same one.
    fn resolve(&self, namespace: &str, owner: &OwnerReference) -> Option<Arc<DaemonSet>> {
        let ds = (owner.kind == KIND).then(|| self.cache.daemon_sets().get(namespace, &owner.name)).flatten()?;
        (ds.metadata.uid == owner.uid).then_some(ds)
    }

    /// The DaemonSets that might adopt an orphan.
    fn matching(&self, orphan: &ObjectMeta) -> Vec<Wakeup> {
        if orphan.labels.is_empty() {
            return Vec::new();
        }
        let wants =
            |ds: &&Arc<DaemonSet>| !ds.spec.selector.is_everything() && ds.spec.selector.matches(&orphan.labels);
        let sets = self.cache.daemon_sets();
        sets.namespace(&orphan.namespace).filter(wants).map(|ds| Wakeup::now(ds.metadata.key())).collect()
    }
}
