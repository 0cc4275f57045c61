//! Extenders in the scheduling cycle: after Filter, beside Score, and before preemption chooses a candidate.

use std::borrow::Cow;
use std::sync::Arc;

use crate::cluster::{NodeInfo, PodInfo};
use crate::extender::{
    Error, Extender, ExtenderFilterResult, Extenders, HostPriority, MAX_EXTENDER_PRIORITY, MetaVictims, PassedNodes,
};
use crate::framework::preemption::Candidate;
use crate::framework::{Cycle, MAX_NODE_SCORE, NodeStatuses, Status};

/// The nodes that are left. A node that an extender answered with is used as answered and without pods, as upstream
/// does.
type Nodes<'a> = Vec<Cow<'a, NodeInfo>>;

/// Lets one extender after the other filter the nodes.
pub(super) fn filter<'a>(
    extenders: &Extenders,
    pod: &PodInfo,
    nodes: Vec<&'a NodeInfo>,
    statuses: &mut NodeStatuses,
) -> Result<Nodes<'a>, Error> {
    let mut nodes: Nodes<'a> = nodes.into_iter().map(Cow::Borrowed).collect();
    for extender in extenders.iter().filter(|e| e.config().is_filter() && e.config().is_interested(pod)) {
        if nodes.is_empty() {
            break;
        }
        let shown: Vec<&NodeInfo> = nodes.iter().map(|node| &**node).collect();
        let answer = extender.filter(pod, &shown).and_then(|answer| Ok((pass(&**extender, &nodes, &answer)?, answer)));
        match answer {
            Ok((left, answer)) => {
                note(statuses, answer);
                nodes = left;
            }
            Err(_) if extender.config().ignorable => {}
            Err(error) => return Err(error),
        }
    }
    Ok(nodes)
}

fn pass<'a>(extender: &dyn Extender, asked: &Nodes<'a>, answer: &ExtenderFilterResult) -> Result<Nodes<'a>, Error> {
    match &answer.passed {
        PassedNodes::Nodes(nodes) => Ok(nodes.iter().map(|node| Cow::Owned(NodeInfo::of(node.clone()))).collect()),
        PassedNodes::Names(names) => {
            let by_name: bayplan_model::keyed::KeyedMap<&str, &Cow<'a, NodeInfo>> =
                asked.iter().map(|node| (&*node.name, node)).collect();
            let known = |name: &String| {
                by_name.get(name.as_str()).map(|node| (*node).clone()).ok_or_else(|| Error::UnknownNode {
                    extender: extender.config().name().to_owned(),
                    node: name.clone(),
                })
            };
            names.iter().map(known).collect()
        }
    }
}

/// Notes why nodes do not pass; for a node in both lists the unresolvable status counts.
fn note(statuses: &mut NodeStatuses, answer: ExtenderFilterResult) {
    for (node, message) in answer.failed {
        statuses.nodes.insert(node.into(), Status::unschedulable(message));
    }
    for (node, message) in answer.failed_and_unresolvable {
        statuses.nodes.insert(node.into(), Status::unresolvable(message));
    }
}

/// Calls all extenders at once and adds their scores to the totals. One that fails is ignored.
pub(super) fn prioritize(extenders: &Extenders, pod: &PodInfo, nodes: &[&NodeInfo], totals: &mut [i64]) {
    let asked: Vec<&dyn Extender> = extenders
        .iter()
        .map(|extender| &**extender)
        .filter(|e| e.config().is_prioritizer() && e.config().is_interested(pod))
        .collect();
    let answers: Vec<Option<Vec<HostPriority>>> = match asked.as_slice() {
        [] => return,
        [only] => vec![only.prioritize(pod, nodes).ok()],
        many => std::thread::scope(|scope| {
            let calls: Vec<_> = many.iter().map(|e| scope.spawn(|| e.prioritize(pod, nodes).ok())).collect();
            // A panic counts as a failure.
            calls.into_iter().map(|call| call.join().ok().flatten()).collect()
        }),
    };
    let indexes: bayplan_model::keyed::KeyedMap<&str, usize> =
        nodes.iter().enumerate().map(|(i, n)| (&*n.name, i)).collect();
    for (extender, answer) in asked.into_iter().zip(answers) {
        // Upstream's arithmetic wraps, and extenders may answer with any number.
        let factor = extender.config().weight.wrapping_mul(MAX_NODE_SCORE / MAX_EXTENDER_PRIORITY);
        for priority in answer.into_iter().flatten() {
            if let Some(&at) = indexes.get(priority.host.as_str()) {
                totals[at] = totals[at].wrapping_add(priority.score.wrapping_mul(factor));
            }
        }
    }
}

/// Lets one extender after the other change the candidates.
pub(super) fn process_preemption(
    extenders: &Extenders,
    cycle: &Cycle<'_>,
    mut candidates: Vec<Candidate>,
) -> Result<Vec<Candidate>, Error> {
    for extender in extenders.iter().filter(|e| e.config().supports_preemption() && e.config().is_interested(cycle.pod))
    {
        if candidates.is_empty() {
            break;
        }
        let answer = extender.process_preemption(cycle.pod, &candidates).and_then(|answer| {
            answer.into_iter().map(|(node, victims)| candidate(&**extender, cycle, &node, victims)).collect()
        });
        match answer {
            Ok(answer) => candidates = with_victims(answer, extender.config().ignorable)?,
            Err(_) if extender.config().ignorable => {}
            Err(error) => return Err(error),
        }
    }
    Ok(candidates)
}

fn candidate(extender: &dyn Extender, cycle: &Cycle<'_>, node: &str, victims: MetaVictims) -> Result<Candidate, Error> {
    let info = cycle.cluster.node(node).ok_or_else(|| Error::NoNode(node.to_owned()))?;
    let find = |uid: String| {
        let pod: Option<&Arc<PodInfo>> = info.pods().iter().find(|pod| pod.uid() == uid);
        pod.cloned().ok_or_else(|| Error::UnknownVictim {
            extender: extender.config().name().to_owned(),
            uid,
            node: node.to_owned(),
        })
    };
    Ok(Candidate {
        node: info.name.clone(),
        victims: victims.uids.into_iter().map(find).collect::<Result<_, _>>()?,
        pdb_violations: usize::try_from(victims.pdb_violations).unwrap_or(0),
    })
}

/// A candidate without victims is an error, or left out when the extender is ignorable.
fn with_victims(mut candidates: Vec<Candidate>, ignorable: bool) -> Result<Vec<Candidate>, Error> {
    if ignorable {
        candidates.retain(|candidate| !candidate.victims.is_empty());
    }
    match candidates.iter().find(|candidate| candidate.victims.is_empty()) {
        Some(nobody) => Err(Error::NoVictims(nobody.node.to_string())),
        None => Ok(candidates),
    }
}
