//! A DaemonSet's pods, by the node that each is for.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::object::DaemonSet;
use super::pod_template::POD_GENERATION;
use crate::pod::Pod;
use crate::revisions::REVISION_LABEL;

/// The pods of each node.
pub(super) type PodsByNode<'a> = BTreeMap<&'a str, Vec<&'a Arc<Pod>>>;

/// Groups pods by the node they are for; those that name none are left alone, and so are those that have ended and are
/// on their way out.
pub(super) fn by_node(pods: &[Arc<Pod>]) -> PodsByNode<'_> {
    let mut grouped = PodsByNode::new();
    for pod in pods.iter().filter(|pod| !(pod.is_terminal() && pod.metadata.deletion_timestamp.is_some())) {
        if let Some(node) = pod.target_node() {
            grouped.entry(node).or_default().push(pod);
        }
    }
    grouped
}

/// Bound pods before others, then the oldest first.
pub(super) fn sort(pods: &mut [&Arc<Pod>]) {
    pods.sort_by(|a, b| rank(a).cmp(&rank(b)));
}

/// The pod that [`sort`] puts first.
pub(super) fn first<'a>(pods: &[&'a Arc<Pod>]) -> Option<&'a Arc<Pod>> {
    pods.iter().copied().min_by(|a, b| rank(a).cmp(&rank(b)))
}

fn rank(pod: &Pod) -> (bool, Option<jiff::Timestamp>, &str) {
    (pod.node_name.is_empty(), pod.metadata.creation_timestamp, &pod.metadata.name)
}

/// Whether a pod is of the current revision: by its hash, or by the generation that pods carried before.
pub(super) struct Revision<'a> {
    hash: &'a str,
    generation: Option<String>,
}

impl<'a> Revision<'a> {
    pub(super) fn new(ds: &DaemonSet, hash: &'a str) -> Self {
        Revision { hash, generation: ds.template_generation().map(|generation| generation.to_string()) }
    }

    pub(super) fn is_of(&self, pod: &Pod) -> bool {
        let label = |name: &str| pod.metadata.labels.get(name);
        (!self.hash.is_empty() && label(REVISION_LABEL).is_some_and(|hash| hash == self.hash))
            || self.generation.is_some() && label(POD_GENERATION) == self.generation.as_ref()
    }
}
