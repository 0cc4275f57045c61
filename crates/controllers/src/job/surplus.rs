//! Which active pods go when there are too many, or when two of them share an index.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::indexes::completion_index;
use super::object::Job;
use crate::pod::Pod;
use crate::replicaset::ranking::phase_ordinal;

/// Divides the active pods of an Indexed Job into those that have no place, and the others: each index keeps the pod
/// that has come furthest.
pub fn duplicates(count: i64, active: &[Arc<Pod>]) -> (Vec<Arc<Pod>>, Vec<Arc<Pod>>) {
    let mut by_index: BTreeMap<i64, Vec<Arc<Pod>>> = BTreeMap::new();
    let (mut surplus, mut kept) = (Vec::new(), Vec::new());
    for pod in active {
        match completion_index(pod).filter(|index| *index < count) {
            Some(index) => by_index.entry(index).or_default().push(pod.clone()),
            None => surplus.push(pod.clone()),
        }
    }
    for mut pods in by_index.into_values() {
        pods.sort_by(|a, b| first_to_go(a, b));
        kept.extend(pods.pop());
        surplus.append(&mut pods);
    }
    (surplus, kept)
}

/// The pods to delete: those without a place, and others until there are `at_least`.
pub(super) fn to_delete(job: &Job, active: &[Arc<Pod>], at_least: usize) -> Vec<Arc<Pod>> {
    let (mut surplus, mut others) = match job.is_indexed() {
        true => duplicates(job.index_count(), active),
        false => (Vec::new(), active.to_vec()),
    };
    if surplus.len() < at_least {
        others.sort_by(|a, b| first_to_go(a, b));
        surplus.extend(others.into_iter().take(at_least - surplus.len()));
    }
    surplus
}

/// `Less` when the first goes first: who has come least far; upstream's `ActivePods`.
fn first_to_go(a: &Pod, b: &Pod) -> Ordering {
    let youngest_first = |a: Option<Timestamp>, b: Option<Timestamp>| match (a, b) {
        (Some(a), Some(b)) => b.cmp(&a),
        (a, b) => a.is_some().cmp(&b.is_some()),
    };
    let ready_since = |pod: &Pod| pod.ready.then_some(pod.ready_since).flatten();
    (!a.node_name.is_empty())
        .cmp(&!b.node_name.is_empty())
        .then_with(|| phase_ordinal(a.phase).cmp(&phase_ordinal(b.phase)))
        .then_with(|| a.ready.cmp(&b.ready))
        .then_with(|| youngest_first(ready_since(a), ready_since(b)))
        .then_with(|| Reverse(a.restarts).cmp(&Reverse(b.restarts)))
        .then_with(|| Reverse(a.sidecar_restarts).cmp(&Reverse(b.sidecar_restarts)))
        .then_with(|| youngest_first(a.metadata.creation_timestamp, b.metadata.creation_timestamp))
}
