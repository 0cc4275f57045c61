//! The expression language of device selectors: CEL with Kubernetes' quantities, versions, networks,
//! strings, lists and sets.
//!
//! ```text
//!   text ──parse──▶ Expression ──check──▶ Program ──evaluate(device)──▶ true, false or an error
//! ```
//!
//! Written by hand because selectors come from users and run inside the scheduling cycle: no crate bounds what an
//! evaluation may cost, and upstream's map of attributes (an unknown domain is an empty map) has no form in them.
//! URLs, times and `format` are not there: an expression that names them does not compile.

mod check;
mod evaluate;
mod functions;
mod networks;
mod parse;
mod tokens;
mod value;

use bayplan_model::resource_slice::Device;

pub(super) use value::Value;

/// What is wrong with an expression, or went wrong while it ran.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum Error {
    /// It is no expression.
    #[error("ERROR: <input>:1:{column}: {message}")]
    Compile {
        /// Where, counted from 1.
        column: usize,
        /// What is wrong.
        message: String,
    },
    /// It does not evaluate on this device.
    #[error("{0}")]
    Runtime(String),
}

impl Error {
    fn runtime(message: impl Into<String>) -> Self {
        Error::Runtime(message.into())
    }

    fn no_such_overload() -> Self {
        Error::Runtime("no such overload".into())
    }
}

/// The most steps an evaluation may take; upstream's cost limit for selectors.
const COST_MAX: u64 = 1_000_000;
/// The deepest nesting an expression may have. Upstream allows 250; this is safe on a thread's 2 MiB of stack, and no
/// selector comes near either.
const DEPTH_MAX: usize = 100;

/// An expression ready to be run.
pub(super) struct Program(parse::Expression);

impl Program {
    /// Reads and checks an expression.
    pub(super) fn compile(text: &str) -> Result<Self, Error> {
        let expression = parse::parse(text)?;
        check::check(&expression)?;
        Ok(Program(expression))
    }

    /// Whether the expression holds for a device of a driver.
    pub(super) fn matches(&self, driver: &str, device: &Device) -> Result<bool, Error> {
        match evaluate::evaluate(&self.0, value::device(driver, device))? {
            Value::Bool(answer) => Ok(answer),
            other => Err(Error::runtime(format!("expected bool, got {}", other.type_name()))),
        }
    }
}

#[cfg(test)]
mod tests;
