//! What is known about placing pods of one shape: verdicts and scores of all nodes, kept up to date.
//!
//! A board is built once with the plain per-node forms of the plugins, and from then on only what changed is asked again:
//! a node that changed, or whose pods did, and the nodes of a domain whose count changed.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::buckets::{BucketId, Buckets};
use super::counts::Counts;
use super::expected::Expected;
use super::plan::{Part, Plan};
use super::topology::Topologies;
use super::unfit::Unfit;
use super::usage::{Asked, Usage};
use crate::cluster::{Change, Cluster, KinId, NodeId, NodeInfo, PodInfo};
use crate::cycle::select::TieBreak;
use crate::framework::{Cycle, CycleStates, Feasible, MAX_NODE_SCORE, Tally, normalized_by_highest};
use crate::profile::Profile;

/// Why a board cannot be used for a pod; the plain form can.
pub(super) struct Unsuited;

/// Verdicts and scores of all nodes for pods of one shape.
pub(super) struct Board {
    pub(super) pod: Arc<PodInfo>,
    pub(super) plan: Plan,
    pub(super) states: CycleStates,
    counts: Vec<Counts>,
    /// By kin, ascending: what one pod of it adds to which count. Most kins add nothing to any, and are left out.
    kins: Vec<(KinId, Weights)>,
    /// The first kin that has not been weighed.
    kins_seen: KinId,
    /// Scores that are normalised, before that: as many per node as the plan has.
    raw: Vec<i32>,
    /// The parts of nodes' scores that only change with the nodes; empty when the plan has none.
    base: Vec<i32>,
    /// The nodes that pass all filters but those that count, by key and by the scores that are not normalised.
    buckets: Buckets,
    seen: u64,
    key: Vec<i64>,
    usage: Usage,
    /// Nodes whose keys may have changed.
    stale: Vec<NodeId>,
    /// The nodes there were when it was decided how domains are told apart.
    built_for: usize,
    /// Nodes that are out of the choice whether they fit or not, with the scores of those that do.
    hidden: FxHashMap<NodeId, Option<i32>>,
    /// Where nominated pods are in the way.
    pub(super) expected: Expected,
    /// Why pods of this shape fit nowhere, if that was ever asked.
    pub(super) unfit: Option<Box<Unfit>>,
}

/// What one pod adds to which count.
type Weights = Box<[(usize, i64)]>;

/// What all boards share.
#[derive(Default)]
pub(super) struct Common {
    /// Where nodes are.
    pub(super) topologies: Topologies,
    asked: Asked,
}

/// A board is built anew when there are this many times more nodes than it was built for.
const GROWTH: usize = 2;

/// How many nodes are judged at once when a board is built: what is asked of them stays in the cache.
const TOGETHER: usize = 256;

/// Weights of kins that may be kept beyond need: every rollout brings a kin, and looking for old ones costs a walk over all.
const KINS_SPARE: usize = 64;

impl Board {
    pub(super) fn build(
        profile: &Profile,
        cx: &Cycle<'_>,
        mut plan: Plan,
        pod: Arc<PodInfo>,
        common: &mut Common,
    ) -> Result<Self, Unsuited> {
        let cluster = cx.cluster;
        let mut states = CycleStates::new(profile.plugins());
        let skipped = plan.prepare(profile, cx, &mut states)?;
        plan.without(&skipped);
        let scopes = plan.parts.iter().flat_map(|part| part.form.scopes());
        let counts = scopes.map(|scope| Counts::new(scope, cluster, &mut common.topologies));
        let mut board = Board {
            pod,
            states,
            counts: counts.collect(),
            plan,
            kins: Vec::new(),
            kins_seen: KinId::FIRST,
            raw: Vec::new(),
            base: Vec::new(),
            buckets: Buckets::default(),
            seen: cluster.changes().end(),
            key: Vec::new(),
            usage: Usage::default(),
            stale: Vec::new(),
            built_for: cluster.node_count(),
            hidden: FxHashMap::default(),
            expected: Expected::default(),
            unfit: None,
        };
        for (at, skip) in board.states.skip_filter.iter_mut().enumerate() {
            *skip = !board.plan.node_filters.contains(&at) && !board.plan.usage_filters.contains(&at);
        }
        board.usage = Usage::new(&board.plan, &board.states);
        board.fill(cx, common)?;
        Ok(board)
    }

