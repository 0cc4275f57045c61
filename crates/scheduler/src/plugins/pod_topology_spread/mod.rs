//! PodTopologySpread: spreads pods over zones, nodes or any other domains.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use bayplan_model::affinity::{RequiredNodeAffinity, TopologySpreadConstraint};
use bayplan_model::label_selector::{LabelSelector, Requirement, Selector};
use bayplan_model::meta::Map;
use bayplan_model::node::{LABEL_HOSTNAME, LABEL_ZONE, Node};
use bayplan_model::pod::Pod;
use bayplan_model::taint::untolerated;
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::Value;

use crate::cluster::{Cluster, NodeInfo, PodInfo};
use crate::config::args::{PodTopologySpreadArgs, read};
use crate::framework::*;

/// Judges and scores how even the spread is.
pub(super) struct PodTopologySpread {
    defaults: Vec<TopologySpreadConstraint>,
    system_defaults: bool,
}

/// A constraint ready to be counted.
#[derive(Clone, Debug)]
struct Constraint {
    max_skew: i64,
    key: String,
    selector: Selector,
    min_domains: usize,
    honor_affinity: bool,
    honor_taints: bool,
}

/// What is prepared for one pod.
#[derive(Clone, Default)]
pub(super) struct State {
    hard: Vec<Constraint>,
    /// By constraint: domain value → matching pods.
    counts: Vec<FxHashMap<String, i64>>,
    required: RequiredNodeAffinity,
    soft: Arc<Soft>,
}

/// What is prepared for scoring.
#[derive(Default)]
struct Soft {
    constraints: Vec<Constraint>,
    /// By constraint: domain value → matching pods; empty for hostname.
    counts: Vec<FxHashMap<String, i64>>,
    weights: Vec<f64>,
    ignored: FxHashSet<Arc<str>>,
}

