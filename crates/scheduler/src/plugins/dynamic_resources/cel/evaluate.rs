//! Evaluates an expression to a value.

use std::sync::Arc;

use super::functions;
use super::parse::{Expression, ExpressionKind, Loop};
use super::value::{Map, Value};
use super::{COST_MAX, Error, check};

/// Evaluates an expression with the variable `device`.
pub(super) fn evaluate(expression: &Expression, device: Value) -> Result<Value, Error> {
    let mut scope = Scope { variables: vec![("device".to_owned(), device)], cost: 0 };
    scope.evaluate(expression)
}

/// The variables in scope, and the cost so far.
pub(super) struct Scope {
    variables: Vec<(String, Value)>,
    cost: u64,
}

impl Scope {
    /// Counts a step; large values count for more.
    pub(super) fn charge(&mut self, steps: usize) -> Result<(), Error> {
        self.cost = self.cost.saturating_add(steps as u64);
        if self.cost > COST_MAX {
            return Err(Error::runtime("operation cancelled: actual cost limit exceeded"));
        }
        Ok(())
    }

    fn evaluate(&mut self, expression: &Expression) -> Result<Value, Error> {
        self.charge(1)?;
        match &expression.node {
            ExpressionKind::Literal(value) => Ok(value.clone()),
            ExpressionKind::Ident(name) => self.variable(name),
            ExpressionKind::Select { operand, field, optional } => {
                let operand = self.evaluate(operand)?;
                select(&operand, &Value::string(field.as_str()), *optional)
            }
            ExpressionKind::Has { operand, field } => match self.evaluate(operand)? {
                Value::Map(map) => Ok(Value::Bool(map.entries.contains_key(&Value::string(field.as_str()).key()?))),
                Value::Optional(None) => Ok(Value::Bool(false)),
                Value::Optional(Some(inner)) => match &*inner {
                    Value::Map(map) => Ok(Value::Bool(map.entries.contains_key(&Value::string(field.as_str()).key()?))),
                    _ => Err(Error::no_such_overload()),
                },
                _ => Err(Error::no_such_overload()),
            },
            ExpressionKind::Index { operand, index, optional } => {
                let operand = self.evaluate(operand)?;
                let index = self.evaluate(index)?;
                select(&operand, &index, *optional)
            }
            ExpressionKind::Unary(operator, operand) => unary(operator, &self.evaluate(operand)?),
            ExpressionKind::Binary("&&", left, right) => self.logic(left, right, false),
            ExpressionKind::Binary("||", left, right) => self.logic(left, right, true),
            ExpressionKind::Binary(operator, left, right) => {
                let (left, right) = (self.evaluate(left)?, self.evaluate(right)?);
                self.binary(operator, &left, &right)
            }
            ExpressionKind::Conditional(condition, yes, no) => match self.evaluate(condition)? {
                Value::Bool(true) => self.evaluate(yes),
                Value::Bool(false) => self.evaluate(no),
                _ => Err(Error::no_such_overload()),
            },
            ExpressionKind::List(items) => {
                Ok(Value::list(items.iter().map(|item| self.evaluate(item)).collect::<Result<_, _>>()?))
            }
            ExpressionKind::Map(entries) => self.map(entries),
            ExpressionKind::Call { target, function, args } => self.call(target.as_deref(), function, args),
            ExpressionKind::Loop { kind, range, variable, condition, body } => {
                self.run_loop(*kind, range, variable, condition.as_deref(), body)
            }
            ExpressionKind::Bind { variable, value, body } => {
                let value = self.evaluate(value)?;
                self.with(variable, value, body)
            }
            ExpressionKind::OptionalMap { operand, variable, body, flat } => match self.evaluate(operand)? {
                Value::Optional(None) => Ok(Value::Optional(None)),
                Value::Optional(Some(inner)) => {
                    let value = self.with(variable, (*inner).clone(), body)?;
                    Ok(if *flat { value } else { Value::Optional(Some(Arc::new(value))) })
                }
                _ => Err(Error::no_such_overload()),
            },
        }
    }

    fn variable(&self, name: &str) -> Result<Value, Error> {
        if let Some((_, value)) = self.variables.iter().rev().find(|(variable, _)| variable == name) {
            return Ok(value.clone());
        }
        let found = check::TYPES.into_iter().find(|type_name| *type_name == name);
        found.map(Value::Type).ok_or_else(|| Error::runtime(format!("no such attribute(s): {name}")))
    }

