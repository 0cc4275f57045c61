//! Objects as registers: reads, and writes on the condition of a version, by several clients through several servers.

use std::collections::BTreeSet;

use todc_utils::linearizability::WGLChecker;
use todc_utils::linearizability::history::Action::{Call, Response};
use todc_utils::linearizability::history::History;
use todc_utils::specifications::Specification;

use super::{Rule, Truth, Violation, check_versions};

/// One object and everything that was done with it. It begins with the value 0; every write has a value of its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Register {
    pub(crate) key: String,
    pub(crate) operations: Vec<Operation>,
}

/// What a client did.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    /// When it was asked, on the test's one clock,
    pub(crate) begun: u64,
    /// and when it was answered; none if it never was.
    pub(crate) ended: Option<u64>,
    pub(crate) action: Action,
    /// The version that was answered with it.
    pub(crate) version: Option<u64>,
}

/// What was asked and answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// This value was read.
    Read(u32),
    /// One value was replaced by another; or perhaps, if there was no answer.
    Write { from: u32, to: u32 },
    /// It was refused to replace this value, because another was there.
    Conflict { from: u32 },
}

/// The text that stands for a value in an object.
pub(crate) fn text_of(value: u32) -> String {
    format!("v{value:08}v")
}

/// A single register, as the checker wants it described.
struct SingleRegister;

impl Specification for SingleRegister {
    type State = u32;
    type Operation = Action;

    fn init() -> u32 {
        0
    }

    fn apply(action: &Action, state: &u32) -> (bool, u32) {
        match action {
            Action::Read(value) => (value == state, *state),
            Action::Write { from, to } if from == state => (true, *to),
            Action::Write { .. } => (false, *state),
            Action::Conflict { from } => (from != state, *state),
        }
    }
}

impl Register {
    /// Whether there is one order of all operations that explains every answer, and versions never go back.
    ///
    /// A write without an answer counts as one that took effect at any time after it was asked, if etcd has written
    /// its value, and as none at all if etcd has not: nobody can have seen it then.
    pub(crate) fn check(&self, truth: &Truth) -> Vec<Violation> {
        let written: BTreeSet<u32> = self.values_written(truth);
        let operations: Vec<&Operation> = self
            .operations
            .iter()
            .filter(|operation| match operation.action {
                Action::Write { to, .. } => operation.ended.is_some() || written.contains(&to),
                _ => operation.ended.is_some(),
            })
            .collect();
        let mut violations = Vec::new();
        if !is_linearizable(&operations) {
            let what = format!("{}: no order explains its {} operations: {operations:?}", self.key, operations.len());
            violations.push(Rule::ObjectsAreLinearizable.broken(what));
        }
        let versions: Vec<(u64, u64, u64)> = operations
            .iter()
            .filter_map(|operation| Some((operation.begun, operation.ended?, operation.version?)))
            .collect();
        violations.extend(check_versions(&self.key, &versions));
        violations
    }

    fn values_written(&self, truth: &Truth) -> BTreeSet<u32> {
        let changes: Vec<_> = truth.after(0, &self.key).filter(|change| change.key == self.key).collect();
        let tried = self.operations.iter().filter_map(|operation| match operation.action {
            Action::Write { to, .. } => Some(to),
            _ => None,
        });
        tried.filter(|value| changes.iter().any(|change| change.has(&text_of(*value)))).collect()
    }
}

fn is_linearizable(operations: &[&Operation]) -> bool {
    if operations.is_empty() {
        return true;
    }
    // At one instant calls come first: what may have been concurrent is.
    let mut actions: Vec<(u64, bool, usize)> = Vec::new();
    for (process, operation) in operations.iter().enumerate() {
        actions.push((operation.begun, false, process));
        actions.push((operation.ended.unwrap_or(u64::MAX), true, process));
    }
    actions.sort_unstable();
    let actions = actions.into_iter().map(|(_, is_response, process)| {
        let action = operations[process].action.clone();
        (process, if is_response { Response(action) } else { Call(action) })
    });
    WGLChecker::<SingleRegister>::is_linearizable(History::from_actions(actions.collect()))
}
