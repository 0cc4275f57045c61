//! What is known about placing pods of one signature: verdicts and scores of all nodes, kept up to date.
//!
//! A scoreboard is built once with the plain per-node forms of the plugins, and from then on only what changed is asked again:
//! a node that changed, or whose pods did, and the nodes of a domain whose count changed.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::buckets::{BucketId, Buckets};
use super::cached_diagnosis::CachedDiagnosis;
use super::domain_counts::DomainCounts;
use super::nominated_nodes::NominatedNodes;
use super::plan::{DomainPlugin, PluginPlan};
use super::topology::Topologies;
use super::usage_plugins::{UsageBatch, UsagePlugins};
use crate::cluster::{AffinityClassId, Cluster, NodeChange, NodeId, NodeInfo, PodInfo};
use crate::cycle::tie_break::TieBreak;
use crate::framework::{Cycle, CycleStates, DomainSummary, FeasibleNodes, MAX_NODE_SCORE, normalized_by_highest};
use crate::profile::Profile;

/// Why a scoreboard cannot be used for a pod; the plain form can.
pub(super) struct NotCacheable;

/// Verdicts and scores of all nodes for pods of one signature.
pub(super) struct Scoreboard {
    pub(super) pod: Arc<PodInfo>,
    pub(super) plan: PluginPlan,
    pub(super) states: CycleStates,
    counts: Vec<DomainCounts>,
    /// By affinity class, ascending: what one pod of it adds to which count. Most affinity classes add nothing to any, and are left out.
    contributions: Vec<(AffinityClassId, Contributions)>,
    /// The first affinity class that has not been weighed.
    affinity_classes_seen: AffinityClassId,
    /// Scores that are normalised, before that: as many per node as the plan has.
    raw: Vec<i32>,
    /// The parts of nodes' scores that only change with the nodes; empty when the plan has none.
    base: Vec<i32>,
    /// The nodes that pass all filters but those that count, by key and by the scores that are not normalised.
    buckets: Buckets,
    seen: u64,
    key: Vec<i64>,
    usage: UsagePlugins,
    /// Nodes whose keys may have changed.
    nodes_to_rekey: Vec<NodeId>,
    /// The nodes there were when it was decided how domains are told apart.
    built_for: usize,
    /// Nodes that are out of the choice whether they fit or not, with the scores of those that do.
    hidden: FxHashMap<NodeId, Option<i32>>,
    /// Where nominated pods are in the way.
    pub(super) nominated_nodes: NominatedNodes,
    /// Why pods of this signature fit nowhere, if that was ever asked.
    pub(super) diagnosis: Option<Box<CachedDiagnosis>>,
}

/// What one pod adds to which count.
type Contributions = Box<[(usize, i64)]>;

/// What all scoreboards share.
#[derive(Default)]
pub(super) struct Shared {
    /// Where nodes are.
    pub(super) topologies: Topologies,
    batch: UsageBatch,
}

/// A scoreboard is built anew when there are this many times more nodes than it was built for.
const GROWTH: usize = 2;

/// How many nodes are judged at once when a scoreboard is built: what is asked of them stays in the cache.
const NODES_PER_BATCH: usize = 256;

/// Weights of affinity classes that may be kept beyond need: every rollout brings a affinity class, and looking for old ones costs a walk over all.
const SPARE_CONTRIBUTIONS: usize = 64;

impl Scoreboard {
    pub(super) fn build(
        profile: &Profile,
        cx: &Cycle<'_>,
        mut plan: PluginPlan,
        pod: Arc<PodInfo>,
        shared: &mut Shared,
    ) -> Result<Self, NotCacheable> {
        let cluster = cx.cluster;
        let mut states = CycleStates::new(profile.plugins());
        let skipped = plan.prepare(profile, cx, &mut states)?;
        plan.without(&skipped);
        let scopes = plan.domain_plugins.iter().flat_map(|plugin| plugin.form.scopes());
        let counts = scopes.map(|scope| DomainCounts::new(scope, cluster, &mut shared.topologies));
        let mut scoreboard = Scoreboard {
            pod,
            states,
            counts: counts.collect(),
            plan,
            contributions: Vec::new(),
            affinity_classes_seen: AffinityClassId::FIRST,
            raw: Vec::new(),
            base: Vec::new(),
            buckets: Buckets::default(),
            seen: cluster.changes().end(),
            key: Vec::new(),
            usage: UsagePlugins::default(),
            nodes_to_rekey: Vec::new(),
            built_for: cluster.node_count(),
            hidden: FxHashMap::default(),
            nominated_nodes: NominatedNodes::default(),
            diagnosis: None,
        };
        for (at, skip) in scoreboard.states.skip_filter.iter_mut().enumerate() {
            *skip = !scoreboard.plan.node_filters.contains(&at) && !scoreboard.plan.usage_filters.contains(&at);
        }
        scoreboard.usage = UsagePlugins::new(&scoreboard.plan, &scoreboard.states);
        scoreboard.fill(cx, shared)?;
        Ok(scoreboard)
    }

