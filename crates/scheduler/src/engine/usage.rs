//! What the plugins that read usage say of many nodes at once.

use super::board::{Unsuited, passes, sum, to_small};
use super::plan::Plan;
use crate::cluster::{NodeId, Room};
use crate::framework::{Cycle, CycleStates, Rooms};

/// The plugins that read usage, for pods of one shape, and memory to ask them.
#[derive(Default)]
pub(super) struct Usage {
    /// Those that room tells all they need.
    by_room: Vec<ByRoom>,
    /// Other filters.
    filters: Vec<usize>,
    /// Other scores, with weights.
    scores: Vec<(usize, i64)>,
    rooms: Vec<Room>,
    passes: Vec<bool>,
    sums: Vec<i64>,
}

struct ByRoom {
    form: Box<dyn Rooms>,
    filters: bool,
    /// If it scores.
    weight: Option<i64>,
}

impl Usage {
    /// Of the plugins of a plan, which are prepared.
    pub(super) fn new(plan: &Plan, states: &CycleStates) -> Self {
        let mut usage = Usage { scores: plan.usage_scores.clone(), ..Usage::default() };
        for &plugin in &plan.usage_filters {
            let Some(form) = states.get(plugin).rooms() else {
                usage.filters.push(plugin);
                continue;
            };
            let scored = usage.scores.iter().position(|(scored, _)| *scored == plugin);
            let weight = scored.map(|at| usage.scores.remove(at).1);
            usage.by_room.push(ByRoom { form, filters: true, weight });
        }
        let by_room = &mut usage.by_room;
        usage.scores.retain(|(plugin, weight)| match states.get(*plugin).rooms() {
            Some(form) => {
                by_room.push(ByRoom { form, filters: false, weight: Some(*weight) });
                false
            }
            None => true,
        });
        usage
    }

    /// The sums of the scores of nodes; none for those that do not pass.
    ///
    /// One thing after the other for all nodes, and not all things for one node after the other: memory is then waited for
    /// together.
    pub(super) fn judge<'a>(
        &'a mut self,
        cx: &Cycle<'_>,
        states: &CycleStates,
        nodes: &[NodeId],
    ) -> Result<impl Iterator<Item = Result<Option<i32>, Unsuited>> + use<'a>, Unsuited> {
        let Usage { by_room, filters, scores, rooms, passes: passing, sums } = self;
        rooms.clear();
        rooms.extend(nodes.iter().map(|node| *cx.cluster.room(*node)));
        passing.clear();
        passing.resize(nodes.len(), true);
        sums.clear();
        sums.resize(nodes.len(), 0);
        for ByRoom { form, filters, weight } in by_room {
            if *filters {
                form.filter(rooms, passing);
            }
            if let Some(weight) = weight {
                form.score(rooms, *weight, sums);
            }
        }
        if !filters.is_empty() || !scores.is_empty() {
            for (at, node) in nodes.iter().enumerate().filter(|(at, _)| passing[*at]).collect::<Vec<_>>() {
                match cx.cluster.node_by_id(*node) {
                    Some(node) if passes(states, filters, cx, node)? => {
                        sums[at] = sums[at].saturating_add(sum(states, scores, cx, node)?);
                    }
                    _ => passing[at] = false,
                }
            }
        }
        Ok(passing.iter().zip(sums).map(|(passes, sum)| if *passes { to_small(*sum).map(Some) } else { Ok(None) }))
    }
}
