//! Replaces pods of old revisions within `maxUnavailable` or `maxSurge`; upstream's `rollingUpdate`.
//!
//! Without surge, old pods are deleted, and `manage` creates the new ones once they are gone. With surge, new pods are
//! created beside the old ones, which go when the new ones are available.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::NodeWithFit;
use super::manage::Plan;
use super::object::DaemonSet;
use super::pods::{PodsByNode, Revision};
use crate::error::Error;
use crate::pod::Pod;

/// The live pods of a node.
enum Live<'a> {
    /// At most one of each.
    Pair { new: Option<&'a Arc<Pod>>, old: Option<&'a Arc<Pod>> },
    /// Two of one kind: `manage` clears up first.
    Surplus,
}

/// One rolling update.
pub(super) struct Rolling<'a> {
    pub(super) ds: &'a DaemonSet,
    pub(super) hash: &'a str,
    pub(super) now: Timestamp,
}

impl<'a> Rolling<'a> {
    /// Which pods go and which nodes get a second one, given that every node has what `manage` wants.
    pub(super) fn plan(&self, nodes: &[NodeWithFit], pods: &PodsByNode<'a>) -> Result<Plan, Error> {
        let should_run: BTreeMap<&str, bool> =
            nodes.iter().map(|(node, fit)| (node.metadata.name.as_str(), fit.should_run)).collect();
        let desired = should_run.values().filter(|should| **should).count();
        let invalid = |field: &str, error: Error| Error::Invalid(format!("invalid value for {field}: {error}"));
        let mut max_unavailable = self.ds.max_unavailable(desired).map_err(|error| invalid("MaxUnavailable", error))?;
        let max_surge = self.ds.max_surge(desired).map_err(|error| invalid("MaxSurge", error))?;
        if desired > 0 && max_unavailable == 0 && max_surge == 0 {
            // The update could never begin.
            max_unavailable = 1;
        }
        let revision = Revision::new(self.ds, self.hash);
        if max_surge > 0 {
            return self.surge(&revision, max_surge, desired, &should_run, pods);
        }
        let bare = should_run.iter().filter(|(name, should)| **should && !pods.contains_key(*name)).count();
        Ok(self.replace(&revision, max_unavailable, bare, pods))
    }

    /// Without surge; `bare` is the number of nodes that should have a pod and have none.
    fn replace(&self, revision: &Revision<'_>, max_unavailable: usize, bare: usize, pods: &PodsByNode<'a>) -> Plan {
        let mut unavailable = bare;
        let (mut plan, mut candidates) = (Plan::default(), Vec::new());
        for pods in pods.values() {
            match live(pods, revision) {
                Live::Pair { new: Some(new), old: None } => unavailable += usize::from(!self.is_available(new)),
                Live::Pair { new: None, old: Some(old) } if self.is_available(old) => candidates.push(old),
                Live::Pair { new: None, old: Some(old) } => {
                    // It is missing already, so its replacement costs nothing.
                    plan.delete.push(Arc::clone(old));
                    unavailable += 1;
                }
                Live::Pair { .. } | Live::Surplus => unavailable += 1,
            }
        }
        plan.delete.extend(candidates.into_iter().take(max_unavailable.saturating_sub(unavailable)).cloned());
        plan
    }

    fn surge(
        &self,
        revision: &Revision<'_>,
        max_surge: usize,
        desired: usize,
        should_run: &BTreeMap<&str, bool>,
        pods: &PodsByNode<'a>,
    ) -> Result<Plan, Error> {
        let (mut surge, mut available) = (0, 0);
        let (mut plan, mut candidates, mut removable) = (Plan::default(), Vec::new(), Vec::new());
        for (name, pods) in pods {
            let Live::Pair { new, old } = live(pods, revision) else {
                surge += 1;
                continue;
            };
            available += usize::from(old.or(new).is_some_and(|pod| self.is_available(pod)));
            let Some(old) = old else { continue };
            if let Some(new) = new {
                match self.is_available(new) {
                    true => plan.delete.push(Arc::clone(old)),
                    false => surge += 1,
                }
                continue;
            }
            let should_run = should_run.get(name).copied().ok_or_else(|| {
                Error::Invalid(format!("couldn't get node for nodeName {name:?}: node {name:?} not found"))
            })?;
            match (self.is_available(old), should_run) {
                (true, true) => candidates.push(*name),
                (true, false) => removable.push(old),
                (false, true) => plan.create.push((*name).into()),
                (false, false) => plan.delete.push(Arc::clone(old)),
            }
        }
        // A DaemonSet that moves to other nodes keeps its pods on the old ones until enough new ones are available.
        plan.delete.extend(removable.into_iter().take(available.saturating_sub(desired)).cloned());
        plan.create.extend(candidates.into_iter().take(max_surge.saturating_sub(surge)).map(Into::into));
        Ok(plan)
    }

    fn is_available(&self, pod: &Pod) -> bool {
        pod.is_available(self.ds.spec.min_ready_seconds, self.now)
    }
}

fn live<'a>(pods: &[&'a Arc<Pod>], revision: &Revision<'_>) -> Live<'a> {
    let (mut new, mut old) = (None, None);
    for pod in pods.iter().copied().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
        let kind = if revision.is_of(pod) { &mut new } else { &mut old };
        if kind.replace(pod).is_some() {
            return Live::Surplus;
        }
    }
    Live::Pair { new, old }
}
