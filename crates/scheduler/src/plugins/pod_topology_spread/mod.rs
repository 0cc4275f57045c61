//! PodTopologySpread: spreads pods over zones, nodes or any other domains.

mod constraint;
mod domain_counting;
mod filtering;
mod hints;
mod scoring;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bayplan_model::affinity::TopologySpreadConstraint;
use bayplan_model::node::{LABEL_HOSTNAME, LABEL_ZONE};
use bayplan_model::pod::Pod;
use serde_json::Value;

use crate::cluster::{Cluster, NodeInfo, PodInfo};
use crate::config::args::{PodTopologySpreadArgs, read};
use crate::framework::*;
use constraint::{Constraint, deduced_selector};
use domain_counting::SpreadCounting;
use filtering::FilterState;
use scoring::ScoreState;

/// The values of `whenUnsatisfiable`: Filter enforces the former, Score prefers the latter.
const DO_NOT_SCHEDULE: &str = "DoNotSchedule";
const SCHEDULE_ANYWAY: &str = "ScheduleAnyway";

/// The plugin with the constraints of pods that have none.
pub(super) struct PodTopologySpread {
    defaults: Vec<TopologySpreadConstraint>,
    /// `defaultingType` is `System`.
    system_defaults: bool,
}

/// What is prepared for one pod.
#[derive(Clone, Default)]
pub(super) struct State {
    filter: FilterState,
    score: Arc<ScoreState>,
}

impl PodTopologySpread {
    pub(super) fn new(args: &Value) -> Result<Self, String> {
        let args: PodTopologySpreadArgs = read(args)?;
        let system = |key: &str, max_skew| TopologySpreadConstraint {
            topology_key: key.into(),
            when_unsatisfiable: SCHEDULE_ANYWAY.into(),
            max_skew,
            ..Default::default()
        };
        let system_defaults = args.defaulting_type != "List";
        let defaults = match system_defaults {
            true => vec![system(LABEL_HOSTNAME, 3), system(LABEL_ZONE, 5)],
            false => args.default_constraints,
        };
        Ok(PodTopologySpread { defaults, system_defaults })
    }

    /// The pod's constraints with this `whenUnsatisfiable`, or the defaults when it has no constraint at all.
    fn constraints(&self, cluster: &Cluster, pod: &Pod, when: &str) -> Result<Vec<Constraint>, String> {
        let own = &pod.spec.topology_spread_constraints;
        if !own.is_empty() {
            let wanted = own.iter().filter(|c| c.when_unsatisfiable == when);
            return wanted.map(|c| Constraint::parse(c, pod, None)).collect();
        }
        let mut wanted = self.defaults.iter().filter(|c| c.when_unsatisfiable == when).peekable();
        if wanted.peek().is_none() {
            return Ok(Vec::new());
        }
        let selector = deduced_selector(cluster, pod);
        if selector.requirements().is_empty() {
            return Ok(Vec::new());
        }
        wanted.map(|c| Constraint::parse(c, pod, Some(selector.clone()))).collect()
    }

    /// Whether nodes that lack a topology key are ignored in scoring; only the system's defaults are lenient.
    fn requires_all_keys(&self, pod: &Pod) -> bool {
        !pod.spec.topology_spread_constraints.is_empty() || !self.system_defaults
    }
}

impl Plugin for PodTopologySpread {
    type State = State;

    fn name(&self) -> PluginName {
        "PodTopologySpread"
    }

    fn extension_points(&self) -> ExtensionPoints {
        ExtensionPoints::PRE_FILTER
            .union(ExtensionPoints::FILTER)
            .union(ExtensionPoints::PRE_SCORE)
            .union(ExtensionPoints::SCORE)
    }

    fn dependencies(&self, cx: &Cycle<'_>) -> Dependencies {
        let mut version = 0;
        let constraints: &[TopologySpreadConstraint] = match &*cx.pod.spec.topology_spread_constraints {
            [] => {
                let objects = &cx.cluster.objects;
                // The defaults' selector is deduced from these.
                version = objects.services.version()
                    + objects.replication_controllers.version()
                    + objects.replica_sets.version()
                    + objects.stateful_sets.version();
                &self.defaults
            }
            own => own,
        };
        let reads = |action: &str| match constraints.iter().any(|c| c.when_unsatisfiable == action) {
            true => Reads::Domain,
            false => Reads::Pod,
        };
        Dependencies { filter: reads(DO_NOT_SCHEDULE), score: reads(SCHEDULE_ANYWAY), version, ..Dependencies::NOTHING }
    }

    fn domain_counting(&self, cx: &Cycle<'_>) -> Option<Box<dyn DomainCounting>> {
        let hard = self.constraints(cx.cluster, cx.pod, DO_NOT_SCHEDULE).ok()?;
        let soft = self.constraints(cx.cluster, cx.pod, SCHEDULE_ANYWAY).ok()?;
        Some(Box::new(SpreadCounting::new(&cx.pod.pod, hard, soft, self.requires_all_keys(cx.pod))))
    }

    fn events_to_register(&self) -> Vec<EventRegistration> {
        use action::*;
        vec![
            EventRegistration::with_hint(EventResource::Pod, ADD | UPDATE_POD_LABEL | UPDATE_POD_TOLERATION | DELETE),
            EventRegistration::with_hint(EventResource::Node, ADD | DELETE | UPDATE_NODE_LABEL | UPDATE_NODE_TAINT),
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
        let constraints = self.constraints(cx.cluster, cx.pod, DO_NOT_SCHEDULE)?;
        let helps = if event.resource == EventResource::Node {
            hints::node_hint(&constraints, changed.nodes())
        } else {
            hints::pod_hint(cx.pod, &constraints, changed.pods())
        };
        Ok(if helps { QueueingHint::Queue } else { QueueingHint::Skip })
    }

    fn pre_filter(&self, cx: &Cycle<'_>, state: &mut State) -> PreFilter {
        match self.constraints(cx.cluster, cx.pod, DO_NOT_SCHEDULE) {
            Err(error) => Status::error(format!("get constraints from pod: {error}")).into(),
            Ok(constraints) if constraints.is_empty() => Status::skip().into(),
            Ok(constraints) => {
                state.filter = FilterState::new(cx.cluster, cx.pod, constraints);
                PreFilter::default()
            }
        }
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
        match self.constraints(cx.cluster, cx.pod, SCHEDULE_ANYWAY) {
            Err(error) => Status::error(format!("building soft constraints: {error}")),
            Ok(constraints) if constraints.is_empty() || nodes.is_empty() => Status::skip(),
            Ok(constraints) => {
                let require_all = self.requires_all_keys(cx.pod);
                state.score = Arc::new(ScoreState::new(cx.cluster, cx.pod, constraints, nodes, require_all));
                Status::SUCCESS
            }
        }
    }

    fn score(&self, cx: &Cycle<'_>, state: &State, node: &NodeInfo) -> Result<i64, Status> {
        Ok(state.score.score(cx.pod, node))
    }

    fn normalize(&self, _cx: &Cycle<'_>, state: &State, scores: &mut [NodeScore]) -> Status {
        state.score.normalize(scores);
        Status::SUCCESS
    }
}
