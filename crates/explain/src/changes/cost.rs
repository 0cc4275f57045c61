//! What a change costs, so that the smallest comes first. The numbers order changes and mean nothing else.
//!
//! | what changes | points |
//! |---|---|
//! | a scheduling gate that someone opens anyway | 10 |
//! | a request | the share of it that is given up, in thousandths, plus 20 |
//! | a cordon | 60 |
//! | a toleration | 100 each; 2,000 for a taint of the node's own health, where the pod may not start |
//! | `maxSkew` | 100, and 20 for each step |
//! | a constraint that is given up | 200 each; 300 for one that becomes a preference |
//! | a label of a node | 400 each |
//! | an object that is missing | 500 each |
//! | a higher priority | 1,000, 100 for each pod that is preempted, 2,000 for each budget violated |
//! | deleted pods | 1,200, 100 for each, 2,000 for each budget violated |
//! | one more node | 1,500 |

pub(super) const GATE: u64 = 10;
pub(super) const REQUEST: u64 = 20;
pub(super) const CORDON: u64 = 60;
pub(super) const TOLERATION: u64 = 100;
pub(super) const SICK_NODE: u64 = 2_000;
pub(super) const SKEW: u64 = 100;
pub(super) const SKEW_STEP: u64 = 20;
pub(super) const CONSTRAINT: u64 = 200;
pub(super) const PREFERENCE: u64 = 300;
pub(super) const LABEL: u64 = 400;
pub(super) const OBJECT: u64 = 500;
pub(super) const PRIORITY: u64 = 1_000;
pub(super) const DELETION: u64 = 1_200;
pub(super) const POD: u64 = 100;
pub(super) const BUDGET: u64 = 2_000;
pub(super) const NODE: u64 = 1_500;

/// The cost of pods that go.
pub(super) fn of_pods(pods: usize, pdb_violations: usize) -> u64 {
    POD.saturating_mul(pods as u64).saturating_add(BUDGET.saturating_mul(pdb_violations as u64))
}

/// The cost of giving up part of a request.
pub(super) fn of_reduction(from: i64, to: i64) -> u64 {
    let (from, given_up) = (i128::from(from.max(1)), i128::from(from) - i128::from(to));
    REQUEST.saturating_add(u64::try_from(given_up * 1000 / from).unwrap_or(0))
}
