//! What the plugins that read usage say of many nodes at once.

use super::board::{Unsuited, passes, sum};
use super::plan::Plan;
use crate::cluster::{NodeId, Room};
use crate::framework::{Cycle, CycleStates, Rooms};

/// The plugins that read usage, for pods of one shape.
#[derive(Default)]
pub(super) struct Usage {
    /// Those that room tells all they need.
    by_room: Vec<ByRoom>,
    /// Other filters.
    filters: Vec<usize>,
    /// Other scores, with weights.
    scores: Vec<(usize, i64)>,
}

/// Memory to ask them. One for all boards: it stays in the cache from one to the next.
#[derive(Default)]
pub(super) struct Asked {
    /// Who is asked about.
    pub(super) nodes: Vec<NodeId>,
    rooms: Vec<Room>,
    /// What the nodes' scores come to; none for those that do not pass.
    pub(super) sums: Vec<Option<i64>>,
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

    /// Sums up the scores of the nodes that are asked about.
    ///
    /// One thing after the other for all nodes, and not all things for one node after the other: memory is then waited for
    /// together.
    pub(super) fn judge(&self, cx: &Cycle<'_>, states: &CycleStates, asked: &mut Asked) -> Result<(), Unsuited> {
        let Usage { by_room, filters, scores } = self;
        let Asked { nodes, rooms, sums } = asked;
        rooms.clear();
        rooms.extend(nodes.iter().map(|node| *cx.cluster.room(*node)));
        sums.clear();
        sums.resize(nodes.len(), Some(0));
        for ByRoom { form, filters, weight } in by_room {
            if *filters {
                form.filter(rooms, sums);
            }
            if let Some(weight) = weight {
                form.score(rooms, *weight, sums);
            }
        }
        if !filters.is_empty() || !scores.is_empty() {
            for (node, known) in nodes.iter().zip(sums) {
                let Some(by_room) = *known else { continue };
                *known = match cx.cluster.node_by_id(*node) {
                    Some(node) if passes(states, filters, cx, node)? => {
                        Some(by_room.saturating_add(sum(states, scores, cx, node)?))
                    }
                    _ => None,
                };
            }
        }
        Ok(())
    }
}
