//! Which changes may let a rejected pod fit.

use bayplan_model::node::Node;
use bayplan_model::pod::Pod;

use super::constraint::{Constraint, has_all_keys};

/// Whether a change of a node changes a domain.
pub(super) fn node_hint(constraints: &[Constraint], (old, new): (Option<&Node>, Option<&Node>)) -> bool {
    let matches = |node: &Node| has_all_keys(constraints, &node.metadata.labels);
    match (old, new) {
        (Some(old), Some(new)) => {
            let value = |node: &Node, key: &str| node.metadata.labels.get(key).cloned();
            matches(old) != matches(new)
                || (matches(new)
                    && (constraints.iter().any(|c| value(old, &c.key) != value(new, &c.key))
                        || old.spec.taints != new.spec.taints))
        }
        (Some(node), None) | (None, Some(node)) => matches(node),
        (None, None) => true,
    }
}

/// Whether a change of a pod changes a count, or which nodes count for the pod itself.
pub(super) fn pod_hint(pod: &Pod, constraints: &[Constraint], (old, new): (Option<&Pod>, Option<&Pod>)) -> bool {
    let own = |other: &Pod| other.metadata.uid == pod.metadata.uid;
    let involved = |other: &Pod| {
        own(other)
            || ((other.is_assigned() || other.is_nominated()) && other.metadata.namespace == pod.metadata.namespace)
    };
    if [old, new].into_iter().flatten().any(|other| !involved(other)) {
        return false;
    }
    let matches = |c: &Constraint, other: &Pod| c.selector.matches(&other.metadata.labels);
    match (old, new) {
        (Some(old), Some(new)) => {
            if own(new) && old.spec.tolerations != new.spec.tolerations && constraints.iter().any(|c| c.honor_taints) {
                return true;
            }
            old.metadata.labels != new.metadata.labels && constraints.iter().any(|c| matches(c, old) != matches(c, new))
        }
        (Some(other), None) | (None, Some(other)) => constraints.iter().any(|c| matches(c, other)),
        (None, None) => true,
    }
}
