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
}

/// Every suite there is.
pub const SUITES: &[Suite] = &[
    Suite { name: "config", check: config::check },
    Suite { name: "controllers", check: controllers::check },
    Suite { name: "decisions", check: decisions::check },
    Suite { name: "http", check: http::check },
    Suite { name: "preemption", check: preemption::check },
    Suite { name: "queueing-hints", check: queueing_hints::check },
    Suite { name: "rbac", check: rbac::check },
    Suite { name: "requests", check: requests::check },
    Suite { name: "defaulting", check: kinds::defaulting },
    Suite { name: "tables", check: kinds::table },
    Suite { name: "validation", check: kinds::validate },
    Suite { name: "selectors", check: selectors::check },
    Suite { name: "sequences", check: sequences::check },
    Suite { name: "strategic-merge", check: strategic_merge::check },
    Suite { name: "whatif", check: why_sequences::sequences_by_whatif },
    Suite { name: "why", check: why::check },
];

/// The suite of that name.
pub fn find(name: &str) -> Option<&'static Suite> {
    SUITES.iter().find(|suite| suite.name == name)
}
