//! The decision engine: the same answers as the plain cycle, by recomputing only what changed.
//!
//! ```text
//!   pod ─▶ survey: what does each plugin read of this pod? ─ anything ─▶ plain cycle
//!            │ nodes, usage, domains
//!            ▼
//!          board of the pod's shape ◀─ changes of nodes and pods since it was last used
//!            │ buckets of feasible nodes
//!            ▼
//!          filters that read anything (volumes, devices), best node first
//! ```
//!
//! A [`Board`] keeps verdicts and scores for pods of one shape. Whatever a board cannot answer exactly, it leaves to the
//! plain cycle, which stays the truth for tests and explanations.

mod board;
mod buckets;
mod counts;
mod expected;
mod plan;
mod stale;
mod topology;
mod unfit;
mod usage;

use std::sync::Arc;

use jiff::Timestamp;
use rustc_hash::FxHashMap;

use crate::cluster::{Cluster, NodeId, NodeInfo, PodInfo};
use crate::cycle::filter::Filters;
use crate::cycle::post_filter;
use crate::cycle::select::TieBreak;
use crate::framework::{Code, Cycle, CycleStates, InCycle, Points, PostFilter};
use crate::profile::Profile;
use crate::queue::Nominator;
use board::{Board, Common};
use plan::{Plan, Survey};
pub(crate) use unfit::{Known, Unfit};

/// Most cells (nodes times shapes) that are kept: with 8 to 40 bytes each, by how much is counted, a gigabyte or less as a rule.
const CELLS_MAX: usize = 1 << 25;

/// A shape that no board suits is left to the plain cycle until this many changes later.
const UNSUITED_FOR: u64 = 1000;

/// Labels that may be kept in topologies. Nobody means as many; who tries out keys starts anew once in a while.
const LABELS_MAX: usize = 256;

/// Boards of one profile, by the hash of their shape.
#[derive(Default)]
pub struct Engine {
    shapes: FxHashMap<u64, Vec<Shape>>,
    common: Common,
    clock: u64,
    count: usize,
}

struct Shape {
    pod: Arc<PodInfo>,
    used: u64,
    kept: Kept,
}

enum Kept {
    Board(Box<Board>),
    /// Not before the cluster's changes reach this.
    Unsuited(u64),
}

/// What is to be decided, and on which grounds.
#[derive(Clone, Copy)]
pub struct Question<'a> {
    /// The plugins.
    pub profile: &'a Profile,
    /// The cluster.
    pub cluster: &'a Cluster,
    /// Who is expected where.
    pub nominator: &'a Nominator,
    /// The pod.
    pub pod: &'a PodInfo,
    /// The time.
    pub now: Timestamp,
}

/// Where a pod goes.
pub(crate) enum Verdict {
    /// To this node, with the states that Reserve and the later points need.
    Node(Arc<str>, CycleStates),
    /// Nowhere; the plain cycle says why.
    Nowhere,
}

impl<'a> Question<'a> {
    fn cycle(&self) -> Cycle<'a> {
        Cycle { pod: self.pod, cluster: self.cluster, now: self.now }
    }
}

impl Engine {
    /// Decides where a pod goes; none when only the plain cycle can tell.
    pub(crate) fn decide(&mut self, question: Question<'_>, ties: &mut TieBreak) -> Option<Verdict> {
        let Question { profile, cluster, pod, .. } = question;
        let cx = question.cycle();
        let survey = Survey::of(profile, &cx)?;
        let late = Late::prepare(&question, &survey.late)?;
        let board = self.board(&question, survey)?;
        board.heed_nominated(&question, &late)?;
        let own = cluster.node(&pod.status.nominated_node_name).map(|node| node.id);
        let chosen = match own.filter(|node| board.is_feasible(*node)) {
            Some(own) if late.pass(&cx, cluster.node_by_id(own)?) == Some(true) => Some(Some(own)),
            _ => choose(board, &cx, &late, ties),
        };
        let states = |board: &Board| late.states_for_reserve(profile, board);
        chosen.map(|chosen| match chosen.and_then(|node| cluster.node_by_id(node)) {
            Some(node) => Verdict::Node(node.name.clone(), states(board)),
            None => Verdict::Nowhere,
        })
    }

