//! Pods that configurations put on different nodes, and the plugin that made the difference.

use std::collections::BTreeMap;
use std::sync::Arc;

use bayplan_scheduler::PodInfo;
use bayplan_scheduler::config::Configuration;
use bayplan_scheduler::inspect::{Attempt, Nominator, Search};
use jiff::Timestamp;
use rustc_hash::FxHashMap;
use serde::Serialize;

use super::world::World;

/// How many divergences are listed; after the first ones every state is another, and so is every decision.
const LISTED_MAX: usize = 1000;
/// How many of them are explained: each takes a copy of the cluster.
const EXPLAINED_MAX: usize = 100;

/// A pod that configurations put on different nodes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Divergence {
    /// When the last of them placed it.
    pub time: Timestamp,
    /// `namespace/name`.
    pub pod: String,
    /// The node by configuration.
    pub nodes: BTreeMap<String, String>,
    /// The plugin that made the first configuration prefer its node to that of the first other one: it refused the
    /// other node, or scored it lower. Absent when both were equally good to it, or when this was not looked into.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plugin: Option<&'static str>,
}

/// Compares where configurations put pods.
pub(super) struct Comparison {
    names: Vec<String>,
    /// Where pods went that not all configurations have placed yet.
    open: FxHashMap<String, Vec<Option<String>>>,
    pub(super) divergences: Vec<Divergence>,
    pub(super) count: usize,
    explained: usize,
}

impl Comparison {
    pub(super) fn new(configurations: &[(String, Configuration)]) -> Self {
        Comparison {
            names: configurations.iter().map(|(name, _)| name.clone()).collect(),
            open: FxHashMap::default(),
            divergences: Vec::new(),
            count: 0,
            explained: 0,
        }
    }

    /// Takes the placements that were made since the last call.
    pub(super) fn compare(&mut self, worlds: &mut [World]) {
        if worlds.len() < 2 {
            return worlds.iter_mut().for_each(|world| world.placements.clear());
        }
        let mut complete = Vec::new();
        for (at, world) in worlds.iter_mut().enumerate() {
            for placement in world.placements.drain(..).filter(|placement| placement.first) {
                let nodes = self.open.entry(placement.pod.clone()).or_insert_with(|| vec![None; self.names.len()]);
                nodes[at].get_or_insert(placement.node);
                if nodes.iter().all(Option::is_some) {
                    complete.push((placement.time, placement.pod));
                }
            }
        }
        for (time, pod) in complete {
            let nodes: Vec<String> = self.open.remove(&pod).into_iter().flatten().flatten().collect();
            if nodes.iter().any(|node| *node != nodes[0]) {
                self.diverged(time, pod, nodes, worlds);
            }
        }
    }

    /// A pod is deleted; who has not placed it never will.
    pub(super) fn forget(&mut self, pod: &str) {
        self.open.remove(pod);
    }

    fn diverged(&mut self, time: Timestamp, pod: String, nodes: Vec<String>, worlds: &[World]) {
        self.count += 1;
        if self.divergences.len() >= LISTED_MAX {
            return;
        }
        let other = nodes.iter().find(|node| **node != nodes[0]).cloned().unwrap_or_default();
        let plugin = match self.explained < EXPLAINED_MAX {
            true => {
                self.explained += 1;
                worlds.first().and_then(|world| decider(world, &pod, &nodes[0], &other))
            }
            false => None,
        };
        let nodes = self.names.iter().cloned().zip(nodes).collect();
        self.divergences.push(Divergence { time, pod, nodes, plugin });
    }
}

/// The plugin that made a configuration prefer one node to another for a pod, on its state without the pod.
fn decider(world: &World, key: &str, node: &str, other: &str) -> Option<&'static str> {
    let pod = world.pod(key)?;
    let profile = world.scheduler.profile(&pod.spec.scheduler_name)?.clone();
    let mut cluster = world.scheduler.cluster().clone();
    cluster.remove_pod(&pod.metadata.uid);
    let mut unbound = (**pod).clone();
    unbound.spec.node_name.clear();
    let info = PodInfo::new(Arc::new(unbound));
    let nominator = Nominator::default();
    let mut attempt = Attempt::new(&profile, &cluster, &nominator, &info, world.now());
    let found = attempt.find(Search::ALL).ok()?;
    if let Some(status) = found.diagnosis.statuses.nodes.get(other) {
        return Some(status.plugin).filter(|plugin| !plugin.is_empty());
    }
    let scores = attempt.score(&found.feasible).ok()?;
    let at = |name: &str| scores.nodes.iter().position(|node| **node == *name);
    let (here, there) = (at(node)?, at(other)?);
    let lead = |weighted: &[i64]| weighted[here] - weighted[there];
    let leading = scores.plugins.iter().filter(|plugin| lead(&plugin.weighted) > 0);
    leading.max_by_key(|plugin| lead(&plugin.weighted)).map(|plugin| plugin.plugin)
}
