//! What the pod demands of its node, requirement by requirement: the node selector and required node affinity.

use bayplan_model::affinity::{NodeSelectorRequirement, NodeSelectorTerm, TermMatcher};
use bayplan_model::node::Node;
use bayplan_model::pod::Pod;

/// A requirement of a term, ready to be matched; one that cannot be read never matches.
struct Demand {
    requirement: NodeSelectorRequirement,
    matcher: Option<TermMatcher>,
}

impl Demand {
    fn on_label(requirement: &NodeSelectorRequirement) -> Self {
        let alone = NodeSelectorTerm { match_expressions: vec![requirement.clone()], ..NodeSelectorTerm::default() };
        Demand { requirement: requirement.clone(), matcher: TermMatcher::new(&alone, "").ok() }
    }

    fn on_field(requirement: &NodeSelectorRequirement) -> Self {
        let alone = NodeSelectorTerm { match_fields: vec![requirement.clone()], ..NodeSelectorTerm::default() };
        Demand { requirement: requirement.clone(), matcher: TermMatcher::new(&alone, "").ok() }
    }

    fn is_met(&self, node: &Node) -> bool {
        self.matcher.as_ref().is_some_and(|matcher| matcher.matches(&node.metadata.labels, &node.metadata.name))
    }
}

/// A term of required node affinity.
struct Term {
    labels: Vec<Demand>,
    fields: Vec<Demand>,
}

/// The demands of a pod.
pub(super) struct NodeDemands {
    pub(super) selector: Vec<(String, String)>,
    /// None without required node affinity.
    terms: Option<Vec<Term>>,
}

/// The requirements of one term that a node does not meet, by index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct UnmetTerm {
    pub(super) term: usize,
    pub(super) labels: Vec<usize>,
    pub(super) fields: Vec<usize>,
    /// How many requirements the term has.
    pub(super) requirements: usize,
}

/// What a node does not meet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Unmet {
    /// Entries of the node selector, by index.
    pub(super) selector: Vec<usize>,
    /// Every term, when none is met; none when some term is or there are no demands.
    pub(super) terms: Option<Vec<UnmetTerm>>,
}

impl NodeDemands {
    /// Reads the demands of a pod.
    pub(super) fn of(pod: &Pod) -> Self {
        let selector = pod.spec.node_selector.iter().flatten();
        let affinity = pod.spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let required = affinity.and_then(|affinity| affinity.required.as_ref());
        let term = |term: &NodeSelectorTerm| Term {
            labels: term.match_expressions.iter().map(Demand::on_label).collect(),
            fields: term.match_fields.iter().map(Demand::on_field).collect(),
        };
        NodeDemands {
            selector: selector.map(|(key, value)| (key.clone(), value.clone())).collect(),
            terms: required.map(|required| required.node_selector_terms.iter().map(term).collect()),
        }
    }

    /// True when the pod has required node affinity.
    pub(super) fn has_affinity(&self) -> bool {
        self.terms.is_some()
    }

    /// A requirement on labels, by the indexes of its term and of itself.
    pub(super) fn requirement(&self, term: usize, at: usize) -> Option<&NodeSelectorRequirement> {
        self.terms.as_ref()?.get(term)?.labels.get(at).map(|demand| &demand.requirement)
    }

    /// What a node does not meet.
    pub(super) fn unmet(&self, node: &Node) -> Unmet {
        let labels = &node.metadata.labels;
        let missing = self.selector.iter().enumerate().filter(|(_, (key, value))| labels.get(key) != Some(value));
        let failing = |demands: &[Demand]| {
            demands.iter().enumerate().filter(|(_, demand)| !demand.is_met(node)).map(|(at, _)| at).collect()
        };
        let terms: Option<Vec<UnmetTerm>> = self.terms.as_ref().map(|terms| {
            let unmet = terms.iter().enumerate().map(|(at, term)| UnmetTerm {
                term: at,
                labels: failing(&term.labels),
                fields: failing(&term.fields),
                requirements: term.labels.len() + term.fields.len(),
            });
            unmet.collect()
        });
        let is_met = |term: &UnmetTerm| term.requirements > 0 && term.labels.is_empty() && term.fields.is_empty();
        Unmet { selector: missing.map(|(at, _)| at).collect(), terms: terms.filter(|terms| !terms.iter().any(is_met)) }
    }
}
