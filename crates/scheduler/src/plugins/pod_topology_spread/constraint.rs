//! A topology spread constraint, parsed: which nodes and pods it counts, and how skewed a domain may be.

use bayplan_model::affinity::{RequiredNodeAffinity, TopologySpreadConstraint};
use bayplan_model::label_selector::{LabelSelector, Requirement, Selector};
use bayplan_model::meta::Map;
use bayplan_model::node::Node;
use bayplan_model::pod::Pod;

use crate::cluster::{Cluster, NodeInfo};

/// A constraint ready to be counted.
#[derive(Clone, Debug)]
pub(super) struct Constraint {
    pub(super) max_skew: i64,
    /// The topology key.
    pub(super) key: String,
    pub(super) selector: Selector,
    pub(super) min_domains: usize,
    /// `nodeAffinityPolicy` is `Honor`, the default.
    pub(super) honor_affinity: bool,
    /// `nodeTaintsPolicy` is `Honor`; the default is `Ignore`.
    pub(super) honor_taints: bool,
}

impl Constraint {
    /// Parses a constraint of the pod, or of the configuration, whose selector is then `deduced`.
    pub(super) fn parse(
        constraint: &TopologySpreadConstraint,
        pod: &Pod,
        deduced: Option<Selector>,
    ) -> Result<Self, String> {
        let mut selector = match deduced {
            Some(selector) => selector,
            None => Selector::of(constraint.label_selector.as_ref()).map_err(|e| e.to_string())?,
        };
        let labels = &pod.metadata.labels;
        let keys = constraint.match_label_keys.iter().filter_map(|key| Some((key, labels.get(key)?)));
        let more: Vec<Requirement> = keys.map(|(key, value)| Requirement::equals(key, value)).collect();
        if !more.is_empty() && !selector.is_nothing() {
            selector = Selector::all(selector.requirements().iter().cloned().chain(more).collect());
        }
        Ok(Constraint {
            max_skew: i64::from(constraint.max_skew),
            key: constraint.topology_key.clone(),
            selector,
            min_domains: constraint.min_domains.map_or(1, |n| usize::try_from(n).unwrap_or(0)),
            honor_affinity: constraint.node_affinity_policy.as_deref().unwrap_or("Honor") == "Honor",
            honor_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
        })
    }

    /// Whether the pods on a node count, by the constraint's node inclusion policies (KEP-3094).
    pub(super) fn includes(&self, node: &NodeInclusion) -> bool {
        (!self.honor_affinity || node.matches_affinity) && (!self.honor_taints || node.is_tolerated)
    }

    /// How many pods on a node count.
    pub(super) fn count_on(&self, pod: &Pod, node: &NodeInfo) -> i64 {
        node.pods().iter().filter(|other| self.counts(pod, other)).count() as i64
    }

    /// Whether another pod counts. None does when the selector is empty, as in upstream's `countPodsMatchSelector`.
    pub(super) fn counts(&self, pod: &Pod, other: &Pod) -> bool {
        !self.selector.is_everything()
            && other.metadata.namespace == pod.metadata.namespace
            && !other.is_terminating()
            && self.selector.matches(&other.metadata.labels)
    }

    /// 1 when the pod matches its own constraint, which an empty selector always does.
    pub(super) fn self_match(&self, pod: &Pod) -> i64 {
        i64::from(self.selector.matches(&pod.metadata.labels))
    }

    /// Whether a domain may have `count` pods, given the number of domains and the lowest count of any of them.
    pub(super) fn allows(&self, count: i64, domains: usize, lowest: Option<i64>) -> bool {
        let lowest = match domains < self.min_domains {
            true => 0,
            false => lowest.unwrap_or(i64::from(i32::MAX)),
        };
        count - lowest <= self.max_skew
    }
}

/// What the node inclusion policies of a pod's constraints ask about a node: asked once for all of them.
pub(super) struct NodeInclusion {
    matches_affinity: bool,
    is_tolerated: bool,
}

impl NodeInclusion {
    pub(super) fn of(constraints: &[Constraint], pod: &Pod, required: &RequiredNodeAffinity, node: &Node) -> Self {
        let honors = |policy: fn(&Constraint) -> bool| constraints.iter().any(policy);
        NodeInclusion {
            matches_affinity: honors(|c| c.honor_affinity) && required.matches(node),
            is_tolerated: honors(|c| c.honor_taints) && pod.spec.tolerations.untolerated(&node.spec.taints).is_none(),
        }
    }
}

/// Whether a node has the topology keys of all constraints.
pub(super) fn has_all_keys(constraints: &[Constraint], labels: &Map) -> bool {
    constraints.iter().all(|constraint| labels.contains_key(&constraint.key))
}

/// The selectors of the Services and of the controller that the pod belongs to, ANDed: upstream's `DefaultSelector`.
pub(super) fn deduced_selector(cluster: &Cluster, pod: &Pod) -> Selector {
    let (namespace, labels) = (&pod.metadata.namespace, &pod.metadata.labels);
    let mut merged = Map::new();
    for service in cluster.objects.services.in_namespace(namespace) {
        if let Some(selector) = &service.spec.selector
            && selector.iter().all(|(key, value)| labels.get(key) == Some(value))
        {
            merged.extend(selector.clone());
        }
    }
    let mut requirements: Vec<Requirement> = Vec::new();
    if let Some(owner) = pod.metadata.controller() {
        let objects = &cluster.objects;
        match (owner.api_version.as_str(), owner.kind.as_str()) {
            ("v1", "ReplicationController") => {
                if let Some(controller) = objects.replication_controllers.get(namespace, &owner.name) {
                    merged.extend(controller.spec.selector.clone());
                }
            }
            ("apps/v1", kind @ ("ReplicaSet" | "StatefulSet")) => {
                let table = if kind == "ReplicaSet" { &objects.replica_sets } else { &objects.stateful_sets };
                let selector = table.get(namespace, &owner.name).and_then(|c| c.spec.selector.as_ref());
                if let Some(Ok(selector)) = selector.map(LabelSelector::selector) {
                    requirements.extend(selector.requirements().iter().cloned());
                }
            }
            _ => {}
        }
    }
    let labels = merged.iter().map(|(key, value)| Requirement::equals(key, value));
    Selector::all(labels.chain(requirements).collect())
}
