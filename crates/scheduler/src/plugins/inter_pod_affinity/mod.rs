//! InterPodAffinity: pods near or away from other pods, by domains of nodes.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use bayplan_model::meta::Map;
use bayplan_model::pod::Pod;
use rustc_hash::FxHashMap;
use serde_json::Value;

use crate::cluster::{AffinityTerm, Cluster, NodeInfo, PodInfo};
use crate::config::args::{InterPodAffinityArgs, read};
use crate::framework::*;

/// Judges and scores who is near.
pub(super) struct InterPodAffinity {
    args: InterPodAffinityArgs,
}

/// Matching pods by (topology key, value).
type Counts = FxHashMap<(String, String), i64>;

/// What is prepared for one pod.
#[derive(Clone, Default)]
pub(super) struct State {
    affinity_terms: Vec<AffinityTerm>,
    anti_affinity_terms: Vec<AffinityTerm>,
    namespace_labels: Map,
    /// Domains where a pod lives that does not want this one.
    existing_anti_affinity: Counts,
    /// Domains where pods live that match all affinity terms of this one.
    affinity: Counts,
    /// Domains where pods live that match an anti-affinity term of this one.
    anti_affinity: Counts,
    /// Topology key → value → score.
    scores: Arc<FxHashMap<String, FxHashMap<String, i64>>>,
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

/// Adds the names of the namespaces a term's selector matches.
///
/// Upstream means to drop the selector afterwards but changes a copy: it stays, and is later asked about pods whose
/// namespace labels it is not shown. That is mirrored here.
fn unroll(terms: &[AffinityTerm], cluster: &Cluster) -> Vec<AffinityTerm> {
    let mut terms = terms.to_vec();
    for term in &mut terms {
        if term.namespace_selector.is_nothing() || term.namespace_selector.is_everything() {
            continue;
        }
        let namespaces = cluster.objects.namespaces.iter();
        let matching = namespaces.filter(|ns| term.namespace_selector.matches(&ns.metadata.labels));
        term.namespaces.extend(matching.map(|ns| ns.metadata.name.clone()).collect::<Vec<_>>());
    }
    terms
}

fn unroll_weighted(terms: &[(i32, AffinityTerm)], cluster: &Cluster) -> Vec<(i32, AffinityTerm)> {
    let bare: Vec<AffinityTerm> = terms.iter().map(|(_, term)| term.clone()).collect();
    terms.iter().map(|(weight, _)| *weight).zip(unroll(&bare, cluster)).collect()
}

fn all_match(terms: &[AffinityTerm], pod: &Pod) -> bool {
    !terms.is_empty() && terms.iter().all(|term| term.matches(pod, &Map::new()))
}

fn shift(counts: &mut Counts, node: &NodeInfo, key: &str, by: i64) {
    let Some(value) = node.label(key) else { return };
    let entry = (key.to_owned(), value.to_owned());
    let count = counts.entry(entry.clone()).or_default();
    *count += by;
    if *count == 0 {
        counts.remove(&entry);
    }
}

impl State {
    /// Accounts for one pod on a node, coming (+1) or going (-1).
    fn account(&mut self, pod: &PodInfo, other: &PodInfo, node: &NodeInfo, by: i64) {
        for term in other.required_anti_affinity.iter() {
            if term.matches(pod, &self.namespace_labels) {
                shift(&mut self.existing_anti_affinity, node, &term.topology_key, by);
            }
        }
        if all_match(&self.affinity_terms, other) {
            for term in &self.affinity_terms {
                shift(&mut self.affinity, node, &term.topology_key, by);
            }
        }
        for term in &self.anti_affinity_terms {
            if term.matches(other, &Map::new()) {
                shift(&mut self.anti_affinity, node, &term.topology_key, by);
            }
        }
    }

    fn count(counts: &Counts, node: &NodeInfo, key: &str) -> Option<i64> {
        let value = node.label(key)?;
        Some(counts.get(&(key.to_owned(), value.to_owned())).copied().unwrap_or(0))
    }

