//! Preemption: which pods would have to leave which node so that a more important pod fits. Upstream has it in
//! `framework/preemption`; the DefaultPreemption plugin chooses among the candidates.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use bayplan_model::label_selector::Selector;
use bayplan_model::pod::Pod;
use jiff::Timestamp;

use super::{Code, NodeStatuses, PostFilterContext, Status};
use crate::cluster::{Cluster, NodeId, NodeInfo, PodInfo};

/// The eviction of pods so that another one fits.
#[derive(Clone, Debug)]
pub struct Preemption {
    /// The node they leave.
    pub node: String,
    /// The pods to evict, most important first.
    pub victims: Vec<Arc<PodInfo>>,
    /// The pod that gets the node.
    pub preemptor: Arc<PodInfo>,
    /// Less important pods nominated to the node, whose nominations are cleared.
    pub lower_priority_nominated: Vec<Arc<PodInfo>>,
}

/// A node where preemption would help.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The node's name.
    pub node: Arc<str>,
    /// The pods that would be evicted, most important first.
    pub victims: Vec<Arc<PodInfo>>,
    /// How many of the victims a PodDisruptionBudget protects.
    pub pdb_violations: usize,
}

/// A candidate with the values it is compared by.
#[derive(Clone, Debug)]
pub struct RankedCandidate {
    candidate: Candidate,
    /// The priority of the first victim.
    highest_priority: i32,
    /// The sum of the victims' priorities, each counted from the lowest possible priority.
    priority_sum: i64,
    /// The earliest start of the victims with the highest priority.
    earliest_start: Option<Timestamp>,
    /// True when one of those victims has not started.
    has_unstarted: bool,
}

impl Deref for RankedCandidate {
    type Target = Candidate;
    fn deref(&self) -> &Candidate {
        &self.candidate
    }
}

impl From<Candidate> for RankedCandidate {
    fn from(candidate: Candidate) -> Self {
        let priorities = candidate.victims.iter().map(|victim| victim.priority());
        let highest = priorities.clone().max();
        let important = candidate.victims.iter().filter(|victim| Some(victim.priority()) == highest);
        let starts = important.map(|victim| victim.status.start_time);
        RankedCandidate {
            highest_priority: priorities.clone().next().unwrap_or(0),
            priority_sum: priorities.map(|priority| i64::from(priority) - i64::from(i32::MIN)).sum(),
            earliest_start: starts.clone().flatten().min(),
            has_unstarted: starts.clone().any(|start| start.is_none()),
            candidate,
        }
    }
}

impl RankedCandidate {
    /// Orders candidates as upstream's `pickOneNodeForPreemption` does: fewest budget violations, then the least
    /// important victims, the lowest sum of priorities, the fewest victims, and the latest start of the most important
    /// victims.
    fn cost(&self, now: Timestamp) -> impl Ord + use<> {
        let unstarted = self.has_unstarted.then_some(now);
        let started = self.earliest_start.into_iter().chain(unstarted).min();
        let latest_first = Reverse(started.unwrap_or(Timestamp::UNIX_EPOCH));
        (self.pdb_violations, self.highest_priority, self.priority_sum, self.victims.len(), latest_first)
    }
}

/// The dry runs of preemption for pods of one signature, by node: each node is tried at most once until it changes.
#[derive(Clone, Default)]
pub(crate) struct CandidateCache {
    /// The code with which each node was rejected, by slot.
    codes: Vec<Option<Code>>,
    /// The nodes whose rejection preemption may resolve, in the cluster's order.
    potential: OnceCell<Vec<NodeId>>,
    /// The results of the dry runs made so far, by slot.
    dry_runs: Vec<OnceCell<DryRunResult>>,
}

/// The candidate on a node, or why preemption does not help there.
type DryRunResult = Result<Box<RankedCandidate>, Box<Status>>;

impl CandidateCache {
    /// A cache without dry runs that knows the nodes on which preemption may help.
    fn for_potential_nodes(slot_count: usize, potential: Vec<NodeId>) -> Self {
        CandidateCache { codes: Vec::new(), potential: potential.into(), dry_runs: vec![OnceCell::new(); slot_count] }
    }

    /// Makes space for nodes that were added.
    pub(crate) fn resize(&mut self, slot_count: usize) {
        self.codes.resize(slot_count, None);
        self.dry_runs.resize_with(slot_count, OnceCell::new);
    }

