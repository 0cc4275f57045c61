//! PreFilter and Filter: which nodes fit a pod. Upstream's `findNodesThatFitPod`.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::cluster::{NodeInfo, PodInfo};
use crate::extender::EXTENDER;
use crate::framework::preemption::{Candidate, RankedCandidate};
use crate::framework::{
    Code, Cycle, CycleStates, Diagnosis, ExtensionPoints, FilterRunner, PluginName, PluginWithState, Status,
};
use crate::metrics::{Evaluated, FILTER_SAMPLE_EVERY, TimedPoint};
use crate::nominator::Nominator;
use crate::profile::Profile;

use super::extenders;

/// Runs the filters of a profile for one pod, and accounts for nominated pods.
pub(crate) struct Filters<'a> {
    pub(crate) profile: &'a Profile,
    pub(crate) cycle: Cycle<'a>,
    pub(crate) nominator: &'a Nominator,
    /// Counted when there are metrics.
    counts: Option<FilterRunCounts>,
}

/// How many nodes each filter saw in one cycle.
struct FilterRunCounts {
    /// The number of nodes for which a filter was the last to run, by the filter's position.
    last: Box<[Cell<u32>]>,
    nodes: Cell<usize>,
}

/// The nodes that fit a pod.
#[derive(Debug, Default)]
pub struct FilterResult<'a> {
    /// The feasible nodes, in the order of the search.
    pub feasible: Vec<&'a NodeInfo>,
    /// Why the others do not fit.
    pub diagnosis: Diagnosis,
    /// True when the pod's nominated node still fits, so that no other was filtered.
    pub nominated_node_used: bool,
    /// How many nodes were filtered.
    pub evaluated: usize,
    /// The nodes an extender answered with, which replace the feasible ones.
    pub replaced: Option<Vec<NodeInfo>>,
}

impl FilterResult<'_> {
    /// The feasible nodes as Score sees them.
    pub fn nodes(&self) -> Cow<'_, [&NodeInfo]> {
        match &self.replaced {
            None => Cow::Borrowed(&self.feasible),
            Some(nodes) => Cow::Owned(nodes.iter().collect()),
        }
    }
}

/// Where the search for feasible nodes begins, and how many suffice.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// The index of the first node.
    pub start: usize,
    /// `percentageOfNodesToScore`; none for all nodes.
    pub percentage: Option<i32>,
}

/// Upstream's `minFeasibleNodesToFind`: with fewer nodes the percentage does not matter, and never fewer are searched
/// for.
const MIN_FEASIBLE_NODES: usize = 100;

impl Search {
    /// All nodes, beginning with the first.
    pub const ALL: Search = Search { start: 0, percentage: None };

    /// True when all nodes are filtered, however many there are.
    pub(crate) fn is_exhaustive(&self) -> bool {
        !matches!(self.percentage, Some(1..100))
    }

    fn enough(&self, nodes: usize) -> usize {
        match self.percentage {
            Some(percentage @ 1..100) if nodes >= MIN_FEASIBLE_NODES => {
                (nodes * percentage as usize / 100).max(MIN_FEASIBLE_NODES)
            }
            _ => nodes,
        }
    }
}

impl<'a> Filters<'a> {
    pub(crate) fn new(profile: &'a Profile, cycle: Cycle<'a>, nominator: &'a Nominator) -> Self {
        let counts = profile.metrics.as_ref().map(|_| FilterRunCounts {
            last: vec![Cell::new(0); profile.at(ExtensionPoints::FILTER).len()].into(),
            nodes: Cell::new(0),
        });
        Filters { profile, cycle, nominator, counts }
    }

    /// Reports how often each filter ran.
    pub(crate) fn report_metrics(&self, states: &CycleStates) {
        let (Some(counts), Some(metrics)) = (&self.counts, &self.profile.metrics) else { return };
        let mut reached = 0;
        for (&plugin, last) in self.profile.at(ExtensionPoints::FILTER).iter().zip(&counts.last).rev() {
            reached += u64::from(last.take());
            if !states.skip_filter[plugin] {
                metrics.evaluated(plugin, Evaluated::Filter, reached);
            }
        }
    }

