//! `Quiet`: pods that ask for quiet go to nodes with few pods, and nowhere else.
//!
//! A pod asks with the label `example.dev/quiet: "true"`. A node with more than `podsMax` pods (an argument of the
//! plugin) is rejected; among the others the emptiest is best.

use bayplan_scheduler::{
    AnyPlugin, ClusterEvent, Cycle, Dependencies, EventRegistration, EventResource, ExtensionPoints, NodeInfo,
    NodeScore, Normalization, ObjectChange, Plugin, PluginName, PreFilter, QueueingHint, Reads, Registry, Status,
    action, default_normalize,
};
use serde::Deserialize;

/// The name in configurations and messages.
pub(crate) const NAME: PluginName = "Quiet";
const LABEL: &str = "example.dev/quiet";

/// The arguments: `pluginConfig: [{name: Quiet, args: {podsMax: 2}}]`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    pods_max: usize,
}

/// Keeps pods that ask for quiet off busy nodes.
struct Quiet {
    pods_max: usize,
}

/// Makes the plugin known under its name.
pub(crate) fn register(registry: &mut Registry) {
    registry.register(NAME, |args| {
        let args: Args = serde_json::from_value(args.clone()).map_err(|error| error.to_string())?;
        Ok(AnyPlugin::new(Quiet { pods_max: args.pods_max }))
    });
}

impl Plugin for Quiet {
    /// Nothing has to be kept from one extension point to the next.
    type State = ();

    fn name(&self) -> PluginName {
        NAME
    }

    fn extension_points(&self) -> ExtensionPoints {
        ExtensionPoints::PRE_FILTER.union(ExtensionPoints::FILTER).union(ExtensionPoints::SCORE)
    }

    fn dependencies(&self, _cx: &Cycle<'_>) -> Dependencies {
        // Verdict and score look at the number of pods on the one node, so the engine may remember them until it
        // changes.
        let normalization = Normalization::Highest { reverse: true };
        Dependencies { filter: Reads::Usage, score: Reads::Usage, normalization, ..Dependencies::NOTHING }
    }

    fn events_to_register(&self) -> Vec<EventRegistration> {
        vec![
            EventRegistration::with_hint(EventResource::Pod, action::DELETE),
            EventRegistration::always(EventResource::Node, action::ADD),
        ]
    }

    fn queueing_hint(
        &self,
        _cx: &Cycle<'_>,
        _event: &ClusterEvent,
        changed: &ObjectChange<'_>,
    ) -> Result<QueueingHint, String> {
        // A pod that was on no node made none busy.
        let left_a_node = changed.pods().0.is_some_and(|pod| pod.is_assigned());
        Ok(if left_a_node { QueueingHint::Queue } else { QueueingHint::Skip })
    }

    fn pre_filter(&self, cx: &Cycle<'_>, (): &mut ()) -> PreFilter {
        match cx.pod.metadata.labels.get(LABEL).map(String::as_str) {
            Some("true") => PreFilter::default(),
            // Filter has nothing to say about this pod.
            _ => Status::skip().into(),
        }
    }

    fn filter(&self, _cx: &Cycle<'_>, (): &(), node: &NodeInfo) -> Status {
        match node.pods().len() > self.pods_max {
            true => Status::unschedulable("node(s) were too busy"),
            false => Status::SUCCESS,
        }
    }

    fn score(&self, _cx: &Cycle<'_>, (): &(), node: &NodeInfo) -> Result<i64, Status> {
        Ok(i64::try_from(node.pods().len()).unwrap_or(i64::MAX))
    }

    fn normalize(&self, _cx: &Cycle<'_>, (): &(), scores: &mut [NodeScore]) -> Status {
        // The busiest node gets 0, an empty one 100.
        default_normalize(scores, true);
        Status::SUCCESS
    }
}
