//! Whether everything an expression names is there.

use super::Error;
use super::functions;
use super::parse::{Expression, Node};

/// Names that stand for types.
pub(super) const TYPES: [&str; 10] =
    ["bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type"];

/// Refuses variables and functions nobody declared.
pub(super) fn check(expression: &Expression) -> Result<(), Error> {
    visit(expression, &mut vec!["device"])
}

fn undeclared(expression: &Expression, name: &str) -> Error {
    let message = format!("undeclared reference to '{name}' (in container '')");
    Error::Compile { column: expression.column, message }
}

fn visit<'e>(expression: &'e Expression, variables: &mut Vec<&'e str>) -> Result<(), Error> {
    match &expression.node {
        Node::Literal(_) => Ok(()),
        Node::Ident(name) if variables.contains(&name.as_str()) || TYPES.contains(&name.as_str()) => Ok(()),
        Node::Ident(name) => Err(undeclared(expression, name)),
        Node::Select { operand, .. } | Node::Has { operand, .. } | Node::Unary(_, operand) => visit(operand, variables),
        Node::Index { operand, index, .. } => both(operand, index, variables),
        Node::Binary(_, left, right) => both(left, right, variables),
        Node::Conditional(condition, yes, no) => {
            visit(condition, variables)?;
            both(yes, no, variables)
        }
        Node::List(items) => items.iter().try_for_each(|item| visit(item, variables)),
        Node::Map(entries) => entries.iter().try_for_each(|(key, value)| both(key, value, variables)),
        Node::Call { target, function, args } => {
            args.iter().try_for_each(|arg| visit(arg, variables))?;
            call(expression, target.as_deref(), function, variables)
        }
        Node::Loop { range, variable, condition, body, .. } => {
            visit(range, variables)?;
            within(variable, condition.iter().chain([body]).map(|part| &**part), variables)
        }
        Node::Bind { variable, value, body } => {
            visit(value, variables)?;
            within(variable, [&**body], variables)
        }
        Node::OptionalMap { operand, variable, body, .. } => {
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