    fn satisfies_affinity(&self, pod: &Pod, node: &NodeInfo) -> bool {
        let mut all_near = true;
        for term in &self.affinity_terms {
            match State::count(&self.affinity, node, &term.topology_key) {
                None => return false,
                Some(count) => all_near &= count > 0,
            }
        }
        // The first of a group of pods that want each other may go anywhere.
        all_near || (self.affinity.is_empty() && all_match(&self.affinity_terms, pod))
    }

    fn satisfies_anti_affinity(&self, node: &NodeInfo) -> bool {
        let counts = &self.anti_affinity;
        self.anti_affinity_terms
            .iter()
            .all(|term| State::count(counts, node, &term.topology_key).is_none_or(|count| count <= 0))
    }

    fn satisfies_existing(&self, node: &NodeInfo) -> bool {
        let mut counts = self.existing_anti_affinity.iter();
        counts.all(|((key, value), count)| *count <= 0 || node.label(key) != Some(value))
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
        // PreFilter turns the pod down.
        let filter = if cx.pod.affinity_errors.is_empty() { Reads::Domain } else { Reads::Cluster };
        let version = cx.cluster.objects.namespaces.version();
        Dependencies { filter, score: Reads::Domain, version, ..Dependencies::NOTHING }
    }

    fn domain_counting(&self, cx: &Cycle<'_>) -> Option<Box<dyn DomainCounting>> {
        Some(Box::new(Neighbours::new(self, cx)))
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
        let worth =
            if event.resource == EventResource::Node { node_hint(cx.pod, changed) } else { pod_hint(cx.pod, changed) };
        Ok(if worth { QueueingHint::Queue } else { QueueingHint::Skip })
    }

    fn pre_filter(&self, cx: &Cycle<'_>, state: &mut State) -> PreFilter {
        if !cx.pod.affinity_errors.is_empty() {
            let errors = match &*cx.pod.affinity_errors {
                [one] => one.clone(),
                many => format!("[{}]", many.join(", ")),
            };
            return Status::unresolvable(format!("parsing pod: {errors}")).into();
        }
        state.affinity_terms = unroll(&cx.pod.required_affinity, cx.cluster);
        state.anti_affinity_terms = unroll(&cx.pod.required_anti_affinity, cx.cluster);
        state.namespace_labels = cx.cluster.namespace_labels(&cx.pod.metadata.namespace);
        let wants = !state.affinity_terms.is_empty() || !state.anti_affinity_terms.is_empty();
        let mut account = |node: &NodeInfo| node.pods().iter().for_each(|other| state.account(cx.pod, other, node, 1));
        match wants {
            true => cx.cluster.nodes().for_each(&mut account),
            false => cx.cluster.nodes_with_required_anti_affinity().for_each(&mut account),
        }
        if !wants && state.existing_anti_affinity.is_empty() { Status::skip().into() } else { PreFilter::default() }
    }

    fn add_pod(&self, cx: &Cycle<'_>, state: &mut State, pod: &PodInfo, node: &NodeInfo) -> Status {
        state.account(cx.pod, pod, node, 1);
        Status::SUCCESS
    }

    fn remove_pod(&self, cx: &Cycle<'_>, state: &mut State, pod: &PodInfo, node: &NodeInfo) -> Status {
        state.account(cx.pod, pod, node, -1);
        Status::SUCCESS
    }

    fn filter(&self, cx: &Cycle<'_>, state: &State, node: &NodeInfo) -> Status {
        if !state.satisfies_affinity(cx.pod, node) {
            return Status::unresolvable("node(s) didn't match pod affinity rules");
        }
        if !state.satisfies_anti_affinity(node) {
            return Status::unschedulable("node(s) didn't match pod anti-affinity rules");
        }
        if !state.satisfies_existing(node) {
            return Status::unschedulable("node(s) didn't satisfy existing pods anti-affinity rules");
        }
        Status::SUCCESS
    }

