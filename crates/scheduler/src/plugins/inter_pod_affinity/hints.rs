//! Which changes may let a rejected pod fit.

use std::sync::Arc;

use bayplan_model::node::Node;
use bayplan_model::pod::Pod;

use super::terms::all_match;
use crate::cluster::PodInfo;

/// Whether a pod that came, changed or went is one that the pod wants near, or wanted away.
pub(super) fn pod_hint(pod: &PodInfo, (old, new): (Option<&Pod>, Option<&Pod>)) -> bool {
    let own = |other: &Pod| other.metadata.uid == pod.metadata.uid;
    if let (Some(_), Some(new)) = (old, new)
        && own(new)
    {
        return true;
    }
    if [old, new].into_iter().flatten().any(|other| !other.is_assigned() && !other.is_nominated()) {
        return false;
    }
    let (affinity, anti) = (&pod.required_affinity, &pod.required_anti_affinity);
    match (old, new) {
        (Some(old), Some(new)) => {
            (!all_match(affinity, old) && all_match(affinity, new)) || (all_match(anti, old) && !all_match(anti, new))
        }
        (None, Some(added)) => all_match(affinity, added),
        (Some(deleted), None) => {
            let theirs = PodInfo::new(Arc::new(deleted.clone())).required_anti_affinity;
            all_match(anti, deleted) || all_match(&theirs, pod)
        }
        (None, None) => true,
    }
}

/// Whether a new or changed node is in a domain that matters to the pod, or left one.
pub(super) fn node_hint(pod: &PodInfo, (old, new): (Option<&Node>, Option<&Node>)) -> bool {
    let Some(new) = new else { return true };
    let value = |node: &Node, key: &str| node.metadata.labels.get(key).cloned();
    let affinity = pod.required_affinity.iter().any(|term| {
        let now = value(new, &term.topology_key);
        now.is_some() && old.is_none_or(|old| value(old, &term.topology_key) != now)
    });
    let anti_affinity = pod.required_anti_affinity.iter().any(|term| match old {
        None => true,
        Some(old) => {
            let before = value(old, &term.topology_key);
            before.is_some() && before != value(new, &term.topology_key)
        }
    });
    affinity || anti_affinity
}
