//! What is known about placing pods of one shape: verdicts and scores of all nodes, kept up to date.
//!
//! A board is built once with the plain per-node forms of the plugins, and from then on only what changed is asked again:
//! a node that changed, or whose pods did, and the nodes of a domain whose count changed.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::buckets::{BucketId, Buckets};
use super::counts::Counts;
use super::plan::{Part, Plan};
use super::unfit::Unfit;
use crate::cluster::{Change, Cluster, KinId, NodeId, NodeInfo, PodInfo};
use crate::cycle::select::TieBreak;
use crate::framework::{Cycle, CycleStates, Feasible, MAX_NODE_SCORE, Tally, normalized_by_highest};
use crate::profile::Profile;

/// What is known of one node.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    /// The filters that read the node object let it pass.
    node_ok: bool,
    /// So do those that read its usage.
    usage_ok: bool,
    /// Scores that depend on the node object alone, weighted.
    node_score: i64,
    /// Scores that depend on its usage, too.
    usage_score: i64,
    /// The latest round in which it was looked at.
    round: u32,
}

/// Why a board cannot be used for a pod; the plain form can.
pub(super) struct Unsuited;

/// Verdicts and scores of all nodes for pods of one shape.
pub(super) struct Board {
    pub(super) pod: Arc<PodInfo>,
    pub(super) plan: Plan,
    pub(super) states: CycleStates,
    counts: Vec<Counts>,
    /// By kin: what one pod of it adds to which count.
    kins: FxHashMap<KinId, Box<[(usize, i64)]>>,
    cells: Vec<Cell>,
    /// Scores that are normalised, before that: as many per node as the plan has.
    raw: Vec<i64>,
    buckets: Buckets,
    seen: u64,
    round: u32,
    key: Vec<i64>,
    touched: Vec<NodeId>,
    stale: Vec<NodeId>,
    /// The nodes there were when it was decided how domains are told apart.
    built_for: usize,
    /// Why pods of this shape fit nowhere, if that was ever asked.
    pub(super) unfit: Option<Box<Unfit>>,
}

/// A board is built anew when there are this many times more nodes than it was built for.
const GROWTH: usize = 2;

/// Weights of kins that may be kept beyond need: every rollout brings a kin, and looking for old ones costs a walk over all.
const KINS_SPARE: usize = 64;

impl Board {
    pub(super) fn build(profile: &Profile, cx: &Cycle<'_>, mut plan: Plan) -> Result<Self, Unsuited> {
        let cluster = cx.cluster;
        let mut states = CycleStates::new(profile.plugins());
        let skipped = plan.prepare(profile, cx, &mut states)?;
        plan.without(&skipped);
        let scopes = plan.parts.iter().flat_map(|part| part.form.scopes());
        let counts = scopes.map(|scope| {
            let labels = cluster.nodes().filter_map(|node| node.label(scope.label()));
            Counts::new(scope, cluster.node_count(), labels)
        });
        let mut board = Board {
            pod: Arc::new(cx.pod.clone()),
            states,
            counts: counts.collect(),
            plan,
            kins: FxHashMap::default(),
            cells: Vec::new(),
            raw: Vec::new(),
            buckets: Buckets::default(),
            seen: cluster.changes().end(),
            round: 0,
            key: Vec::new(),
            touched: Vec::new(),
            stale: Vec::new(),
            built_for: cluster.node_count(),
            unfit: None,
        };
        for (at, skip) in board.states.skip_filter.iter_mut().enumerate() {
            *skip = !board.plan.node_filters.contains(&at) && !board.plan.usage_filters.contains(&at);
        }
        board.fill(cx)?;
        Ok(board)
    }

    fn fill(&mut self, cx: &Cycle<'_>) -> Result<(), Unsuited> {
        let cluster = cx.cluster;
        self.resize(cluster.places());
        if !self.plan.parts.is_empty() {
            for kin in cluster.kinships().iter() {
                let weights = weigh(&self.plan.parts, &kin.pod).ok_or(Unsuited)?;
                for (node, pods) in &kin.nodes {
                    for (count, by) in &weights {
                        self.counts[*count].add(*node, by * i64::from(*pods), &mut |_| {});
                    }
                }
                self.kins.insert(kin.id, weights.into());
            }
        }
        for place in 0..cluster.places() {
            let node = NodeId(place as u32);
            self.seat(cluster, node);
        }
        self.stale.clear();
        for place in 0..cluster.places() {
            let node = NodeId(place as u32);
            self.judge_node(cx, node)?;
            self.judge_usage(cx, node)?;
            self.sort(node);
        }
        Ok(())
    }