    /// Finds the nodes that fit the pod. An error ends the cycle.
    pub(crate) fn find(&self, states: &mut CycleStates, search: Search) -> Result<FilterResult<'a>, Status> {
        let cluster = self.cycle.cluster;
        let mut found = FilterResult {
            diagnosis: Diagnosis { node_count: cluster.node_count(), ..Diagnosis::default() },
            ..FilterResult::default()
        };
        let mut narrowed_by = BTreeSet::new();
        let watch = self.profile.stopwatch();
        let answer = self.pre_filter(states, &mut found.diagnosis, &mut narrowed_by);
        let code = |answer: &Result<Option<Status>, Status>| match answer {
            Ok(Some(status)) | Err(status) => status.code,
            Ok(None) => Code::Success,
        };
        watch.point(TimedPoint::PreFilter, code(&answer));
        if let Some(status) = answer? {
            found.diagnosis.add_plugin_status(&status);
            if status.plugin.is_empty() {
                found.diagnosis.unschedulable_plugins = narrowed_by;
            }
            found.diagnosis.statuses.absent = status.clone();
            found.diagnosis.pre_filter = Some(status);
            return Ok(found);
        }
        match self.nominated_node(states) {
            Some(Ok(nominated)) => return Ok(FilterResult { diagnosis: found.diagnosis, ..nominated }),
            // The rejection is kept even when PreFilter leaves the node out of the search.
            Some(Err((node, status))) if status.is_rejected() => {
                if !narrowed_by.is_empty() {
                    found.diagnosis.add_plugin_status(&status);
                }
                found.diagnosis.statuses.nodes.insert(node.name.clone(), status);
            }
            _ => {}
        }
        let candidates: Vec<&NodeInfo> = match &found.diagnosis.pre_filter_nodes {
            None => {
                (0..cluster.node_count()).map(|i| cluster.node_at((search.start + i) % cluster.node_count())).collect()
            }
            Some(names) => {
                found.diagnosis.statuses.absent = left_out(&narrowed_by);
                names.iter().filter_map(|name| cluster.node(name)).collect()
            }
        };
        let enough = if self.profile.needs_choice() { search.enough(candidates.len()) } else { 1 };
        let watch = self.profile.stopwatch();
        let searched = self.search(states, &candidates, enough, &mut found);
        watch.point(TimedPoint::Filter, searched.as_ref().err().map_or(Code::Success, |status| status.code));
        searched?;
        self.ask_extenders(&mut found)?;
        if found.nodes().is_empty() {
            found.diagnosis.unschedulable_plugins.extend(narrowed_by);
        }
        Ok(found)
    }

    /// Filters nodes until enough are found. An error ends the cycle.
    fn search(
        &self,
        states: &CycleStates,
        candidates: &[&'a NodeInfo],
        enough: usize,
        found: &mut FilterResult<'a>,
    ) -> Result<(), Status> {
        for &node in candidates {
            let status = self.run_with_nominated(states, node);
            match status.code {
                // Upstream notices that it has enough when it finds one more.
                Code::Success if found.feasible.len() >= enough => break,
                Code::Success => found.feasible.push(node),
                _ if status.is_rejected() => {
                    found.diagnosis.add_plugin_status(&status);
                    found.diagnosis.statuses.nodes.insert(node.name.clone(), status);
                }
                _ => return Err(status),
            }
        }
        found.evaluated = found.feasible.len() + found.diagnosis.statuses.nodes.len();
        Ok(())
    }

    /// Lets extenders filter the feasible nodes.
    fn ask_extenders(&self, found: &mut FilterResult<'a>) -> Result<(), Status> {
        let extenders = self.profile.extenders();
        if extenders.is_empty() || found.feasible.is_empty() {
            return Ok(());
        }
        let before = found.feasible.len();
        let nodes = std::mem::take(&mut found.feasible);
        let left = extenders::filter(extenders, self.cycle.pod, nodes, &mut found.diagnosis.statuses)
            .map_err(|error| Status::error(error.to_string()))?;
        if left.len() != before {
            found.diagnosis.unschedulable_plugins.insert(EXTENDER);
        }
        if left.iter().all(|node| matches!(node, Cow::Borrowed(_))) {
            found.feasible = left.into_iter().filter_map(borrowed).collect();
        } else {
            found.replaced = Some(left.into_iter().map(Cow::into_owned).collect());
        }
        Ok(())
    }

    /// Runs PreFilter. A rejection is the value, an error ends the cycle.
    fn pre_filter(
        &self,
        states: &mut CycleStates,
        diagnosis: &mut Diagnosis,
        narrowed_by: &mut BTreeSet<PluginName>,
    ) -> Result<Option<Status>, Status> {
        let mut rejection = None;
        for &plugin in self.profile.at(ExtensionPoints::PRE_FILTER) {
            let watch = self.profile.stopwatch_if(states.sampled);
            let answer = states.get_mut(plugin).pre_filter(&self.cycle);
            watch.plugin(plugin, TimedPoint::PreFilter, answer.status.code);
            if let Some(metrics) = self.profile.metrics.as_ref().filter(|_| !answer.status.is_skip()) {
                metrics.evaluated(plugin, Evaluated::PreFilter, 1);
            }
            match answer.status.code {
                Code::Success => {}
                Code::Skip => {
                    states.skip_filter[plugin] = true;
                    continue;
                }
                Code::UnschedulableAndUnresolvable => return Ok(Some(answer.status)),
                Code::Unschedulable => {
                    rejection = Some(answer.status);
                    continue;
                }
                _ => {
                    let name = answer.status.plugin;
                    return Err(Status::error(format!("running PreFilter plugin {name:?}: {}", answer.status)).by(name));
                }
            }
            if let Some(names) = answer.nodes {
                narrowed_by.insert(answer.status.plugin);
                let narrowed = match diagnosis.pre_filter_nodes.take() {
                    None => names,
                    Some(former) => former.intersection(&names).cloned().collect(),
                };
                let nothing = narrowed.is_empty();
                diagnosis.pre_filter_nodes = Some(narrowed);
                if nothing {
                    return Ok(Some(nothing_left(narrowed_by)));
                }
            }
        }
        Ok(rejection)
    }

    /// The pod's nominated node if it still fits, or why it does not.
    fn nominated_node(&self, states: &CycleStates) -> Option<Result<FilterResult<'a>, (&'a NodeInfo, Status)>> {
        let name = &self.cycle.pod.status.nominated_node_name;
        let node = self.cycle.cluster.node(name)?;
        let status = self.run_with_nominated(states, node);
        if !status.is_success() {
            return Some(Err((node, status)));
        }
        let mut found = FilterResult { feasible: vec![node], nominated_node_used: true, ..FilterResult::default() };
        // An extender that fails here is called again with all nodes.
        self.ask_extenders(&mut found).ok()?;
        (!found.nodes().is_empty()).then_some(Ok(found))
    }

    /// Filters a node twice when pods of equal or higher priority are nominated to it (upstream's
    /// `RunFilterPluginsWithNominatedPods`): with them, because they will be there; and without them, because they may
    /// not be, and the pod's affinity must not depend on them.
    pub(crate) fn run_with_nominated(&self, states: &CycleStates, node: &NodeInfo) -> Status {
        let mut nominated = self.nominator.ahead_of(self.cycle.pod, &node.name).peekable();
        if nominated.peek().is_some() {
            let mut node = node.clone();
            let mut states = states.clone();
            for other in nominated {
                let status = self.add_pod(&mut states, &mut node, other);
                if !status.is_success() {
                    return status;
                }
            }
            let status = self.run(&states, &node);
            if !status.is_success() {
                return status;
            }
        }
        self.run(states, node)
    }

    /// Filters a node as it is.
    pub(crate) fn run(&self, states: &CycleStates, node: &NodeInfo) -> Status {
        let order = self.profile.at(ExtensionPoints::FILTER);
        let timed = states.sampled && self.is_timed();
        for (at, &plugin) in order.iter().enumerate() {
            if states.skip_filter[plugin] {
                continue;
            }
            let watch = self.profile.stopwatch_if(timed);
            let status = states.get(plugin).filter(&self.cycle, node);
            watch.plugin(plugin, TimedPoint::Filter, status.code);
            if status.is_success() {
                continue;
            }
            self.ended_at(Some(at));
            if !status.is_rejected() {
                let name = status.plugin;
                return Status::error(format!("running {name:?} filter plugin: {status}")).by(name);
            }
            return status;
        }
        self.ended_at(order.len().checked_sub(1));
        Status::SUCCESS
    }

    /// Runs PreFilter, and Filter on one node: the first rejection or error counts.
    pub(crate) fn check_node(&self, states: &mut CycleStates, node: &NodeInfo) -> Status {
        let mut narrowed_by = BTreeSet::new();
        let mut diagnosis = Diagnosis::default();
        match self.pre_filter(states, &mut diagnosis, &mut narrowed_by) {
            Err(status) | Ok(Some(status)) => status,
            Ok(None) => match &diagnosis.pre_filter_nodes {
                Some(names) if !names.contains(&*node.name) => left_out(&narrowed_by),
                _ => self.run_with_nominated(states, node),
            },
        }
    }

    /// Asks every filter about a node, those after a rejection too. A plugin whose PreFilter rejects the pod, or leaves
    /// the node out, answers with that.
    pub(crate) fn ask_all(&self, node: &NodeInfo) -> Vec<Status> {
        let mut states = CycleStates::new(self.profile.plugins());
        let before_filter: Vec<Option<Status>> =
            (0..self.profile.plugins().len()).map(|plugin| self.pre_filter_for(&mut states, plugin, node)).collect();
        let mut answers: Vec<Status> = Vec::new();
        let prepared = self.profile.at(ExtensionPoints::PRE_FILTER).iter();
        let filters = self.profile.at(ExtensionPoints::FILTER);
        for &plugin in prepared.filter(|plugin| !filters.contains(plugin)) {
            answers.extend(before_filter[plugin].clone().filter(|status| !status.is_skip()));
        }
        for &plugin in filters {
            answers.push(before_filter[plugin].clone().unwrap_or_else(|| self.ask_one(&states, plugin, node)));
        }
        answers
    }

    /// Runs one plugin's PreFilter; none when it lets the node through to Filter.
    fn pre_filter_for(&self, states: &mut CycleStates, plugin: usize, node: &NodeInfo) -> Option<Status> {
        if !self.profile.at(ExtensionPoints::PRE_FILTER).contains(&plugin) {
            return None;
        }
        let answer = states.get_mut(plugin).pre_filter(&self.cycle);
        states.skip_filter[plugin] = !answer.status.is_success();
        if !answer.status.is_success() {
            return Some(answer.status);
        }
        let is_left_out = answer.nodes.is_some_and(|names| !names.contains(&*node.name));
        is_left_out.then(|| left_out(&BTreeSet::from([answer.status.plugin])).by(answer.status.plugin))
    }

    /// Asks one filter about a node, first with the pods that are nominated to it.
    fn ask_one(&self, states: &CycleStates, plugin: usize, node: &NodeInfo) -> Status {
        let nominated: Vec<_> = self.nominator.ahead_of(self.cycle.pod, &node.name).collect();
        if !nominated.is_empty() {
            let (mut states, mut node) = (states.clone(), node.clone());
            let added = nominated.iter().map(|other| self.add_pod(&mut states, &mut node, other));
            let failed = added.collect::<Vec<_>>().into_iter().find(|status| !status.is_success());
            let status = failed.unwrap_or_else(|| states.get(plugin).filter(&self.cycle, &node));
            if !status.is_success() {
                return status;
            }
        }
        states.get(plugin).filter(&self.cycle, node)
    }

    fn is_timed(&self) -> bool {
        let Some(counts) = &self.counts else { return false };
        counts.nodes.replace(counts.nodes.get() + 1).is_multiple_of(FILTER_SAMPLE_EVERY)
    }

    fn ended_at(&self, last: Option<usize>) {
        if let (Some(counts), Some(last)) = (&self.counts, last) {
            counts.last[last].update(|count| count + 1);
        }
    }

    /// Puts a pod on a copy of a node and updates the plugins' states.
    pub(crate) fn add_pod(&self, states: &mut CycleStates, node: &mut NodeInfo, pod: &Arc<PodInfo>) -> Status {
        node.add_pod(pod.clone());
        self.each_prepared(states, "AddPod", |state, cycle| state.add_pod(cycle, pod, node))
    }

    /// Takes a pod off a copy of a node and updates the plugins' states.
    pub(crate) fn remove_pod(&self, states: &mut CycleStates, node: &mut NodeInfo, pod: &PodInfo) -> Status {
        node.remove_pod(pod.uid());
        self.each_prepared(states, "RemovePod", |state, cycle| state.remove_pod(cycle, pod, node))
    }

    fn each_prepared(
        &self,
        states: &mut CycleStates,
        what: &str,
        update: impl Fn(&mut dyn PluginWithState, &Cycle<'_>) -> Status,
    ) -> Status {
        for &plugin in self.profile.at(ExtensionPoints::PRE_FILTER) {
            if states.skip_filter[plugin] {
                continue;
            }
            let status = update(states.get_mut(plugin), &self.cycle);
            if !status.is_success() {
                let name = status.plugin;
                return Status::error(format!("running {what} on PreFilter plugin {name:?}: {status}")).by(name);
            }
        }
        Status::SUCCESS
    }
}