    fn fill(&mut self, cx: &Cycle<'_>, common: &mut Common) -> Result<(), Unsuited> {
        let cluster = cx.cluster;
        let Common { topologies, asked } = common;
        // A board that gave up may have left some.
        asked.nodes.clear();
        self.resize(cluster.places(), topologies);
        if !self.weigh_new_kins(cluster) {
            return Err(Unsuited);
        }
        for (kin, weights) in &self.kins {
            let nodes = cluster.kinships().get(*kin).into_iter().flat_map(|kin| &kin.nodes);
            for (node, pods) in nodes {
                for (count, by) in weights {
                    self.counts[*count].add(*node, by * i64::from(*pods), topologies, &mut |_| {});
                }
            }
        }
        for place in 0..cluster.places() {
            let node = NodeId(place as u32);
            self.seat(cluster, node, topologies);
        }
        self.stale.clear();
        for place in 0..cluster.places() {
            let node = NodeId(place as u32);
            if self.judge_object(cx, node)? {
                asked.nodes.push(node);
            }
            if asked.nodes.len() == TOGETHER || place + 1 == cluster.places() {
                self.judge_usage(cx, asked, true)?;
            }
        }
        Ok(())
    }

    fn resize(&mut self, places: usize, topologies: &Topologies) {
        self.counts.iter_mut().for_each(|counts| counts.reserve(places, topologies));
        self.buckets.reserve(places);
        let raws = places * self.plan.normalized.len();
        if self.raw.len() < raws {
            self.raw.resize(raws, 0);
        }
        if !self.plan.node_scores.is_empty() && self.base.len() < places {
            self.base.resize(places, 0);
        }
    }

    /// Takes in what happened since the board was last looked at; false when it must be built anew.
    pub(super) fn catch_up(&mut self, cx: &Cycle<'_>, common: &mut Common) -> Result<bool, Unsuited> {
        let cluster = cx.cluster;
        if cluster.node_count() > self.built_for.max(1) * GROWTH && !self.counts.is_empty() {
            return Ok(false);
        }
        let end = cluster.changes().end();
        if end == self.seen {
            return Ok(true);
        }
        let Some(changes) = cluster.changes().since(self.seen) else { return Ok(false) };
        let Common { topologies, asked } = common;
        // A board that gave up may have left some.
        asked.nodes.clear();
        self.resize(cluster.places(), topologies);
        if !self.weigh_new_kins(cluster) {
            return Ok(false);
        }
        let mut changed = Vec::new();
        // Most pods are of no kin of ours: a shape counts a kin or two.
        let own = self.kins.first().map_or(KinId::FIRST, |(kin, _)| *kin)
            ..=self.kins.last().map_or(KinId::FIRST, |(kin, _)| *kin);
        changes.for_each(|(change, is_latest)| match change {
            Change::Node(node) => {
                changed.push(node);
                self.seat(cluster, node, topologies);
            }
            Change::Pod { node, kin, by } => {
                if own.contains(&kin) {
                    self.count(node, kin, by, topologies);
                }
                if is_latest {
                    asked.nodes.push(node);
                }
            }
        });
        let mut fitting = Vec::with_capacity(changed.len());
        for node in changed {
            if self.judge_object(cx, node)? {
                fitting.push(node);
            }
        }
        asked.nodes.retain(|node| !self.buckets.is_barred(*node));
        self.judge_usage(cx, asked, false)?;
        asked.nodes.extend(fitting);
        self.judge_usage(cx, asked, true)?;
        let mut stale = std::mem::take(&mut self.stale);
        stale.drain(..).for_each(|node| self.resort(node));
        self.stale = stale;
        self.seen = end;
        self.forget_kins(cluster);
        Ok(true)
    }

    /// Finds out what pods of kins add to the counts that came since; false when it is under a label nobody knew of.
    ///
    /// A kin that came and went unseen has come to nothing.
    fn weigh_new_kins(&mut self, cluster: &Cluster) -> bool {
        let (from, end) = (self.kins_seen, cluster.kinships().end());
        self.kins_seen = end;
        if from == end || self.plan.parts.is_empty() {
            return true;
        }
        for kin in cluster.kinships().between(from, end) {
            match weigh(&self.plan.parts, &kin.pod) {
                None => return false,
                Some(weights) if weights.is_empty() => {}
                Some(weights) => self.kins.push((kin.id, weights.into())),
            }
        }
        self.kins.sort_unstable_by_key(|(kin, _)| *kin);
        true
    }

