//! DefaultPreemption: when a pod fits nowhere, evicts pods of lower priority from the node where that costs least.

use std::sync::Arc;

use bayplan_model::pod::Pod;
use serde_json::Value;

use crate::config::aggregate;
use crate::config::args::{DefaultPreemptionArgs, read};
use crate::framework::preemption::{PotentialNodes, Preemption, RankedCandidate, best_candidates, dry_run};
use crate::framework::*;

/// The plugin with its arguments.
pub(super) struct DefaultPreemption {
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
}

/// Why the pod may not preempt, if so: upstream's `PodEligibleToPreemptOthers`.
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
        // The scheduler activates a preemptor once its victims are gone.
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
        let nodes = PotentialNodes::of(cx);
        let start = if nodes.is_empty() { 0 } else { (cx.random % nodes.len() as u64) as usize };
        let result = dry_run(cx, &nodes, start, self.args.candidates_wanted(nodes.len()));
        if result.candidates.is_empty() {
            return unhelpful(cx, result.statuses);
        }
        let mut candidates = result.candidates;
        let changed: Vec<RankedCandidate>;
        if let Some(answer) = cx.filters.process_preemption(&candidates) {
            changed = match answer {
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
        let nominated = cx.filters.nominated_to(&chosen.node);
        let lower_priority_nominated =
            nominated.iter().filter(|other| other.priority() < pod.priority()).cloned().collect();
        PostFilter {
            status: Status::SUCCESS,
            nomination: Nomination::Override(chosen.node.to_string()),
            preemption: Some(Preemption {
                node: chosen.node.to_string(),
                victims: chosen.victims.clone(),
                preemptor: Arc::new(pod.clone()),
                lower_priority_nominated,
            }),
            calls: Vec::new(),
        }
    }
}