    fn with(&mut self, variable: &str, value: Value, body: &Expression) -> Result<Value, Error> {
        self.variables.push((variable.to_owned(), value));
        let result = self.evaluate(body);
        self.variables.pop();
        result
    }

    /// `&&` and `||`: one side may decide although the other fails.
    fn logic(&mut self, left: &Expression, right: &Expression, decisive: bool) -> Result<Value, Error> {
        let left = self.evaluate(left).and_then(truth);
        if left == Ok(decisive) {
            return Ok(Value::Bool(decisive));
        }
        match (left, self.evaluate(right).and_then(truth)) {
            (_, Ok(answer)) if answer == decisive => Ok(Value::Bool(decisive)),
            (Err(error), _) | (_, Err(error)) => Err(error),
            (Ok(_), Ok(_)) => Ok(Value::Bool(!decisive)),
        }
    }

    fn map(&mut self, entries: &[(Expression, Expression)]) -> Result<Value, Error> {
        let mut map = Map::default();
        for (key, value) in entries {
            let key = self.evaluate(key)?.key()?;
            let value = self.evaluate(value)?;
            map.entries.insert(key, value);
        }
        Ok(Value::Map(Arc::new(map)))
    }

    fn binary(&mut self, operator: &str, left: &Value, right: &Value) -> Result<Value, Error> {
        self.charge(functions::weight(left) + functions::weight(right))?;
        match operator {
            "==" => Ok(Value::Bool(left.equals(right))),
            "!=" => Ok(Value::Bool(!left.equals(right))),
            "in" => match right {
                Value::List(items) => Ok(Value::Bool(items.iter().any(|item| item.equals(left)))),
                Value::Map(map) => Ok(Value::Bool(left.key().is_ok_and(|key| map.entries.contains_key(&key)))),
                _ => Err(Error::no_such_overload()),
            },
            "<" | "<=" | ">" | ">=" => {
                let order = left.compare(right).ok_or_else(Error::no_such_overload)?;
                Ok(Value::Bool(match operator {
                    "<" => order.is_lt(),
                    "<=" => order.is_le(),
                    ">" => order.is_gt(),
                    _ => order.is_ge(),
                }))
            }
            _ => arithmetic(operator, left, right),
        }
    }

    fn call(&mut self, target: Option<&Expression>, function: &str, args: &[Expression]) -> Result<Value, Error> {
        let mut values = Vec::with_capacity(args.len() + 1);
        let namespaced = target.and_then(|target| functions::namespaced(target, function));
        if let (Some(target), None) = (target, &namespaced) {
            values.push(self.evaluate(target)?);
        }
        for arg in args {
            values.push(self.evaluate(arg)?);
        }
        self.charge(values.iter().map(functions::weight).sum())?;
        let name = namespaced.as_deref().unwrap_or(function);
        functions::call(name, &values)
    }

    fn run_loop(
        &mut self,
        kind: Loop,
        range: &Expression,
        variable: &str,
        condition: Option<&Expression>,
        body: &Expression,
    ) -> Result<Value, Error> {
        let items: Vec<Value> = match self.evaluate(range)? {
            Value::List(items) => items.to_vec(),
            Value::Map(map) => map.entries.keys().map(|key| key.value()).collect(),
            _ => return Err(Error::no_such_overload()),
        };
        let mut collected = Vec::new();
        let (mut matches, mut failure) = (0, None);
        for item in items {
            if let Some(condition) = condition
                && !truth(self.with(variable, item.clone(), condition)?)?
            {
                continue;
            }
            let value = self.with(variable, item.clone(), body);
            match kind {
                Loop::Map => collected.push(value?),
                Loop::Filter => {
                    if truth(value?)? {
                        collected.push(item);
                    }
                }
                Loop::ExistsOne => matches += usize::from(truth(value?)?),
                Loop::All | Loop::Exists => match value.and_then(truth) {
                    Ok(answer) if answer == (kind == Loop::Exists) => return Ok(Value::Bool(answer)),
                    Ok(_) => {}
                    Err(error) => failure = failure.or(Some(error)),
                },
            }
        }
        match (kind, failure) {
            (_, Some(error)) => Err(error),
            (Loop::Map | Loop::Filter, None) => Ok(Value::list(collected)),
            (Loop::ExistsOne, None) => Ok(Value::Bool(matches == 1)),
            (Loop::All, None) => Ok(Value::Bool(true)),
            (Loop::Exists, None) => Ok(Value::Bool(false)),
        }
    }
}