    /// The code with which a node was rejected.
    pub(crate) fn code(&self, node: NodeId) -> Code {
        self.codes.get(node.0 as usize).copied().flatten().unwrap_or(Code::UnschedulableAndUnresolvable)
    }

    /// Notes with which code a node was rejected.
    pub(crate) fn set_code(&mut self, node: NodeId, code: Code) {
        self.codes[node.0 as usize] = Some(code);
    }

    /// Drops everything known about a node.
    pub(crate) fn forget_node(&mut self, node: NodeId) {
        let slot = node.0 as usize;
        self.codes[slot] = None;
        self.dry_runs[slot].take();
    }

    /// Drops the results of all dry runs.
    pub(crate) fn forget_dry_runs(&mut self) {
        self.dry_runs.fill_with(OnceCell::new);
    }

    /// Drops the list of potential nodes: codes or the order of nodes have changed.
    pub(crate) fn forget_potential(&mut self) {
        self.potential.take();
    }

    fn potential(&self, cluster: &Cluster) -> &[NodeId] {
        let resolvable = |node: &NodeId| self.code(*node) == Code::Unschedulable;
        self.potential.get_or_init(|| cluster.order().iter().copied().filter(resolvable).collect())
    }

    /// The result of the dry run on a node, which is made unless it is known.
    fn dry_run(&self, node: NodeId, dry_run: impl FnOnce() -> Result<Candidate, Status>) -> &DryRunResult {
        self.dry_runs[node.0 as usize].get_or_init(|| dry_run().map(|made| Box::new(made.into())).map_err(Box::new))
    }
}

/// The nodes on which preemption may help: those rejected as Unschedulable.
pub struct PotentialNodes<'a> {
    cluster: &'a Cluster,
    candidates: Cow<'a, CandidateCache>,
}

impl<'a> PotentialNodes<'a> {
    /// The potential nodes of a pod that no node fits.
    pub fn of(cx: &PostFilterContext<'a>) -> Self {
        let cluster = cx.cycle.cluster;
        let candidates = cx.candidates.map_or_else(
            || {
                let resolvable = cluster.nodes().filter(|node| cx.code(node) == Code::Unschedulable);
                let potential = resolvable.map(|node| node.id).collect();
                Cow::Owned(CandidateCache::for_potential_nodes(cluster.slot_count(), potential))
            },
            Cow::Borrowed,
        );
        PotentialNodes { cluster, candidates }
    }

    fn ids(&self) -> &[NodeId] {
        self.candidates.potential(self.cluster)
    }

    /// The number of potential nodes.
    pub fn len(&self) -> usize {
        self.ids().len()
    }

    /// True when preemption can help nowhere.
    pub fn is_empty(&self) -> bool {
        self.ids().is_empty()
    }

    /// The potential nodes, in the cluster's order.
    pub fn iter(&self) -> impl Iterator<Item = &'a NodeInfo> {
        self.ids().iter().map(|id| self.cluster.node_in_slot(*id))
    }
}

/// The result of trying preemption on nodes without carrying it out.
pub struct DryRun<'a> {
    /// Where preemption would help.
    pub candidates: Vec<&'a RankedCandidate>,
    /// Why preemption would not help elsewhere; empty when there are candidates and the reasons are cached.
    pub statuses: NodeStatuses,
}

/// Tries preemption on the nodes, beginning with number `start`, until `wanted` candidates are found, at least one of
/// them without a budget violated; upstream's `DryRunPreemption`.
pub fn dry_run<'a>(
    cx: &PostFilterContext<'_>,
    nodes: &'a PotentialNodes<'_>,
    start: usize,
    wanted: usize,
) -> DryRun<'a> {
    let mut candidates = Vec::new();
    let mut elsewhere = Vec::new();
    let mut harmless = 0;
    let (before, from_start) = nodes.ids().split_at(start.min(nodes.len()));
    for &id in from_start.iter().chain(before) {
        if harmless > 0 && candidates.len() >= wanted {
            break;
        }
        match nodes.candidates.dry_run(id, || victims_on(cx, nodes.cluster.node_in_slot(id))) {
            Ok(candidate) => {
                harmless += usize::from(candidate.pdb_violations == 0);
                candidates.push(&**candidate);
            }
            Err(status) => elsewhere.push((id, &**status)),
        }
    }
    if cx.candidates.is_some() && !candidates.is_empty() {
        elsewhere.clear();
    }
    let named = |(id, status): (NodeId, &Status)| (nodes.cluster.node_in_slot(id).name.clone(), status.clone());
    let statuses = NodeStatuses { nodes: elsewhere.into_iter().map(named).collect(), ..NodeStatuses::default() };
    DryRun { candidates, statuses }
}

