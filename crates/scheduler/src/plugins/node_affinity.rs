//! NodeAffinity: the pod's node selector and node affinity, and the `addedAffinity` of the configuration.

use std::collections::BTreeSet;

use bayplan_model::affinity::{self, NodeMatcher, NodeSelectorTerm, PreferredNodeAffinity, RequiredNodeAffinity};
use bayplan_model::node::Node;
use bayplan_model::pod::Pod;
use serde_json::Value;

use crate::cluster::NodeInfo;
use crate::config::args::{NodeAffinityArgs, read};
use crate::framework::*;

/// The most parts that a pod's node selector and node affinity may have together. Each is compared with every node: at
/// 30 ns a part, 5,000 nodes take a third of a second, in which nobody else is placed. A body has room for thirty
/// thousand terms.
const PARTS_MAX: usize = 2_000;
/// So many values are compared in the time of another part: tools list the names of nodes.
const VALUES_OF_A_PART: usize = 8;

/// The plugin with its `addedAffinity`.
pub(super) struct NodeAffinity {
    added_required: Option<NodeMatcher>,
    added_preferred: Option<PreferredNodeAffinity>,
}

/// What is prepared for one pod.
#[derive(Clone, Default)]
pub(super) struct State {
    required: Option<RequiredNodeAffinity>,
    /// None when PreScore has not run.
    preferred: Option<PreferredNodeAffinity>,
}

impl NodeAffinity {
    pub(super) fn new(args: &Value) -> Result<Self, String> {
        let args: NodeAffinityArgs = read(args)?;
        let added = args.added_affinity.unwrap_or_default();
        let added_required = added.required.as_ref().map(NodeMatcher::new);
        if let Some(error) = added_required.as_ref().and_then(|m| m.errors().first().map(ToString::to_string)) {
            return Err(format!("parsing addedAffinity.requiredDuringSchedulingIgnoredDuringExecution: {error}"));
        }
        let preferred = added.preferred.filter(|terms| !terms.is_empty());
        let added_preferred = preferred
            .map(|terms| PreferredNodeAffinity::new(&terms))
            .transpose()
            .map_err(|e| format!("parsing addedAffinity.preferredDuringSchedulingIgnoredDuringExecution: {e}"))?;
        Ok(NodeAffinity { added_required, added_preferred })
    }

    fn added_matches(&self, node: &Node) -> bool {
        self.added_required.as_ref().is_none_or(|matcher| matcher.matches(node))
    }
}

/// The node affinity of the pod itself.
fn own(cx: &Cycle<'_>) -> Option<affinity::NodeAffinity> {
    cx.pod.spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.clone())
}

/// How much of a pod is compared with each node: labels, terms, expressions and values.
fn parts(pod: &Pod) -> usize {
    let of_term = |term: &NodeSelectorTerm| {
        let requirements = term.match_expressions.iter().chain(&term.match_fields);
        1 + requirements.map(|one| 1 + one.values.len() / VALUES_OF_A_PART).sum::<usize>()
    };
    let affinity = pod.spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required.as_ref());
    let required = required.into_iter().flat_map(|required| &required.node_selector_terms).map(of_term);
    let preferred = affinity.and_then(|affinity| affinity.preferred.as_ref());
    let preferred = preferred.into_iter().flatten().map(|preferred| of_term(&preferred.preference));
    pod.spec.node_selector.as_ref().map_or(0, |labels| labels.len()) + required.chain(preferred).sum::<usize>()
}

/// The node names that the terms allow by `matchFields`; none when some term names no node.
fn names(terms: &[NodeSelectorTerm]) -> Option<BTreeSet<String>> {
    let mut allowed = BTreeSet::new();
    for term in terms {
        let mut of_term: Option<BTreeSet<String>> = None;
        for field in term.match_fields.iter().filter(|f| f.key == "metadata.name" && f.operator == "In") {
            let values: BTreeSet<String> = field.values.iter().cloned().collect();
            of_term = Some(match of_term {
                None => values,
                Some(previous) => previous.intersection(&values).cloned().collect(),
            });
        }
        allowed.extend(of_term?);
    }
    Some(allowed)
}