    fn fill(&mut self, cx: &Cycle<'_>, shared: &mut Shared) -> Result<(), NotCacheable> {
        let cluster = cx.cluster;
        let Shared { topologies, batch } = shared;
        // A scoreboard that gave up may have left some.
        batch.nodes.clear();
        self.resize(cluster.slot_count(), topologies);
        if !self.read_new_affinity_classes(cluster) {
            return Err(NotCacheable);
        }
        for (class, weights) in &self.contributions {
            let nodes = cluster.affinity_classes().get(*class).into_iter().flat_map(|class| &class.nodes);
            for (node, pods) in nodes {
                for (count, by) in weights {
                    self.counts[*count].add(*node, by * i64::from(*pods), topologies, &mut |_| {});
                }
            }
        }
        for slot in 0..cluster.slot_count() {
            let node = NodeId(slot as u32);
            self.membership(cluster, node, topologies);
        }
        self.nodes_to_rekey.clear();
        for slot in 0..cluster.slot_count() {
            let node = NodeId(slot as u32);
            if self.evaluate_object(cx, node)? {
                batch.nodes.push(node);
            }
            if batch.nodes.len() == NODES_PER_BATCH || slot + 1 == cluster.slot_count() {
                self.evaluate_usage(cx, batch, true)?;
            }
        }
        Ok(())
    }

    fn resize(&mut self, slot_count: usize, topologies: &Topologies) {
        self.counts.iter_mut().for_each(|counts| counts.reserve(slot_count, topologies));
        self.buckets.reserve(slot_count);
        let raws = slot_count * self.plan.normalized.len();
        if self.raw.len() < raws {
            self.raw.resize(raws, 0);
        }
        if !self.plan.node_scores.is_empty() && self.base.len() < slot_count {
            self.base.resize(slot_count, 0);
        }
    }

    /// Takes in what happened since the scoreboard was last looked at; false when it must be built anew.
    pub(super) fn catch_up(&mut self, cx: &Cycle<'_>, shared: &mut Shared) -> Result<bool, NotCacheable> {
        let cluster = cx.cluster;
        if cluster.node_count() > self.built_for.max(1) * GROWTH && !self.counts.is_empty() {
            return Ok(false);
        }
        let end = cluster.changes().end();
        if end == self.seen {
            return Ok(true);
        }
        let Some(changes) = cluster.changes().since(self.seen) else { return Ok(false) };
        let Shared { topologies, batch } = shared;
        // A scoreboard that gave up may have left some.
        batch.nodes.clear();
        self.resize(cluster.slot_count(), topologies);
        if !self.read_new_affinity_classes(cluster) {
            return Ok(false);
        }
        let mut changed = Vec::new();
        // Most pods are of no affinity class of ours: a signature counts a affinity class or two.
        let own = self.contributions.first().map_or(AffinityClassId::FIRST, |(class, _)| *class)
            ..=self.contributions.last().map_or(AffinityClassId::FIRST, |(class, _)| *class);
        changes.for_each(|(change, is_latest)| match change {
            NodeChange::Object(node) => {
                changed.push(node);
                self.membership(cluster, node, topologies);
            }
            NodeChange::Pod { node, affinity_class: class, by } => {
                if own.contains(&class) {
                    self.count(node, class, by, topologies);
                }
                if is_latest {
                    batch.nodes.push(node);
                }
            }
        });
        let mut fitting = Vec::with_capacity(changed.len());
        for node in changed {
            if self.evaluate_object(cx, node)? {
                fitting.push(node);
            }
        }
        batch.nodes.retain(|node| !self.buckets.is_excluded(*node));
        self.evaluate_usage(cx, batch, false)?;
        batch.nodes.extend(fitting);
        self.evaluate_usage(cx, batch, true)?;
        let mut nodes_to_rekey = std::mem::take(&mut self.nodes_to_rekey);
        nodes_to_rekey.drain(..).for_each(|node| self.refresh_bucket(node));
        self.nodes_to_rekey = nodes_to_rekey;
        self.seen = end;
        self.drop_stale_contributions(cluster);
        Ok(true)
    }

