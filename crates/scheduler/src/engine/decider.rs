//! Decisions about one pod after the other, outside of a queue: what questions ask.

use super::{DecisionInput, Engine, EngineDecision};
use crate::cycle::filter::Search;
use crate::cycle::tie_break::TieBreak;
use crate::cycle::{Attempt, Decision, Reserve, Unschedulable};
use crate::framework::CycleStates;

/// Decides as the scheduler does: by the engine where it has an exact answer, otherwise in the plain cycle.
///
/// It serves the pods of one profile.
#[derive(Default)]
pub struct Decider {
    engine: Engine,
    /// `percentageOfNodesToScore` of the configuration; that of the profile comes first.
    percentage: Option<i32>,
    /// The node at which the next search begins.
    next_start: usize,
}

impl Decider {
    /// A decider under the `percentageOfNodesToScore` of a configuration.
    pub fn new(percentage: Option<i32>) -> Self {
        Decider { percentage: percentage.filter(|percentage| *percentage > 0), ..Decider::default() }
    }

    /// Decides where a pod goes, and gives what Reserve needs afterwards. Without preemption PostFilter is not run.
    pub fn decide(&mut self, input: DecisionInput<'_>, ties: &mut TieBreak, preempt: bool) -> (Decision, Reserve) {
        let percentage = input.profile.percentage.or(self.percentage);
        let search = Search { start: self.next_start, percentage };
        if search.is_exhaustive() {
            match self.engine.decide(input, ties) {
                EngineDecision::Node(node, states) => return (Decision::Node(node.to_string()), Reserve { states }),
                EngineDecision::NoNodeFits if preempt => {
                    if let Some(unschedulable) = self.explain(input, ties) {
                        let states = CycleStates::new(input.profile.plugins());
                        return (Decision::Unschedulable(Box::new(unschedulable)), Reserve { states });
                    }
                }
                EngineDecision::NoNodeFits | EngineDecision::AskPlainCycle => {}
            }
        }
        let mut attempt = Attempt::new(input.profile, input.cluster, input.nominator, input.pod, input.now);
        let (decision, evaluated) = match preempt {
            true => attempt.decide(search, ties),
            false => attempt.decide_without_post_filter(search, ties),
        };
        self.next_start = (self.next_start + evaluated) % input.cluster.node_count().max(1);
        (decision, attempt.into_reserve())
    }

    /// Why no node fits and what PostFilter answers, if the engine can tell.
    fn explain(&mut self, input: DecisionInput<'_>, ties: &mut TieBreak) -> Option<Unschedulable> {
        let (cached, answer) = self.engine.explain(input, ties).ok()?;
        Some(Unschedulable {
            diagnosis: cached.diagnosis.clone(),
            nomination: answer.nomination,
            preemption: answer.preemption,
            calls: answer.calls,
            post_filter: answer.status,
        })
    }
}
