//! The expression language of Kubernetes: CEL with its types, its cost and a budget.
//!
//! ```text
//!   text ──parse──▶ tree ──check──▶ types ──estimate──▶ the most it can cost
//!                                     └────constants──▶ Program ──evaluate──▶ value and cost
//! ```
//!
//! Expressions come from users and run inside the scheduling cycle and the API server, so everything here is bounded:
//! the nesting and the nodes of an expression, the size of its types, the states of its patterns, and by its cost the
//! time and the memory of an evaluation. Costs are upstream's numbers, so that it refuses what upstream refuses; where
//! something takes longer here than upstream counts, the longer time counts.
//!
//! Pure: nothing here reads a clock.

mod ast;
mod check;
mod constants;
mod cost;
mod declarations;
pub mod device;
mod estimate;
mod evaluate;
mod functions;
mod literals;
mod macros;
mod parse;
mod regexes;
mod source;
mod tokens;
mod types;
mod value;

use std::sync::Arc;

pub use cost::SELECTOR_COST_MAX;
pub use declarations::{Declared, Environment};
pub use regexes::Regexes;
pub use types::Type;

use ast::{Expression, Node};
use cost::Meter;
use evaluate::Evaluation;
use value::Value;

/// What is wrong with an expression, or went wrong while it ran.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// It does not parse, its types do not fit, or it uses what is not there.
    #[error("compilation failed: {0}")]
    Compilation(String),
    /// It is of another type than it must be.
    #[error("{0}")]
    Type(String),
    /// A constant in it has no value.
    #[error("program instantiation failed: {0}")]
    Instantiation(String),
    /// It fails for this input.
    #[error("{0}")]
    Runtime(String),
    /// It costs more than an evaluation may.
    #[error("operation cancelled: actual cost limit exceeded")]
    CostLimit,
    /// It costs more than the caller had left for it: another time it may not.
    #[error("operation interrupted")]
    Interrupted,
}

impl Error {
    fn runtime(message: impl Into<String>) -> Self {
        Error::Runtime(message.into())
    }

    fn no_such_overload() -> Self {
        Error::Runtime("no such overload".into())
    }

    /// True when no operator goes on after it.
    fn is_fatal(&self) -> bool {
        matches!(self, Error::CostLimit | Error::Interrupted)
    }
}

/// A compiled expression.
#[derive(Debug)]
pub struct Program {
    expression: Expression,
    /// The type of its result.
    result: Type,
    max_cost: u64,
    regexes: Arc<Regexes>,
}

/// The result of an evaluation, and what it cost.
pub(crate) struct Outcome {
    pub(crate) value: Result<Value, Error>,
    /// In upstream's units.
    pub(crate) cost: u64,
}

impl Program {
    /// Parses and checks an expression, and estimates its cost. Patterns are compiled into `regexes`.
    pub fn compile(text: &str, environment: &Environment, regexes: &Arc<Regexes>) -> Result<Self, Error> {
        let failed = |faults| Error::Compilation(source::show(text, faults));
        let parsed = parse::parse(text).map_err(failed)?;
        let (checked, positions) = check::check(parsed, environment).map_err(failed)?;
        let faults = literals::check(&checked, &positions);
        if !faults.is_empty() {
            return Err(failed(faults));
        }
        let result = checked.type_of(&checked.expression).clone();
        let max_cost = estimate::estimate(&checked, environment);
        let mut expression = checked.expression;
        constants::fold(&mut expression).map_err(|error| Error::Instantiation(error.to_string()))?;
        Ok(Program { expression, result, max_cost, regexes: Arc::clone(regexes) })
    }

    /// The type of the result.
    pub fn result_type(&self) -> &Type {
        &self.result
    }

    /// The most that an evaluation can cost, for the largest values of its variables.
    pub fn max_cost(&self) -> u64 {
        self.max_cost
    }

    /// A function that the expression calls and that does not run yet.
    pub fn function_not_run(&self) -> Option<&'static str> {
        let mut found = None;
        self.expression.visit(&mut |expression| {
            if let Node::Call { function, .. } = &expression.node {
                found = found.or_else(|| functions::NOT_RUN.into_iter().find(|name| name == function));
            }
        });
        found
    }

    /// Evaluates the expression. It ends when it has cost more than the limit, and when it has cost more than the
    /// caller allows it this time.
    pub(crate) fn evaluate(&self, variables: Vec<(&str, Value)>, allowance: u64, limit: u64) -> Outcome {
        let mut evaluation = Evaluation::new(variables, Meter::new(allowance, limit), &self.regexes);
        let value = evaluation.evaluate(&self.expression);
        Outcome { value, cost: evaluation.spent() }
    }
}