    /// Drops the weights of kins that are placed nowhere any more; all of theirs has been taken back by now.
    fn forget_kins(&mut self, cluster: &Cluster) {
        if self.kins.len() > 2 * cluster.kinships().len() + KINS_SPARE {
            self.kins.retain(|(kin, _)| cluster.kinships().get(*kin).is_some());
        }
    }

    /// Accounts for a pod that came or went.
    fn count(&mut self, node: NodeId, kin: KinId, by: i64, topologies: &Topologies) {
        let Board { kins, counts, stale, .. } = self;
        let Ok(known) = kins.binary_search_by_key(&kin, |(kin, _)| *kin) else { return };
        for (count, weight) in &kins[known].1 {
            counts[*count].add(node, weight * by, topologies, &mut |node| stale.push(node));
        }
    }

    /// Takes over where a node stands in all counts.
    fn seat(&mut self, cluster: &Cluster, node: NodeId, topologies: &Topologies) {
        let Board { counts, stale, plan, .. } = self;
        let object = cluster.node_by_id(node).map(NodeInfo::node);
        for part in &plan.parts {
            for i in 0..part.form.scopes().len() {
                let included = object.is_some_and(|object| part.form.includes(i, object));
                counts[part.first + i].set_node(node, included, topologies, &mut |node| stale.push(node));
            }
        }
    }

    /// Asks the plugins that read the node object alone; false when the node is out of the question.
    fn judge_object(&mut self, cx: &Cycle<'_>, id: NodeId) -> Result<bool, Unsuited> {
        let of_shape = &Cycle { pod: &self.pod, ..*cx };
        let passing = match cx.cluster.node_by_id(id) {
            Some(node) if passes(&self.states, &self.plan.node_filters, of_shape, node)? => node,
            _ => {
                self.buckets.bar(id, true);
                self.note_unfit(id);
                return Ok(false);
            }
        };
        self.buckets.bar(id, false);
        let at = id.0 as usize;
        if let Some(base) = self.base.get_mut(at) {
            *base = to_small(sum(&self.states, &self.plan.node_scores, of_shape, passing)?)?;
        }
        let width = self.plan.normalized.len();
        for (i, normalized) in self.plan.normalized.iter().enumerate().filter(|(_, n)| !n.usage) {
            self.raw[at * width + i] = raw(&self.states, normalized.plugin, of_shape, passing)?;
        }
        Ok(true)
    }

    /// Asks the plugins that read what the pods on the nodes take, and puts the nodes where they belong.
    fn judge_usage(&mut self, cx: &Cycle<'_>, asked: &mut Asked, are_keys_new: bool) -> Result<(), Unsuited> {
        let pod = self.pod.clone();
        let cx = &Cycle { pod: &pod, ..*cx };
        self.usage.judge(cx, &self.states, asked)?;
        for (node, sum) in asked.nodes.drain(..).zip(&asked.sums) {
            let Some(sum) = sum else {
                self.buckets.remove(node);
                self.note_unfit(node);
                continue;
            };
            let score = to_small(sum.saturating_add(self.base.get(node.0 as usize).copied().unwrap_or(0).into()))?;
            if self.plan.usage_in_keys {
                self.judge_raw_usage(cx, node)?;
            }
            if are_keys_new || self.plan.usage_in_keys || !self.buckets.rescore(node, score) {
                self.sort(node, score);
            }
        }
        Ok(())
    }

    /// Asks the plugins that read usage and whose scores are normalised.
    fn judge_raw_usage(&mut self, cx: &Cycle<'_>, id: NodeId) -> Result<(), Unsuited> {
        let node = cx.cluster.node_by_id(id).ok_or(Unsuited)?;
        let width = self.plan.normalized.len();
        for (i, normalized) in self.plan.normalized.iter().enumerate().filter(|(_, n)| n.usage) {
            self.raw[id.0 as usize * width + i] = raw(&self.states, normalized.plugin, cx, node)?;
        }
        Ok(())
    }