    fn resize(&mut self, places: usize) {
        if self.cells.len() < places {
            self.cells.resize(places, Cell::default());
            self.raw.resize(places * self.plan.normalized.len(), 0);
            self.buckets.reserve(places);
        }
    }

    /// Takes in what happened since the board was last looked at; false when it must be built anew.
    pub(super) fn catch_up(&mut self, cx: &Cycle<'_>) -> Result<bool, Unsuited> {
        let cluster = cx.cluster;
        if cluster.node_count() > self.built_for.max(1) * GROWTH && !self.counts.is_empty() {
            return Ok(false);
        }
        let end = cluster.changes().end();
        if end == self.seen {
            return Ok(true);
        }
        let Some(changes) = cluster.changes().since(self.seen) else { return Ok(false) };
        self.resize(cluster.places());
        self.round = self.round.wrapping_add(1);
        let mut touched = std::mem::take(&mut self.touched);
        let mut nodes_changed = Vec::new();
        for change in changes {
            let node = match change {
                Change::Node(node) => {
                    nodes_changed.push(node);
                    self.seat(cluster, node);
                    node
                }
                Change::Pod { node, kin, by } => {
                    if !self.plan.parts.is_empty() && !self.count(cluster, node, kin, by) {
                        return Ok(false);
                    }
                    node
                }
            };
            let cell = &mut self.cells[node.0 as usize];
            if cell.round != self.round {
                cell.round = self.round;
                touched.push(node);
            }
        }
        for node in nodes_changed {
            self.judge_node(cx, node)?;
        }
        for node in touched.drain(..) {
            self.judge_usage(cx, node)?;
            self.sort(node);
        }
        self.touched = touched;
        let mut stale = std::mem::take(&mut self.stale);
        for node in stale.drain(..) {
            self.sort(node);
        }
        self.stale = stale;
        self.seen = end;
        self.forget_kins(cluster);
        Ok(true)
    }

    /// Drops the weights of kins that are placed nowhere any more; all of theirs has been taken back by now.
    fn forget_kins(&mut self, cluster: &Cluster) {
        if self.kins.len() > 2 * cluster.kinships().len() + KINS_SPARE {
            self.kins.retain(|kin, _| cluster.kinships().get(*kin).is_some());
        }
    }

