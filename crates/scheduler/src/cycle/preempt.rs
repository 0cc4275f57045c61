//! Preemption: which pods would have to go from which node so that a more important pod fits.

use std::borrow::Cow;
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use bayplan_model::label_selector::Selector;
use bayplan_model::pod::Pod;
use jiff::Timestamp;

use crate::cluster::{Cluster, NodeId, NodeInfo, PodInfo};
use crate::engine::CandidateCache;
use crate::framework::{Code, NodeStatuses, PostFilterContext, Status};

/// Pods that go so that another fits.
#[derive(Clone, Debug)]
pub struct Preemption {
    /// The node they leave.
    pub node: String,
    /// Who goes, most important first.
    pub victims: Vec<Arc<PodInfo>>,
    /// For whom.
    pub preemptor: Arc<PodInfo>,
    /// Less important pods that were nominated to the node and no longer are.
    pub demoted: Vec<Arc<PodInfo>>,
}

/// A node where preemption would help.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The node.
    pub node: Arc<str>,
    /// Who would go, most important first.
    pub victims: Vec<Arc<PodInfo>>,
    /// How many of them a disruption budget protects.
    pub pdb_violations: usize,
}

/// A candidate with what it is compared by.
#[derive(Clone, Debug)]
pub struct RankedCandidate {
    candidate: Candidate,
    /// The priority of the first victim.
    highest: i32,
    /// The sum of the victims' priorities, each above the lowest there is.
    sum: i64,
    /// When the first of the most important victims started, and whether one of them has not.
    started: Option<Timestamp>,
    not_all_started: bool,
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
            highest: priorities.clone().next().unwrap_or(0),
            sum: priorities.map(|priority| i64::from(priority) - i64::from(i32::MIN)).sum(),
            started: starts.clone().flatten().min(),
            not_all_started: starts.clone().any(|start| start.is_none()),
            candidate,
        }
    }
}

impl RankedCandidate {
    /// Sorts the candidate first that costs least: fewest budget violations, then the least important victims, the lowest
    /// sum of priorities, the fewest victims, and the latest start of the most important ones.
    fn cost(&self, now: Timestamp) -> impl Ord + use<> {
        let unstarted = self.not_all_started.then_some(now);
        let started = self.started.into_iter().chain(unstarted).min();
        let late = Reverse(started.unwrap_or(Timestamp::UNIX_EPOCH));
        (self.pdb_violations, self.highest, self.sum, self.victims.len(), late)
    }
}

/// The nodes on which preemption may help, and what is known of it.
pub struct PotentialNodes<'a> {
    cluster: &'a Cluster,
    known: Cow<'a, CandidateCache>,
}

impl<'a> PotentialNodes<'a> {
    pub(crate) fn of(cx: &PostFilterContext<'a>) -> Self {
        let cluster = cx.cycle.cluster;
        let known = cx.known.map_or_else(
            || {
                let resolvable = cluster.nodes().filter(|node| cx.code(node) == Code::Unschedulable);
                Cow::Owned(CandidateCache::only(cluster.slot_count(), resolvable.map(|node| node.id).collect()))
            },
            Cow::Borrowed,
        );
        PotentialNodes { cluster, known }
    }

    fn ids(&self) -> &[NodeId] {
        self.known.potential(self.cluster)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ids().len()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.ids().is_empty()
    }

    /// The nodes.
    pub fn iter(&self) -> impl Iterator<Item = &'a NodeInfo> {
        self.ids().iter().map(|id| self.cluster.node_in_slot(*id))
    }
}

/// Tries preemption on nodes without doing it.
pub struct DryRun<'a> {
    /// Where it would help.
    pub candidates: Vec<&'a RankedCandidate>,
    /// Why it would not help elsewhere; left out where it is known anyhow and there are candidates.
    pub statuses: NodeStatuses,
}

/// Tries the nodes in order until enough candidates are found, at least one of them without a budget violated.
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
        match nodes.known.tried(id, || victims_on(cx, nodes.cluster.node_in_slot(id))) {
            Ok(candidate) => {
                harmless += usize::from(candidate.pdb_violations == 0);
                candidates.push(&**candidate);
            }
            Err(status) => elsewhere.push((id, &**status)),
        }
    }
    if cx.known.is_some() && !candidates.is_empty() {
        elsewhere.clear();
    }
    let named = |(id, status): (NodeId, &Status)| (nodes.cluster.node_in_slot(id).name.clone(), status.clone());
    let statuses = NodeStatuses { nodes: elsewhere.into_iter().map(named).collect(), ..NodeStatuses::default() };
    DryRun { candidates, statuses }
}

/// The fewest, least important pods that would have to leave a node.
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
    let (violating, harmless) = split_by_budgets(cx, lower);
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

/// Pods whose eviction would exceed a disruption budget, and the others.
fn split_by_budgets(cx: &PostFilterContext<'_>, pods: Vec<Arc<PodInfo>>) -> (Vec<Arc<PodInfo>>, Vec<Arc<PodInfo>>) {
    let mut left: BTreeMap<(String, String), i32> = BTreeMap::new();
    let budgets = &cx.cycle.cluster.objects.disruption_budgets;
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

/// The candidates among which upstream's choice is arbitrary.
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
