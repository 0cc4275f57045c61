//! The pods of a workload.

use std::collections::BTreeSet;
use std::sync::Arc;

use bayplan_model::pod::Pod;
use bayplan_scheduler::PodInfo;

use crate::State;

/// The label with which the Deployment controller marks the pods of a ReplicaSet.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// A workload by its kind, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its kind, such as `Deployment`.
    pub kind: &'static str,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// The pods that a workload owns, on nodes or not; those of a Deployment by way of its ReplicaSets.
pub fn pods_of_owner(state: &State, owner: &Owner) -> Vec<Arc<PodInfo>> {
    let is_owner = |pod: &Pod| {
        let by = pod.metadata.controller();
        by.is_some_and(|by| by.kind == owner.kind && by.name == owner.name)
    };
    let replica_sets = replica_sets_of(state, owner);
    let is_replica = |pod: &Pod| {
        let Some(by) = pod.metadata.controller().filter(|by| by.kind == "ReplicaSet") else { return false };
        // A source without ReplicaSets still tells: their names end with the hash that their pods carry.
        let hash = pod.metadata.labels.get(TEMPLATE_HASH);
        replica_sets.contains(&by.name)
            || (owner.kind == "Deployment"
                && state.cluster().objects.replica_sets.get(&owner.namespace, &by.name).is_none()
                && hash.is_some_and(|hash| by.name == format!("{}-{hash}", owner.name)))
    };
    let pods = state.cluster().objects.pods.in_namespace(&owner.namespace);
    let own = pods.filter(|pod| is_owner(pod) || is_replica(pod));
    own.filter_map(|pod| state.pod(&pod.metadata.namespace, &pod.metadata.name).cloned()).collect()
}

fn replica_sets_of(state: &State, owner: &Owner) -> BTreeSet<String> {
    if owner.kind != "Deployment" {
        return BTreeSet::new();
    }
    let all = state.cluster().objects.replica_sets.in_namespace(&owner.namespace);
    let own = all.filter(|set| {
        let by = set.metadata.controller();
        by.is_some_and(|by| by.kind == owner.kind && by.name == owner.name)
    });
    own.map(|set| set.metadata.name.clone()).collect()
}
