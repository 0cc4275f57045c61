//! TaintToleration: keeps pods off nodes with taints they do not tolerate, and prefers nodes with fewer such taints.

use bayplan_model::taint::{Toleration, untolerated};

use crate::cluster::NodeInfo;
use crate::framework::*;

/// Judges taints.
pub(super) struct TaintToleration;

impl Plugin for TaintToleration {
    /// The tolerations that matter to PreferNoSchedule taints.
    type State = Vec<Toleration>;

    fn name(&self) -> PluginName {
        "TaintToleration"
    }

    fn extension_points(&self) -> ExtensionPoints {
        ExtensionPoints::FILTER.union(ExtensionPoints::PRE_SCORE).union(ExtensionPoints::SCORE)
    }

    fn dependencies(&self, _cx: &Cycle<'_>) -> Dependencies {
        let normalization = Normalization::Highest { reverse: true };
        Dependencies { filter: Reads::Node, score: Reads::Node, normalization, ..Dependencies::NOTHING }
    }

    fn events_to_register(&self) -> Vec<EventRegistration> {
        vec![
            EventRegistration::with_hint(EventResource::Node, action::ADD | action::UPDATE_NODE_TAINT),
            EventRegistration::with_hint(EventResource::Pod, action::UPDATE_POD_TOLERATION),
        ]
    }

    fn hint_reads_signature(&self, _event: &ClusterEvent) -> bool {
        true
    }

    fn queueing_hint(
        &self,
        cx: &Cycle<'_>,
        event: &ClusterEvent,
        changed: &ObjectChange<'_>,
    ) -> Result<QueueingHint, String> {
        let worth = if event.resource == EventResource::Node {
            let (old, new) = changed.nodes();
            let repels =
                |node: &bayplan_model::node::Node| untolerated(&node.spec.taints, &cx.pod.spec.tolerations).is_some();
            old.is_none_or(repels) && new.is_some_and(|node| !repels(node))
        } else {
            changed.pods().1.is_some_and(|pod| pod.metadata.uid == cx.pod.metadata.uid)
        };
        Ok(if worth { QueueingHint::Queue } else { QueueingHint::Skip })
    }

    fn filter(&self, cx: &Cycle<'_>, _state: &Self::State, node: &NodeInfo) -> Status {
        match untolerated(&node.node().spec.taints, &cx.pod.spec.tolerations) {
            Some(_) => Status::unresolvable("node(s) had untolerated taint(s)"),
            None => Status::SUCCESS,
        }
    }

    fn pre_score(&self, cx: &Cycle<'_>, state: &mut Self::State, _nodes: &[&NodeInfo]) -> Status {
        let relevant = |t: &&Toleration| t.effect.is_empty() || t.effect == "PreferNoSchedule";
        *state = cx.pod.spec.tolerations.iter().filter(relevant).cloned().collect();
        Status::SUCCESS
    }

    fn score(&self, _cx: &Cycle<'_>, state: &Self::State, node: &NodeInfo) -> Result<i64, Status> {
        let soft = node.node().spec.taints.iter().filter(|taint| taint.effect == "PreferNoSchedule");
        Ok(soft.filter(|taint| !state.iter().any(|t| t.tolerates(taint))).count() as i64)
    }

    fn normalize(&self, _cx: &Cycle<'_>, _state: &Self::State, scores: &mut [NodeScore]) -> Status {
        default_normalize(scores, true);
        Status::SUCCESS
    }
}