    /// Finds out what pods of affinity classes add to the counts that came since; false when it is under a label nobody knew of.
    ///
    /// A affinity class that came and went unseen has come to nothing.
    fn read_new_affinity_classes(&mut self, cluster: &Cluster) -> bool {
        let (from, end) = (self.affinity_classes_seen, cluster.affinity_classes().end());
        self.affinity_classes_seen = end;
        if from == end || self.plan.domain_plugins.is_empty() {
            return true;
        }
        for class in cluster.affinity_classes().between(from, end) {
            match contributions(&self.plan.domain_plugins, &class.pod) {
                None => return false,
                Some(weights) if weights.is_empty() => {}
                Some(weights) => self.contributions.push((class.id, weights.into())),
            }
        }
        self.contributions.sort_unstable_by_key(|(class, _)| *class);
        true
    }

    /// Drops the weights of affinity classes that are placed nowhere any more; all of theirs has been taken back by now.
    fn drop_stale_contributions(&mut self, cluster: &Cluster) {
        if self.contributions.len() > 2 * cluster.affinity_classes().len() + SPARE_CONTRIBUTIONS {
            self.contributions.retain(|(class, _)| cluster.affinity_classes().get(*class).is_some());
        }
    }

    /// Accounts for a pod that came or went.
    fn count(&mut self, node: NodeId, class: AffinityClassId, by: i64, topologies: &Topologies) {
        let Scoreboard { contributions, counts, nodes_to_rekey, .. } = self;
        let Ok(known) = contributions.binary_search_by_key(&class, |(class, _)| *class) else { return };
        for (count, weight) in &contributions[known].1 {
            counts[*count].add(node, weight * by, topologies, &mut |node| nodes_to_rekey.push(node));
        }
    }

    /// Takes over where a node stands in all counts.
    fn membership(&mut self, cluster: &Cluster, node: NodeId, topologies: &Topologies) {
        let Scoreboard { counts, nodes_to_rekey, plan, .. } = self;
        let object = cluster.node_by_id(node).map(NodeInfo::node);
        for plugin in &plan.domain_plugins {
            for i in 0..plugin.form.scopes().len() {
                let included = object.is_some_and(|object| plugin.form.includes(i, object));
                counts[plugin.first + i].set_node(node, included, topologies, &mut |node| nodes_to_rekey.push(node));
            }
        }
    }

    /// Asks the plugins that read the node object alone; false when the node is out of the question.
    fn evaluate_object(&mut self, cx: &Cycle<'_>, id: NodeId) -> Result<bool, NotCacheable> {
        let of_shape = &Cycle { pod: &self.pod, ..*cx };
        let passing = match cx.cluster.node_by_id(id) {
            Some(node) if passes(&self.states, &self.plan.node_filters, of_shape, node)? => node,
            _ => {
                self.buckets.exclude(id, true);
                self.note_infeasible(id);
                return Ok(false);
            }
        };
        self.buckets.exclude(id, false);
        let at = id.0 as usize;
        if let Some(base) = self.base.get_mut(at) {
            *base = to_i32(sum(&self.states, &self.plan.node_scores, of_shape, passing)?)?;
        }
        let width = self.plan.normalized.len();
        for (i, normalized) in self.plan.normalized.iter().enumerate().filter(|(_, n)| !n.usage) {
            self.raw[at * width + i] = raw(&self.states, normalized.plugin, of_shape, passing)?;
        }
        Ok(true)
    }