impl Plugin for NodeAffinity {
    type State = State;

    fn name(&self) -> PluginName {
        "NodeAffinity"
    }

    fn extension_points(&self) -> ExtensionPoints {
        ExtensionPoints::PRE_FILTER
            .union(ExtensionPoints::FILTER)
            .union(ExtensionPoints::PRE_SCORE)
            .union(ExtensionPoints::SCORE)
    }

    fn dependencies(&self, cx: &Cycle<'_>) -> Dependencies {
        let terms = cx.pod.spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref()?.required.as_ref());
        let by_name = terms.is_some_and(|t| t.node_selector_terms.iter().any(|t| !t.match_fields.is_empty()));
        // PreFilter narrows the search to the named nodes, or rejects the pod, and a scoreboard covers all nodes.
        let filter = if by_name || parts(cx.pod) > PARTS_MAX { Reads::Cluster } else { Reads::Node };
        let normalization = Normalization::Highest { reverse: false };
        Dependencies { filter, score: Reads::Node, normalization, ..Dependencies::NOTHING }
    }

    fn events_to_register(&self) -> Vec<EventRegistration> {
        vec![EventRegistration::with_hint(EventResource::Node, action::ADD | action::UPDATE_NODE_LABEL)]
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
        let (old, Some(new)) = changed.nodes() else { return Ok(QueueingHint::Queue) };
        let required = RequiredNodeAffinity::of(cx.pod);
        if !self.added_matches(new) || !required.try_matches(new)? {
            return Ok(QueueingHint::Skip);
        }
        // Like upstream, this does not compare the added affinity with the old node.
        let matched = old.map(|old| required.try_matches(old)).transpose()?;
        Ok(if matched == Some(true) { QueueingHint::Skip } else { QueueingHint::Queue })
    }

    fn pre_filter(&self, cx: &Cycle<'_>, state: &mut State) -> PreFilter {
        let parts = parts(cx.pod);
        if parts > PARTS_MAX {
            let why =
                format!("node affinity has {parts} terms, expressions and values, at most {PARTS_MAX} are compared");
            return Status::unresolvable(why).into();
        }
        let required = own(cx).and_then(|affinity| affinity.required);
        if required.is_none() && self.added_required.is_none() && cx.pod.spec.node_selector.is_none() {
            return Status::skip().into();
        }
        state.required = Some(RequiredNodeAffinity::of(cx.pod));
        let terms = required.map(|required| required.node_selector_terms).unwrap_or_default();
        match names(&terms).filter(|_| !terms.is_empty()) {
            None => PreFilter::default(),
            Some(names) if names.is_empty() => Status::unresolvable("pod affinity terms conflict").into(),
            Some(names) => PreFilter { status: Status::SUCCESS, nodes: Some(names) },
        }
    }

    fn filter(&self, cx: &Cycle<'_>, state: &State, node: &NodeInfo) -> Status {
        if !self.added_matches(node.node()) {
            return Status::unresolvable("node(s) didn't match scheduler-enforced node affinity");
        }
        let matches = match &state.required {
            Some(required) => required.matches(node.node()),
            None => RequiredNodeAffinity::of(cx.pod).matches(node.node()),
        };
        if matches {
            Status::SUCCESS
        } else {
            Status::unresolvable("node(s) didn't match Pod's node affinity/selector")
        }
    }

    fn pre_score(&self, cx: &Cycle<'_>, state: &mut State, _nodes: &[&NodeInfo]) -> Status {
        let preferred = own(cx).and_then(|affinity| affinity.preferred);
        if preferred.is_none() && self.added_preferred.is_none() {
            return Status::skip();
        }
        match PreferredNodeAffinity::new(&preferred.unwrap_or_default()) {
            Ok(preferred) => state.preferred = Some(preferred),
            Err(error) => return Status::error(error),
        }
        Status::SUCCESS
    }

    fn score(&self, cx: &Cycle<'_>, state: &State, node: &NodeInfo) -> Result<i64, Status> {
        let added = self.added_preferred.as_ref().map_or(0, |preferred| preferred.score(node.node()));
        let own = match &state.preferred {
            Some(preferred) => preferred.score(node.node()),
            None => {
                let preferred = own(cx).and_then(|affinity| affinity.preferred).unwrap_or_default();
                PreferredNodeAffinity::new(&preferred).map_err(Status::error)?.score(node.node())
            }
        };
        Ok(own + added)
    }

    fn normalize(&self, _cx: &Cycle<'_>, _state: &State, scores: &mut [NodeScore]) -> Status {
        default_normalize(scores, false);
        Status::SUCCESS
    }
}

