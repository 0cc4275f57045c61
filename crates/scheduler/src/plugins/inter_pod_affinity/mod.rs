//! InterPodAffinity: puts pods near or away from other pods, by topology domains.

mod domain_counting;
mod filtering;
mod hints;
mod scoring;
mod terms;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::Value;

use crate::cluster::{NodeInfo, PodInfo};
use crate::config::args::{InterPodAffinityArgs, read};
use crate::framework::*;
use domain_counting::AffinityCounting;
use filtering::FilterState;
use scoring::{DomainScores, ScoringTerms};

/// The plugin with its arguments.
pub(super) struct InterPodAffinity {
    args: InterPodAffinityArgs,
}

/// What is prepared for one pod.
#[derive(Clone, Default)]
pub(super) struct State {
    filter: FilterState,
    scores: Arc<DomainScores>,
}

impl InterPodAffinity {
    pub(super) fn new(args: &Value) -> Result<Self, String> {
        let args: InterPodAffinityArgs = read(args)?;
        if !(0..=100).contains(&args.hard_pod_affinity_weight) {
            let weight = args.hard_pod_affinity_weight;
            return Err(format!("hardPodAffinityWeight: Invalid value: {weight}: not in valid range [0, 100]"));
        }
        Ok(InterPodAffinity { args })
    }
}

impl Plugin for InterPodAffinity {
    type State = State;

    fn name(&self) -> PluginName {
        "InterPodAffinity"
    }

    fn extension_points(&self) -> ExtensionPoints {
        ExtensionPoints::PRE_FILTER
            .union(ExtensionPoints::FILTER)
            .union(ExtensionPoints::PRE_SCORE)
            .union(ExtensionPoints::SCORE)
    }

    fn dependencies(&self, cx: &Cycle<'_>) -> Dependencies {
        // PreFilter rejects a pod whose terms cannot be parsed, which the counting form does not.
        let filter = if cx.pod.affinity_errors.is_empty() { Reads::Domain } else { Reads::Cluster };
        let version = cx.cluster.objects.namespaces.version();
        Dependencies { filter, score: Reads::Domain, version, ..Dependencies::NOTHING }
    }

    fn domain_counting(&self, cx: &Cycle<'_>) -> Option<Box<dyn DomainCounting>> {
        Some(Box::new(AffinityCounting::new(self, cx)))
    }

    fn events_to_register(&self) -> Vec<EventRegistration> {
        use action::*;
        vec![
            EventRegistration::with_hint(EventResource::Pod, ADD | UPDATE_POD_LABEL | DELETE),
            EventRegistration::with_hint(EventResource::Node, ADD | UPDATE_NODE_LABEL),
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
        let helps = match event.resource {
            EventResource::Node => hints::node_hint(cx.pod, changed.nodes()),
            _ => hints::pod_hint(cx.pod, changed.pods()),
        };
        Ok(if helps { QueueingHint::Queue } else { QueueingHint::Skip })
    }

    fn pre_filter(&self, cx: &Cycle<'_>, state: &mut State) -> PreFilter {
        if !cx.pod.affinity_errors.is_empty() {
            let errors = match &*cx.pod.affinity_errors {
                [one] => one.clone(),
                many => format!("[{}]", many.join(", ")),
            };
            return Status::unresolvable(format!("parsing pod: {errors}")).into();
        }
        state.filter = FilterState::new(cx.cluster, cx.pod);
        if state.filter.is_irrelevant() { Status::skip().into() } else { PreFilter::default() }
    }

    fn add_pod(&self, cx: &Cycle<'_>, state: &mut State, pod: &PodInfo, node: &NodeInfo) -> Status {
        state.filter.shift(cx.pod, pod, node, 1);
        Status::SUCCESS
    }

    fn remove_pod(&self, cx: &Cycle<'_>, state: &mut State, pod: &PodInfo, node: &NodeInfo) -> Status {
        state.filter.shift(cx.pod, pod, node, -1);
        Status::SUCCESS
    }

    fn filter(&self, cx: &Cycle<'_>, state: &State, node: &NodeInfo) -> Status {
        state.filter.filter(cx.pod, node)
    }

    fn pre_score(&self, cx: &Cycle<'_>, state: &mut State, nodes: &[&NodeInfo]) -> Status {
        if nodes.is_empty() {
            return Status::skip();
        }
        let scores = ScoringTerms::new(&self.args, cx.cluster, cx.pod).domain_scores(cx.cluster, cx.pod);
        if scores.is_empty() {
            return Status::skip();
        }
        state.scores = Arc::new(scores);
        Status::SUCCESS
    }

    fn score(&self, _cx: &Cycle<'_>, state: &State, node: &NodeInfo) -> Result<i64, Status> {
        Ok(scoring::score(&state.scores, node))
    }

    fn normalize(&self, _cx: &Cycle<'_>, _state: &State, scores: &mut [NodeScore]) -> Status {
        let lowest = scores.iter().map(|s| s.score).min().unwrap_or(0);
        let range = scores.iter().map(|s| s.score).max().unwrap_or(0) - lowest;
        for entry in scores {
            entry.score = scoring::normalized(entry.score, lowest, range);
        }
        Status::SUCCESS
    }
}