    fn pre_score(&self, cx: &Cycle<'_>, state: &mut State, nodes: &[&NodeInfo]) -> Status {
        let pod = cx.pod;
        let wants = !pod.preferred_affinity.is_empty() || !pod.preferred_anti_affinity.is_empty();
        if nodes.is_empty() || (self.args.ignore_preferred_terms_of_existing_pods && !wants) {
            return Status::skip();
        }
        let near = unroll_weighted(&pod.preferred_affinity, cx.cluster);
        let far = unroll_weighted(&pod.preferred_anti_affinity, cx.cluster);
        let namespace_labels = cx.cluster.namespace_labels(&pod.metadata.namespace);
        let mut scores: FxHashMap<String, FxHashMap<String, i64>> = FxHashMap::default();
        let hard = i64::from(self.args.hard_pod_affinity_weight);
        let mut look_at = |node: &NodeInfo| {
            if node.node().metadata.labels.is_empty() {
                return;
            }
            let mut add = |term: &AffinityTerm, weight: i64| {
                if let Some(value) = node.label(&term.topology_key) {
                    let values = scores.entry(term.topology_key.clone()).or_default();
                    *values.entry(value.to_owned()).or_default() += weight;
                }
            };
            for other in node.pods().iter().filter(|other| wants || other.has_affinity()) {
                near.iter().filter(|(_, t)| t.matches(other, &Map::new())).for_each(|(w, t)| add(t, i64::from(*w)));
                far.iter().filter(|(_, t)| t.matches(other, &Map::new())).for_each(|(w, t)| add(t, -i64::from(*w)));
                let wanted = |t: &AffinityTerm| t.matches(pod, &namespace_labels);
                if hard > 0 {
                    other.required_affinity.iter().filter(|t| wanted(t)).for_each(|t| add(t, hard));
                }
                if !self.args.ignore_preferred_terms_of_existing_pods || wants {
                    other.preferred_affinity.iter().filter(|(_, t)| wanted(t)).for_each(|(w, t)| add(t, i64::from(*w)));
                    other
                        .preferred_anti_affinity
                        .iter()
                        .filter(|(_, t)| wanted(t))
                        .for_each(|(w, t)| add(t, -i64::from(*w)));
                }
            }
        };
        match wants {
            true => cx.cluster.nodes().for_each(&mut look_at),
            false => cx.cluster.nodes_with_affinity().for_each(&mut look_at),
        }
        if scores.is_empty() {
            return Status::skip();
        }
        state.scores = Arc::new(scores);
        Status::SUCCESS
    }

    fn score(&self, _cx: &Cycle<'_>, state: &State, node: &NodeInfo) -> Result<i64, Status> {
        let of = |(key, values): (&String, &FxHashMap<String, i64>)| Some(*values.get(node.label(key)?)?);
        Ok(state.scores.iter().filter_map(of).sum())
    }

