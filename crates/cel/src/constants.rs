//! Evaluates what is constant once, before an expression runs. Upstream does, and does not count it when it runs.

use std::sync::Arc;

use crate::Error;
use crate::ast::{Expression, Loop, Node};
use crate::functions::{convert, of_call, times_convert};
use crate::regexes;
use crate::value::{Map, Value};

/// Replaces what is constant by its value.
pub(crate) fn fold(expression: &mut Expression) -> Result<(), Error> {
    match &mut expression.node {
        Node::Literal(_) | Node::Ident(_) | Node::Message(_) => return Ok(()),
        Node::Select { operand, .. } => return fold(operand),
        Node::Call { target, args, .. } => {
            target.iter_mut().try_for_each(|target| fold(target))?;
            args.iter_mut().try_for_each(fold)?;
        }
        Node::List { items, .. } => items.iter_mut().try_for_each(fold)?,
        Node::Map(entries) => {
            for entry in entries {
                fold(&mut entry.key)?;
                fold(&mut entry.value)?;
            }
        }
        Node::Loop(of) => {
            let Loop { range, init, condition, step, result, .. } = &mut **of;
            return [range, init, condition, step, result].into_iter().try_for_each(fold);
        }
    }
    if let Some(value) = constant(expression)? {
        expression.node = Node::Literal(value);
    }
    Ok(())
}

fn constant(expression: &Expression) -> Result<Option<Value>, Error> {
    match &expression.node {
        Node::List { items, optional } if optional.is_empty() => {
            let values: Option<Vec<Value>> = items.iter().map(|item| item.literal().cloned()).collect();
            Ok(values.map(Value::list))
        }
        Node::Map(entries) if entries.iter().all(|entry| !entry.optional) => {
            let mut map = Map::default();
            for entry in entries {
                let (Some(key), Some(value)) = (entry.key.literal(), entry.value.literal()) else { return Ok(None) };
                map.entries.insert(key.key()?, value.clone());
            }
            Ok(Some(Value::Map(Arc::new(map))))
        }
        Node::Call { function, args, target: None } => {
            let [arg] = args.as_slice() else { return Ok(None) };
            let Some(value) = arg.literal() else { return Ok(None) };
            let value_of = |convert: fn(&str, &Value) -> Result<Value, Error>| {
                convert(function, value)
                    .map(Some)
                    .map_err(|error| of_call(error, function, std::slice::from_ref(value)))
            };
            match &**function {
                "dyn" => Ok(Some(value.clone())),
                "type" => Ok(Some(Value::Type(value.type_name()))),
                "bool" | "bytes" | "double" | "int" | "string" | "uint" => value_of(convert),
                "duration" | "timestamp" => value_of(times_convert),
                _ => Ok(None),
            }
        }
        Node::Call { function, args, target: Some(_) } if matches!(&**function, "find" | "findAll") => {
            match args.first().and_then(|arg| arg.literal()).and_then(|value| value.as_str()) {
                Some(pattern) => regexes::check(pattern).map(|()| None),
                None => Ok(None),
            }
        }
        _ => Ok(None),
    }
}
