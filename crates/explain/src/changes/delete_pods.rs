//! Pods whose deletion from one node lets the pod in, whatever their priority: no pod is deleted that could stay.

use std::cmp::Reverse;
use std::sync::Arc;

use bayplan_scheduler::inspect::{Attempt, NodeTrial, Search, split_by_budgets};
use bayplan_scheduler::{NodeInfo, PodInfo, PostFilterContext};

use super::obstacles::{Obstacles, RefusedNode};
use super::reduce_request::free;
use super::trial::{Draft, Trial};
use super::{Change, ChangeKind, cost};

/// On how many nodes deletions are worked out: those where, by their resources, the fewest pods would do.
const NODES_TRIED_MAX: usize = 24;
/// Most changes of this kind: each is another node.
const DELETIONS_MAX: usize = 4;
/// Most pods that are worth deleting for one; whether each has to go is a decision of its own.
const PODS_MAX: usize = 20;
/// The filters that look at nothing but a node, its pods and the pod.
const ONE_NODE: [&str; 6] =
    ["NodeAffinity", "NodeName", "NodePorts", "NodeResourcesFit", "NodeUnschedulable", "TaintToleration"];
/// The annotation of a pod that a kubelet runs by itself.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// Pods that would be deleted from a node.
struct Deletion {
    node: Arc<str>,
    pods: Vec<Arc<PodInfo>>,
    pdb_violations: usize,
}

/// Changes that delete pods from one node each.
pub(super) fn changes(trial: &mut Trial<'_>, obstacles: &Obstacles) -> Vec<Change> {
    let mut ranked: Vec<(usize, &RefusedNode)> = obstacles
        .nodes
        .iter()
        .filter(|node| node.is_resolvable())
        .filter_map(|node| Some((fewest(trial, node)?, node)))
        .collect();
    ranked.sort_by(|a, b| (a.0, &a.1.name).cmp(&(b.0, &b.1.name)));
    ranked.truncate(NODES_TRIED_MAX);
    let mut deletions = work_out(trial, &ranked);
    let importance = |deletion: &Deletion| deletion.pods.iter().map(|pod| i64::from(pod.priority())).sum::<i64>();
    deletions.sort_by_cached_key(|deletion| {
        (cost::of_pods(deletion.pods.len(), deletion.pdb_violations), importance(deletion), deletion.node.clone())
    });
    let mut found = Vec::new();
    for deletion in deletions {
        if found.len() == DELETIONS_MAX {
            break;
        }
        found.extend(only_needed(trial, obstacles, deletion));
    }
    found
}

/// Whether each pod of a deletion is known to have to go. On its own node each has to, unless pods attract each other;
/// and where every other node is refused by a filter that looks at nothing but that node, pods that leave this one let
/// nobody in there.
fn is_least(trial: &Trial<'_>, obstacles: &Obstacles, deletion: &Deletion) -> bool {
    let refused_by_itself = |node: &RefusedNode| node.refusals.iter().any(|status| ONE_NODE.contains(&status.plugin));
    let mut others = obstacles.nodes.iter().filter(|node| node.name != deletion.node);
    trial.pod.required_affinity.is_empty() && others.all(refused_by_itself)
}

/// Proves a deletion and leaves out the pods that could stay, because fewer let the pod in on some other node.
fn only_needed(trial: &mut Trial<'_>, obstacles: &Obstacles, mut deletion: Deletion) -> Option<Change> {
    let mut change = trial.prove_deletion(draft(&deletion), deletion.pdb_violations)?;
    if is_least(trial, obstacles, &deletion) {
        return Some(change);
    }
    let mut at = 0;
    while deletion.pods.len() > 1 && at < deletion.pods.len() {
        let mut pods = deletion.pods.clone();
        pods.remove(at);
        let pdb_violations = split_by_budgets(trial.state.cluster(), pods.clone()).0.len();
        let fewer = Deletion { node: deletion.node.clone(), pods, pdb_violations };
        match trial.prove_deletion(draft(&fewer), fewer.pdb_violations) {
            Some(smaller) => {
                (deletion, change) = (fewer, smaller);
                // Where pods attract each other, one that had to go may stay now.
                at = 0;
            }
            None => at += 1,
        }
    }
    Some(change)
}

/// Whether a deleted pod stays away: the controller of a DaemonSet, and a kubelet, would bring it back.
fn stays_away(pod: &PodInfo) -> bool {
    let is_daemon = pod.metadata.controller().is_some_and(|owner| owner.kind == "DaemonSet");
    !is_daemon && !pod.metadata.annotations.contains_key(MIRROR_ANNOTATION)
}

/// How much of what a node lacks a pod takes, in thousandths of what is lacking of the scarcest resource.
fn relief(pod: &PodInfo, lacking: &[(String, i64)]) -> i64 {
    let share = |(name, lacking): &(String, i64)| {
        let share = i128::from(pod.usage.requested.get(name)) * 1000 / i128::from((*lacking).max(1));
        i64::try_from(share).unwrap_or(i64::MAX)
    };
    lacking.iter().map(share).max().unwrap_or(0)
}