    fn normalize(&self, _cx: &Cycle<'_>, _state: &State, scores: &mut [NodeScore]) -> Status {
        let lowest = scores.iter().map(|s| s.score).min().unwrap_or(0);
        let range = scores.iter().map(|s| s.score).max().unwrap_or(0) - lowest;
        for entry in scores {
            entry.score = normalized(entry.score, lowest, range);
        }
        Status::SUCCESS
    }
}

/// Who is near, counted by domain for pods of one signature.
///
/// There is a count for each use of each topology key: domains of pods that do not want this one, of pods that match
/// all its affinity terms, of pods that match an anti-affinity term, and scores.
struct Neighbours {
    pod: Arc<Pod>,
    namespace_labels: Map,
    affinity: Vec<AffinityTerm>,
    anti_affinity: Vec<AffinityTerm>,
    near: Vec<(i32, AffinityTerm)>,
    far: Vec<(i32, AffinityTerm)>,
    hard_weight: i32,
    /// Whether terms of placed pods count in scores.
    theirs: bool,
    matches_itself: bool,
    scopes: Vec<CountScope>,
    uses: Vec<Use>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// Placed pods do not want this one.
    Existing,
    Affinity,
    AntiAffinity,
    Score,
}

impl Neighbours {
    fn new(plugin: &InterPodAffinity, cx: &Cycle<'_>) -> Self {
        let pod = cx.pod;
        let ignored = plugin.args.ignore_preferred_terms_of_existing_pods;
        let wants = !pod.preferred_affinity.is_empty() || !pod.preferred_anti_affinity.is_empty();
        let affinity = unroll(&pod.required_affinity, cx.cluster);
        let mut neighbours = Neighbours {
            namespace_labels: cx.cluster.namespace_labels(&pod.metadata.namespace),
            anti_affinity: unroll(&pod.required_anti_affinity, cx.cluster),
            near: unroll_weighted(&pod.preferred_affinity, cx.cluster),
            far: unroll_weighted(&pod.preferred_anti_affinity, cx.cluster),
            hard_weight: if ignored && !wants { 0 } else { plugin.args.hard_pod_affinity_weight },
            theirs: !ignored || wants,
            matches_itself: all_match(&affinity, pod),
            pod: pod.pod.clone(),
            affinity,
            scopes: Vec::new(),
            uses: Vec::new(),
        };
        let own = |terms: &[AffinityTerm], of: Use| -> Vec<(Use, String)> {
            terms.iter().map(|term| (of, term.topology_key.clone())).collect()
        };
        let weighted = |terms: &[(i32, AffinityTerm)]| -> Vec<(Use, String)> {
            terms.iter().map(|(_, term)| (Use::Score, term.topology_key.clone())).collect()
        };
        let mut wanted = own(&neighbours.affinity, Use::Affinity);
        wanted.extend(own(&neighbours.anti_affinity, Use::AntiAffinity));
        wanted.extend(weighted(&neighbours.near));
        wanted.extend(weighted(&neighbours.far));
        for affinity_class in cx.cluster.affinity_classes().iter() {
            neighbours.each(&affinity_class.pod, &mut |of, key, _| wanted.push((of, key.to_owned())));
        }
        for (of, key) in wanted {
            if neighbours.count_of(of, &key).is_none() {
                neighbours.uses.push(of);
                neighbours.scopes.push(CountScope::Domain { key, distinct: false });
            }
        }
        neighbours
    }

    fn count_of(&self, of: Use, key: &str) -> Option<usize> {
        let mut counts = self.uses.iter().zip(&self.scopes);
        counts.position(|(u, scope)| *u == of && matches!(scope, CountScope::Domain { key: k, .. } if k == key))
    }

    /// Tells what a placed pod means under which topology key.
    fn each(&self, other: &PodInfo, tell: &mut dyn FnMut(Use, &str, i64)) {
        let wanted = |term: &AffinityTerm| term.matches(&self.pod, &self.namespace_labels);
        let none = Map::new();
        for term in other.required_anti_affinity.iter().filter(|term| wanted(term)) {
            tell(Use::Existing, &term.topology_key, 1);
        }
        if all_match(&self.affinity, other) {
            self.affinity.iter().for_each(|term| tell(Use::Affinity, &term.topology_key, 1));
        }
        for term in self.anti_affinity.iter().filter(|term| term.matches(other, &none)) {
            tell(Use::AntiAffinity, &term.topology_key, 1);
        }
        let mut score = |term: &AffinityTerm, weight: i32| tell(Use::Score, &term.topology_key, i64::from(weight));
        self.near.iter().filter(|(_, t)| t.matches(other, &none)).for_each(|(w, t)| score(t, *w));
        self.far.iter().filter(|(_, t)| t.matches(other, &none)).for_each(|(w, t)| score(t, -*w));
        if self.hard_weight > 0 {
            other.required_affinity.iter().filter(|t| wanted(t)).for_each(|t| score(t, self.hard_weight));
        }
        if self.theirs {
            other.preferred_affinity.iter().filter(|(_, t)| wanted(t)).for_each(|(w, t)| score(t, *w));
            other.preferred_anti_affinity.iter().filter(|(_, t)| wanted(t)).for_each(|(w, t)| score(t, -*w));
        }
    }

