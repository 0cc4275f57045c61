//! Upstream's units of cost. A unit is about 50 ns of upstream's evaluator.

/// The cost of reading a variable or a field.
pub(crate) const IDENTIFIER: u64 = 1;
/// The cost of making a list.
pub(crate) const LIST: u64 = 10;
/// The cost of making a map.
pub(crate) const MAP: u64 = 30;
/// The cost of going through one character.
pub(crate) const TRAVERSAL: f64 = 0.1;
/// The cost of one character of a pattern.
pub(crate) const REGEX: f64 = 0.25;

/// So many times a factor, rounded up.
pub(crate) fn factor(count: u64, by: f64) -> u64 {
    // A cast saturates, which is what upstream does with what is too large.
    (count as f64 * by).ceil() as u64
}

use crate::Error;

/// The most that one evaluation of a device selector may cost: upstream's limit, at admission and when it runs.
pub const SELECTOR_COST_MAX: u64 = 1_000_000;

/// Counts what an evaluation costs.
#[derive(Debug)]
pub(crate) struct Meter {
    spent: u64,
    /// What the caller has left for it.
    allowance: u64,
    limit: u64,
}

impl Meter {
    pub(crate) fn new(allowance: u64, limit: u64) -> Self {
        Meter { spent: 0, allowance, limit }
    }

    pub(crate) fn spent(&self) -> u64 {
        self.spent
    }

    /// What is left before the evaluation ends.
    pub(crate) fn left(&self) -> u64 {
        self.allowance.min(self.limit).saturating_sub(self.spent)
    }

    pub(crate) fn charge(&mut self, cost: u64) -> Result<(), Error> {
        self.spent = self.spent.saturating_add(cost);
        if self.spent > self.limit {
            return Err(Error::CostLimit);
        }
        if self.spent > self.allowance { Err(Error::Interrupted) } else { Ok(()) }
    }

    /// Takes a unit back that upstream does not count.
    pub(crate) fn refund(&mut self, cost: u64) {
        self.spent = self.spent.saturating_sub(cost);
    }
}
