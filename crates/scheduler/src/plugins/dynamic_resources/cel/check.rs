//! Checks that an expression uses only declared variables and functions.

use super::Error;
use super::functions;
use super::parse::{Expression, ExpressionKind};

/// The names of types.
pub(super) const TYPES: [&str; 10] =
    ["bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type"];

/// Refuses undeclared variables and functions.
pub(super) fn check(expression: &Expression) -> Result<(), Error> {
    visit(expression, &mut vec!["device"])
}

fn undeclared(expression: &Expression, name: &str) -> Error {
    let message = format!("undeclared reference to '{name}' (in container '')");
    Error::Compile { column: expression.column, message }
}

fn visit<'e>(expression: &'e Expression, variables: &mut Vec<&'e str>) -> Result<(), Error> {
    match &expression.node {
        ExpressionKind::Literal(_) => Ok(()),
        ExpressionKind::Ident(name) if variables.contains(&name.as_str()) || TYPES.contains(&name.as_str()) => Ok(()),
        ExpressionKind::Ident(name) => Err(undeclared(expression, name)),
        ExpressionKind::Select { operand, .. }
        | ExpressionKind::Has { operand, .. }
        | ExpressionKind::Unary(_, operand) => visit(operand, variables),
        ExpressionKind::Index { operand, index, .. } => both(operand, index, variables),
        ExpressionKind::Binary(_, left, right) => both(left, right, variables),
        ExpressionKind::Conditional(condition, yes, no) => {
            visit(condition, variables)?;
            both(yes, no, variables)
        }
        ExpressionKind::List(items) => items.iter().try_for_each(|item| visit(item, variables)),
        ExpressionKind::Map(entries) => entries.iter().try_for_each(|(key, value)| both(key, value, variables)),
        ExpressionKind::Call { target, function, args } => {
            args.iter().try_for_each(|arg| visit(arg, variables))?;
            call(expression, target.as_deref(), function, variables)
        }
        ExpressionKind::Loop { range, variable, condition, body, .. } => {
            visit(range, variables)?;
            within(variable, condition.iter().chain([body]).map(|part| &**part), variables)
        }
        ExpressionKind::Bind { variable, value, body } => {
            visit(value, variables)?;
            within(variable, [&**body], variables)
        }
        ExpressionKind::OptionalMap { operand, variable, body, .. } => {
            visit(operand, variables)?;
            within(variable, [&**body], variables)
        }
    }
}

fn both<'e>(a: &'e Expression, b: &'e Expression, variables: &mut Vec<&'e str>) -> Result<(), Error> {
    visit(a, variables)?;
    visit(b, variables)
}

fn within<'e>(
    variable: &'e str,
    parts: impl IntoIterator<Item = &'e Expression>,
    variables: &mut Vec<&'e str>,
) -> Result<(), Error> {
    variables.push(variable);
    let result = parts.into_iter().try_for_each(|part| visit(part, variables));
    variables.pop();
    result
}

fn call<'e>(
    expression: &'e Expression,
    target: Option<&'e Expression>,
    function: &'e str,
    variables: &mut Vec<&'e str>,
) -> Result<(), Error> {
    match target {
        None if functions::GLOBAL.contains(&function) => Ok(()),
        None => Err(undeclared(expression, function)),
        Some(target) => {
            if let Some(name) = functions::namespaced(target, function) {
                let known = functions::NAMESPACED.contains(&name.as_str());
                return if known { Ok(()) } else { Err(undeclared(expression, &name)) };
            }
            visit(target, variables)?;
            if functions::METHODS.contains(&function) { Ok(()) } else { Err(undeclared(expression, function)) }
        }
    }
}