#[cfg(test)]
mod tests {
    use crate::plugins::testing::plugin;

    const NODES: &str = "
        Node a {labels: {zone: a, cores: '8'}}
        Node b {labels: {zone: b, cores: '64'}}
        Node c
    ";

    /// A pod with these terms of required node affinity.
    fn required(terms: &str) -> String {
        let affinity = "requiredDuringSchedulingIgnoredDuringExecution";
        format!("{{affinity: {{nodeAffinity: {{{affinity}: {{nodeSelectorTerms: {terms}}}}}}}}}")
    }

    fn unmatched(node: &str) -> String {
        format!("{node}: UnschedulableAndUnresolvable: node(s) didn't match Pod's node affinity/selector")
    }

    #[test]
    fn a_pod_goes_where_its_selector_and_its_required_affinity_both_match() {
        let (a, b, c) = (&*unmatched("a"), &*unmatched("b"), &*unmatched("c"));
        let in_zones = "[{matchExpressions: [{key: zone, operator: In, values: [a, b]}]}]";
        let two_terms = "[{matchExpressions: [{key: zone, operator: In, values: [a]}]}, \
                         {matchExpressions: [{key: zone, operator: In, values: [b]}]}]";
        let not_in = "[{matchExpressions: [{key: zone, operator: NotIn, values: [a]}]}]";
        let more_cores =
            "[{matchExpressions: [{key: zone, operator: Exists}, {key: cores, operator: Gt, values: ['8']}]}]";
        plugin("NodeAffinity").given(NODES).filters(&[
            ("a pod without selector and affinity is skipped", "{}", "", &["a: Skip", "b: Skip", "c: Skip"]),
            ("nodeSelector compares labels", "{nodeSelector: {zone: a}}", "", &["a: Success", b, c]),
            ("any of several values", &required(in_zones), "", &["a: Success", "b: Success", c]),
            ("any of several terms", &required(two_terms), "", &["a: Success", "b: Success", c]),
            ("NotIn matches a node without the label", &required(not_in), "", &[a, "b: Success", "c: Success"]),
            ("all expressions of a term; Gt compares numbers", &required(more_cores), "", &[a, "b: Success", c]),
            ("a term without requirements matches nothing", &required("[{}]"), "", &[a, b, c]),
        ]);
    }

    #[test]
    fn names_in_match_fields_narrow_the_search() {
        let left_out = "UnschedulableAndUnresolvable: node(s) didn't satisfy plugin(s) [NodeAffinity]";
        let named = |names: &str| format!("{{matchFields: [{{key: metadata.name, operator: In, values: [{names}]}}]}}");
        let (a, c) = (&*format!("a: {left_out}"), &*format!("c: {left_out}"));
        let (one, two) = (named("b"), named("a"));
        let conflict = "[{matchFields: [{key: metadata.name, operator: In, values: [a]}, \
                        {key: metadata.name, operator: In, values: [b]}]}]";
        let or_zone = format!("[{one}, {{matchExpressions: [{{key: zone, operator: In, values: [a]}}]}}]");
        plugin("NodeAffinity").given(NODES).filters(&[
            ("other nodes are not looked at", &required(&format!("[{one}]")), "", &[a, "b: Success", c]),
            ("each term adds its names", &required(&format!("[{one}, {two}]")), "", &["a: Success", "b: Success", c]),
            (
                "one term that can match any node ends the narrowing",
                &required(&or_zone),
                "",
                &["a: Success", "b: Success", &unmatched("c")],
            ),
            (
                "names that exclude each other reject the pod",
                &required(conflict),
                "",
                &["pod: UnschedulableAndUnresolvable: pod affinity terms conflict"],
            ),
        ]);
    }