impl FilterRunner for Filters<'_> {
    fn run_with_nominated(&self, states: &CycleStates, node: &NodeInfo) -> Status {
        Filters::run_with_nominated(self, states, node)
    }

    fn add_pod(&self, states: &mut CycleStates, node: &mut NodeInfo, pod: &Arc<PodInfo>) -> Status {
        Filters::add_pod(self, states, node, pod)
    }

    fn remove_pod(&self, states: &mut CycleStates, node: &mut NodeInfo, pod: &PodInfo) -> Status {
        Filters::remove_pod(self, states, node, pod)
    }

    fn nominated_to(&self, node: &str) -> &[Arc<PodInfo>] {
        self.nominator.on_node(node)
    }

    fn process_preemption(&self, candidates: &[&RankedCandidate]) -> Option<Result<Vec<Candidate>, String>> {
        let extenders = self.profile.extenders();
        if extenders.is_empty() {
            return None;
        }
        let candidates = candidates.iter().map(|candidate| Candidate::clone(candidate)).collect();
        let answer = extenders::process_preemption(extenders, &self.cycle, candidates);
        Some(answer.map_err(|error| error.to_string()))
    }
}

fn borrowed<'a>(node: Cow<'a, NodeInfo>) -> Option<&'a NodeInfo> {
    match node {
        Cow::Borrowed(node) => Some(node),
        Cow::Owned(_) => None,
    }
}

/// The status of the nodes that PreFilter leaves out.
fn left_out(narrowed_by: &BTreeSet<PluginName>) -> Status {
    let names = narrowed_by.iter().copied().collect::<Vec<_>>().join(" ");
    Status::unresolvable(format!("node(s) didn't satisfy plugin(s) [{names}]"))
}

fn nothing_left(narrowed_by: &BTreeSet<PluginName>) -> Status {
    let names: Vec<&str> = narrowed_by.iter().copied().collect();
    Status::unresolvable(match names.as_slice() {
        [one] => format!("node(s) didn't satisfy plugin {one}"),
        many => format!("node(s) didn't satisfy plugin(s) [{}] simultaneously", many.join(" ")),
    })
}