    /// Asks the plugins that read what the pods on the nodes take, and puts the nodes where they belong.
    fn evaluate_usage(
        &mut self,
        cx: &Cycle<'_>,
        batch: &mut UsageBatch,
        are_keys_new: bool,
    ) -> Result<(), NotCacheable> {
        let pod = self.pod.clone();
        let cx = &Cycle { pod: &pod, ..*cx };
        self.usage.evaluate(cx, &self.states, batch)?;
        for (node, sum) in batch.nodes.drain(..).zip(&batch.sums) {
            let Some(sum) = sum else {
                self.buckets.remove(node);
                self.note_infeasible(node);
                continue;
            };
            let score = to_i32(sum.saturating_add(self.base.get(node.0 as usize).copied().unwrap_or(0).into()))?;
            if self.plan.usage_in_keys {
                self.evaluate_raw_usage(cx, node)?;
            }
            if are_keys_new || self.plan.usage_in_keys || !self.buckets.rescore(node, score) {
                self.sort(node, score);
            }
        }
        Ok(())
    }

    /// Asks the plugins that read usage and whose scores are normalised.
    fn evaluate_raw_usage(&mut self, cx: &Cycle<'_>, id: NodeId) -> Result<(), NotCacheable> {
        let node = cx.cluster.node_by_id(id).ok_or(NotCacheable)?;
        let width = self.plan.normalized.len();
        for (i, normalized) in self.plan.normalized.iter().enumerate().filter(|(_, n)| n.usage) {
            self.raw[id.0 as usize * width + i] = raw(&self.states, normalized.plugin, cx, node)?;
        }
        Ok(())
    }

    /// Whether a changed copy of a node passes the filters that read usage.
    pub(super) fn passes_usage(&self, cx: &Cycle<'_>, node: &NodeInfo) -> Result<bool, NotCacheable> {
        passes(&self.states, &self.plan.usage_filters, &Cycle { pod: &self.pod, ..*cx }, node)
    }

    /// Notes that a node does not fit (any more), if it is hidden.
    fn note_infeasible(&mut self, node: NodeId) {
        if let Some(hidden) = self.hidden.get_mut(&node) {
            *hidden = None;
        }
    }

    /// Puts a node into the bucket it belongs to.
    fn sort(&mut self, node: NodeId, score: i32) {
        if let Some(hidden) = self.hidden.get_mut(&node) {
            *hidden = Some(score);
            return;
        }
        let at = node.0 as usize;
        let width = self.plan.normalized.len();
        self.key.clear();
        self.key.extend(self.raw[at * width..(at + 1) * width].iter().copied().map(i64::from));
        self.key.extend(self.counts.iter().map(|counts| counts.key_component(node)));
        self.buckets.put(node, &self.key, score);
    }

    /// Takes a node out of the choice until [`Scoreboard::unhide`].
    pub(super) fn hide(&mut self, node: NodeId) {
        let Scoreboard { hidden, buckets, .. } = self;
        hidden.entry(node).or_insert_with(|| buckets.score(node));
        buckets.remove(node);
    }

    /// Takes a node into the choice again.
    pub(super) fn unhide(&mut self, node: NodeId) {
        if let Some(score) = self.hidden.remove(&node).flatten() {
            self.sort(node, score);
        }
    }

    /// Puts a node where it belongs by now, if it fits.
    fn refresh_bucket(&mut self, node: NodeId) {
        if let Some(score) = self.buckets.score(node) {
            self.sort(node, score);
        }
    }

