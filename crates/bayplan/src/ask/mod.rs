//! The verbs that ask: `why`, `whatif`, `simulate`, `shadow`, `snapshot`, the page and what serves others.
//!
//! Each has a file with its arguments in `args/` and one here that loads the cluster, asks `bayplan_explain` and
//! prints.

pub(crate) mod live;
pub(crate) mod load;
pub(crate) mod logged;
pub(crate) mod mcp;
pub(crate) mod page;
pub(crate) mod shadow;
pub(crate) mod simulate;
pub(crate) mod snapshot;
pub(crate) mod whatif;
pub(crate) mod why;

use std::process::ExitCode;

/// What the exit code of a question says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// It fits, or nothing is pending.
    Fits,
    /// Not yet: something may change, or a gate may be lifted.
    NotYet,
    /// Never as specified.
    Never,
    /// A condition such as `--fail-if` held.
    ConditionHeld,
    /// The question could not be answered.
    Unknown,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        ExitCode::from(match outcome {
            Outcome::Fits => 0,
            Outcome::NotYet => 10,
            Outcome::Never => 11,
            Outcome::ConditionHeld => 1,
            Outcome::Unknown => 3,
        })
    }
}
