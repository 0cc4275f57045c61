//! What would happen if: actions in their order on a state, every pod decided by the scheduler's own decision.
//!
//! ```text
//!   State ─▶ -f, --add, --drain, --cordon, --delete, --scale, --set-priority, in order
//!               │ each creates pods, or lets them leave
//!               ▼
//!            Session: decide ─▶ assume, Reserve ─▶ the next pod sees it
//!               ▼
//!            WhatIf: placed, pending, moved, stuck, preempted, before and after, how many more copies fit
//! ```

mod action;
mod answer;
mod claims;
mod condition;
mod drain;
mod expansion;
mod nodes;
mod session;
#[cfg(test)]
mod tests;
mod text;
mod workloads;

use bayplan_scheduler::TieBreak;
use jiff::Timestamp;

pub use action::{Action, NodeTemplate, ObjectName, Priority};
pub use answer::{Deleted, Moved, Placed, PlacedBy, Preempted, Stuck, WhatIf};
pub use condition::{Condition, ConditionError};
pub(crate) use expansion::{WorkloadPods, is_workload};
use session::{Outcome, Session};
pub use text::{Detail, render};

use crate::capacity::{Capacity, Mix};
use crate::completion::Refused;
use crate::pools::pool_of;
use crate::why::{API_VERSION, Explanation, source_of};
use crate::{Profiles, State};

/// How many more copies of a template are counted. Counting further takes time and tells no more.
pub const MORE_COPIES_MAX: usize = 10_000;

/// The most pods that one action makes. A million pods decide in seconds; a slip of the keyboard should not take hours.
pub const PODS_PER_ACTION_MAX: usize = 1_000_000;

/// The most nodes that one action adds.
pub const NODES_PER_ACTION_MAX: usize = 100_000;

/// Why a what-if cannot be answered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An API server would refuse an object.
    #[error("{0}")]
    Refused(#[from] Refused),
    /// An object does not have the form of its kind.
    #[error("{0} cannot be read: {1}")]
    Unreadable(String, #[source] serde_json::Error),
    /// Something that an action names is not there.
    #[error("{0} is not in the cluster that was read")]
    Missing(String),
    /// An object of a kind that nothing is known of.
    #[error("objects of kind {0} are not read")]
    Unknown(String),
    /// An action that makes no sense.
    #[error("{0}")]
    Invalid(String),
}

/// How a what-if is answered.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which of equally good nodes is taken.
    pub ties: TieBreak,
    /// Whether pods that fit nowhere may displace others.
    pub preempt: bool,
    /// Takes given objects exactly as they are.
    pub as_written: bool,
    /// `percentageOfNodesToScore` of the configuration.
    pub percentage: Option<i32>,
    /// The namespace of what names none.
    pub namespace: String,
    /// Up to how many more copies of the last template are counted, usually [`MORE_COPIES_MAX`]; 0 counts none.
    pub more_copies_max: usize,
    /// The time of the decisions.
    pub now: Timestamp,
}

/// Carries out actions in their order, and answers what comes of them.
pub fn whatif(state: State, profiles: &Profiles, actions: Vec<Action>, options: &Options) -> Result<WhatIf, Error> {
    let source = source_of(&state);
    let mix = Mix::of(state.cluster());
    let before = Capacity::of(state.cluster(), state.pending().count(), &mix);
    let mut session = Session::new(state, profiles, options);
    session.retry_pending = actions.is_empty();
    let mut described = Vec::with_capacity(actions.len());
    for action in actions {
        described.push(session.carry_out(action)?);
        session.settle();
    }
    if session.retry_pending {
        session.retry_pending();
        session.settle();
    }
    let mix = Mix::of(session.state.cluster());
    let after = Capacity::of(session.state.cluster(), session.state.pending().count(), &mix);
    let placed_by = placed_by(&session);
    let more = session.count_more_copies();
    let Session { placed, pending, moved, stuck, preempted, deleted, notes, .. } = session;
    Ok(WhatIf {
        api_version: API_VERSION,
        kind: "WhatIf",
        source,
        actions: described,
        placed,
        placed_by,
        pending: last_answers(pending),
        moved,
        stuck,
        preempted,
        deleted,
        before,
        after,
        more_copies: more,
        more_copies_at_least: more.is_some_and(|more| more >= options.more_copies_max),
        notes,
    })
}

/// One answer for each pod, the last one.
fn last_answers(mut pending: Vec<Explanation>) -> Vec<Explanation> {
    let mut seen = rustc_hash::FxHashSet::default();
    pending.reverse();
    pending.retain(|explanation| seen.insert(explanation.pod.to_string()));
    pending.reverse();
    pending
}

fn placed_by(session: &Session<'_>) -> PlacedBy {
    let mut by = PlacedBy::default();
    let moved = session.moved.iter().map(|moved| &moved.to);
    for node in session.placed.iter().map(|placed| &placed.node).chain(moved) {
        let Some(node) = session.state.cluster().node(node) else { continue };
        let zone = node.label(bayplan_model::node::LABEL_ZONE).unwrap_or_default();
        *by.zone.entry(zone.to_owned()).or_default() += 1;
        *by.pool.entry(pool_of(node.node()).unwrap_or_default().to_owned()).or_default() += 1;
    }
    by
}

impl Session<'_> {
    /// Carries out one action, and says in words what it was.
    fn carry_out(&mut self, action: Action) -> Result<String, Error> {
        match action {
            Action::Apply { objects, replicas, from } => self.apply(objects, replicas, &from),
            Action::AddNodes { count, like } => self.add_nodes(count, like),
            Action::Cordon(nodes) => self.cordon(&nodes),
            Action::Drain(nodes) => self.drain(&nodes),
            Action::Delete(name) => self.delete(&name),
            Action::Scale { workload, replicas } => self.scale(&workload, replicas),
            Action::SetPriority { of, priority } => self.set_priority(&of, &priority),
        }
    }

    /// How many more copies of the last template fit. Nothing is asked of the state afterwards, so they stay on it.
    fn count_more_copies(&mut self) -> Option<usize> {
        let template = self.template.take().filter(|_| self.options.more_copies_max > 0)?;
        let mut fitting = 0;
        let mut number = 0;
        while fitting < self.options.more_copies_max {
            number = self.next_free(&template, number);
            match self.instantiate(&template, number, false) {
                Ok(Outcome::Node(_)) => fitting += 1,
                Ok(Outcome::Pending(_)) | Err(_) => break,
            }
            number += 1;
        }
        Some(fitting)
    }
}