    /// The buckets whose nodes pass all filters, with what normalised scores add to their nodes' own.
    pub(super) fn feasible_buckets(&mut self) -> Vec<(BucketId, i64)> {
        let summaries: Vec<DomainSummary> = self.counts.iter_mut().map(DomainCounts::summary).collect();
        let Scoreboard { plan, counts, buckets, .. } = self;
        let width = plan.normalized.len();
        let mut feasible_buckets: Vec<(BucketId, i64)> = Vec::new();
        // The counts of all live buckets, one after the other.
        let mut counts_by_bucket: Vec<Option<i64>> = Vec::new();
        for (id, bucket) in buckets.iter() {
            let first = counts_by_bucket.len();
            counts_by_bucket.extend(
                counts.iter().zip(&bucket.key[width..]).map(|(counts, component)| counts.count_for(*component)),
            );
            let here = &counts_by_bucket[first..];
            let mut domain_plugins = plan.domain_plugins.iter().filter(|plugin| plugin.filters);
            if domain_plugins.all(|plugin| plugin.form.filter(&here[plugin.range()], &summaries[plugin.range()])) {
                feasible_buckets.push((id, 0));
            } else {
                counts_by_bucket.truncate(first);
            }
        }
        for (i, normalized) in plan.normalized.iter().enumerate() {
            let raw = |id: BucketId| buckets.get(id).key[i];
            let highest = feasible_buckets.iter().map(|(id, _)| raw(*id)).max().unwrap_or(0).max(0);
            for (id, sum) in &mut feasible_buckets {
                *sum += normalized_by_highest(raw(*id), highest, normalized.reverse) * normalized.weight;
            }
        }
        for plugin in plan.domain_plugins.iter().filter(|plugin| plugin.scores && plugin.form.scores()) {
            score_part(plugin, counts, buckets, width, &mut feasible_buckets, &counts_by_bucket);
        }
        feasible_buckets
    }

    /// The best node; none when there is no feasible one.
    pub(super) fn best(&mut self, cluster: &Cluster, ties: &mut TieBreak) -> Option<NodeId> {
        let feasible_buckets = self.feasible_buckets();
        let total = |(id, sum): &(BucketId, i64)| self.buckets.highest(*id).map(|(score, _)| score + sum);
        let highest = feasible_buckets.iter().filter_map(total).max()?;
        let mut best = feasible_buckets.iter().filter(|entry| total(entry) == Some(highest)).map(|(id, _)| *id);
        match ties {
            TieBreak::SmallestName => {
                let name = |node: &NodeId| &cluster.node_by_id(*node).expect("feasible nodes are there").name;
                best.flat_map(|id| self.buckets.best(id)).min_by_key(name)
            }
            TieBreak::Random(rng) => {
                let nodes = |id: BucketId| self.buckets.highest(id).map_or(0, |(_, nodes)| nodes);
                let mut at = rng.below(best.clone().map(nodes).sum());
                let chosen = best.find(|id| {
                    let is_here = at < nodes(*id);
                    at -= if is_here { 0 } else { nodes(*id) };
                    is_here
                });
                self.buckets.nth_best(chosen?, at)
            }
        }
    }

    /// All feasible nodes with their scores: what tests compare with the plain form.
    pub(super) fn all(&mut self) -> Vec<(NodeId, i64)> {
        let feasible_buckets: FxHashMap<BucketId, i64> = self.feasible_buckets().into_iter().collect();
        let nodes = self.buckets.nodes();
        nodes
            .filter_map(|(node, bucket, score)| Some((node, i64::from(score) + feasible_buckets.get(&bucket)?)))
            .collect()
    }

    /// Whether a node passes all filters as it is.
    pub(super) fn is_feasible(&mut self, node: NodeId) -> bool {
        let Some(bucket) = self.buckets.bucket_of(node) else { return false };
        self.feasible_buckets().iter().any(|(id, _)| *id == bucket)
    }

    /// Whether the order of the feasible nodes stays the same whichever of them are left out.
    pub(super) fn is_order_fixed(&mut self) -> bool {
        if self.plan.normalized.is_empty()
            && !self.plan.domain_plugins.iter().any(|plugin| plugin.scores && plugin.form.scores())
        {
            return true;
        }
        let feasible_buckets = self.feasible_buckets();
        let Some((first, _)) = feasible_buckets.first() else { return true };
        let width = self.plan.normalized.len();
        let values = |id: BucketId| {
            let key = &self.buckets.get(id).key;
            let here = self.counts.iter().zip(&key[width..]).map(|(counts, component)| counts.count_for(*component));
            key[..width].iter().map(|raw| Some(*raw)).chain(here).collect::<Vec<_>>()
        };
        let first = values(*first);
        feasible_buckets.iter().all(|(id, _)| values(*id) == first)
    }

    /// The nodes that pass the filters.
    pub(super) fn feasible(&mut self) -> Vec<NodeId> {
        self.all().into_iter().map(|(node, _)| node).collect()
    }
}