    /// Whether a changed copy of a node passes the filters that read usage.
    pub(super) fn passes_usage(&self, cx: &Cycle<'_>, node: &NodeInfo) -> Result<bool, Unsuited> {
        passes(&self.states, &self.plan.usage_filters, &Cycle { pod: &self.pod, ..*cx }, node)
    }

    /// Notes that a node does not fit (any more), if it is hidden.
    fn note_unfit(&mut self, node: NodeId) {
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
        self.key.extend(self.counts.iter().map(|counts| counts.component(node)));
        self.buckets.put(node, &self.key, score);
    }

    /// Takes a node out of the choice until [`Board::show`].
    pub(super) fn hide(&mut self, node: NodeId) {
        let Board { hidden, buckets, .. } = self;
        hidden.entry(node).or_insert_with(|| buckets.score(node));
        buckets.remove(node);
    }

    /// Takes a node into the choice again.
    pub(super) fn show(&mut self, node: NodeId) {
        if let Some(score) = self.hidden.remove(&node).flatten() {
            self.sort(node, score);
        }
    }

    /// Puts a node where it belongs by now, if it fits.
    fn resort(&mut self, node: NodeId) {
        if let Some(score) = self.buckets.score(node) {
            self.sort(node, score);
        }
    }

    /// The buckets whose nodes pass all filters, with what normalised scores add to their nodes' own.
    pub(super) fn live(&mut self) -> Vec<(BucketId, i64)> {
        let tallies: Vec<Tally> = self.counts.iter_mut().map(Counts::tally).collect();
        let Board { plan, counts, buckets, .. } = self;
        let width = plan.normalized.len();
        let mut live: Vec<(BucketId, i64)> = Vec::new();
        // The counts of all live buckets, one after the other.
        let mut heres: Vec<Option<i64>> = Vec::new();
        for (id, bucket) in buckets.iter() {
            let first = heres.len();
            heres.extend(counts.iter().zip(&bucket.key[width..]).map(|(counts, component)| counts.here(*component)));
            let here = &heres[first..];
            let mut parts = plan.parts.iter().filter(|part| part.filters);
            if parts.all(|part| part.form.filter(&here[part.range()], &tallies[part.range()])) {
                live.push((id, 0));
            } else {
                heres.truncate(first);
            }
        }
        for (i, normalized) in plan.normalized.iter().enumerate() {
            let raw = |id: BucketId| buckets.get(id).key[i];
            let highest = live.iter().map(|(id, _)| raw(*id)).max().unwrap_or(0).max(0);
            for (id, sum) in &mut live {
                *sum += normalized_by_highest(raw(*id), highest, normalized.reverse) * normalized.weight;
            }
        }
        for part in plan.parts.iter().filter(|part| part.scores && part.form.scores()) {
            score_part(part, counts, buckets, width, &mut live, &heres);
        }
        live
    }

