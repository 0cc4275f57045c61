//! NodeDeclaredFeatures: a pod that needs a feature of the kubelet goes to nodes whose kubelet declares it (KEP-5328).

use std::collections::BTreeSet;

use bayplan_model::pod::Pod;

use crate::cluster::NodeInfo;
use crate::framework::*;

pub(super) struct NodeDeclaredFeatures;

/// The features the pod's spec implies.
fn required(pod: &Pod) -> BTreeSet<&'static str> {
    let spec = &pod.spec;
    let mut features = BTreeSet::new();
    let mut rules = spec.containers.iter().chain(&spec.init_containers).flat_map(|c| &c.restart_policy_rules);
    if rules.any(|rule| rule.action == "RestartAllContainers") {
        features.insert("RestartAllContainersOnContainerExits");
    }
    if spec.host_network && spec.host_users == Some(false) {
        features.insert("UserNamespacesHostNetworkSupport");
    }
    features
}

impl Plugin for NodeDeclaredFeatures {
    type State = BTreeSet<&'static str>;

    fn name(&self) -> PluginName {
        "NodeDeclaredFeatures"
    }

    fn extension_points(&self) -> ExtensionPoints {
        ExtensionPoints::PRE_FILTER.union(ExtensionPoints::FILTER)
    }

    fn dependencies(&self, _cx: &Cycle<'_>) -> Dependencies {
        Dependencies::filter(Reads::Node)
    }

    fn events_to_register(&self) -> Vec<EventRegistration> {
        vec![
            EventRegistration::with_hint(EventResource::Node, action::ADD | action::UPDATE_NODE_DECLARED_FEATURE),
            EventRegistration::with_hint(EventResource::Pod, action::UPDATE),
        ]
    }

    fn hint_reads_signature(&self, _event: &ClusterEvent) -> bool {
        true
    }

    fn queueing_hint(
        &self,
        cx: &Cycle<'_>,
        _event: &ClusterEvent,
        changed: &ObjectChange<'_>,
    ) -> Result<QueueingHint, String> {
        let helps = match (changed.nodes(), changed.pods()) {
            ((Some(old), Some(new)), _) => old.status.declared_features != new.status.declared_features,
            (_, (Some(old), Some(new))) => new.metadata.uid == cx.pod.metadata.uid && required(old) != required(new),
            _ => true,
        };
        Ok(if helps { QueueingHint::Queue } else { QueueingHint::Skip })
    }

    fn pre_filter(&self, cx: &Cycle<'_>, state: &mut Self::State) -> PreFilter {
        *state = required(cx.pod);
        if state.is_empty() { Status::skip().into() } else { PreFilter::default() }
    }

    fn filter(&self, _cx: &Cycle<'_>, state: &Self::State, node: &NodeInfo) -> Status {
        let declared = &node.node().status.declared_features;
        if state.iter().all(|feature| declared.iter().any(|d| d == feature)) {
            return Status::SUCCESS;
        }
        Status::unresolvable("node(s) didn't match Pod's required features")
    }
}

#[cfg(test)]
mod tests {
    use crate::plugins::testing::plugin;

    const RESTARTS: &str = "{containers: [{name: c, restartPolicyRules: [{action: RestartAllContainers}]}]}";
    const MISSING: &str = "UnschedulableAndUnresolvable: node(s) didn't match Pod's required features";

    #[test]
    fn a_pod_goes_where_the_kubelet_declares_what_it_needs() {
        let nodes = "
            Node new {declaredFeatures: [RestartAllContainersOnContainerExits, UserNamespacesHostNetworkSupport]}
            Node old {declaredFeatures: [RestartAllContainersOnContainerExits]}
        ";
        let old = &*format!("old: {MISSING}");
        plugin("NodeDeclaredFeatures").given(nodes).filters(&[
            ("an ordinary pod needs nothing", "{}", "", &["new: Skip", "old: Skip"]),
            ("a rule that restarts all containers", RESTARTS, "", &["new: Success", "old: Success"]),
            (
                "a rule that restarts one container is nothing new",
                "{containers: [{name: c, restartPolicyRules: [{action: Restart}]}]}",
                "",
                &["new: Skip", "old: Skip"],
            ),
            (
                "a user namespace in the network of the host",
                "{hostNetwork: true, hostUsers: false}",
                "",
                &["new: Success", old],
            ),
            ("hostUsers must be false in so many words", "{hostNetwork: true}", "", &["new: Skip", "old: Skip"]),
        ]);
    }

    #[test]
    fn a_kubelet_that_declares_more_wakes_pods() {
        plugin("NodeDeclaredFeatures").hints(&[
            ("a new node", RESTARTS, "add Node a", "Queue"),
            ("a kubelet was upgraded", RESTARTS, "update Node a {} => {declaredFeatures: [x]}", "Queue"),
            ("only labels changed", RESTARTS, "update Node a {} => {labels: {x: z}}", "Skip"),
            ("the pod needs less", RESTARTS, "update Pod pod {hostNetwork: true, hostUsers: false} => {}", "Queue"),
            ("the pod needs the same", RESTARTS, "update Pod pod {} => {labels: {x: z}}", "Skip"),
            ("another pod needs less", RESTARTS, "update Pod x {hostNetwork: true, hostUsers: false} => {}", "Skip"),
        ]);
    }
}
