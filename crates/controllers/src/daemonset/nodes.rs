//! Which nodes run a pod: readiness, cordons, resources and ports are not looked at, the scheduler and the kubelet are
//! there for them.

use super::object::Template;
use crate::node::Node;

/// What a DaemonSet wants on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeFit {
    /// A pod is created when there is none.
    pub should_run: bool,
    /// A pod that is there stays.
    pub should_continue: bool,
}

/// Whether the template's pods should run on the node; upstream's `NodeShouldRunDaemonPod`.
pub fn fit(template: &Template, node: &Node) -> NodeFit {
    let nowhere = NodeFit::default();
    let Some(demands) = &template.demands else { return nowhere };
    let meta = &node.metadata;
    if !demands.node_name.is_empty() && demands.node_name != meta.name {
        return nowhere;
    }
    if !demands.affinity.matches_labels(&meta.labels, &meta.name) {
        return nowhere;
    }
    let mut fit = NodeFit { should_run: true, should_continue: true };
    for taint in &node.spec.taints {
        let (repels, evicts) =
            (matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"), taint.effect == "NoExecute");
        if repels && !demands.tolerations.bear(&taint.plain()) {
            fit.should_run = false;
            fit.should_continue &= !evicts;
        }
    }
    fit
}
