//! Why no node fits a pod, and the message of the FailedScheduling event; upstream's `FitError` and `Diagnosis`.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Code, PluginName, Status};

/// Why nodes were rejected: one status for each filtered node, and one for all others.
#[derive(Clone, Debug, Default)]
pub struct NodeStatuses {
    /// The statuses of filtered nodes, by name.
    pub nodes: BTreeMap<Arc<str>, Status>,
    /// The status of all nodes that are not listed.
    pub absent: Status,
}

impl NodeStatuses {
    /// The status of a node.
    pub fn get(&self, node: &str) -> &Status {
        self.nodes.get(node).unwrap_or(&self.absent)
    }
}

/// Why no node fits a pod.
#[derive(Clone, Debug, Default)]
pub struct Diagnosis {
    /// The number of nodes in the cluster.
    pub node_count: usize,
    /// Why each node was rejected.
    pub statuses: NodeStatuses,
    /// The status of PreFilter, when it rejected the pod.
    pub pre_filter: Option<Status>,
    /// The nodes PreFilter narrowed the search to.
    pub pre_filter_nodes: Option<BTreeSet<String>>,
    /// The plugins that rejected the pod.
    pub unschedulable_plugins: BTreeSet<PluginName>,
    /// The plugins that answered Pending.
    pub pending_plugins: BTreeSet<PluginName>,
    /// What PostFilter adds to the message.
    pub post_filter_message: String,
    /// How many nodes have each reason, when that is known without counting.
    pub(crate) reasons: Option<BTreeMap<Cow<'static, str>, usize>>,
}

impl Diagnosis {
    /// Notes which plugin rejected the pod; upstream's `AddPluginStatus`.
    pub(crate) fn add_plugin_status(&mut self, status: &Status) {
        if status.plugin.is_empty() {
            return;
        }
        match status.code {
            Code::Pending => self.pending_plugins.insert(status.plugin),
            _ if status.is_rejected() => self.unschedulable_plugins.insert(status.plugin),
            _ => false,
        };
    }

    /// The diagnosis of a pod that Reserve or Permit rejected on its node.
    pub(crate) fn for_node(node: &str, status: Status) -> Self {
        let mut diagnosis = Diagnosis { node_count: 1, ..Diagnosis::default() };
        diagnosis.add_plugin_status(&status);
        diagnosis.statuses.nodes.insert(node.into(), status);
        diagnosis
    }

    /// The message of the FailedScheduling event.
    pub fn message(&self) -> String {
        let mut text = format!("0/{} nodes are available:", self.node_count);
        let pre_filter = self.pre_filter.as_ref().map(Status::message).unwrap_or_default();
        if !pre_filter.is_empty() {
            text.push_str(&format!(" {pre_filter}."));
        } else {
            let reasons = match &self.reasons {
                Some(reasons) => lines(reasons.iter().map(|(reason, count)| (&**reason, *count))),
                None => histogram(self.node_count, &self.statuses),
            };
            if !reasons.is_empty() {
                text.push_str(&format!(" {}.", reasons.join(", ")));
            }
        }
        if !self.post_filter_message.is_empty() {
            text.push_str(&format!(" {}", self.post_filter_message));
        }
        text
    }
}

/// `<count> <reason>` for every reason of every node, sorted as text.
fn histogram(node_count: usize, statuses: &NodeStatuses) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for reason in statuses.nodes.values().flat_map(|status| &status.reasons) {
        *counts.entry(reason).or_default() += 1;
    }
    let absent = node_count.saturating_sub(statuses.nodes.len());
    if absent > 0 {
        for reason in &statuses.absent.reasons {
            *counts.entry(reason).or_default() += absent;
        }
    }
    lines(counts.into_iter())
}

fn lines<'r>(counts: impl Iterator<Item = (&'r str, usize)>) -> Vec<String> {
    let mut lines: Vec<String> = counts.map(|(reason, count)| format!("{count} {reason}")).collect();
    lines.sort();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted_and_sorted_as_text() {
        let mut diagnosis = Diagnosis { node_count: 12, ..Diagnosis::default() };
        for i in 0..10 {
            diagnosis.statuses.nodes.insert(format!("n{i}").into(), Status::unschedulable("Insufficient cpu"));
        }
        diagnosis.statuses.absent = Status::unresolvable("node(s) had untolerated taint(s)");
        assert_eq!(
            diagnosis.message(),
            "0/12 nodes are available: 10 Insufficient cpu, 2 node(s) had untolerated taint(s)."
        );
        diagnosis.post_filter_message = "preemption: none".into();
        diagnosis.pre_filter = Some(Status::unresolvable("no"));
        assert_eq!(diagnosis.message(), "0/12 nodes are available: no. preemption: none");
    }
}