impl PodTopologySpread {
    pub(super) fn new(args: &Value) -> Result<Self, String> {
        let args: PodTopologySpreadArgs = read(args)?;
        let system = |key: &str, max_skew| TopologySpreadConstraint {
            topology_key: key.into(),
            when_unsatisfiable: "ScheduleAnyway".into(),
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

    /// The pod's constraints of one kind, or the defaults when it has none at all.
    fn constraints(&self, cluster: &Cluster, pod: &Pod, action: &str) -> Result<Vec<Constraint>, String> {
        let own = &pod.spec.topology_spread_constraints;
        if !own.is_empty() {
            let wanted = own.iter().filter(|c| c.when_unsatisfiable == action);
            return wanted.map(|c| parse(c, pod, None)).collect();
        }
        let mut wanted = self.defaults.iter().filter(|c| c.when_unsatisfiable == action).peekable();
        if wanted.peek().is_none() {
            return Ok(Vec::new());
        }
        let selector = deduced_selector(cluster, pod);
        if selector.requirements().is_empty() {
            return Ok(Vec::new());
        }
        wanted.map(|c| parse(c, pod, Some(selector.clone()))).collect()
    }
}

fn parse(constraint: &TopologySpreadConstraint, pod: &Pod, deduced: Option<Selector>) -> Result<Constraint, String> {
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

/// The selectors of the services and the controller the pod belongs to, ANDed.
fn deduced_selector(cluster: &Cluster, pod: &Pod) -> Selector {
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

impl Constraint {
    /// Whether the node counts for this constraint.
    fn includes(&self, pod: &Pod, required: &RequiredNodeAffinity, node: &Node) -> bool {
        (!self.honor_affinity || required.matches(node))
            && (!self.honor_taints || untolerated(&node.spec.taints, &pod.spec.tolerations).is_none())
    }

    /// The pods on the node that count; none when the selector selects everything, as upstream has it.
    fn matching(&self, pod: &Pod, node: &NodeInfo) -> i64 {
        node.pods().iter().filter(|other| self.counts(pod, other)).count() as i64
    }

    fn counts(&self, pod: &Pod, other: &Pod) -> bool {
        !self.selector.is_everything()
            && other.metadata.namespace == pod.metadata.namespace
            && !other.is_terminating()
            && self.selector.matches(&other.metadata.labels)
    }

    /// Whether a domain may have this many pods when there are so many domains with at least `lowest` of them.
    fn allows(&self, count: i64, domains: usize, lowest: Option<i64>) -> bool {
        let lowest = match domains < self.min_domains {
            true => 0,
            false => lowest.unwrap_or(i64::from(i32::MAX)),
        };
        count - lowest <= self.max_skew
    }

    /// What a domain's count adds to the score of its nodes.
    fn share(&self, count: i64, weight: f64) -> f64 {
        count as f64 * weight + (self.max_skew - 1) as f64
    }
}

fn has_all_keys(constraints: &[Constraint], labels: &Map) -> bool {
    constraints.iter().all(|constraint| labels.contains_key(&constraint.key))
}

impl State {
    fn shift(&mut self, pod: &Pod, other: &PodInfo, node: &NodeInfo, by: i64) {
        let labels = &node.node().metadata.labels;
        if other.metadata.namespace != pod.metadata.namespace || !has_all_keys(&self.hard, labels) {
            return;
        }
        for (constraint, counts) in self.hard.iter().zip(&mut self.counts) {
            if let Some(domain) = labels.get(&constraint.key)
                && constraint.selector.matches(&other.metadata.labels)
                && constraint.includes(pod, &self.required, node.node())
            {
                *counts.entry(domain.clone()).or_default() += by;
            }
        }
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
        Dependencies {
            filter: reads("DoNotSchedule"),
            score: reads("ScheduleAnyway"),
            version,
            ..Dependencies::NOTHING
        }
    }

    fn domain_counting(&self, cx: &Cycle<'_>) -> Option<Box<dyn DomainCounting>> {
        let hard = self.constraints(cx.cluster, cx.pod, "DoNotSchedule").ok()?;
        let soft = self.constraints(cx.cluster, cx.pod, "ScheduleAnyway").ok()?;
        let required = RequiredNodeAffinity::of(cx.pod);
        let own = hard.iter().map(|c| i64::from(c.selector.matches(&cx.pod.metadata.labels))).collect();
        let require_all = !cx.pod.spec.topology_spread_constraints.is_empty() || !self.system_defaults;
        let scopes = hard.iter().map(|c| CountScope::Domain { key: c.key.clone(), distinct: false });
        let scopes = scopes.chain(soft.iter().map(|c| match c.key == LABEL_HOSTNAME {
            true => CountScope::Node { label: c.key.clone() },
            false => CountScope::Domain { key: c.key.clone(), distinct: true },
        }));
        let scopes = scopes.collect();
        Some(Box::new(Spread { pod: cx.pod.pod.clone(), hard, own, soft, required, require_all, scopes }))
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
        let constraints = self.constraints(cx.cluster, cx.pod, "DoNotSchedule")?;
        let worth = if event.resource == EventResource::Node {
            node_hint(&constraints, changed.nodes())
        } else {
            pod_hint(cx.pod, &constraints, changed.pods())
        };
        Ok(if worth { QueueingHint::Queue } else { QueueingHint::Skip })
    }

    fn pre_filter(&self, cx: &Cycle<'_>, state: &mut State) -> PreFilter {
        state.hard = match self.constraints(cx.cluster, cx.pod, "DoNotSchedule") {
            Ok(constraints) => constraints,
            Err(error) => return Status::error(format!("get constraints from pod: {error}")).into(),
        };
        if state.hard.is_empty() {
            return Status::skip().into();
        }
        state.required = RequiredNodeAffinity::of(cx.pod);
        state.counts = vec![FxHashMap::default(); state.hard.len()];
        for node in cx.cluster.nodes() {
            let labels = &node.node().metadata.labels;
            if !has_all_keys(&state.hard, labels) {
                continue;
            }
            for (constraint, counts) in state.hard.iter().zip(&mut state.counts) {
                if let Some(domain) = labels.get(&constraint.key)
                    && constraint.includes(cx.pod, &state.required, node.node())
                {
                    *counts.entry(domain.clone()).or_default() += constraint.matching(cx.pod, node);
                }
            }
        }
        PreFilter::default()
    }

    fn add_pod(&self, cx: &Cycle<'_>, state: &mut State, pod: &PodInfo, node: &NodeInfo) -> Status {
        state.shift(cx.pod, pod, node, 1);
        Status::SUCCESS
    }

    fn remove_pod(&self, cx: &Cycle<'_>, state: &mut State, pod: &PodInfo, node: &NodeInfo) -> Status {
        state.shift(cx.pod, pod, node, -1);
        Status::SUCCESS
    }

    fn filter(&self, cx: &Cycle<'_>, state: &State, node: &NodeInfo) -> Status {
        for (constraint, counts) in state.hard.iter().zip(&state.counts) {
            let Some(value) = node.label(&constraint.key) else {
                return Status::unresolvable(
                    "node(s) didn't match pod topology spread constraints (missing required label)",
                );
            };
            let own = i64::from(constraint.selector.matches(&cx.pod.metadata.labels));
            let count = counts.get(value).copied().unwrap_or(0) + own;
            if !constraint.allows(count, counts.len(), counts.values().min().copied()) {
                return Status::unschedulable("node(s) didn't match pod topology spread constraints");
            }
        }
        Status::SUCCESS
    }

    fn pre_score(&self, cx: &Cycle<'_>, state: &mut State, nodes: &[&NodeInfo]) -> Status {
        let constraints = match self.constraints(cx.cluster, cx.pod, "ScheduleAnyway") {
            Ok(constraints) => constraints,
            Err(error) => return Status::error(format!("building soft constraints: {error}")),
        };
        if constraints.is_empty() || nodes.is_empty() {
            return Status::skip();
        }
        let require_all = !cx.pod.spec.topology_spread_constraints.is_empty() || !self.system_defaults;
        let required = RequiredNodeAffinity::of(cx.pod);
        let mut counts = vec![FxHashMap::<String, i64>::default(); constraints.len()];
        let mut ignored = FxHashSet::default();
        for node in nodes {
            if require_all && !has_all_keys(&constraints, &node.node().metadata.labels) {
                ignored.insert(node.name.clone());
                continue;
            }
            for (constraint, counts) in constraints.iter().zip(&mut counts) {
                if constraint.key != LABEL_HOSTNAME {
                    counts.entry(node.label(&constraint.key).unwrap_or("").to_owned()).or_default();
                }
            }
        }
        let weights = constraints
            .iter()
            .zip(&counts)
            .map(|(constraint, counts)| match constraint.key == LABEL_HOSTNAME {
                true => nodes.len() - ignored.len(),
                false => counts.len(),
            })
            .map(weight)
            .collect();
        for node in cx.cluster.nodes() {
            if require_all && !has_all_keys(&constraints, &node.node().metadata.labels) {
                continue;
            }
            for (constraint, counts) in constraints.iter().zip(&mut counts) {
                if let Some(count) = counts.get_mut(node.label(&constraint.key).unwrap_or(""))
                    && constraint.includes(cx.pod, &required, node.node())
                {
                    *count += constraint.matching(cx.pod, node);
                }
            }
        }
        state.soft = Arc::new(Soft { constraints, counts, weights, ignored });
        Status::SUCCESS
    }

    fn score(&self, cx: &Cycle<'_>, state: &State, node: &NodeInfo) -> Result<i64, Status> {
        let soft = &state.soft;
        if soft.ignored.contains(&node.name) {
            return Ok(0);
        }
        let mut sum = 0.0;
        for (i, constraint) in soft.constraints.iter().enumerate() {
            let Some(value) = node.label(&constraint.key) else { continue };
            let count = match constraint.key == LABEL_HOSTNAME {
                true => constraint.matching(cx.pod, node),
                false => soft.counts[i].get(value).copied().unwrap_or(0),
            };
            sum += constraint.share(count, soft.weights[i]);
        }
        Ok(sum.round() as i64)
    }

    fn normalize(&self, _cx: &Cycle<'_>, state: &State, scores: &mut [NodeScore]) -> Status {
        let ignored = |score: &NodeScore| state.soft.ignored.contains(&score.node);
        let counted = scores.iter().filter(|score| !ignored(score)).map(|score| score.score);
        let (lowest, highest) = (counted.clone().min().unwrap_or(0), counted.max().unwrap_or(0).max(0));
        for score in scores {
            score.score = match ignored(score) {
                true => 0,
                false => normalized(score.score, lowest, highest),
            };
        }
        Status::SUCCESS
    }
}

/// The constraints of pods of one signature, counted by domain: first the hard ones, then the soft ones.
struct Spread {
    pod: Arc<Pod>,
    hard: Vec<Constraint>,
    /// By hard constraint: 1 when the pod counts itself.
    own: Vec<i64>,
    soft: Vec<Constraint>,
    required: RequiredNodeAffinity,
    require_all: bool,
    scopes: Vec<CountScope>,
}

impl DomainCounting for Spread {
    fn scopes(&self) -> &[CountScope] {
        &self.scopes
    }

    fn selectors(&self) -> Option<Vec<&Selector>> {
        Some(self.hard.iter().chain(&self.soft).map(|constraint| &constraint.selector).collect())
    }

    fn contributions(&self, other: &PodInfo, tell: &mut dyn FnMut(usize, i64)) -> bool {
        for (i, constraint) in self.hard.iter().chain(&self.soft).enumerate() {
            if constraint.counts(&self.pod, other) {
                tell(i, 1);
            }
        }
        true
    }

    fn includes(&self, count: usize, node: &Node) -> bool {
        let labels = &node.metadata.labels;
        match count.checked_sub(self.hard.len()) {
            None => has_all_keys(&self.hard, labels) && self.hard[count].includes(&self.pod, &self.required, node),
            // The pods on a node are counted as they are.
            Some(soft) if self.soft[soft].key == LABEL_HOSTNAME => true,
            Some(soft) => {
                (!self.require_all || has_all_keys(&self.soft, labels))
                    && self.soft[soft].includes(&self.pod, &self.required, node)
            }
        }
    }

    fn filter(&self, here: &[Option<i64>], everywhere: &[DomainSummary]) -> bool {
        self.hard.iter().enumerate().all(|(i, constraint)| {
            let Some(count) = here[i] else { return false };
            let DomainSummary { domains, lowest, .. } = everywhere[i];
            constraint.allows(count + self.own[i], domains, (domains > 0).then_some(lowest))
        })
    }

    fn scores(&self) -> bool {
        !self.soft.is_empty()
    }

    fn ignores(&self, here: &[Option<i64>]) -> bool {
        self.require_all && here[self.hard.len()..].iter().any(Option::is_none)
    }

    fn score(&self, here: &[Option<i64>], feasible: &FeasibleNodes) -> i64 {
        let mut sum = 0.0;
        for (i, constraint) in self.soft.iter().enumerate() {
            let at = self.hard.len() + i;
            let domains = if constraint.key == LABEL_HOSTNAME { feasible.nodes } else { feasible.domains[at] };
            if let Some(count) = here[at] {
                sum += constraint.share(count, weight(domains));
            }
        }
        sum.round() as i64
    }

    fn normalize(&self, score: i64, lowest: i64, highest: i64) -> i64 {
        normalized(score, lowest, highest.max(0))
    }
}

/// The fewer domains there are, the less a difference between them counts.
fn weight(domains: usize) -> f64 {
    ((domains + 2) as f64).ln()
}

fn normalized(score: i64, lowest: i64, highest: i64) -> i64 {
    if highest == 0 { MAX_NODE_SCORE } else { MAX_NODE_SCORE * (highest + lowest - score) / highest }
}

fn node_hint(constraints: &[Constraint], (old, new): (Option<&Node>, Option<&Node>)) -> bool {
    let matches = |node: &Node| has_all_keys(constraints, &node.metadata.labels);
    match (old, new) {
        (Some(old), Some(new)) => {
            let value = |node: &Node, key: &str| node.metadata.labels.get(key).cloned();
            matches(old) != matches(new)
                || (matches(new)
                    && (constraints.iter().any(|c| value(old, &c.key) != value(new, &c.key))
                        || old.spec.taints != new.spec.taints))
        }
        (Some(node), None) | (None, Some(node)) => matches(node),
        (None, None) => true,
    }
}

fn pod_hint(pod: &Pod, constraints: &[Constraint], (old, new): (Option<&Pod>, Option<&Pod>)) -> bool {
    let own = |other: &Pod| other.metadata.uid == pod.metadata.uid;
    let involved = |other: &Pod| {
        own(other)
            || ((other.is_assigned() || other.is_nominated()) && other.metadata.namespace == pod.metadata.namespace)
    };
    if [old, new].into_iter().flatten().any(|other| !involved(other)) {
        return false;
    }
    let matches = |c: &Constraint, other: &Pod| c.selector.matches(&other.metadata.labels);
    match (old, new) {
        (Some(old), Some(new)) => {
            if own(new) && old.spec.tolerations != new.spec.tolerations && constraints.iter().any(|c| c.honor_taints) {
                return true;
            }
            old.metadata.labels != new.metadata.labels && constraints.iter().any(|c| matches(c, old) != matches(c, new))
        }
        (Some(other), None) | (None, Some(other)) => constraints.iter().any(|c| matches(c, other)),
        (None, None) => true,
    }
}
