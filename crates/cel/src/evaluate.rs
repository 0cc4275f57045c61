//! Evaluates an expression to a value, and counts what it costs.

use std::sync::Arc;

use crate::Error;
use crate::ast::{Expression, Loop, Node};
use crate::cost::{IDENTIFIER, LIST, MAP, Meter};
use crate::declarations::named_type;
use crate::functions;
use crate::regexes::Regexes;
use crate::value::{Key, Map, Value};

/// A variable: a value, an error that reading it gives, or an expression that is evaluated when it is first read.
enum Slot<'e> {
    Known(Result<Value, Error>),
    Lazy(&'e Expression),
}

/// The variables in scope, and the cost so far.
pub(crate) struct Evaluation<'e> {
    variables: Vec<(&'e str, Slot<'e>)>,
    meter: Meter,
    regexes: &'e Regexes,
}

/// How a step changes the accumulator without reading it: a list or map is built in place.
enum Building<'e> {
    Items(&'e [Expression]),
    Constants(&'e [Value]),
    Entry(&'e [Expression]),
}

impl<'e> Evaluation<'e> {
    pub(crate) fn new(variables: Vec<(&'e str, Value)>, meter: Meter, regexes: &'e Regexes) -> Self {
        let variables = variables.into_iter().map(|(name, value)| (name, Slot::Known(Ok(value)))).collect();
        Evaluation { variables, meter, regexes }
    }

    pub(crate) fn spent(&self) -> u64 {
        self.meter.spent()
    }

    pub(crate) fn evaluate(&mut self, expression: &'e Expression) -> Result<Value, Error> {
        match &expression.node {
            Node::Literal(value) => Ok(value.clone()),
            Node::Ident(name) => self.variable(name),
            Node::Select { operand, field, test } => {
                let value = self.operand(operand)?;
                if *test {
                    self.meter.refund(if is_attribute(operand) { 0 } else { IDENTIFIER });
                    return has(&value, field);
                }
                self.meter.charge(IDENTIFIER)?;
                select(&value, &Value::string(field.as_str()), false)
            }
            Node::Call { target, function, args } => self.call(target.as_deref(), function, args),
            Node::List { items, optional } => self.list(items, optional),
            Node::Map(entries) => {
                let mut map = Map::default();
                for entry in entries {
                    let key = self.evaluate(&entry.key)?.key()?;
                    match self.evaluate(&entry.value)? {
                        Value::Optional(None) if entry.optional => {}
                        Value::Optional(Some(value)) if entry.optional => {
                            map.entries.insert(key, (*value).clone());
                        }
                        value => {
                            map.entries.insert(key, value);
                        }
                    }
                }
                self.meter.charge(MAP)?;
                Ok(Value::Map(Arc::new(map)))
            }
            Node::Message(_) => Err(Error::no_such_overload()),
            Node::Loop(of) if of.is_binding() => {
                self.variables.push((&of.accumulator, Slot::Lazy(&of.init)));
                let result = self.evaluate(&of.result);
                self.variables.pop();
                result
            }
            Node::Loop(of) => self.run(of),
        }
    }

    /// Evaluates what a field or an element is read of; what is no variable counts as one.
    fn operand(&mut self, operand: &'e Expression) -> Result<Value, Error> {
        let value = self.evaluate(operand)?;
        if !is_attribute(operand) {
            self.meter.charge(IDENTIFIER)?;
        }
        Ok(value)
    }

    fn variable(&mut self, name: &str) -> Result<Value, Error> {
        let name = name.trim_start_matches('.');
        let Some(at) = self.variables.iter().rposition(|(variable, _)| *variable == name) else {
            let of = named_type(name).ok_or_else(|| Error::runtime(format!("no such attribute(s): {name}")))?;
            return Ok(Value::Type(functions::type_name(&of)));
        };
        self.meter.charge(IDENTIFIER)?;
        match &self.variables[at].1 {
            Slot::Known(known) => known.clone(),
            Slot::Lazy(expression) => {
                let expression = *expression;
                // It sees the variables that were there before it.
                let inner = self.variables.split_off(at);
                let value = self.evaluate(expression);
                self.variables.extend(inner);
                if !value.as_ref().is_err_and(Error::is_fatal) {
                    self.variables[at].1 = Slot::Known(value.clone());
                }
                value
            }
        }
    }

    /// `&&` and `||`: one side may decide although the other fails.
    fn logic(&mut self, left: &'e Expression, right: &'e Expression, decisive: bool) -> Result<Value, Error> {
        let left = self.evaluate(left).and_then(truth);
        match left {
            Ok(answer) if answer == decisive => return Ok(Value::Bool(decisive)),
            Err(error) if error.is_fatal() => return Err(error),
            _ => {}
        }
        match (left, self.evaluate(right).and_then(truth)) {
            (_, Ok(answer)) if answer == decisive => Ok(Value::Bool(decisive)),
            (_, Err(error)) if error.is_fatal() => Err(error),
            (Err(error), _) | (_, Err(error)) => Err(error),
            (Ok(_), Ok(_)) => Ok(Value::Bool(!decisive)),
        }
    }

    fn list(&mut self, items: &'e [Expression], optional: &[usize]) -> Result<Value, Error> {
        let mut list = Vec::with_capacity(items.len());
        for (i, item) in items.iter().enumerate() {
            match self.evaluate(item)? {
                Value::Optional(None) if optional.contains(&i) => {}
                Value::Optional(Some(value)) if optional.contains(&i) => list.push((*value).clone()),
                value => list.push(value),
            }
        }
        self.meter.charge(LIST)?;
        Ok(Value::list(list))
    }

    /// An element or an optional field. Upstream does not count a variable that is the key, nor what is absent.
    fn element(&mut self, function: &str, operand: &'e Expression, key: &'e Expression) -> Result<Value, Error> {
        let operand = self.operand(operand)?;
        let value = self.evaluate(key)?;
        // A long key takes its time to be compared.
        self.meter.charge(IDENTIFIER + value.as_str().map_or(0, str::len) as u64 / 512)?;
        if is_attribute(key) {
            self.meter.refund(IDENTIFIER);
        }
        let found = select(&operand, &value, function != "_[_]")?;
        if matches!(found, Value::Optional(None)) && function == "_?._" {
            self.meter.refund(IDENTIFIER);
        }
        Ok(found)
    }

    fn conditional(&mut self, args: &'e [Expression]) -> Result<Value, Error> {
        let [condition, yes, no] = args else { return Err(Error::no_such_overload()) };
        let chosen = if truth(self.evaluate(condition)?)? { yes } else { no };
        let value = self.evaluate(chosen);
        if is_attribute(chosen) {
            self.meter.refund(IDENTIFIER);
        }
        value
    }

    fn call(
        &mut self,
        target: Option<&'e Expression>,
        function: &'e str,
        args: &'e [Expression],
    ) -> Result<Value, Error> {
        match (function, target, args) {
            ("_&&_", _, [left, right]) => return self.logic(left, right, false),
            ("_||_", _, [left, right]) => return self.logic(left, right, true),
            ("_?_:_", ..) => return self.conditional(args),
            ("@not_strictly_false", _, [arg]) => {
                let value = self.evaluate(arg);
                self.meter.charge(1)?;
                return match value {
                    Ok(Value::Bool(value)) => Ok(Value::Bool(value)),
                    Err(error) if error.is_fatal() => Err(error),
                    _ => Ok(Value::Bool(true)),
                };
            }
            ("_[_]" | "_[?_]" | "_?._", _, [operand, key]) => {
                return self.element(function, operand, key);
            }
            ("or" | "orValue", Some(target), [other]) => {
                return match (self.evaluate(target)?, function) {
                    (Value::Optional(None), _) => self.evaluate(other),
                    (Value::Optional(Some(inner)), "orValue") => Ok((*inner).clone()),
                    (some @ Value::Optional(_), _) => Ok(some),
                    _ => Err(Error::no_such_overload()),
                };
            }
            _ => {}
        }
        let mut values = Vec::with_capacity(args.len() + 1);
        for arg in target.into_iter().chain(args) {
            values.push(self.evaluate(arg)?);
        }
        // A list that is written out is a set to upstream.
        let is_set =
            function == "@in" && args.get(1).is_some_and(|list| matches!(list.literal(), Some(Value::List(_))));
        let call = functions::Call { name: function, args: &values, has_target: target.is_some(), is_set };
        call.run(&mut self.meter, self.regexes)
    }

    fn run(&mut self, of: &'e Loop) -> Result<Value, Error> {
        let range = self.evaluate(&of.range)?;
        let pairs = of.value_variable.is_some();
        let init = self.evaluate(&of.init);
        if let Some((filter, building)) = building(of) {
            let built = self.each(&range, pairs, |this, key, value| {
                this.with_element(of, key, value, |this| this.build(filter, &building))
            })?;
            self.variables.push((&of.accumulator, Slot::Known(built.and_then(|built| collected(init?, built)))));
        } else {
            self.variables.push((&of.accumulator, Slot::Known(init)));
            let at = self.variables.len() - 1;
            let ended = self.each(&range, pairs, |this, key, value| {
                this.with_element(of, key, value, |this| {
                    if !matches!(this.evaluate(&of.condition)?, Value::Bool(true)) {
                        return Ok(None);
                    }
                    match this.evaluate(&of.step) {
                        Err(error) if error.is_fatal() => Err(error),
                        value => {
                            this.variables[at].1 = Slot::Known(value);
                            Ok(Some(Vec::new()))
                        }
                    }
                })
            });
            if let Err(error) = ended {
                self.variables.truncate(at);
                return Err(error);
            }
        }
        let result = self.evaluate(&of.result);
        self.variables.pop();
        result
    }
}

/// Elements of a list, or entries of a map.
type Entries = Vec<(Option<Key>, Value)>;
/// What a step adds to a list or a map; none ends the loop.
type Added = Option<Entries>;

impl<'e> Evaluation<'e> {
    /// Goes through a range. The first error that is not fatal stays, as it would in an accumulator.
    fn each(
        &mut self,
        range: &Value,
        pairs: bool,
        mut step: impl FnMut(&mut Self, Value, Option<Value>) -> Result<Added, Error>,
    ) -> Result<Result<Entries, Error>, Error> {
        let mut built = Ok(Vec::new());
        let mut add = |this: &mut Self, key: Value, value: Option<Value>| -> Result<bool, Error> {
            match step(this, key, value) {
                Ok(None) => return Ok(false),
                Ok(Some(added)) => {
                    if let Ok(built) = &mut built {
                        built.extend(added);
                    }
                }
                Err(error) if error.is_fatal() => return Err(error),
                Err(error) => {
                    if built.is_ok() {
                        built = Err(error);
                    }
                }
            }
            Ok(true)
        };
        match range {
            Value::List(items) => {
                for (i, item) in items.iter().enumerate() {
                    let (key, value) =
                        if pairs { (Value::Int(i as i64), Some(item.clone())) } else { (item.clone(), None) };
                    if !add(self, key, value)? {
                        break;
                    }
                }
            }
            Value::Map(map) => {
                for (key, value) in &map.entries {
                    if !add(self, key.value(), pairs.then(|| value.clone()))? {
                        break;
                    }
                }
            }
            _ => return Err(Error::no_such_overload()),
        }
        Ok(built)
    }

    fn with_element(
        &mut self,
        of: &'e Loop,
        key: Value,
        value: Option<Value>,
        body: impl FnOnce(&mut Self) -> Result<Added, Error>,
    ) -> Result<Added, Error> {
        let outer = self.variables.len();
        self.variables.push((&of.variable, Slot::Known(Ok(key))));
        if let (Some(name), Some(value)) = (&of.value_variable, value) {
            self.variables.push((name, Slot::Known(Ok(value))));
        }
        let result = body(self);
        self.variables.truncate(outer);
        result
    }

    fn build(&mut self, filter: Option<&'e Expression>, building: &Building<'e>) -> Result<Added, Error> {
        if let Some(filter) = filter
            && !truth(self.evaluate(filter)?)?
        {
            return Ok(Some(Vec::new()));
        }
        // The accumulator is read, and the call is one.
        self.meter.charge(IDENTIFIER + 1)?;
        Ok(Some(match building {
            Building::Constants(values) => values.iter().map(|value| (None, value.clone())).collect(),
            Building::Items(items) => {
                self.meter.charge(LIST)?;
                items.iter().map(|item| Ok((None, self.evaluate(item)?))).collect::<Result<_, Error>>()?
            }
            Building::Entry([key, value]) => {
                let key = self.evaluate(key)?.key()?;
                vec![(Some(key), self.evaluate(value)?)]
            }
            Building::Entry(entries) => {
                let mut added = Vec::new();
                for entry in *entries {
                    let Value::Map(map) = self.evaluate(entry)? else { return Err(Error::no_such_overload()) };
                    added.extend(map.entries.iter().map(|(key, value)| (Some(key.clone()), value.clone())));
                }
                added
            }
        }))
    }
}

/// Whether a loop only adds to a list or a map, what it adds, and when.
fn building(of: &Loop) -> Option<(Option<&Expression>, Building<'_>)> {
    let is_accumulator =
        |expression: &Expression| matches!(&expression.node, Node::Ident(name) if *name == of.accumulator);
    let Node::Call { function, args, target: None } = &of.step.node else { return None };
    let (filter, step) = match (&**function, args.as_slice()) {
        ("_?_:_", [filter, step, otherwise]) if is_accumulator(otherwise) => (Some(filter), step),
        _ => (None, &of.step),
    };
    let Node::Call { function, args, target: None } = &step.node else { return None };
    let (_, rest) = args.split_first().filter(|(first, _)| is_accumulator(first))?;
    let building = match (&**function, rest) {
        ("_+_", [item]) => match &item.node {
            Node::List { items, optional } if optional.is_empty() => Building::Items(items),
            Node::Literal(Value::List(values)) => Building::Constants(values),
            _ => return None,
        },
        ("cel.@mapInsert", rest) => Building::Entry(rest),
        _ => return None,
    };
    matches!(of.condition.literal(), Some(Value::Bool(true))).then_some((filter, building))
}

fn collected(init: Value, built: Entries) -> Result<Value, Error> {
    match init {
        Value::Map(map) => {
            let mut map = (*map).clone();
            for (key, value) in built {
                let key = key.ok_or_else(Error::no_such_overload)?;
                if map.entries.contains_key(&key) {
                    return Err(Error::runtime(format!("insert failed: key {key} already exists")));
                }
                map.entries.insert(key, value);
            }
            Ok(Value::Map(Arc::new(map)))
        }
        _ => Ok(Value::list(built.into_iter().map(|(_, value)| value).collect())),
    }
}

/// Whether an expression reads a variable, or a part of one.
fn is_attribute(expression: &Expression) -> bool {
    match &expression.node {
        Node::Ident(_) => true,
        Node::Select { test, .. } => !test,
        Node::Call { function, .. } => matches!(&**function, "_[_]" | "_[?_]" | "_?._"),
        _ => false,
    }
}

pub(crate) fn truth(value: Value) -> Result<bool, Error> {
    match value {
        Value::Bool(value) => Ok(value),
        _ => Err(Error::no_such_overload()),
    }
}

/// Whether a field is there; a default makes every field of a map be there.
fn has(value: &Value, field: &str) -> Result<Value, Error> {
    match value {
        Value::Map(map) => {
            Ok(Value::Bool(map.default.is_some() || map.entries.contains_key(&Key::String(field.into()))))
        }
        Value::Optional(None) => Ok(Value::Bool(false)),
        Value::Optional(Some(inner)) => has(inner, field),
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
            let key = key.key()?;
            let found = map.entries.get(&key).or(map.default.as_ref()).cloned();
            found.ok_or_else(|| Error::runtime(format!("no such key: {key}")))
        }
        Value::List(items) => {
            let index = match key {
                Value::Int(index) => usize::try_from(*index).ok(),
                Value::Uint(index) => usize::try_from(*index).ok(),
                Value::Double(index) if index.fract() == 0.0 && *index >= 0.0 => Some(*index as usize),
                _ => return Err(Error::no_such_overload()),
            };
            let found = index.and_then(|index| items.get(index).cloned());
            found.ok_or_else(|| Error::runtime(format!("index out of bounds: {}", functions::shown(key))))
        }
        _ => Err(Error::runtime(format!("no such key: {}", key.key()?))),
    };
    if optional { Ok(Value::Optional(found.ok().map(Arc::new))) } else { found }
}