/// What a node lacks for the pod.
fn lacking(trial: &Trial<'_>, refused: &RefusedNode, node: &NodeInfo) -> Vec<(String, i64)> {
    let free = free(trial, node);
    let reasons = refused.refusals.iter().flat_map(|status| &status.reasons);
    let short = reasons.filter_map(|reason| reason.strip_prefix("Insufficient "));
    short.map(|name| (name.to_owned(), trial.pod.usage.requested.get(name).saturating_sub(free.get(name)))).collect()
}

/// The fewest pods that could be enough by their resources; none when all of them are not.
fn fewest(trial: &Trial<'_>, refused: &RefusedNode) -> Option<usize> {
    let node = refused.info(trial.state)?;
    let mut most = 1;
    for (name, mut lacking) in lacking(trial, refused, node) {
        let pods = node.pods().iter().filter(|pod| stays_away(pod));
        let mut sizes: Vec<i64> = pods.map(|pod| pod.usage.requested.get(&name)).collect();
        sizes.sort_unstable_by_key(|size| Reverse(*size));
        let mut count = 0;
        for size in sizes {
            if lacking <= 0 {
                break;
            }
            lacking = lacking.saturating_sub(size);
            count += 1;
        }
        if lacking > 0 || count > PODS_MAX {
            return None;
        }
        most = most.max(count);
    }
    Some(most)
}

fn work_out(trial: &mut Trial<'_>, ranked: &[(usize, &RefusedNode)]) -> Vec<Deletion> {
    if ranked.is_empty() || !trial.count_decision() {
        return Vec::new();
    }
    let trial = &*trial;
    let cluster = trial.state.cluster();
    let mut attempt = Attempt::new(trial.profile, cluster, trial.state.nominator(), &trial.pod, trial.now());
    let Ok(found) = attempt.find(Search::ALL) else { return Vec::new() };
    attempt.with_post_filter_context(&found.diagnosis, 0, |cx| {
        let deletions = ranked.iter().filter_map(|(_, refused)| {
            let node = refused.info(trial.state)?;
            let mut pods = victims_on(cx, node, &lacking(trial, refused, node))?;
            // In the order in which preemption counts budgets.
            pods.sort_by_key(|pod| (Reverse(pod.priority()), pod.status.start_time.unwrap_or(cx.cycle.now)));
            let pdb_violations = split_by_budgets(cluster, pods.clone()).0.len();
            Some(Deletion { node: node.name.clone(), pods, pdb_violations })
        });
        deletions.collect()
    })
}

/// A set of pods of which each has to go: all are taken away, and each is put back that leaves room for the pod.
fn victims_on(cx: &PostFilterContext<'_>, node: &NodeInfo, lacking: &[(String, i64)]) -> Option<Vec<Arc<PodInfo>>> {
    let mut away: Vec<Arc<PodInfo>> = node.pods().iter().filter(|pod| stays_away(pod)).cloned().collect();
    let mut node = NodeTrial::new(cx, node);
    if !away.iter().all(|pod| node.remove(pod).is_success()) || !node.filter().is_success() {
        return None;
    }
    // Small ones come back first, so that few large ones go; one that is leaving anyway comes back last.
    away.sort_by_cached_key(|pod| (pod.is_terminating(), relief(pod, lacking), Reverse(pod.priority()), pod.key()));
    // Where one pod attracts another, a pod that did not fit at first may fit in the end.
    for _ in 0..2 {
        let mut gone = Vec::new();
        for pod in away {
            if !node.add(&pod).is_success() {
                return None;
            }
            if !node.filter().is_success() {
                if !node.remove(&pod).is_success() {
                    return None;
                }
                gone.push(pod);
            }
        }
        away = gone;
    }
    (!away.is_empty() && away.len() <= PODS_MAX).then_some(away)
}

fn draft(deletion: &Deletion) -> Draft {
    let names: Vec<String> = deletion.pods.iter().map(|pod| pod.key()).collect();
    let mut summary = match &names[..] {
        [only] => format!("delete pod {only} on node {}", deletion.node),
        many => format!("delete {} pods on node {}: {}", many.len(), deletion.node, many.join(", ")),
    };
    match deletion.pdb_violations {
        0 => {}
        1 => summary.push_str("; a disruption budget protects one of them"),
        many => summary.push_str(&format!("; disruption budgets protect {many} of them")),
    }
    let cost = cost::DELETION.saturating_add(cost::of_pods(names.len(), deletion.pdb_violations));
    let mut draft = Draft::new(ChangeKind::DeletePods, cost, summary);
    let key = |pod: &Arc<PodInfo>| (pod.metadata.namespace.clone(), pod.metadata.name.clone());
    draft.deletes = deletion.pods.iter().map(key).collect();
    draft
}