/// Adds what one plugin thinks of each bucket, normalised.
fn score_part(
    plugin: &DomainPlugin,
    counts: &[DomainCounts],
    buckets: &Buckets,
    width: usize,
    feasible_buckets: &mut [(BucketId, i64)],
    counts_by_bucket: &[Option<i64>],
) {
    let here = |at: usize| &counts_by_bucket[at * counts.len()..][plugin.range()];
    let ignored = |at: usize| plugin.form.ignores(here(at));
    let mut feasible = FeasibleNodes { nodes: 0, domains: vec![0; plugin.range().len()] };
    let mut seen: Vec<i64> = Vec::new();
    for (i, count) in plugin.range().enumerate().filter(|(_, count)| counts[*count].is_distinct()) {
        seen.clear();
        let counted = feasible_buckets.iter().enumerate().filter(|(at, _)| !ignored(*at));
        seen.extend(counted.map(|(_, (id, _))| buckets.get(*id).key[width + count]));
        seen.sort_unstable();
        seen.dedup();
        feasible.domains[i] = seen.len();
    }
    let counted = feasible_buckets.iter().enumerate().filter(|(at, _)| !ignored(*at));
    feasible.nodes = counted.map(|(_, (id, _))| buckets.get(*id).nodes).sum();
    let raw: Vec<Option<i64>> =
        (0..feasible_buckets.len()).map(|at| (!ignored(at)).then(|| plugin.form.score(here(at), &feasible))).collect();
    let (lowest, highest) = (raw.iter().flatten().min().copied(), raw.iter().flatten().max().copied());
    for ((_, sum), raw) in feasible_buckets.iter_mut().zip(raw) {
        let Some(raw) = raw else { continue };
        *sum += plugin.form.normalize(raw, lowest.unwrap_or(0), highest.unwrap_or(0)) * plugin.weight;
    }
}

fn contributions(domain_plugins: &[DomainPlugin], other: &PodInfo) -> Option<Vec<(usize, i64)>> {
    let mut weights: Vec<(usize, i64)> = Vec::new();
    for plugin in domain_plugins {
        let known = plugin.form.contributions(other, &mut |count, by| match weights
            .iter_mut()
            .find(|w| w.0 == plugin.first + count)
        {
            Some(weight) => weight.1 += by,
            None => weights.push((plugin.first + count, by)),
        });
        if !known {
            return None;
        }
    }
    weights.retain(|(_, by)| *by != 0);
    Some(weights)
}

/// Whether all these filters let a node pass; an error is for the plain form to tell.
pub(super) fn passes(
    states: &CycleStates,
    filters: &[usize],
    cx: &Cycle<'_>,
    node: &NodeInfo,
) -> Result<bool, NotCacheable> {
    for &plugin in filters {
        let status = states.get(plugin).filter(cx, node);
        if status.is_rejected() {
            return Ok(false);
        }
        if !status.is_success() {
            return Err(NotCacheable);
        }
    }
    Ok(true)
}

/// The sum of weighted scores; one that is out of bounds is an error that the plain form tells.
pub(super) fn sum(
    states: &CycleStates,
    scores: &[(usize, i64)],
    cx: &Cycle<'_>,
    node: &NodeInfo,
) -> Result<i64, NotCacheable> {
    let mut sum = 0i64;
    for &(plugin, weight) in scores {
        let score = states.get(plugin).score(cx, node).map_err(|_| NotCacheable)?;
        if !(0..=MAX_NODE_SCORE).contains(&score) {
            return Err(NotCacheable);
        }
        sum = sum.saturating_add(score.saturating_mul(weight));
    }
    Ok(sum)
}

/// A score before normalisation; one below 0 is an error that the plain form tells.
fn raw(states: &CycleStates, plugin: usize, cx: &Cycle<'_>, node: &NodeInfo) -> Result<i32, NotCacheable> {
    to_i32(states.get(plugin).score(cx, node).map_err(|_| NotCacheable)?)
}

/// Scores are kept for every node of every signature, so half the bytes are worth leaving strange weights to the plain form.
pub(super) fn to_i32(score: i64) -> Result<i32, NotCacheable> {
    i32::try_from(score).ok().filter(|score| *score >= 0).ok_or(NotCacheable)
}
