//! Node affinity, pod (anti-)affinity and topology spread of a pod, and node selectors compiled for matching.

use crate::label_selector::{LabelSelector, Requirement};
use crate::meta::Map;
use crate::node::Node;
use crate::view::views;

views! {
    /// All affinities of a pod.
    struct Affinity {
        /// To nodes.
        node_affinity: Option<NodeAffinity>,
        /// To other pods' domains.
        pod_affinity: Option<PodAffinity>,
        /// Away from other pods' domains.
        pod_anti_affinity: Option<PodAffinity>,
    }

    /// Affinity to nodes.
    struct NodeAffinity {
        /// What a node must match.
        #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
        required: Option<NodeSelector>,
        /// What a node should match; an empty list differs from none in what PreScore skips.
        #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
        preferred: Option<Vec<PreferredSchedulingTerm>>,
    }

    /// Terms of which a node must match one.
    struct NodeSelector {
        /// The terms.
        node_selector_terms: Vec<NodeSelectorTerm>,
    }

    /// Requirements which a node must all match.
    struct NodeSelectorTerm {
        /// On labels.
        match_expressions: Vec<NodeSelectorRequirement>,
        /// On fields, of which only `metadata.name` exists.
        match_fields: Vec<NodeSelectorRequirement>,
    }

    /// One requirement on a node.
    struct NodeSelectorRequirement {
        /// The label or field.
        key: String,
        /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`.
        operator: String,
        /// What it is compared with.
        values: Vec<String>,
    }

    /// A term that adds to a node's score.
    struct PreferredSchedulingTerm {
        /// How much.
        weight: i32,
        /// When.
        preference: NodeSelectorTerm,
    }

    /// (Anti-)affinity to pods.
    struct PodAffinity {
        /// What must hold.
        #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
        required: Vec<PodAffinityTerm>,
        /// What should hold.
        #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
        preferred: Vec<WeightedPodAffinityTerm>,
    }

    /// Pods to share a topology domain with, or to stay away from.
    struct PodAffinityTerm {
        /// Which pods; none selects nothing.
        label_selector: Option<LabelSelector>,
        /// In which namespaces.
        namespaces: Vec<String>,
        /// And in namespaces with which labels.
        namespace_selector: Option<LabelSelector>,
        /// The node label whose value makes a domain.
        topology_key: String,
    }

    /// A term that adds to a node's score.
    struct WeightedPodAffinityTerm {
        /// How much.
        weight: i32,
        /// When.
        pod_affinity_term: PodAffinityTerm,
    }

    /// How evenly pods are to be spread over domains.
    struct TopologySpreadConstraint {
        /// The largest difference between two domains.
        max_skew: i32,
        /// The node label whose value makes a domain.
        topology_key: String,
        /// `DoNotSchedule` or `ScheduleAnyway`.
        when_unsatisfiable: String,
        /// Which pods count; none selects nothing.
        label_selector: Option<LabelSelector>,
        /// Fewer domains than this count as an empty one.
        min_domains: Option<i32>,
        /// Whether nodes outside the pod's node affinity count: `Honor` (the default) leaves them out.
        node_affinity_policy: Option<String>,
        /// Whether nodes with untolerated taints count: `Honor` leaves them out, `Ignore` is the default.
        node_taints_policy: Option<String>,
        /// Labels of the pod itself that narrow the selector.
        match_label_keys: Vec<String>,
    }
}

/// The only field a node selector may name.
const FIELD_NAME: &str = "metadata.name";

/// A compiled node selector: its valid terms, ORed. Without any it matches nothing.
#[derive(Clone, Debug, Default)]
pub struct NodeMatcher {
    terms: Vec<Result<TermMatcher, String>>,
}

impl NodeMatcher {
    /// Prepares a selector; empty terms are dropped, terms with an error never match.
    pub fn new(selector: &NodeSelector) -> Self {
        let terms = selector.node_selector_terms.iter().enumerate();
        NodeMatcher {
            terms: terms
                .filter(|(_, term)| !term.is_empty())
                .map(|(i, term)| TermMatcher::new(term, &format!("nodeSelectorTerms[{i}]")))
                .collect(),
        }
    }

    /// Whether some term matches the node.
    pub fn matches(&self, node: &Node) -> bool {
        self.matches_labels(&node.metadata.labels, &node.metadata.name)
    }

    /// Whether some term matches a node with these labels and this name; an empty name skips field requirements.
    pub fn matches_labels(&self, labels: &Map, name: &str) -> bool {
        self.terms.iter().flatten().any(|term| term.matches(labels, name))
    }

    /// The errors of the selector's terms, if there are any.
    pub fn errors(&self) -> Vec<&str> {
        self.terms.iter().filter_map(|term| term.as_ref().err()).map(String::as_str).collect()
    }
}

/// One node selector term ready to be matched.
#[derive(Clone, Debug)]
pub struct TermMatcher {
    labels: Vec<Requirement>,
    /// (the wanted name, true for `In`)
    names: Vec<(String, bool)>,
}

impl TermMatcher {
    /// Prepares a term; `path` is the prefix of error texts.
    pub fn new(term: &NodeSelectorTerm, path: &str) -> Result<Self, String> {
        Self::prepare(term, path).map_err(|errors| aggregate(errors.into_iter().map(aggregate).collect()))
    }

    /// The errors of a term, each with its path.
    pub fn errors(term: &NodeSelectorTerm, path: &str) -> Vec<String> {
        Self::prepare(term, path).err().unwrap_or_default().concat()
    }

    /// Prepares a term; the errors are grouped by requirement.
    fn prepare(term: &NodeSelectorTerm, path: &str) -> Result<Self, Vec<Vec<String>>> {
        let mut errors = Vec::new();
        let mut labels = Vec::with_capacity(term.match_expressions.len());
        for (i, expression) in term.match_expressions.iter().enumerate() {
            match label_requirement(expression, &format!("{path}.matchExpressions[{i}]")) {
                Ok(requirement) => labels.push(requirement),
                Err(wrong) => errors.push(wrong),
            }
        }
        let mut names = Vec::with_capacity(term.match_fields.len());
        for (i, field) in term.match_fields.iter().enumerate() {
            match name_requirement(field, &format!("{path}.matchFields[{i}]")) {
                Ok(requirement) => names.push(requirement),
                Err(wrong) => errors.push(vec![wrong]),
            }
        }
        if errors.is_empty() { Ok(TermMatcher { labels, names }) } else { Err(errors) }
    }

    /// Whether all requirements hold; an empty name skips those on fields.
    pub fn matches(&self, labels: &Map, name: &str) -> bool {
        self.labels.iter().all(|r| r.matches(labels))
            && (name.is_empty() || self.names.iter().all(|(wanted, is)| (wanted == name) == *is))
    }
}

impl NodeSelectorTerm {
    /// True for an empty term, which matches nothing.
    pub fn is_empty(&self) -> bool {
        self.match_expressions.is_empty() && self.match_fields.is_empty()
    }
}

fn label_requirement(expression: &NodeSelectorRequirement, path: &str) -> Result<Requirement, Vec<String>> {
    use crate::label_selector::Operator::*;
    let operator = match expression.operator.as_str() {
        "In" => In,
        "NotIn" => NotIn,
        "Exists" => Exists,
        "DoesNotExist" => DoesNotExist,
        "Gt" => GreaterThan,
        "Lt" => LessThan,
        other => return Err(vec![format!("{path}.operator: Unsupported value: {other:?}")]),
    };
    Requirement::new(&expression.key, operator, expression.values.clone())
        .map_err(|error| error.errors().iter().map(|error| format!("{path}.{error}")).collect())
}

/// Several errors as one text, as upstream's aggregates are printed.
fn aggregate(mut errors: Vec<String>) -> String {
    if errors.len() == 1 { errors.swap_remove(0) } else { format!("[{}]", errors.join(", ")) }
}

fn name_requirement(field: &NodeSelectorRequirement, path: &str) -> Result<(String, bool), String> {
    let is = match field.operator.as_str() {
        "In" => true,
        "NotIn" => false,
        other => return Err(format!("{path}.operator: Unsupported value: {other:?}")),
    };
    if field.key != FIELD_NAME {
        return Err(format!("{path}.key: Invalid value: {:?}: not a valid field selector key", field.key));
    }
    match field.values.as_slice() {
        [value] => Ok((value.clone(), is)),
        _ => Err(format!("{path}.values: Required value: must have one element")),
    }
}

/// What a pod requires of its node: `spec.nodeSelector` and required node affinity, ANDed.
#[derive(Clone, Debug, Default)]
pub struct RequiredNodeAffinity {
    selector: Map,
    affinity: Option<NodeMatcher>,
}

impl RequiredNodeAffinity {
    /// Reads the requirements of a pod.
    pub fn of(pod: &crate::pod::Pod) -> Self {
        Self::new(pod.spec.node_selector.clone().unwrap_or_default(), pod.spec.affinity.as_ref())
    }

    /// The requirements of a pod with this `spec.nodeSelector` and `spec.affinity`.
    pub fn new(selector: Map, affinity: Option<&Affinity>) -> Self {
        let affinity = affinity.and_then(|a| a.node_affinity.as_ref());
        RequiredNodeAffinity { selector, affinity: affinity.and_then(|a| a.required.as_ref()).map(NodeMatcher::new) }
    }

    /// Whether the node satisfies them; a term that cannot be parsed never matches.
    pub fn matches(&self, node: &Node) -> bool {
        self.matches_labels(&node.metadata.labels, &node.metadata.name)
    }

    /// The same for a node with these labels and this name.
    pub fn matches_labels(&self, labels: &Map, name: &str) -> bool {
        self.selector.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.affinity.as_ref().is_none_or(|matcher| matcher.matches_labels(labels, name))
    }

    /// The same, but terms that cannot be parsed are an error unless another term matches.
    pub fn try_matches(&self, node: &Node) -> Result<bool, String> {
        if !self.selector.iter().all(|(key, value)| node.metadata.labels.get(key) == Some(value)) {
            return Ok(false);
        }
        let Some(matcher) = &self.affinity else { return Ok(true) };
        let errors: Vec<String> = matcher.errors().into_iter().map(str::to_owned).collect();
        if matcher.matches(node) || errors.is_empty() { Ok(matcher.matches(node)) } else { Err(aggregate(errors)) }
    }
}

/// The preferred terms of a pod (or of the configuration), ready to be scored.
#[derive(Clone, Debug, Default)]
pub struct PreferredNodeAffinity {
    terms: Vec<(i64, TermMatcher)>,
}

impl PreferredNodeAffinity {
    /// Prepares the terms; those with weight 0 or without requirements are dropped.
    pub fn new(terms: &[PreferredSchedulingTerm]) -> Result<Self, String> {
        let mut prepared = Vec::with_capacity(terms.len());
        let mut errors = Vec::new();
        for (i, term) in terms.iter().enumerate().filter(|(_, t)| t.weight != 0 && !t.preference.is_empty()) {
            match TermMatcher::new(&term.preference, &format!("[{i}]")) {
                Ok(matcher) => prepared.push((i64::from(term.weight), matcher)),
                Err(error) => errors.push(error),
            }
        }
        match errors.len() {
            0 => Ok(PreferredNodeAffinity { terms: prepared }),
            _ => Err(aggregate(errors)),
        }
    }

    /// The sum of the weights of the matching terms.
    pub fn score(&self, node: &Node) -> i64 {
        let matching = self.terms.iter().filter(|(_, t)| t.matches(&node.metadata.labels, &node.metadata.name));
        matching.map(|(weight, _)| weight).sum()
    }
}
