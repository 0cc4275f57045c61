//! A copy of a node on which pods are taken away and put back, to see whether another one fits then.

use std::sync::Arc;

use super::{CycleStates, PostFilterContext, Status};
use crate::cluster::{NodeInfo, PodInfo};

/// A node as it would be without some of its pods. The node itself is not changed.
pub struct NodeTrial<'c, 'a> {
    cx: &'c PostFilterContext<'a>,
    node: NodeInfo,
    states: CycleStates,
}

impl<'c, 'a> NodeTrial<'c, 'a> {
    /// The node as it is.
    pub fn new(cx: &'c PostFilterContext<'a>, node: &NodeInfo) -> Self {
        NodeTrial { cx, node: node.clone(), states: cx.states.clone() }
    }

    /// The node with the pods it has now.
    pub fn node(&self) -> &NodeInfo {
        &self.node
    }

    /// Takes a pod off the node.
    pub fn remove(&mut self, pod: &PodInfo) -> Status {
        self.cx.filters.remove_pod(&mut self.states, &mut self.node, pod)
    }

    /// Puts a pod on the node.
    pub fn add(&mut self, pod: &Arc<PodInfo>) -> Status {
        self.cx.filters.add_pod(&mut self.states, &mut self.node, pod)
    }

    /// Asks all filters whether the cycle's pod fits now.
    pub fn filter(&self) -> Status {
        self.cx.filters.run_with_nominated(&self.states, &self.node)
    }
}
