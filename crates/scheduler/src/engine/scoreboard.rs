//! Filter results and scores of all nodes for pods of one signature, kept up to date.
//!
//! A scoreboard is built once by running the plugins on every node. From then on it evaluates only what changed: a node
//! whose object or pods changed, and the nodes of a topology domain whose count changed.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::buckets::{BucketId, Buckets};
use super::cached_diagnosis::CachedDiagnosis;
use super::domain_counts::DomainCounts;
use super::evaluate::{NotCacheable, passes_filters, raw_score, sum_scores, to_i32};
use super::nominated_nodes::NominatedNodes;
use super::plan::{DomainPlugin, PluginPlan};
use super::timing::{PluginWatch, TimedCycle, Timing};
use super::topology::Topologies;
use super::usage_plugins::{UsageBatch, UsagePlugins};
use crate::cluster::{AffinityClassId, Cluster, NodeChange, NodeId, NodeInfo, PodInfo};
use crate::cycle::tie_break::TieBreak;
use crate::framework::{Code, CycleStates, DomainSummary, FeasibleNodes, normalized_by_highest};
use crate::metrics::TimedPoint;
use crate::profile::Profile;

/// Filter results and scores of all nodes for pods of one signature.
pub(super) struct Scoreboard {
    /// One of the pods; plugins are evaluated for it.
    pub(super) pod: Arc<PodInfo>,
    pub(super) plan: PluginPlan,
    pub(super) states: CycleStates,
    counts: Vec<DomainCounts>,
    /// What one pod of an affinity class adds to which counts, by class, ascending. Most classes add nothing and are
    /// left out.
    contributions: Vec<(AffinityClassId, Contributions)>,
    /// The first affinity class whose contributions are not known.
    affinity_classes_seen: AffinityClassId,
    /// Scores before normalisation, for the plugins in [`PluginPlan::normalized`]: as many per node as there are such
    /// plugins.
    raw: Vec<i32>,
    /// The part of each node's score that changes only with the node object; empty when no plugin has such a score.
    base: Vec<i32>,
    /// The nodes that pass all filters except those that read counts, by key and by the scores that are not normalised.
    buckets: Buckets,
    /// The position in the cluster's change log.
    changes_seen: u64,
    /// Scratch space for a bucket's key.
    key: Vec<i64>,
    usage: UsagePlugins,
    /// Nodes that may have moved to another bucket.
    nodes_to_rekey: Vec<NodeId>,
    /// The number of nodes when it was decided how to key domains.
    built_for_nodes: usize,
    /// Nodes that must not be chosen for now, with the scores of those that are feasible.
    hidden: FxHashMap<NodeId, Option<i32>>,
    /// Nodes whose nominated pods take precedence.
    pub(super) nominated_nodes: NominatedNodes,
    /// Why no node fits, once that was asked.
    pub(super) diagnosis: Option<Box<CachedDiagnosis>>,
}

/// What one pod adds to which counts.
type Contributions = Box<[(usize, i64)]>;

/// What all scoreboards of an engine share.
#[derive(Default)]
pub(super) struct Shared {
    /// Which nodes are in which topology domains.
    pub(super) topologies: Topologies,
    /// Scratch space.
    batch: UsageBatch,
}

/// A scoreboard is rebuilt when the number of nodes has grown by this factor.
const GROWTH: usize = 2;

/// The number of nodes evaluated together when a scoreboard is built, so that their headroom stays in the CPU's cache.
const NODES_PER_BATCH: usize = 256;

/// The number of stale contributions that are tolerated: every rollout adds an affinity class, and finding the stale
/// ones takes a walk over all.
const SPARE_CONTRIBUTIONS: usize = 64;