    /// Why a pod that fits nowhere does not, and what PostFilter makes of it; none when only the plain cycle can tell.
    pub(crate) fn explain(&mut self, question: Question<'_>, ties: &mut TieBreak) -> Option<(&Unfit, PostFilter)> {
        let Question { profile, nominator, pod, .. } = question;
        let cycle = question.cycle();
        let survey = Survey::of(profile, &cycle)?;
        // A nominated pod is not in its own way, so it sees its node as no other pod of the shape does.
        if !survey.late.is_empty() || nominator.node_of(pod.uid()).is_some() || pod.is_nominated() {
            return None;
        }
        let helpless_together = survey.helpless_together;
        let board = self.board(&question, survey)?;
        if board.plan.counts_in_filters() {
            return None;
        }
        let mut unfit = board.unfit.take().unwrap_or_default();
        unfit.catch_up(board, &question).ok()?;
        let unfit = board.unfit.insert(unfit);
        if let Some(known) = unfit.helpless.clone() {
            unfit.diagnosis.post_filter_message = known.status.message();
            return Some((unfit, known));
        }
        let mut states = board.states.clone();
        for &at in profile.at(Points::POST_FILTER) {
            if profile.points_of(at).has(Points::PRE_FILTER) {
                states.get_mut(at).pre_filter(&cycle);
            }
        }
        let filters = Filters::new(profile, cycle, nominator);
        let answer = post_filter(&filters, &states, &mut unfit.diagnosis, Some(&unfit.known), ties.roll());
        if helpless_together && answer.preemption.is_none() && answer.calls.is_empty() {
            unfit.helpless = Some(answer.clone());
        }
        Some((unfit, answer))
    }

    /// Why a pod fits nowhere, as the user is told, and what PostFilter answers when it begins at the first node; none when
    /// the pod fits somewhere or only the plain cycle can tell.
    pub fn why_not(&mut self, question: Question<'_>) -> Option<(String, PostFilter)> {
        if !self.scores(question)?.is_empty() {
            return None;
        }
        let (unfit, answer) = self.explain(question, &mut TieBreak::SmallestName)?;
        Some((unfit.diagnosis.message(), answer))
    }

    /// All nodes the pod may go to with the sums of their scores, by name; none when only the plain cycle can tell.
    pub fn scores(&mut self, question: Question<'_>) -> Option<Vec<(Arc<str>, i64)>> {
        let cx = question.cycle();
        let survey = Survey::of(question.profile, &cx)?;
        let late = Late::prepare(&question, &survey.late)?;
        let board = self.board(&question, survey)?;
        board.heed_nominated(&question, &late)?;
        let hidden = if late.is_empty() { Vec::new() } else { hide_failing(board, &cx, &late)? };
        let name = |id: NodeId| question.cluster.node_by_id(id).map(|node| node.name.clone());
        let mut all: Vec<_> = board.all().into_iter().filter_map(|(id, score)| Some((name(id)?, score))).collect();
        hidden.into_iter().for_each(|node| board.show(node));
        all.sort();
        Some(all)
    }

    /// The board of the pod's shape, up to date.
    fn board(&mut self, question: &Question<'_>, survey: Survey) -> Option<&mut Board> {
        let Question { profile, cluster, pod, .. } = *question;
        let cx = question.cycle();
        self.clock += 1;
        self.common.topologies.catch_up(cluster);
        if self.common.topologies.len() > LABELS_MAX {
            *self = Engine { clock: self.clock, ..Engine::default() };
        }
        let hash = pod.shape_hash.base;
        let shapes = self.shapes.entry(hash).or_default();
        let mut at = shapes.iter().position(|shape| shape.pod.same_base_shape(pod));
        let end = cluster.changes().end();
        if let Some(known) = at {
            shapes[known].used = self.clock;
            let usable = match &mut shapes[known].kept {
                Kept::Unsuited(until) if end < *until => return None,
                Kept::Unsuited(_) => false,
                Kept::Board(board) => {
                    survey.agrees(&mut board.plan, profile, &cx)
                        && matches!(board.catch_up(&cx, &mut self.common), Ok(true))
                }
            };
            if !usable {
                shapes.swap_remove(known);
                self.count -= 1;
                at = None;
            }
        }
        let at = match at {
            Some(at) => at,
            None => {
                self.evict(cluster.places());
                let shape = Arc::new(pod.clone());
                let kept = Plan::new(profile, &cx, survey)
                    .and_then(|plan| Board::build(profile, &cx, plan, shape.clone(), &mut self.common))
                    .map_or(Kept::Unsuited(end + UNSUITED_FOR), |board| Kept::Board(Box::new(board)));
                self.count += 1;
                let shapes = self.shapes.entry(hash).or_default();
                shapes.push(Shape { pod: shape, used: self.clock, kept });
                shapes.len() - 1
            }
        };
        match &mut self.shapes.get_mut(&hash)?[at].kept {
            Kept::Board(board) => Some(board),
            Kept::Unsuited(_) => None,
        }
    }

