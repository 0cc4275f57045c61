//! The least that the pod has to request less: one unit more does not fit anywhere.

use std::collections::{BTreeMap, BTreeSet};

use bayplan_model::resources::{Amounts, Resource};
use bayplan_scheduler::NodeInfo;
use serde_json::Value;

use super::obstacles::{Obstacles, RefusedNode};
use super::pod_requests::PodRequests;
use super::trial::{Draft, Trial};
use super::{Change, ChangeKind, cost};

/// The plugin that compares requests with what nodes have.
const FIT: &str = "NodeResourcesFit";
/// How it says that a resource is short; the name of the resource follows.
const INSUFFICIENT: &str = "Insufficient ";

/// A node that only lacks resources.
struct ShortNode {
    /// What is short.
    resources: BTreeSet<String>,
    free: Amounts,
}

/// Requests by resource, in the scheduler's units.
type Targets = BTreeMap<String, i64>;

/// Changes that reduce one request each, or, where no single one is enough, several together.
pub(super) fn changes(trial: &mut Trial<'_>, obstacles: &Obstacles) -> Vec<Change> {
    let short: Vec<ShortNode> = obstacles.refused_only_by(&[FIT]).filter_map(|node| short_node(trial, node)).collect();
    let resources: BTreeSet<&String> = short.iter().flat_map(|node| &node.resources).collect();
    let mut found = Vec::new();
    for resource in resources {
        let only_this = short.iter().filter(|node| node.resources.len() == 1 && node.resources.contains(resource));
        let Some(most) = only_this.map(|node| node.free.get(resource).max(0)).max() else { continue };
        found.extend(least_reduction(trial, resource, most));
    }
    if found.is_empty() {
        found.extend(combined(trial, &short));
    }
    found
}

fn short_node(trial: &Trial<'_>, node: &RefusedNode) -> Option<ShortNode> {
    let reasons = node.refusals.iter().flat_map(|status| &status.reasons);
    let resources = reasons.map(|reason| reason.strip_prefix(INSUFFICIENT).map(str::to_owned));
    let resources: BTreeSet<String> = resources.collect::<Option<_>>()?;
    Some(ShortNode { resources, free: free(trial, node.info(trial.state)?) })
}

/// What a node has free for the pod, with the pods that are nominated to it before the pod.
pub(super) fn free(trial: &Trial<'_>, node: &NodeInfo) -> Amounts {
    let mut free = node.allocatable.clone();
    free.sub(&node.requested);
    for other in trial.state.nominator().on_node(&node.name) {
        if other.priority() >= trial.pod.priority() && other.uid() != trial.pod.uid() {
            free.sub(&other.usage.requested);
        }
    }
    free
}

/// The least reduction of one request. `guess` is what the best node has free.
fn least_reduction(trial: &mut Trial<'_>, resource: &str, guess: i64) -> Option<Change> {
    let pod = trial.pod.clone();
    let requests = PodRequests::new(&pod, resource);
    let (total, least) = (requests.total(), requests.least());
    let of = |target: i64| Targets::from([(resource.to_owned(), target)]);
    let guess = guess.max(least);
    if guess >= total {
        return None;
    }
    let (mut fits, mut too_much) = match trial.prove(draft(trial, &of(guess))?) {
        Some(change) if guess + 1 >= total || !self::fits(trial, &of(guess + 1)) => return Some(change),
        Some(_) => (guess + 1, total),
        None if guess > least && self::fits(trial, &of(least)) => (least, guess),
        None => return None,
    };
    while too_much - fits > 1 {
        let middle = fits + (too_much - fits) / 2;
        match self::fits(trial, &of(middle)) {
            true => fits = middle,
            false => too_much = middle,
        }
    }
    trial.prove(draft(trial, &of(fits))?)
}

fn fits(trial: &mut Trial<'_>, targets: &Targets) -> bool {
    operations(trial, targets).is_some_and(|operations| trial.fits(&operations))
}

fn operations(trial: &Trial<'_>, targets: &Targets) -> Option<Vec<Value>> {
    let mut all = Vec::new();
    for (resource, target) in targets {
        let requests = PodRequests::new(&trial.pod, resource);
        all.extend(requests.operations(trial.json(), &requests.lowered_to(*target)?));
    }
    Some(all)
}