    #[test]
    fn more_terms_than_can_be_compared_reject_the_pod() {
        let term = "{matchExpressions: [{key: zone, operator: In, values: [a]}]}";
        let terms = |count: usize| required(&format!("[{}]", vec![term; count].join(", ")));
        let values = |count: usize| {
            let values = vec!["x"; count].join(", ");
            required(&format!("[{{matchExpressions: [{{key: zone, operator: NotIn, values: [{values}]}}]}}]"))
        };
        let rejected = "pod: UnschedulableAndUnresolvable: node affinity has 2002 terms, expressions and values, \
                        at most 2000 are compared";
        plugin("NodeAffinity").given("Node a {labels: {zone: a}}").filters(&[
            ("as many terms as are compared", &terms(1_000), "", &["a: Success"]),
            ("one more", &terms(1_001), "", &[rejected]),
            ("as many values", &values(15_984), "", &["a: Success"]),
            ("some more", &values(16_000), "", &[rejected]),
        ]);
    }

    #[test]
    fn affinity_of_the_configuration_holds_for_every_pod() {
        let added = "{addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [\
                     {matchExpressions: [{key: zone, operator: Exists}]}]}}}";
        let c = "c: UnschedulableAndUnresolvable: node(s) didn't match scheduler-enforced node affinity";
        plugin("NodeAffinity").args(added).given(NODES).filters(&[
            ("a pod that wants nothing", "{}", "", &["a: Success", "b: Success", c]),
            ("its own selector comes on top", "{nodeSelector: {zone: b}}", "", &[&unmatched("a"), "b: Success", c]),
        ]);
    }

    #[test]
    fn preferred_terms_add_their_weights() {
        let preferred = "{affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [\
            {weight: 30, preference: {matchExpressions: [{key: zone, operator: Exists}]}}, \
            {weight: 50, preference: {matchExpressions: [{key: cores, operator: In, values: ['64']}]}}, \
            {weight: 100, preference: {}}]}}}";
        let nowhere = "{affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [\
            {weight: 30, preference: {matchExpressions: [{key: disk, operator: Exists}]}}]}}}";
        plugin("NodeAffinity").given(NODES).scores(&[
            ("a pod without preferences", "{}", "", &["Skip"]),
            (
                "the highest sum becomes 100; an empty preference is ignored",
                preferred,
                "",
                &["a: 30 -> 37", "b: 80 -> 100", "c: 0 -> 0"],
            ),
            ("a preference no node meets", nowhere, "", &["a: 0 -> 0", "b: 0 -> 0", "c: 0 -> 0"]),
        ]);
    }

    #[test]
    fn a_node_that_matches_now_wakes_the_pod() {
        let pod = "{nodeSelector: {zone: a}}";
        plugin("NodeAffinity").hints(&[
            ("a new node matches", pod, "add Node n {labels: {zone: a}}", "Queue"),
            ("a new node does not", pod, "add Node n {labels: {zone: b}}", "Skip"),
            ("labels change for the better", pod, "update Node n {labels: {zone: b}} => {labels: {zone: a}}", "Queue"),
            ("it matched before", pod, "update Node n {labels: {zone: a}} => {labels: {zone: a, x: z}}", "Skip"),
        ]);
    }
}
