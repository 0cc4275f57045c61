//! DefaultPreemption: when a pod fits nowhere, makes room by evicting less important pods.

use std::sync::Arc;

use bayplan_model::pod::Pod;
use serde_json::Value;

use crate::config::aggregate;
use crate::config::args::{DefaultPreemptionArgs, read};
use crate::cycle::fit_error::Diagnosis;
use crate::cycle::preempt::{Candidate, PotentialNodes, Preemption, RankedCandidate, best_candidates, dry_run};
use crate::cycle::process_preemption;
use crate::framework::*;

/// Makes room.
pub struct DefaultPreemption {
    args: DefaultPreemptionArgs,
}

impl DefaultPreemption {
    pub(super) fn new(args: &Value) -> Result<Self, String> {
        let args: DefaultPreemptionArgs = read(args)?;
        if !(0..=100).contains(&args.min_candidate_nodes_percentage) {
            let value = args.min_candidate_nodes_percentage;
            return Err(format!("minCandidateNodesPercentage: Invalid value: {value}: not in valid range [0, 100]"));
        }
        if args.min_candidate_nodes_absolute < 0 {
            let value = args.min_candidate_nodes_absolute;
            return Err(format!("minCandidateNodesAbsolute: Invalid value: {value}: not in valid range [0, inf)"));
        }
        Ok(DefaultPreemption { args })
    }

    fn wanted(&self, candidates: usize) -> usize {
        let share = candidates * self.args.min_candidate_nodes_percentage as usize / 100;
        share.max(self.args.min_candidate_nodes_absolute as usize).min(candidates)
    }
}

/// The nodes whose rejection preemption may resolve.
pub fn potential_nodes<'a>(cx: &PostFilterContext<'a>) -> PotentialNodes<'a> {
    PotentialNodes::of(cx)
}

/// Why the pod may not preempt, if it may not.
pub fn ineligible(cx: &PostFilterContext<'_>) -> Option<&'static str> {
    let pod = cx.cycle.pod;
    if pod.spec.preemption_policy.as_deref() == Some("Never") {
        return Some("not eligible due to preemptionPolicy=Never.");
    }
    let node = cx.cycle.cluster.node(&pod.status.nominated_node_name)?;
    if cx.code(node) == Code::UnschedulableAndUnresolvable {
        return None;
    }
    let leaving = |other: &Pod| {
        other.priority() < pod.priority()
            && other.is_terminating()
            && other
                .condition("DisruptionTarget")
                .is_some_and(|c| c.status == "True" && c.reason == "PreemptionByScheduler")
    };
    let waits = node.pods().iter().any(|other| leaving(other));
    waits.then_some("not eligible due to a terminating pod on the nominated node.")
}

impl Plugin for DefaultPreemption {
    type State = ();

    fn name(&self) -> PluginName {
        "DefaultPreemption"
    }

    fn extension_points(&self) -> ExtensionPoints {
        ExtensionPoints::PRE_ENQUEUE.union(ExtensionPoints::POST_FILTER)
    }

    fn dependencies(&self, _cx: &Cycle<'_>) -> Dependencies {
        Dependencies { post_filter: Reads::Usage, ..Dependencies::NOTHING }
    }

    fn events_to_register(&self) -> Vec<EventRegistration> {
        vec![EventRegistration::with_hint(EventResource::Pod, action::DELETE)]
    }

    fn hint_reads_signature(&self, _event: &ClusterEvent) -> bool {
        true
    }

    fn queueing_hint(
        &self,
        _cx: &Cycle<'_>,
        _event: &ClusterEvent,
        _changed: &ObjectChange<'_>,
    ) -> Result<QueueingHint, String> {
        // A preemptor is activated explicitly once its victims are gone.
        Ok(QueueingHint::Skip)
    }

    fn pre_enqueue(&self, cx: &Cycle<'_>) -> Status {
        if cx.cluster.preempting.contains(cx.pod.uid()) {
            return Status::unresolvable("waiting for the preemption for this pod to be finished");
        }
        Status::SUCCESS
    }

    fn gate_waits_for_activation(&self) -> bool {
        true
    }

    fn post_filter(&self, cx: &PostFilterContext<'_>, _state: &mut ()) -> PostFilter {
        if let Some(reason) = ineligible(cx) {
            return Status::unschedulable(format!("preemption: {reason}")).into();
        }
        let nodes = potential_nodes(cx);
        let start = if nodes.is_empty() { 0 } else { (cx.random % nodes.len() as u64) as usize };
        let result = dry_run(cx, &nodes, start, self.wanted(nodes.len()));
        if result.candidates.is_empty() {
            return unhelpful(cx, result.statuses);
        }
        let extenders = cx.filters.profile.extenders();
        let mut candidates = result.candidates;
        let changed: Vec<RankedCandidate>;
        if !extenders.is_empty() {
            let all = candidates.iter().map(|candidate| Candidate::clone(candidate)).collect();
            changed = match process_preemption(extenders, &cx.cycle, all) {
                Ok(left) => left.into_iter().map(RankedCandidate::from).collect(),
                Err(error) => return Status::error(format!("preemption: {error}")).into(),
            };
            candidates = changed.iter().collect();
        }
        let best = best_candidates(&candidates, cx.cycle.now);
        let Some(chosen) = best.iter().min_by_key(|candidate| &candidate.node) else {
            return Status::unschedulable("preemption: no candidate node for preemption").into();
        };
        let pod = cx.cycle.pod;
        let nominated = cx.filters.nominator.on_node(&chosen.node);
        let demoted = nominated.iter().filter(|other| other.priority() < pod.priority()).cloned().collect();
        PostFilter {
            status: Status::SUCCESS,
            nomination: Nomination::Override(chosen.node.to_string()),
            preemption: Some(Preemption {
                node: chosen.node.to_string(),
                victims: chosen.victims.clone(),
                preemptor: Arc::new(pod.clone()),
                demoted,
            }),
            calls: Vec::new(),
        }
    }
}

/// No node would be free enough: says why for each, and clears the nomination.
fn unhelpful(cx: &PostFilterContext<'_>, mut statuses: NodeStatuses) -> PostFilter {
    let errors = statuses.nodes.values().filter(|status| status.code == Code::Error);
    let errors: Vec<String> = errors.map(Status::message).collect();
    if !errors.is_empty() {
        // It may heal: the nomination stays.
        return Status::error(format!("preemption: {}", aggregate(&errors))).into();
    }
    statuses.absent = Status::unresolvable("Preemption is not helpful for scheduling");
    let diagnosis = Diagnosis { node_count: cx.cycle.cluster.node_count(), statuses, ..Diagnosis::default() };
    PostFilter {
        status: Status::unschedulable(format!("preemption: {}", diagnosis.message())),
        nomination: Nomination::Override(String::new()),
        preemption: None,
        calls: Vec::new(),
    }
}