/// The fewest and least important pods that would have to leave a node; upstream's `SelectVictimsOnNode`.
fn victims_on(cx: &PostFilterContext<'_>, original: &NodeInfo) -> Result<Candidate, Status> {
    let priority = cx.cycle.pod.priority();
    let mut node = original.clone();
    let mut states = cx.states.clone();
    let mut lower: Vec<Arc<PodInfo>> = node.pods().iter().filter(|p| p.priority() < priority).cloned().collect();
    if lower.is_empty() {
        return Err(Status::unresolvable("No preemption victims found for incoming pod"));
    }
    for pod in &lower {
        succeed(cx.filters.remove_pod(&mut states, &mut node, pod))?;
    }
    succeed(cx.filters.run_with_nominated(&states, &node))?;
    lower.sort_by_key(|pod| importance(pod, cx.cycle.now));
    let (violating, harmless) = split_by_budgets(cx.cycle.cluster, lower);
    let mut victims = Vec::new();
    let mut pdb_violations = 0;
    for (pod, violates) in violating.iter().map(|p| (p, true)).chain(harmless.iter().map(|p| (p, false))) {
        succeed(cx.filters.add_pod(&mut states, &mut node, pod))?;
        if !cx.filters.run_with_nominated(&states, &node).is_success() {
            succeed(cx.filters.remove_pod(&mut states, &mut node, pod))?;
            victims.push(pod.clone());
            pdb_violations += usize::from(violates);
        }
    }
    if victims.is_empty() {
        return Err(Status::error(format!("expected at least one victim pod on node {:?}", &*original.name)));
    }
    victims.sort_by_key(|pod| importance(pod, cx.cycle.now));
    Ok(Candidate { node: original.name.clone(), victims, pdb_violations })
}

fn succeed(status: Status) -> Result<(), Status> {
    if status.is_success() { Ok(()) } else { Err(status) }
}

/// Sorts the more important pod first: higher priority, then longer running.
fn importance(pod: &Pod, now: Timestamp) -> (Reverse<i32>, Timestamp) {
    (Reverse(pod.priority()), started(pod, now))
}

fn started(pod: &Pod, now: Timestamp) -> Timestamp {
    pod.status.start_time.unwrap_or(now)
}

/// Pods whose eviction, one after the other, would violate a PodDisruptionBudget, and the others; upstream's
/// `filterPodsWithPDBViolation`.
pub fn split_by_budgets(cluster: &Cluster, pods: Vec<Arc<PodInfo>>) -> (Vec<Arc<PodInfo>>, Vec<Arc<PodInfo>>) {
    let mut left: BTreeMap<(String, String), i32> = BTreeMap::new();
    let budgets = &cluster.objects.disruption_budgets;
    pods.into_iter().partition(|pod| {
        if pod.metadata.labels.is_empty() {
            return false;
        }
        let mut violates = false;
        for budget in budgets.in_namespace(&pod.metadata.namespace) {
            let Ok(selector) = Selector::of(budget.spec.selector.as_ref()) else { continue };
            if selector.is_everything()
                || !selector.matches(&pod.metadata.labels)
                || budget.status.disrupted_pods.contains_key(&pod.metadata.name)
            {
                continue;
            }
            let key = (budget.metadata.namespace.clone(), budget.metadata.name.clone());
            let allowed = left.entry(key).or_insert(budget.status.disruptions_allowed);
            *allowed = allowed.saturating_sub(1);
            violates |= *allowed < 0;
        }
        violates
    })
}

/// The candidates with the lowest cost, among which upstream's choice is arbitrary.
pub fn best_candidates<'a>(candidates: &[&'a RankedCandidate], now: Timestamp) -> Vec<&'a RankedCandidate> {
    let mut best: Vec<&RankedCandidate> = Vec::new();
    for &candidate in candidates {
        match best.first().map_or(Ordering::Less, |other| candidate.cost(now).cmp(&other.cost(now))) {
            Ordering::Less => best = vec![candidate],
            Ordering::Equal => best.push(candidate),
            Ordering::Greater => {}
        }
    }
    best
}