/// Several requests together, for the node that needs the smallest share of them: each is the least, given the others.
fn combined(trial: &mut Trial<'_>, short: &[ShortNode]) -> Option<Change> {
    let pod = trial.pod.clone();
    let total = |resource: &str| PodRequests::new(&pod, resource).total();
    let given_up = |node: &ShortNode| -> u64 {
        node.resources.iter().map(|name| cost::of_reduction(total(name), node.free.get(name).max(0))).sum()
    };
    let nearest = short.iter().min_by_key(|node| given_up(node))?;
    let mut targets: Targets =
        nearest.resources.iter().map(|name| (name.clone(), nearest.free.get(name).max(0))).collect();
    raise_to_the_most(&mut targets, short, &pod.usage.requested);
    let least = |name: &str| PodRequests::new(&pod, name).least();
    targets.iter_mut().for_each(|(name, target)| *target = (*target).max(least(name)));
    targets.retain(|name, target| *target < total(name));
    let one_more = |name: &str, target: i64| {
        let mut more = targets.clone();
        more.insert(name.to_owned(), target + 1);
        more
    };
    let tried: Vec<Targets> = targets.iter().map(|(name, target)| one_more(name, *target)).collect();
    let is_least = !tried.iter().any(|more| fits(trial, more));
    if !is_least {
        return None;
    }
    trial.prove(draft(trial, &targets)?)
}

/// Raises each target as far as some node allows that also has the others free.
fn raise_to_the_most(targets: &mut Targets, short: &[ShortNode], requested: &Amounts) {
    let wanted = |targets: &Targets, resource: &Resource| {
        targets.get(resource.name()).copied().unwrap_or_else(|| requested.amount(resource))
    };
    let mut others: Vec<Resource> = requested.scalars.keys().map(|name| Resource::named(name)).collect();
    others.extend([Resource::Cpu, Resource::Memory, Resource::EphemeralStorage]);
    for name in targets.keys().cloned().collect::<Vec<_>>() {
        let has_the_others = |node: &&ShortNode| {
            others.iter().filter(|resource| resource.name() != name).all(|resource| {
                let wanted = wanted(targets, resource);
                wanted <= 0 || wanted <= node.free.amount(resource)
            })
        };
        let most = short.iter().filter(has_the_others).map(|node| node.free.get(&name)).max();
        let target = targets.get(&name).copied().unwrap_or(0).max(most.unwrap_or(0));
        targets.insert(name, target);
    }
}

fn draft(trial: &Trial<'_>, targets: &Targets) -> Option<Draft> {
    let mut sentences = Vec::new();
    let mut total_cost: u64 = 0;
    for (resource, target) in targets {
        let requests = PodRequests::new(&trial.pod, resource);
        let total = requests.total();
        total_cost = total_cost.saturating_add(cost::of_reduction(total, *target));
        let (from, to) = (requests.quantity(total), requests.quantity(*target));
        let less = requests.quantity(total.saturating_sub(*target));
        let parts: Vec<String> = requests
            .lowered_to(*target)?
            .iter()
            .map(|new| format!("{} {} → {}", requests.name_of(new.who), new.from, new.to))
            .collect();
        sentences.push(format!("request {less} less {resource}: {to} instead of {from} ({})", parts.join(", ")));
    }
    let mut summary = sentences.join(", and ");
    if targets.len() > 1 {
        summary.push_str("; no single one is enough");
    }
    if is_guaranteed(trial) && targets.keys().any(|name| matches!(name.as_str(), "cpu" | "memory")) {
        summary.push_str("; the pod is Guaranteed now and becomes Burstable unless its limits go down too");
    }
    Some(Draft::of_pod(ChangeKind::ReduceRequest, total_cost, summary, operations(trial, targets)?))
}

/// Whether requests are equal to limits in every container, which makes the pod's quality of service Guaranteed.
fn is_guaranteed(trial: &Trial<'_>) -> bool {
    let spec = &trial.pod.spec;
    let mut containers = spec.containers.iter().chain(&spec.init_containers);
    !spec.containers.is_empty()
        && containers.all(|container| {
            let resources = &container.resources;
            ["cpu", "memory"].iter().all(|name| {
                let limit = resources.limits.get(name);
                limit.is_some() && limit == resources.requests.get(name)
            })
        })
}