fn truth(value: Value) -> Result<bool, Error> {
    match value {
        Value::Bool(value) => Ok(value),
        _ => Err(Error::no_such_overload()),
    }
}

/// `operand[key]` and `operand.key`; the result is optional for `?`, or when the operand is.
fn select(operand: &Value, key: &Value, optional: bool) -> Result<Value, Error> {
    if let Value::Optional(inner) = operand {
        return match inner {
            None => Ok(Value::Optional(None)),
            Some(inner) => select(inner, key, true),
        };
    }
    let found = match operand {
        Value::Map(map) => {
            let found = map.entries.get(&key.key()?).cloned();
            // An optional lookup does not see the default.
            let found = found.or_else(|| map.default.clone().filter(|_| !optional));
            found.ok_or_else(|| {
                Error::runtime(format!("no such key: {}", key.key().map(|k| k.to_string()).unwrap_or_default()))
            })
        }
        Value::List(items) => {
            let index = match key {
                Value::Int(index) => usize::try_from(*index).ok(),
                Value::Uint(index) => usize::try_from(*index).ok(),
                Value::Double(index) if index.fract() == 0.0 && *index >= 0.0 => Some(*index as usize),
                _ => return Err(Error::no_such_overload()),
            };
            let found = index.and_then(|index| items.get(index).cloned());
            found.ok_or_else(|| Error::runtime("index out of bounds"))
        }
        _ => return Err(Error::no_such_overload()),
    };
    if optional { Ok(Value::Optional(found.ok().map(Arc::new))) } else { found }
}

fn unary(operator: &str, operand: &Value) -> Result<Value, Error> {
    match (operator, operand) {
        ("!", Value::Bool(value)) => Ok(Value::Bool(!value)),
        ("-", Value::Int(value)) => {
            value.checked_neg().map(Value::Int).ok_or_else(|| Error::runtime("integer overflow"))
        }
        ("-", Value::Double(value)) => Ok(Value::Double(-value)),
        _ => Err(Error::no_such_overload()),
    }
}

fn arithmetic(operator: &str, left: &Value, right: &Value) -> Result<Value, Error> {
    let zero = || match operator {
        "/" => Error::runtime("division by zero"),
        _ => Error::runtime("modulus by zero"),
    };
    match (left, right) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) if matches!(operator, "/" | "%") => {
            Err(zero())
        }
        (Value::Int(a), Value::Int(b)) => {
            let result = match operator {
                "+" => a.checked_add(*b),
                "-" => a.checked_sub(*b),
                "*" => a.checked_mul(*b),
                "/" => a.checked_div(*b),
                _ => a.checked_rem(*b),
            };
            result.map(Value::Int).ok_or_else(|| Error::runtime("integer overflow"))
        }
        (Value::Uint(a), Value::Uint(b)) => {
            let result = match operator {
                "+" => a.checked_add(*b),
                "-" => a.checked_sub(*b),
                "*" => a.checked_mul(*b),
                "/" => a.checked_div(*b),
                _ => a.checked_rem(*b),
            };
            result.map(Value::Uint).ok_or_else(|| Error::runtime("unsigned integer overflow"))
        }
        (Value::Double(a), Value::Double(b)) => match operator {
            "+" => Ok(Value::Double(a + b)),
            "-" => Ok(Value::Double(a - b)),
            "*" => Ok(Value::Double(a * b)),
            "/" => Ok(Value::Double(a / b)),
            _ => Err(Error::no_such_overload()),
        },
        (Value::String(a), Value::String(b)) if operator == "+" => Ok(Value::string(format!("{a}{b}"))),
        (Value::Bytes(a), Value::Bytes(b)) if operator == "+" => Ok(Value::Bytes([&**a, &**b].concat().into())),
        (Value::List(a), Value::List(b)) if operator == "+" => {
            Ok(Value::list(a.iter().chain(b.iter()).cloned().collect()))
        }
        _ => Err(Error::no_such_overload()),
    }
}