impl Scoreboard {
    pub(super) fn build(
        profile: &Profile,
        cx: &TimedCycle<'_>,
        mut plan: PluginPlan,
        pod: Arc<PodInfo>,
        shared: &mut Shared,
    ) -> Result<Self, NotCacheable> {
        let cluster = cx.cluster;
        let mut states = CycleStates::new(profile.plugins());
        let skipped = plan.prepare(profile, cx, &mut states)?;
        plan.without(&skipped);
        let scopes = plan.domain_plugins.iter().flat_map(|plugin| plugin.counting.scopes());
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
            changes_seen: cluster.changes().end(),
            key: Vec::new(),
            usage: UsagePlugins::default(),
            nodes_to_rekey: Vec::new(),
            built_for_nodes: cluster.node_count(),
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

    fn fill(&mut self, cx: &TimedCycle<'_>, shared: &mut Shared) -> Result<(), NotCacheable> {
        let cluster = cx.cluster;
        let Shared { topologies, batch } = shared;
        // An evaluation that ended with an error may have left nodes behind.
        batch.nodes.clear();
        self.resize(cluster.slot_count(), topologies);
        self.read_new_affinity_classes(cluster)?;
        for (class, contributions) in &self.contributions {
            let nodes = cluster.affinity_classes().get(*class).into_iter().flat_map(|class| &class.nodes);
            for (node, pods) in nodes {
                for (count, by) in contributions {
                    self.counts[*count].add(*node, by * i64::from(*pods), topologies, &mut |_| {});
                }
            }
        }
        for slot in 0..cluster.slot_count() {
            let node = NodeId(slot as u32);
            self.update_memberships(cluster, node, topologies);
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

    /// Evaluates what changed since the last call. After an error the scoreboard must be rebuilt.
    pub(super) fn catch_up(&mut self, cx: &TimedCycle<'_>, shared: &mut Shared) -> Result<(), NotCacheable> {
        let cluster = cx.cluster;
        if cluster.node_count() > self.built_for_nodes.max(1) * GROWTH && !self.counts.is_empty() {
            return Err(NotCacheable);
        }
        let end = cluster.changes().end();
        if end == self.changes_seen {
            return Ok(());
        }
        let changes = cluster.changes().since(self.changes_seen).ok_or(NotCacheable)?;
        let Shared { topologies, batch } = shared;
        // An evaluation that ended with an error may have left nodes behind.
        batch.nodes.clear();
        self.resize(cluster.slot_count(), topologies);
        self.read_new_affinity_classes(cluster)?;
        let mut changed = Vec::new();
        // Most pods are of none of these classes: a signature counts one or two of them.
        let own = self.contributions.first().map_or(AffinityClassId::FIRST, |(class, _)| *class)
            ..=self.contributions.last().map_or(AffinityClassId::FIRST, |(class, _)| *class);
        changes.for_each(|(change, is_latest)| match change {
            NodeChange::Object(node) => {
                changed.push(node);
                self.update_memberships(cluster, node, topologies);
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
        self.changes_seen = end;
        self.drop_stale_contributions(cluster);
        Ok(())
    }

    /// Computes the contributions of affinity classes that are new. Fails when a class counts under a topology key that
    /// has no count yet.
    ///
    /// A class that came and went since the last call changes no count and may be missed.
    fn read_new_affinity_classes(&mut self, cluster: &Cluster) -> Result<(), NotCacheable> {
        let (from, end) = (self.affinity_classes_seen, cluster.affinity_classes().end());
        self.affinity_classes_seen = end;
        if from == end || self.plan.domain_plugins.is_empty() {
            return Ok(());
        }
        for class in cluster.affinity_classes().between(from, end) {
            let contributions = contributions(&self.plan.domain_plugins, &class.pod)?;
            if !contributions.is_empty() {
                self.contributions.push((class.id, contributions.into()));
            }
        }
        self.contributions.sort_unstable_by_key(|(class, _)| *class);
        Ok(())
    }

    /// Drops the contributions of affinity classes without pods; the counts no longer include them.
    fn drop_stale_contributions(&mut self, cluster: &Cluster) {
        if self.contributions.len() > 2 * cluster.affinity_classes().len() + SPARE_CONTRIBUTIONS {
            self.contributions.retain(|(class, _)| cluster.affinity_classes().get(*class).is_some());
        }
    }

    /// Counts a pod that came to a node (`by` is 1) or left it (-1).
    fn count(&mut self, node: NodeId, class: AffinityClassId, by: i64, topologies: &Topologies) {
        let Scoreboard { contributions, counts, nodes_to_rekey, .. } = self;
        let Ok(known) = contributions.binary_search_by_key(&class, |(class, _)| *class) else { return };
        for (count, weight) in &contributions[known].1 {
            counts[*count].add(node, weight * by, topologies, &mut |node| nodes_to_rekey.push(node));
        }
    }

    /// Updates which domains a node is a member of, in all counts.
    fn update_memberships(&mut self, cluster: &Cluster, node: NodeId, topologies: &Topologies) {
        let Scoreboard { counts, nodes_to_rekey, plan, .. } = self;
        let object = cluster.node_by_id(node).map(NodeInfo::node);
        for plugin in &plan.domain_plugins {
            for i in 0..plugin.counting.scopes().len() {
                let included = object.is_some_and(|object| plugin.counting.includes(i, object));
                counts[plugin.first + i].set_node(node, included, topologies, &mut |node| nodes_to_rekey.push(node));
            }
        }
    }

    /// Evaluates the plugins that read only the node object; false when the node fails a filter.
    fn evaluate_object(&mut self, cx: &TimedCycle<'_>, id: NodeId) -> Result<bool, NotCacheable> {
        let cx = &cx.of(&self.pod);
        let passing = match cx.cluster.node_by_id(id) {
            Some(node) if passes_filters(&self.states, &self.plan.node_filters, cx, node)? => node,
            _ => {
                self.buckets.exclude(id, true);
                self.note_infeasible(id);
                return Ok(false);
            }
        };
        self.buckets.exclude(id, false);
        let at = id.0 as usize;
        if let Some(base) = self.base.get_mut(at) {
            *base = to_i32(sum_scores(&self.states, &self.plan.node_scores, cx, passing)?)?;
        }
        let width = self.plan.normalized.len();
        for (i, normalized) in self.plan.normalized.iter().enumerate().filter(|(_, n)| !n.usage) {
            self.raw[at * width + i] = raw_score(&self.states, normalized.plugin, cx, passing)?;
        }
        Ok(true)
    }

    /// Evaluates the plugins that read usage for a batch of nodes, and puts the nodes into their buckets.
    fn evaluate_usage(
        &mut self,
        cx: &TimedCycle<'_>,
        batch: &mut UsageBatch,
        are_keys_new: bool,
    ) -> Result<(), NotCacheable> {
        let pod = self.pod.clone();
        let cx = &cx.of(&pod);
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
                self.put_in_bucket(node, score);
            }
        }
        Ok(())
    }

    /// Evaluates the plugins that read usage and whose scores are normalised.
    fn evaluate_raw_usage(&mut self, cx: &TimedCycle<'_>, id: NodeId) -> Result<(), NotCacheable> {
        let node = cx.cluster.node_by_id(id).ok_or(NotCacheable)?;
        let width = self.plan.normalized.len();
        for (i, normalized) in self.plan.normalized.iter().enumerate().filter(|(_, n)| n.usage) {
            self.raw[id.0 as usize * width + i] = raw_score(&self.states, normalized.plugin, cx, node)?;
        }
        Ok(())
    }

    /// True when a changed copy of a node passes the filters that read usage.
    pub(super) fn passes_usage(&self, cx: &TimedCycle<'_>, node: &NodeInfo) -> Result<bool, NotCacheable> {
        passes_filters(&self.states, &self.plan.usage_filters, &cx.of(&self.pod), node)
    }

    /// Notes that a hidden node is not feasible.
    fn note_infeasible(&mut self, node: NodeId) {
        if let Some(hidden) = self.hidden.get_mut(&node) {
            *hidden = None;
        }
    }

    /// Puts a feasible node into its bucket.
    fn put_in_bucket(&mut self, node: NodeId, score: i32) {
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

    /// Keeps a node from being chosen until [`Scoreboard::unhide`].
    pub(super) fn hide(&mut self, node: NodeId) {
        let Scoreboard { hidden, buckets, .. } = self;
        hidden.entry(node).or_insert_with(|| buckets.score(node));
        buckets.remove(node);
    }

    /// Lets a node be chosen again.
    pub(super) fn unhide(&mut self, node: NodeId) {
        if let Some(score) = self.hidden.remove(&node).flatten() {
            self.put_in_bucket(node, score);
        }
    }

    /// Moves a feasible node to the bucket of its current key.
    fn refresh_bucket(&mut self, node: NodeId) {
        if let Some(score) = self.buckets.score(node) {
            self.put_in_bucket(node, score);
        }
    }

    /// The buckets whose nodes pass all filters, with the sum of their normalised scores.
    fn feasible_buckets(&mut self, timing: Option<&Timing<'_>>) -> Vec<(BucketId, i64)> {
        let summaries: Vec<DomainSummary> = self.counts.iter_mut().map(DomainCounts::summary).collect();
        let Scoreboard { plan, counts, buckets, .. } = self;
        let width = plan.normalized.len();
        let mut feasible_buckets: Vec<(BucketId, i64)> = Vec::new();
        // The counts of all feasible buckets, one after the other.
        let mut counts_by_bucket: Vec<Option<i64>> = Vec::new();
        for (id, bucket) in buckets.iter() {
            let first = counts_by_bucket.len();
            counts_by_bucket.extend(
                counts.iter().zip(&bucket.key[width..]).map(|(counts, component)| counts.count_for(*component)),
            );
            let here = &counts_by_bucket[first..];
            let mut domain_plugins = plan.domain_plugins.iter().filter(|plugin| plugin.filters);
            if domain_plugins.all(|plugin| {
                let watch = PluginWatch::start(timing);
                let fits = plugin.counting.filter(&here[plugin.range()], &summaries[plugin.range()]);
                watch.end(plugin.plugin, TimedPoint::Filter, if fits { Code::Success } else { Code::Unschedulable });
                fits
            }) {
                feasible_buckets.push((id, 0));
            } else {
                counts_by_bucket.truncate(first);
            }
        }
        for (i, normalized) in plan.normalized.iter().enumerate() {
            let watch = PluginWatch::start(timing);
            let raw = |id: BucketId| buckets.get(id).key[i];
            let highest = feasible_buckets.iter().map(|(id, _)| raw(*id)).max().unwrap_or(0).max(0);
            for (id, sum) in &mut feasible_buckets {
                *sum += normalized_by_highest(raw(*id), highest, normalized.reverse) * normalized.weight;
            }
            watch.end(normalized.plugin, TimedPoint::Normalize, Code::Success);
        }
        for plugin in plan.domain_plugins.iter().filter(|plugin| plugin.scores && plugin.counting.scores()) {
            let watch = PluginWatch::start(timing);
            add_domain_scores(plugin, counts, buckets, width, &mut feasible_buckets, &counts_by_bucket);
            watch.end(plugin.plugin, TimedPoint::Score, Code::Success);
        }
        feasible_buckets
    }

    /// The best node; none when no node is feasible.
    pub(super) fn best(&mut self, cx: &TimedCycle<'_>, ties: &mut TieBreak) -> Option<NodeId> {
        let cluster = cx.cluster;
        let feasible_buckets = self.feasible_buckets(cx.timing);
        let total = |(id, sum): &(BucketId, i64)| self.buckets.highest(*id).map(|(score, _)| score + sum);
        let highest = feasible_buckets.iter().filter_map(total).max()?;
        let mut best = feasible_buckets.iter().filter(|entry| total(entry) == Some(highest)).map(|(id, _)| *id);
        match ties {
            TieBreak::SmallestName => {
                let name = |node: &NodeId| &cluster.node_by_id(*node).expect("feasible nodes are there").name;
                best.flat_map(|id| self.buckets.best(id)).min_by_key(name)
            }
            TieBreak::Recorded { node: recorded, .. } => {
                let order = |node: &NodeId| {
                    let name = &cluster.node_by_id(*node).expect("feasible nodes are there").name;
                    (name != recorded, name)
                };
                best.flat_map(|id| self.buckets.best(id)).min_by_key(order)
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

    /// True when any node is feasible.
    pub(super) fn fits_somewhere(&mut self) -> bool {
        !self.feasible_buckets(None).is_empty()
    }

    /// All feasible nodes with their scores.
    pub(super) fn all(&mut self) -> Vec<(NodeId, i64)> {
        let feasible_buckets: FxHashMap<BucketId, i64> = self.feasible_buckets(None).into_iter().collect();
        let nodes = self.buckets.nodes();
        nodes
            .filter_map(|(node, bucket, score)| Some((node, i64::from(score) + feasible_buckets.get(&bucket)?)))
            .collect()
    }

    /// True when a node passes all cached filters.
    pub(super) fn is_feasible(&mut self, node: NodeId) -> bool {
        let Some(bucket) = self.buckets.bucket_of(node) else { return false };
        self.feasible_buckets(None).iter().any(|(id, _)| *id == bucket)
    }

    /// True when leaving out feasible nodes cannot change the order of the others: normalised scores are the same for
    /// all.
    pub(super) fn is_order_fixed(&mut self) -> bool {
        if self.plan.normalized.is_empty()
            && !self.plan.domain_plugins.iter().any(|plugin| plugin.scores && plugin.counting.scores())
        {
            return true;
        }
        let feasible_buckets = self.feasible_buckets(None);
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

    /// The nodes that pass all cached filters.
    pub(super) fn feasible(&mut self) -> Vec<NodeId> {
        self.all().into_iter().map(|(node, _)| node).collect()
    }
}

/// Adds the normalised scores of a plugin that counts by domain to the buckets.
fn add_domain_scores(
    plugin: &DomainPlugin,
    counts: &[DomainCounts],
    buckets: &Buckets,
    width: usize,
    feasible_buckets: &mut [(BucketId, i64)],
    counts_by_bucket: &[Option<i64>],
) {
    let here = |at: usize| &counts_by_bucket[at * counts.len()..][plugin.range()];
    let ignored = |at: usize| plugin.counting.ignores(here(at));
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
    let raw: Vec<Option<i64>> = (0..feasible_buckets.len())
        .map(|at| (!ignored(at)).then(|| plugin.counting.score(here(at), &feasible)))
        .collect();
    let (lowest, highest) = (raw.iter().flatten().min().copied(), raw.iter().flatten().max().copied());
    for ((_, sum), raw) in feasible_buckets.iter_mut().zip(raw) {
        let Some(raw) = raw else { continue };
        *sum += plugin.counting.normalize(raw, lowest.unwrap_or(0), highest.unwrap_or(0)) * plugin.weight;
    }
}

/// What a placed pod adds to which counts.
fn contributions(plugins: &[DomainPlugin], placed: &PodInfo) -> Result<Vec<(usize, i64)>, NotCacheable> {
    let mut all: Vec<(usize, i64)> = Vec::new();
    for plugin in plugins {
        let is_counted = plugin.counting.contributions(placed, &mut |count, by| {
            let count = plugin.first + count;
            match all.iter_mut().find(|(known, _)| *known == count) {
                Some((_, sum)) => *sum += by,
                None => all.push((count, by)),
            }
        });
        if !is_counted {
            return Err(NotCacheable);
        }
    }
    all.retain(|(_, by)| *by != 0);
    Ok(all)
}