    /// The best node; none when there is no feasible one.
    pub(super) fn best(&mut self, cluster: &Cluster, ties: &mut TieBreak) -> Option<NodeId> {
        let live = self.live();
        let total = |(id, sum): &(BucketId, i64)| self.buckets.highest(*id).map(|(score, _)| score + sum);
        let highest = live.iter().filter_map(total).max()?;
        let mut best = live.iter().filter(|entry| total(entry) == Some(highest)).map(|(id, _)| *id);
        match ties {
            TieBreak::SmallestName => {
                let name = |node: &NodeId| &cluster.node_by_id(*node).expect("feasible nodes are there").name;
                best.flat_map(|id| self.buckets.best(id)).min_by_key(name)
            }
            TieBreak::Random(dice) => {
                let nodes = |id: BucketId| self.buckets.highest(id).map_or(0, |(_, nodes)| nodes);
                let mut at = dice.below(best.clone().map(nodes).sum());
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
        let live: FxHashMap<BucketId, i64> = self.live().into_iter().collect();
        let nodes = self.buckets.nodes();
        nodes.filter_map(|(node, bucket, score)| Some((node, i64::from(score) + live.get(&bucket)?))).collect()
    }

    /// Whether a node passes all filters as it is.
    pub(super) fn is_feasible(&mut self, node: NodeId) -> bool {
        let Some(bucket) = self.buckets.bucket_of(node) else { return false };
        self.live().iter().any(|(id, _)| *id == bucket)
    }

    /// Whether the order of the feasible nodes stays the same whichever of them are left out.
    pub(super) fn is_order_fixed(&mut self) -> bool {
        if self.plan.normalized.is_empty() && !self.plan.parts.iter().any(|part| part.scores && part.form.scores()) {
            return true;
        }
        let live = self.live();
        let Some((first, _)) = live.first() else { return true };
        let width = self.plan.normalized.len();
        let values = |id: BucketId| {
            let key = &self.buckets.get(id).key;
            let here = self.counts.iter().zip(&key[width..]).map(|(counts, component)| counts.here(*component));
            key[..width].iter().map(|raw| Some(*raw)).chain(here).collect::<Vec<_>>()
        };
        let first = values(*first);
        live.iter().all(|(id, _)| values(*id) == first)
    }

    /// The nodes that pass the filters.
    pub(super) fn feasible(&mut self) -> Vec<NodeId> {
        self.all().into_iter().map(|(node, _)| node).collect()
    }
}

/// Adds what one plugin thinks of each bucket, normalised.
fn score_part(
    part: &Part,
    counts: &[Counts],
    buckets: &Buckets,
    width: usize,
    live: &mut [(BucketId, i64)],
    heres: &[Option<i64>],
) {
    let here = |at: usize| &heres[at * counts.len()..][part.range()];
    let ignored = |at: usize| part.form.ignores(here(at));
    let mut feasible = Feasible { nodes: 0, domains: vec![0; part.range().len()] };
    let mut seen: Vec<i64> = Vec::new();
    for (i, count) in part.range().enumerate().filter(|(_, count)| counts[*count].is_distinct()) {
        seen.clear();
        let counted = live.iter().enumerate().filter(|(at, _)| !ignored(*at));
        seen.extend(counted.map(|(_, (id, _))| buckets.get(*id).key[width + count]));
        seen.sort_unstable();
        seen.dedup();
        feasible.domains[i] = seen.len();
    }
    let counted = live.iter().enumerate().filter(|(at, _)| !ignored(*at));
    feasible.nodes = counted.map(|(_, (id, _))| buckets.get(*id).nodes).sum();
    let raw: Vec<Option<i64>> =
        (0..live.len()).map(|at| (!ignored(at)).then(|| part.form.score(here(at), &feasible))).collect();
    let (lowest, highest) = (raw.iter().flatten().min().copied(), raw.iter().flatten().max().copied());
    for ((_, sum), raw) in live.iter_mut().zip(raw) {
        let Some(raw) = raw else { continue };
        *sum += part.form.normalize(raw, lowest.unwrap_or(0), highest.unwrap_or(0)) * part.weight;
    }
}

fn weigh(parts: &[Part], other: &PodInfo) -> Option<Vec<(usize, i64)>> {
    let mut weights: Vec<(usize, i64)> = Vec::new();
    for part in parts {
        let known =
            part.form.weigh(other, &mut |count, by| match weights.iter_mut().find(|w| w.0 == part.first + count) {
                Some(weight) => weight.1 += by,
                None => weights.push((part.first + count, by)),
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
) -> Result<bool, Unsuited> {
    for &plugin in filters {
        let status = states.get(plugin).filter(cx, node);
        if status.is_rejected() {
            return Ok(false);
        }
        if !status.is_success() {
            return Err(Unsuited);
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
) -> Result<i64, Unsuited> {
    let mut sum = 0i64;
    for &(plugin, weight) in scores {
        let score = states.get(plugin).score(cx, node).map_err(|_| Unsuited)?;
        if !(0..=MAX_NODE_SCORE).contains(&score) {
            return Err(Unsuited);
        }
        sum = sum.saturating_add(score.saturating_mul(weight));
    }
    Ok(sum)
}

/// A score before normalisation; one below 0 is an error that the plain form tells.
fn raw(states: &CycleStates, plugin: usize, cx: &Cycle<'_>, node: &NodeInfo) -> Result<i32, Unsuited> {
    to_small(states.get(plugin).score(cx, node).map_err(|_| Unsuited)?)
}

/// Scores are kept for every node of every shape, so half the bytes are worth leaving strange weights to the plain form.
pub(super) fn to_small(score: i64) -> Result<i32, Unsuited> {
    i32::try_from(score).ok().filter(|score| *score >= 0).ok_or(Unsuited)
}