/// The answer when preemption helps on no node: the reason for each node, and no nomination any more.
fn unhelpful(cx: &PostFilterContext<'_>, mut statuses: NodeStatuses) -> PostFilter {
    let errors = statuses.nodes.values().filter(|status| status.code == Code::Error);
    let errors: Vec<String> = errors.map(Status::message).collect();
    if !errors.is_empty() {
        // A retry may succeed, so the nomination stays.
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

#[cfg(test)]
mod tests {
    use crate::plugins::testing::plugin;

    const POD: &str = "{priority: 100, requests: {cpu: 2}}";

    /// A node of two cpus.
    fn node(name: &str) -> String {
        format!("Node {name} {{allocatable: {{cpu: 2, pods: 10}}}}\n")
    }

    /// A pod on a node.
    fn placed(name: &str, node: &str, priority: i32, cpu: &str, more: &str) -> String {
        format!("Pod {name} {{nodeName: {node}, priority: {priority}, requests: {{cpu: {cpu}}}{more}}}\n")
    }

    fn check(sentence: &str, pod: &str, objects: &[String], expected: &[&str]) {
        let plugin = plugin("DefaultPreemption").beside("NodeResourcesFit");
        plugin.post_filters(&[(sentence, pod, &objects.concat(), expected)]);
    }

    #[test]
    fn the_least_important_pods_go_and_no_more_than_needed() {
        check(
            "a pod of lower priority goes",
            POD,
            &[node("a"), placed("low", "a", 0, "1", "")],
            &["Success", r#"nominated: "a""#, "evicted from a: low"],
        );
        check(
            "of two that could go, the more important stays if there is room for it",
            "{priority: 100, requests: {cpu: 1}}",
            &[node("a"), placed("low", "a", 1, "1", ""), placed("middle", "a", 50, "1", "")],
            &["Success", r#"nominated: "a""#, "evicted from a: low"],
        );
        check(
            "of equals, the one that runs longer stays",
            "{priority: 100, requests: {cpu: 1}}",
            &[
                node("a"),
                placed("old", "a", 1, "1", ", startTime: '2026-01-01T00:00:00Z'"),
                placed("young", "a", 1, "1", ", startTime: '2026-01-02T00:00:00Z'"),
            ],
            &["Success", r#"nominated: "a""#, "evicted from a: young"],
        );
    }

    #[test]
    fn the_node_is_chosen_by_what_its_victims_cost() {
        let budget = "PodDisruptionBudget b {selector: {matchLabels: {app: db}}, disruptionsAllowed: 0}\n".to_owned();
        check(
            "a node where no disruption budget is violated comes first",
            POD,
            &[
                node("a"),
                placed("db", "a", 0, "1", ", labels: {app: db}"),
                node("b"),
                placed("web", "b", 9, "1", ""),
                budget,
            ],
            &["Success", r#"nominated: "b""#, "evicted from b: web"],
        );
        check(
            "then the node whose most important victim is least important",
            POD,
            &[
                node("a"),
                placed("x", "a", 10, "1", ""),
                node("b"),
                placed("y", "b", 9, "1", ""),
                placed("z", "b", 9, "1", ""),
            ],
            &["Success", r#"nominated: "b""#, "evicted from b: y z"],
        );
        check(
            "then the node with fewer victims",
            POD,
            &[
                node("a"),
                placed("x", "a", 9, "1", ""),
                placed("y", "a", 9, "1", ""),
                node("b"),
                placed("z", "b", 9, "2", ""),
            ],
            &["Success", r#"nominated: "b""#, "evicted from b: z"],
        );
        check(
            "then the node whose most important victim started last",
            POD,
            &[
                node("a"),
                placed("old", "a", 9, "2", ", startTime: '2026-01-01T00:00:00Z'"),
                node("b"),
                placed("young", "b", 9, "2", ", startTime: '2026-01-02T00:00:00Z'"),
            ],
            &["Success", r#"nominated: "b""#, "evicted from b: young"],
        );
    }

    #[test]
    fn where_preemption_cannot_help_it_says_why() {
        check(
            "equal priority does not preempt",
            POD,
            &[node("a"), placed("equal", "a", 100, "1", "")],
            &[
                "Unschedulable: preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.",
                r#"nominated: """#,
            ],
        );
        check(
            "the node is too small even when it is empty",
            "{priority: 100, requests: {cpu: 3}}",
            &[node("a"), placed("low", "a", 0, "1", "")],
            &[
                "Unschedulable: preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.",
                r#"nominated: """#,
            ],
        );
        check(
            "without the victims it still does not fit",
            POD,
            &[node("a"), placed("low", "a", 0, "500m", ""), placed("high", "a", 1000, "500m", "")],
            &["Unschedulable: preemption: 0/1 nodes are available: 1 Insufficient cpu.", r#"nominated: """#],
        );
        check(
            "the pod's own policy forbids it",
            "{priority: 100, preemptionPolicy: Never, requests: {cpu: 2}}",
            &[node("a"), placed("low", "a", 0, "1", "")],
            &["Unschedulable: preemption: not eligible due to preemptionPolicy=Never."],
        );
        let leaving = ", deletionTimestamp: '2026-01-01T00:00:00Z', \
                       conditions: [{type: DisruptionTarget, status: 'True', reason: PreemptionByScheduler}]";
        check(
            "a victim is on its way out already",
            "{priority: 100, nominatedNodeName: a, requests: {cpu: 2}}",
            &[node("a"), placed("low", "a", 0, "1", leaving)],
            &["Unschedulable: preemption: not eligible due to a terminating pod on the nominated node."],
        );
    }

    #[test]
    fn victims_that_are_gone_activate_the_pod_by_themselves() {
        plugin("DefaultPreemption").hints(&[
            ("the deletion of a pod is no hint", POD, "delete Pod low {nodeName: a, requests: {cpu: 2}}", "Skip"),
            ("nor is a new node", POD, "add Node b", "Skip"),
        ]);
    }
}
