//! Preemption: which pods would have to go from which node so that a more important pod fits.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_model::label_selector::Selector;
use bayplan_model::pod::Pod;
use jiff::Timestamp;

use crate::cluster::{NodeInfo, PodInfo};
use crate::framework::{NodeStatuses, PostFilterContext, Status};

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

/// Tries preemption on nodes without doing it.
pub struct DryRun {
    /// Where it would help.
    pub candidates: Vec<Candidate>,
    /// Why it would not help elsewhere.
    pub statuses: NodeStatuses,
}

/// Tries the nodes in order until enough candidates are found, at least one of them without a budget violated.
pub fn dry_run(cx: &PostFilterContext<'_>, nodes: &[&NodeInfo], start: usize, wanted: usize) -> DryRun {
    let mut result = DryRun { candidates: Vec::new(), statuses: NodeStatuses::default() };
    let mut harmless = 0;
    for i in 0..nodes.len() {
        if harmless > 0 && result.candidates.len() >= wanted {
            break;
        }
        let node = nodes[(start + i) % nodes.len()];
        let tried = match cx.known {
            Some(known) => known.candidate(node, || victims_on(cx, node)),
            None => victims_on(cx, node),
        };
        match tried {
            Ok(candidate) => {
                harmless += usize::from(candidate.pdb_violations == 0);
                result.candidates.push(candidate);
            }
            Err(status) => drop(result.statuses.nodes.insert(node.name.clone(), status)),
        }
    }
    result
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

/// The candidates among which upstream's choice is arbitrary: fewest budget violations, then the least important
/// victims, the lowest sum of priorities, the fewest victims, and the latest start of the most important ones.
pub fn best(candidates: &[Candidate], now: Timestamp) -> Vec<&Candidate> {
    let mut left: Vec<&Candidate> = candidates.iter().collect();
    let keys: [&dyn Fn(&Candidate) -> i128; 5] = [
        &|c| c.pdb_violations as i128,
        &|c| c.victims.first().map_or(0, |v| i128::from(v.priority())),
        &|c| c.victims.iter().map(|v| i128::from(v.priority()) + (1i128 << 31)).sum(),
        &|c| c.victims.len() as i128,
        &|c| {
            let highest = c.victims.iter().map(|v| v.priority()).max();
            let important = c.victims.iter().filter(|v| Some(v.priority()) == highest);
            -important.map(|v| started(v, now)).min().map_or(0, Timestamp::as_nanosecond)
        },
    ];
    for key in keys {
        let lowest = left.iter().map(|c| key(c)).min();
        left.retain(|c| Some(key(c)) == lowest);
    }
    left
}