    /// Accounts for a pod that came or went; false when it counts under a label nobody knew of.
    fn count(&mut self, cluster: &Cluster, node: NodeId, kin: KinId, by: i64) -> bool {
        let Board { kins, counts, stale, plan, .. } = self;
        let weights = match kins.entry(kin) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(new) => {
                // A kin that came and went unseen has come to nothing.
                let Some(kin) = cluster.kinships().get(kin) else { return true };
                let Some(weights) = weigh(&plan.parts, &kin.pod) else { return false };
                new.insert(weights.into())
            }
        };
        for (count, weight) in weights.iter() {
            counts[*count].add(node, weight * by, &mut |node| stale.push(node));
        }
        true
    }

    /// Takes over where a node stands in all counts.
    fn seat(&mut self, cluster: &Cluster, node: NodeId) {
        let Board { counts, stale, plan, .. } = self;
        let object = cluster.node_by_id(node).map(NodeInfo::node);
        for part in &plan.parts {
            for i in 0..part.form.scopes().len() {
                let included = object.is_some_and(|object| part.form.includes(i, object));
                counts[part.first + i].set_node(node, object, included, &mut |node| stale.push(node));
            }
        }
    }

    /// Asks the plugins that read the node object.
    fn judge_node(&mut self, cx: &Cycle<'_>, id: NodeId) -> Result<(), Unsuited> {
        let cx = &Cycle { pod: &self.pod, ..*cx };
        let cell = &mut self.cells[id.0 as usize];
        let Some(node) = cx.cluster.node_by_id(id) else {
            cell.node_ok = false;
            return Ok(());
        };
        cell.node_ok = passes(&self.states, &self.plan.node_filters, cx, node)?;
        if !cell.node_ok {
            return Ok(());
        }
        cell.node_score = sum(&self.states, &self.plan.node_scores, cx, node)?;
        let width = self.plan.normalized.len();
        for (i, normalized) in self.plan.normalized.iter().enumerate().filter(|(_, n)| !n.usage) {
            self.raw[id.0 as usize * width + i] = raw(&self.states, normalized.plugin, cx, node)?;
        }
        Ok(())
    }

    /// Asks the plugins that read what the pods on the node take.
    fn judge_usage(&mut self, cx: &Cycle<'_>, id: NodeId) -> Result<(), Unsuited> {
        let cx = &Cycle { pod: &self.pod, ..*cx };
        let cell = &mut self.cells[id.0 as usize];
        let Some(node) = cx.cluster.node_by_id(id).filter(|_| cell.node_ok) else {
            cell.usage_ok = false;
            return Ok(());
        };
        cell.usage_ok = passes(&self.states, &self.plan.usage_filters, cx, node)?;
        if !cell.usage_ok {
            return Ok(());
        }
        cell.usage_score = sum(&self.states, &self.plan.usage_scores, cx, node)?;
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

    /// Puts a node into the bucket it belongs to.
    fn sort(&mut self, node: NodeId) {
        let at = node.0 as usize;
        let Cell { node_ok, usage_ok, node_score, usage_score, .. } = self.cells[at];
        if !node_ok || !usage_ok {
            self.buckets.take(node);
            return;
        }
        let width = self.plan.normalized.len();
        self.key.clear();
        self.key.extend_from_slice(&self.raw[at * width..(at + 1) * width]);
        self.key.extend(self.counts.iter().map(|counts| counts.component(node)));
        self.buckets.put(node, &self.key, node_score + usage_score);
    }

    /// Takes a node out of the choice until [`Board::show`].
    pub(super) fn hide(&mut self, node: NodeId) {
        self.buckets.take(node);
    }

    /// Takes a node into the choice again.
    pub(super) fn show(&mut self, node: NodeId) {
        self.sort(node);
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
        let total = |(id, sum): &(BucketId, i64)| self.buckets.get(*id).best().map(|(score, _)| score + sum);
        let highest = live.iter().filter_map(total).max()?;
        let best = live.iter().filter(|entry| total(entry) == Some(highest));
        let levels: Vec<&[NodeId]> =
            best.filter_map(|(id, _)| self.buckets.get(*id).best().map(|(_, nodes)| nodes)).collect();
        ties.choose_of(&levels, |node| &cluster.node_by_id(*node).expect("feasible nodes are there").name)
    }

    /// All feasible nodes with their scores: what tests compare with the plain form.
    pub(super) fn all(&mut self) -> Vec<(NodeId, i64)> {
        let live = self.live();
        let nodes = live
            .iter()
            .flat_map(|(id, sum)| self.buckets.get(*id).iter().map(move |(score, node)| (node, score + sum)));
        nodes.collect()
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
fn passes(states: &CycleStates, filters: &[usize], cx: &Cycle<'_>, node: &NodeInfo) -> Result<bool, Unsuited> {
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

fn sum(states: &CycleStates, scores: &[(usize, i64)], cx: &Cycle<'_>, node: &NodeInfo) -> Result<i64, Unsuited> {
    let mut sum = 0i64;
    for &(plugin, weight) in scores {
        let score = states.get(plugin).score(cx, node).map_err(|_| Unsuited)?;
        if !(0..=MAX_NODE_SCORE).contains(&score) {
            return Err(Unsuited);
        }
        sum = sum.saturating_add(score * weight);
    }
    Ok(sum)
}

/// A score before normalisation; one below 0 is an error that the plain form tells.
fn raw(states: &CycleStates, plugin: usize, cx: &Cycle<'_>, node: &NodeInfo) -> Result<i64, Unsuited> {
    states.get(plugin).score(cx, node).ok().filter(|score| *score >= 0).ok_or(Unsuited)
}
