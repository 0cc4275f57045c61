//! The suites, one module each.

mod config;
mod controllers;
mod decisions;
mod http;
mod kinds;
mod preemption;
mod queueing_hints;
mod rbac;
mod requests;
mod schedule_one;
mod scheduler;
mod selectors;
mod sequences;
mod strategic_merge;
mod why;
mod why_sequences;

use serde_json::Value;

use crate::difference::Difference;

/// Why a case is not equal.
#[derive(Debug, thiserror::Error)]
pub enum Mismatch {
    /// The answers differ.
    #[error("{0}")]
    Differs(Difference),
    /// The recording has a form that the suite does not know.
    #[error("unreadable case: {0}")]
    Unreadable(String),
}

impl From<Difference> for Mismatch {
    fn from(difference: Difference) -> Self {
        Mismatch::Differs(difference)
    }
}

impl From<serde_json::Error> for Mismatch {
    fn from(error: serde_json::Error) -> Self {
        Mismatch::Unreadable(error.to_string())
    }
}

/// The result of checking a case.
pub type Outcome = Result<(), Mismatch>;

/// A named way to check cases.
#[derive(Clone, Copy, Debug)]
pub struct Suite {
    /// Its name on the command line.
    pub name: &'static str,
    /// Runs one case through the product and compares the answer.
    pub check: fn(&Value) -> Outcome,
    /// How many cases run at once: those that wait more than they compute need not wait one after the other.
    pub at_once: usize,
}

impl Suite {
    /// A suite whose cases run one after the other.
    const fn new(name: &'static str, check: fn(&Value) -> Outcome) -> Suite {
        Suite { name, check, at_once: 1 }
    }

    /// A suite whose cases mostly wait.
    const fn waiting(name: &'static str, check: fn(&Value) -> Outcome) -> Suite {
        Suite { name, check, at_once: 32 }
    }
}

/// Every suite there is.
pub const SUITES: &[Suite] = &[
    Suite::new("config", config::check),
    Suite::new("controllers", controllers::check),
    Suite::new("decisions", decisions::check),
    Suite::waiting("http", http::check),
    Suite::new("preemption", preemption::check),
    Suite::new("queueing-hints", queueing_hints::check),
    Suite::new("rbac", rbac::check),
    Suite::new("requests", requests::check),
    Suite::new("schedule-one", schedule_one::check),
    Suite::new("defaulting", kinds::defaulting),
    Suite::new("tables", kinds::table),
    Suite::new("validation", kinds::validate),
    Suite::new("selectors", selectors::check),
    Suite::waiting("server-side-apply", http::check),
    Suite::new("sequences", sequences::check),
    Suite::new("strategic-merge", strategic_merge::check),
    Suite::new("whatif", why_sequences::sequences_by_whatif),
    Suite::new("why", why::check),
];

/// The suite of that name.
pub fn find(name: &str) -> Option<&'static Suite> {
    SUITES.iter().find(|suite| suite.name == name)
}