    fn uses<'a>(&'a self, of: Use, here: &'a [Option<i64>]) -> impl Iterator<Item = Option<i64>> + 'a {
        self.uses.iter().zip(here).filter(move |(u, _)| **u == of).map(|(_, count)| *count)
    }
}

impl DomainCounting for Neighbours {
    fn scopes(&self) -> &[CountScope] {
        &self.scopes
    }

    fn contributions(&self, other: &PodInfo, tell: &mut dyn FnMut(usize, i64)) -> bool {
        let mut known = true;
        self.each(other, &mut |of, key, by| match self.count_of(of, key) {
            Some(count) => tell(count, by),
            None => known = false,
        });
        known
    }

    fn includes(&self, _count: usize, _node: &bayplan_model::node::Node) -> bool {
        true
    }

    fn filter(&self, here: &[Option<i64>], everywhere: &[DomainSummary]) -> bool {
        let mut labelled = true;
        let mut near = true;
        for count in self.uses(Use::Affinity, here) {
            labelled &= count.is_some();
            near &= count.is_some_and(|count| count > 0);
        }
        let anybody = || self.uses.iter().zip(everywhere).any(|(u, summary)| *u == Use::Affinity && summary.any);
        (near || (labelled && self.matches_itself && !anybody()))
            && self.uses(Use::AntiAffinity, here).all(|count| count.is_none_or(|count| count <= 0))
            && self.uses(Use::Existing, here).all(|count| count.is_none_or(|count| count <= 0))
    }

    fn scores(&self) -> bool {
        self.uses.contains(&Use::Score)
    }

    fn ignores(&self, _here: &[Option<i64>]) -> bool {
        false
    }

    fn score(&self, here: &[Option<i64>], _feasible: &FeasibleNodes) -> i64 {
        self.uses(Use::Score, here).flatten().sum()
    }

    fn normalize(&self, score: i64, lowest: i64, highest: i64) -> i64 {
        normalized(score, lowest, highest - lowest)
    }
}

fn normalized(score: i64, lowest: i64, range: i64) -> i64 {
    match range > 0 {
        true => (MAX_NODE_SCORE as f64 * ((score - lowest) as f64 / range as f64)) as i64,
        false => 0,
    }
}

fn pod_hint(pod: &PodInfo, changed: &ObjectChange<'_>) -> bool {
    let (old, new) = changed.pods();
    let own = |other: &Pod| other.metadata.uid == pod.metadata.uid;
    if let (Some(_), Some(new)) = (old, new)
        && own(new)
    {
        return true;
    }
    if [old, new].into_iter().flatten().any(|other| !other.is_assigned() && !other.is_nominated()) {
        return false;
    }
    let (affinity, anti) = (&pod.required_affinity, &pod.required_anti_affinity);
    match (old, new) {
        (Some(old), Some(new)) => {
            (!all_match(affinity, old) && all_match(affinity, new)) || (all_match(anti, old) && !all_match(anti, new))
        }
        (None, Some(added)) => all_match(affinity, added),
        (Some(deleted), None) => {
            let theirs = PodInfo::new(Arc::new(deleted.clone())).required_anti_affinity;
            all_match(anti, deleted) || all_match(&theirs, pod)
        }
        (None, None) => true,
    }
}

fn node_hint(pod: &PodInfo, changed: &ObjectChange<'_>) -> bool {
    let (old, Some(new)) = changed.nodes() else { return true };
    let value = |node: &bayplan_model::node::Node, key: &str| node.metadata.labels.get(key).cloned();
    let near = pod.required_affinity.iter().any(|term| {
        let now = value(new, &term.topology_key);
        now.is_some() && old.is_none_or(|old| value(old, &term.topology_key) != now)
    });
    let far = pod.required_anti_affinity.iter().any(|term| match old {
        None => true,
        Some(old) => {
            let before = value(old, &term.topology_key);
            before.is_some() && before != value(new, &term.topology_key)
        }
    });
    near || far
}
