//! NodeResourcesFit: a node must have left what the pod requests; how much is left, or used, makes the score.

#[cfg(test)]
mod differential_tests;
mod filtering;
mod headroom;
mod hints;
mod scoring;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use bayplan_model::resources::{Amounts, is_extended};
use serde_json::Value;

use crate::cluster::NodeInfo;
use crate::config::args::{NodeResourcesFitArgs, ResourceSpec, read, resources_or_default};
use crate::config::validate_args;
use crate::framework::*;
pub use filtering::missing_resources;
use headroom::FitByHeadroom;
use scoring::{ScoreState, Strategy};

/// The plugin with its arguments.
pub(super) struct NodeResourcesFit {
    ignored_resources: Vec<String>,
    ignored_resource_groups: Vec<String>,
    strategy: Strategy,
    resources: Vec<ResourceSpec>,
}

/// What is prepared for one pod.
#[derive(Clone, Default)]
pub(super) struct State {
    /// What Filter compares with the node.
    request: Amounts,
    /// The requested resources that devices provide on nodes which have none of their own.
    device_backed: BTreeSet<Arc<str>>,
    score: ScoreState,
}

impl NodeResourcesFit {
    pub(super) fn new(args: &Value) -> Result<Self, String> {
        if !args.is_null() {
            validate_args("NodeResourcesFit", args)?;
        }
        let args: NodeResourcesFitArgs = read(args)?;
        let scoring = args.scoring_strategy.unwrap_or_default();
        Ok(NodeResourcesFit {
            ignored_resources: args.ignored_resources,
            ignored_resource_groups: args.ignored_resource_groups,
            strategy: Strategy::of(&scoring),
            resources: resources_or_default(&scoring.resources),
        })
    }

    fn is_ignored(&self, name: &str) -> bool {
        let group = name.split_once('/').map_or(name, |(group, _)| group);
        is_extended(name)
            && (self.ignored_resources.iter().any(|ignored| ignored == name)
                || self.ignored_resource_groups.iter().any(|ignored| ignored == group))
    }
}

/// What counting a pod's resources reads, with the version of what it reads beside nodes: anything once a DeviceClass
/// maps one of the resources to devices.
pub(super) fn resource_dependencies(cx: &Cycle<'_>) -> (Reads, u64) {
    let scalars = &cx.pod.usage.requested.scalars;
    if scalars.is_empty() {
        return (Reads::Usage, 0);
    }
    let backed = scalars.keys().any(|name| cx.cluster.class_of_extended_resource(name).is_some());
    let reads = if backed { Reads::Cluster } else { Reads::Usage };
    (reads, cx.cluster.objects.device_classes.version())
}

impl Plugin for NodeResourcesFit {
    type State = State;

    fn name(&self) -> PluginName {
        "NodeResourcesFit"
    }

    fn extension_points(&self) -> ExtensionPoints {
        ExtensionPoints::PRE_FILTER
            .union(ExtensionPoints::FILTER)
            .union(ExtensionPoints::PRE_SCORE)
            .union(ExtensionPoints::SCORE)
            .union(ExtensionPoints::PLACEMENT_SCORE)
    }

    fn dependencies(&self, cx: &Cycle<'_>) -> Dependencies {
        let (reads, version) = resource_dependencies(cx);
        Dependencies { filter: reads, score: reads, version, ..Dependencies::NOTHING }
    }

    fn events_to_register(&self) -> Vec<EventRegistration> {
        vec![
            EventRegistration::with_hint(EventResource::Pod, action::DELETE | action::UPDATE_POD_SCALE_DOWN),
            EventRegistration::with_hint(EventResource::Node, action::ADD | action::UPDATE_NODE_ALLOCATABLE),
            EventRegistration::with_hint(EventResource::DeviceClass, action::ADD | action::UPDATE),
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
            new.is_none_or(|new| hints::node_grew_for(cx.cluster, cx.pod, old, new))
        } else if let (old, Some(class)) = changed.device_classes() {
            hints::class_backs(cx.pod, old, class)
        } else {
            match changed.pods() {
                (Some(deleted), None) => deleted.is_assigned() || deleted.is_nominated(),
                (Some(old), Some(new)) => {
                    new.metadata.uid == cx.pod.metadata.uid
                        || (new.is_assigned() && hints::pod_shrank_for(cx.pod, old, new))
                }
                _ => true,
            }
        };
        Ok(if helps { QueueingHint::Queue } else { QueueingHint::Skip })
    }

    fn pre_filter(&self, cx: &Cycle<'_>, state: &mut State) -> PreFilter {
        state.request = filtering::request(cx.pod);
        state.device_backed = filtering::device_backed(cx.cluster, &state.request);
        PreFilter::default()
    }

    fn filter(&self, _cx: &Cycle<'_>, state: &State, node: &NodeInfo) -> Status {
        let delegated = |name: &str| filtering::is_delegated(&state.device_backed, node, name);
        filtering::status(filtering::shortages(&state.request, node, |name| self.is_ignored(name) || delegated(name)))
    }

    fn pre_score(&self, cx: &Cycle<'_>, state: &mut State, _nodes: &[&NodeInfo]) -> Status {
        state.score = ScoreState::new(cx.cluster, cx.pod, &self.resources);
        Status::SUCCESS
    }

    fn score(&self, _cx: &Cycle<'_>, state: &State, node: &NodeInfo) -> Result<i64, Status> {
        Ok(self.strategy.score(state.score.shares(node)))
    }

    fn headroom_plugin(&self, state: &State) -> Option<Box<dyn HeadroomPlugin>> {
        let form = FitByHeadroom::new(state, &self.strategy)?;
        Some(Box::new(form))
    }
}
