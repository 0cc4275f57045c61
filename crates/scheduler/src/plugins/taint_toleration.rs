//! TaintToleration: keeps pods off nodes with taints they do not tolerate, and prefers nodes with fewer such taints.

use bayplan_model::node::Node;

use crate::cluster::NodeInfo;
use crate::framework::*;

pub(super) struct TaintToleration;

impl Plugin for TaintToleration {
    type State = ();

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
        let helps = if event.resource == EventResource::Node {
            let (old, new) = changed.nodes();
            let repels = |node: &Node| cx.pod.spec.tolerations.untolerated(&node.spec.taints).is_some();
            old.is_none_or(repels) && new.is_some_and(|node| !repels(node))
        } else {
            changed.pods().1.is_some_and(|pod| pod.metadata.uid == cx.pod.metadata.uid)
        };
        Ok(if helps { QueueingHint::Queue } else { QueueingHint::Skip })
    }

    fn filter(&self, cx: &Cycle<'_>, _state: &Self::State, node: &NodeInfo) -> Status {
        match cx.pod.spec.tolerations.untolerated(&node.node().spec.taints) {
            Some(_) => Status::unresolvable("node(s) had untolerated taint(s)"),
            None => Status::SUCCESS,
        }
    }

    // It prepares nothing here, and yet is asked before scoring, as upstream's is.
    fn pre_score(&self, _cx: &Cycle<'_>, _state: &mut Self::State, _nodes: &[&NodeInfo]) -> Status {
        Status::SUCCESS
    }

    fn score(&self, cx: &Cycle<'_>, _state: &Self::State, node: &NodeInfo) -> Result<i64, Status> {
        let soft = node.node().spec.taints.iter().filter(|taint| taint.effect == "PreferNoSchedule");
        Ok(soft.filter(|taint| !cx.pod.spec.tolerations.bear(taint)).count() as i64)
    }

    fn normalize(&self, _cx: &Cycle<'_>, _state: &Self::State, scores: &mut [NodeScore]) -> Status {
        default_normalize(scores, true);
        Status::SUCCESS
    }
}

#[cfg(test)]
mod tests {
    use crate::plugins::testing::plugin;

    const NODES: &str = "
        Node plain
        Node gpu  {taints: [{key: gpu, value: h100, effect: NoSchedule}]}
        Node sick {taints: [{key: sick, effect: NoExecute}]}
        Node slow {taints: [{key: slow, effect: PreferNoSchedule}]}
    ";
    const GPU: &str = "gpu: UnschedulableAndUnresolvable: node(s) had untolerated taint(s)";
    const SICK: &str = "sick: UnschedulableAndUnresolvable: node(s) had untolerated taint(s)";

    #[test]
    fn taints_of_effect_no_schedule_and_no_execute_keep_pods_away() {
        plugin("TaintToleration").given(NODES).filters(&[
            ("a pod without tolerations", "{}", "", &[GPU, "plain: Success", SICK, "slow: Success"]),
            (
                "an equal value tolerates",
                "{tolerations: [{key: gpu, value: h100}]}",
                "",
                &["gpu: Success", "plain: Success", SICK, "slow: Success"],
            ),
            (
                "another value does not",
                "{tolerations: [{key: gpu, value: a100}]}",
                "",
                &[GPU, "plain: Success", SICK, "slow: Success"],
            ),
            (
                "an operator of Exists needs no value",
                "{tolerations: [{key: gpu, operator: Exists}, {key: sick, operator: Exists}]}",
                "",
                &["gpu: Success", "plain: Success", "sick: Success", "slow: Success"],
            ),
            (
                "a toleration of one effect does not tolerate another",
                "{tolerations: [{key: sick, operator: Exists, effect: NoSchedule}]}",
                "",
                &[GPU, "plain: Success", SICK, "slow: Success"],
            ),
            (
                "without a key, Exists tolerates every taint",
                "{tolerations: [{operator: Exists}]}",
                "",
                &["gpu: Success", "plain: Success", "sick: Success", "slow: Success"],
            ),
        ]);
    }

    #[test]
    fn nodes_with_fewer_untolerated_soft_taints_score_higher() {
        let nodes = "
            Node none
            Node one {taints: [{key: a, effect: PreferNoSchedule}]}
            Node two {taints: [{key: a, effect: PreferNoSchedule}, {key: b, effect: PreferNoSchedule}]}
        ";
        plugin("TaintToleration").given(nodes).scores(&[
            (
                "the highest count becomes 0, none becomes 100",
                "{}",
                "",
                &["none: 0 -> 100", "one: 1 -> 50", "two: 2 -> 0"],
            ),
            (
                "tolerated taints do not count",
                "{tolerations: [{key: a, operator: Exists}]}",
                "",
                &["none: 0 -> 100", "one: 0 -> 100", "two: 1 -> 0"],
            ),
            (
                "a toleration of effect NoSchedule tolerates no soft taint",
                "{tolerations: [{key: a, operator: Exists, effect: NoSchedule}]}",
                "",
                &["none: 0 -> 100", "one: 1 -> 50", "two: 2 -> 0"],
            ),
            (
                "all nodes are alike to a pod that tolerates everything",
                "{tolerations: [{operator: Exists}]}",
                "",
                &["none: 0 -> 100", "one: 0 -> 100", "two: 0 -> 100"],
            ),
        ]);
    }

    #[test]
    fn a_node_that_lost_its_last_untolerated_taint_wakes_pods() {
        plugin("TaintToleration").hints(&[
            ("a new node without taints", "{}", "add Node a", "Queue"),
            ("a new node with a taint", "{}", "add Node a {taints: [{key: x, effect: NoSchedule}]}", "Skip"),
            ("the taint goes", "{}", "update Node a {taints: [{key: x, effect: NoSchedule}]} => {}", "Queue"),
            (
                "another taint stays",
                "{}",
                "update Node a {taints: [{key: x, effect: NoSchedule}, {key: z, effect: NoExecute}]} \
                 => {taints: [{key: z, effect: NoExecute}]}",
                "Skip",
            ),
            (
                "the taint that goes was tolerated",
                "{tolerations: [{key: x, operator: Exists}]}",
                "update Node a {taints: [{key: x, effect: NoSchedule}]} => {}",
                "Skip",
            ),
            ("the pod got a toleration", "{}", "update Pod pod {} => {tolerations: [{key: x}]}", "Queue"),
            ("another pod got one", "{}", "update Pod other {} => {tolerations: [{key: x}]}", "Skip"),
        ]);
    }
}
