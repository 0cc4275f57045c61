//! The expression language of device selectors: CEL with Kubernetes' quantities, versions, networks,
//! strings, lists and sets.
//!
//! ```text
//!   text ──parse──▶ Expression ──check──▶ Program ──evaluate(device)──▶ true, false or an error
//! ```
//!
//! Written by hand because selectors come from users and run inside the scheduling cycle: no crate limits the cost of
//! an evaluation, or has upstream's map of attributes, in which an unknown domain is an empty map. URLs, times and
//! `format` are not implemented: an expression that uses them does not compile.

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
    /// It does not parse, or names something undeclared.
    #[error("ERROR: <input>:1:{column}: {message}")]
    Compile {
        /// The column, counted from 1.
        column: usize,
        /// The message.
        message: String,
    },
    /// It fails for this device.
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
/// The deepest nesting of an expression. Upstream allows 250; this fits a thread's 2 MiB of stack, and real selectors
/// need far less.
const DEPTH_MAX: usize = 100;

/// A compiled expression.
pub(super) struct Program(parse::Expression);

impl Program {
    /// Parses and checks an expression.
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