    /// Makes room for one more board.
    fn evict(&mut self, places: usize) {
        while self.count > 0 && (self.count + 1) * places.max(1) > CELLS_MAX {
            let all = self.shapes.iter().flat_map(|(hash, shapes)| shapes.iter().map(move |shape| (shape.used, *hash)));
            let Some((used, hash)) = all.min() else { return };
            let Some(shapes) = self.shapes.get_mut(&hash) else { return };
            self.count -= shapes.len();
            shapes.retain(|shape| shape.used != used);
            self.count += shapes.len();
            if shapes.is_empty() {
                self.shapes.remove(&hash);
            }
        }
    }
}

/// The best node that the late filters let pass; the outer none when only the plain cycle can tell.
fn choose(board: &mut Board, cx: &Cycle<'_>, late: &Late, ties: &mut TieBreak) -> Option<Option<NodeId>> {
    if late.is_empty() {
        return Some(board.best(cx.cluster, ties));
    }
    let mut hidden = Vec::new();
    let chosen = if board.is_order_fixed() {
        loop {
            let Some(best) = board.best(cx.cluster, ties) else { break Some(None) };
            match cx.cluster.node_by_id(best).and_then(|node| late.pass(cx, node)) {
                None => break None,
                Some(true) => break Some(Some(best)),
                Some(false) => {
                    board.hide(best);
                    hidden.push(best);
                }
            }
        }
    } else {
        hide_failing(board, cx, late).map(|failing| {
            hidden = failing;
            board.best(cx.cluster, ties)
        })
    };
    hidden.into_iter().for_each(|node| board.show(node));
    chosen
}

/// Hides all nodes that late filters turn down; none (and nothing hidden) when one of them fails.
fn hide_failing(board: &mut Board, cx: &Cycle<'_>, late: &Late) -> Option<Vec<NodeId>> {
    let mut failing = Vec::new();
    for node in board.feasible() {
        if !late.pass(cx, cx.cluster.node_by_id(node)?)? {
            failing.push(node);
        }
    }
    failing.iter().for_each(|node| board.hide(*node));
    Some(failing)
}

/// Plugins that read anything: prepared for this pod, and asked node by node.
struct Late {
    /// With the plugin's place; those without a filter for this pod are only kept for Reserve.
    plugins: Vec<(usize, bool, Box<dyn InCycle>)>,
}

impl Late {
    /// Runs their PreFilter; none when one of them rejects the pod or narrows the nodes.
    fn prepare(question: &Question<'_>, late: &[usize]) -> Option<Self> {
        let profile = question.profile;
        let mut plugins = Vec::with_capacity(late.len());
        for &at in late {
            let mut state = profile.plugin(at).start();
            let points = profile.points_of(at);
            let mut asks = points.has(Points::FILTER);
            if points.has(Points::PRE_FILTER) {
                let answer = state.pre_filter(&question.cycle());
                match answer.status.code {
                    Code::Success if answer.nodes.is_none() => {}
                    Code::Skip => asks = false,
                    _ => return None,
                }
            }
            plugins.push((at, asks, state));
        }
        // In the order in which filters run.
        plugins.sort_by_key(|(at, ..)| profile.at(Points::FILTER).iter().position(|p| p == at));
        Some(Late { plugins })
    }

    fn is_empty(&self) -> bool {
        !self.plugins.iter().any(|(_, asks, _)| *asks)
    }

    /// Whether all of them let a node pass; none when one fails.
    fn pass(&self, cx: &Cycle<'_>, node: &NodeInfo) -> Option<bool> {
        for (_, _, state) in self.plugins.iter().filter(|(_, asks, _)| *asks) {
            let status = state.filter(cx, node);
            if status.is_rejected() {
                return Some(false);
            }
            if !status.is_success() {
                return None;
            }
        }
        Some(true)
    }

    /// The states of the plugins that take part after the decision.
    fn states_for_reserve(&self, profile: &Profile, board: &Board) -> CycleStates {
        let later = profile.plugins_after_decision().iter().map(|&at| {
            let own = self.plugins.iter().find(|(plugin, ..)| *plugin == at);
            (at, own.map_or_else(|| board.states.get(at).copy(), |(.., state)| state.copy()))
        });
        CycleStates::of(profile.plugins().len(), later)
    }
}
