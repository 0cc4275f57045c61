//! The most that an expression can cost, from the largest sizes of what it reads: upstream's estimate at admission.

mod calls;

use rustc_hash::FxHashMap;

use crate::ast::{Expression, Id, Loop, Node};
use crate::check::Checked;
use crate::cost::{IDENTIFIER, LIST, MAP, factor};
use crate::declarations::{Declared, Environment, Overload};
use crate::types::Type;
use crate::value::Value;

/// The largest cost of an expression.
pub(crate) fn estimate(checked: &Checked, environment: &Environment) -> u64 {
    let mut estimator = Estimator {
        checked,
        environment,
        places: FxHashMap::default(),
        scope: Vec::new(),
        sizes: FxHashMap::default(),
        entries: FxHashMap::default(),
    };
    estimator.cost(&checked.expression)
}

/// The sizes that a value may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    min: u64,
    max: u64,
}

impl Size {
    const UNKNOWN: Size = Size { min: 0, max: u64::MAX };

    fn exactly(size: u64) -> Self {
        Size { min: size, max: size }
    }

    fn union(self, other: Size) -> Size {
        Size { min: self.min.min(other.min), max: self.max.max(other.max) }
    }

    fn plus(self, other: Size) -> Size {
        Size { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    fn times(self, other: Size) -> Size {
        Size { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    /// The cost of going through it.
    fn by(self, of_each: f64) -> u64 {
        factor(self.max, of_each)
    }
}

/// The sizes of the keys and values of a list or map.
#[derive(Clone, Copy, Debug)]
struct EntrySize {
    is_list: bool,
    key: Size,
    value: Size,
}

impl EntrySize {
    fn union(self, other: EntrySize) -> EntrySize {
        let (key, value) = (self.key.union(other.key), self.value.union(other.value));
        EntrySize { is_list: self.is_list, key, value }
    }
}

/// The part of a declared variable that an expression reads: none when it reads none, and none inside when nothing is
/// declared of it.
type Place<'e> = Option<Option<&'e Declared>>;

struct Local<'e> {
    name: &'e str,
    place: Place<'e>,
    size: Option<Size>,
    entries: Option<EntrySize>,
}

/// An argument as the cost of a call sees it.
#[derive(Clone, Copy)]
struct Argument<'e> {
    expression: &'e Expression,
    of: &'e Type,
    place: Place<'e>,
    size: Option<Size>,
}

impl Argument<'_> {
    fn size(&self) -> Size {
        self.size.or_else(|| declared_size(self.place)).unwrap_or(Size::UNKNOWN)
    }
}

fn declared_size(place: Place<'_>) -> Option<Size> {
    place.flatten().map(|declared| Size { min: 0, max: declared.max_size })
}

struct Estimator<'e> {
    checked: &'e Checked,
    environment: &'e Environment,
    places: FxHashMap<Id, Place<'e>>,
    scope: Vec<Local<'e>>,
    sizes: FxHashMap<Id, Size>,
    entries: FxHashMap<Id, EntrySize>,
}

impl<'e> Estimator<'e> {
    fn cost(&mut self, expression: &'e Expression) -> u64 {
        match &expression.node {
            Node::Literal(_) | Node::Message(_) => 0,
            Node::Ident(name) => {
                let place = match self.local(name) {
                    Some(local) => local.place,
                    None => Some(self.environment.variable(name)),
                };
                self.places.insert(expression.id, place);
                IDENTIFIER
            }
            Node::Select { operand, test: true, .. } => self.cost(operand),
            Node::Select { operand, field, .. } => {
                let cost = self.cost(operand);
                let place = self.part(operand, field);
                self.places.insert(expression.id, place);
                match self.checked.type_of(operand) {
                    Type::Map(..) | Type::Named(_) => cost.saturating_add(IDENTIFIER),
                    _ => cost,
                }
            }
            Node::Call { target, function, args } => self.call(expression, target.as_deref(), function, args),
            Node::List { items, .. } => {
                let costs: Vec<u64> = items.iter().map(|item| self.cost(item)).collect();
                let value = self.union_of(items.iter());
                self.entries.insert(expression.id, EntrySize { is_list: true, key: Size::exactly(1), value });
                costs.into_iter().fold(LIST, u64::saturating_add)
            }
            Node::Map(entries) => {
                let mut cost = MAP;
                for entry in entries {
                    cost = cost.saturating_add(self.cost(&entry.key)).saturating_add(self.cost(&entry.value));
                }
                let key = self.union_of(entries.iter().map(|entry| &entry.key));
                let value = self.union_of(entries.iter().map(|entry| &entry.value));
                self.entries.insert(expression.id, EntrySize { is_list: false, key, value });
                cost
            }
            Node::Loop(of) if of.is_binding() => self.binding(expression, of),
            Node::Loop(of) => self.run(expression, of),
        }
    }

    fn union_of(&mut self, parts: impl Iterator<Item = &'e Expression>) -> Size {
        let sizes: Vec<Size> = parts.map(|part| self.size(part).unwrap_or(Size::UNKNOWN)).collect();
        sizes.into_iter().reduce(Size::union).unwrap_or(Size::exactly(0))
    }

    fn local(&self, name: &str) -> Option<&Local<'e>> {
        self.scope.iter().rev().find(|local| local.name == name)
    }

    fn place(&self, expression: &Expression) -> Place<'e> {
        if let Node::Ident(name) = &expression.node
            && let Some(local) = self.local(name)
        {
            return local.place;
        }
        self.places.get(&expression.id).copied().unwrap_or(None)
    }

    /// A part of what an expression reads.
    fn part(&self, of: &Expression, name: &str) -> Place<'e> {
        match self.place(of) {
            Some(declared) => Some(declared.and_then(|declared| declared.part(name))),
            None => Some(self.environment.variable(name)),
        }
    }

    fn size(&mut self, expression: &'e Expression) -> Option<Size> {
        if let Some(size) = self.sizes.get(&expression.id) {
            return Some(*size);
        }
        if let Some(size) = written_size(expression) {
            return Some(size);
        }
        if let Some(size) = declared_size(self.place(expression)) {
            self.sizes.insert(expression.id, size);
            return Some(size);
        }
        if self.checked.type_of(expression).is_scalar() {
            return Some(Size::exactly(1));
        }
        match &expression.node {
            Node::Ident(name) => self.local(name).and_then(|local| local.size),
            _ => None,
        }
    }

    fn entry_size(&self, expression: &Expression) -> Option<EntrySize> {
        if let Some(size) = self.entries.get(&expression.id) {
            return Some(*size);
        }
        match &expression.node {
            Node::Ident(name) => self.local(name).and_then(|local| local.entries),
            _ => None,
        }
    }

    fn set_size(&mut self, expression: &Expression, size: Option<Size>) {
        if let Some(size) = size {
            self.sizes.insert(expression.id, size);
        }
    }

    fn set_entry_size(&mut self, expression: &Expression, size: Option<EntrySize>) {
        if let Some(size) = size {
            self.entries.insert(expression.id, size);
        }
    }

    fn argument(&mut self, expression: &'e Expression) -> Argument<'e> {
        let (place, size) = (self.place(expression), self.size(expression));
        Argument { expression, of: self.checked.type_of(expression), place, size }
    }

    /// A variable that goes through keys or values of a range.
    fn push_element(&mut self, name: &'e str, range: &'e Expression, keys: bool, single: bool) {
        let entries = self.entry_size(range);
        let is_list = entries.map_or(matches!(self.checked.type_of(range), Type::List(_)), |entries| entries.is_list);
        let values = if single { is_list } else { !keys };
        let part = match (values, is_list) {
            (true, true) => "@items",
            (true, false) => "@values",
            (false, true) => "@indices",
            (false, false) => "@keys",
        };
        let place = self.part(range, part);
        let size = entries.map(|entries| if values { entries.value } else { entries.key });
        self.scope.push(Local { name, place, size, entries: None });
    }

    fn push_value(&mut self, name: &'e str, value: &'e Expression) {
        let (place, entries, size) = (self.place(value), self.entry_size(value), self.size(value));
        self.scope.push(Local { name, place, size, entries });
    }

    fn binding(&mut self, expression: &'e Expression, of: &'e Loop) -> u64 {
        let cost = self.cost(&of.range).saturating_add(self.cost(&of.init));
        self.push_value(&of.accumulator, &of.init);
        let cost = cost.saturating_add(self.cost(&of.result));
        // The sizes of the result are those of the body, read while the variable is still known.
        let (size, entries) = (self.size(&of.result), self.entry_size(&of.result));
        self.scope.pop();
        self.set_size(expression, size);
        self.set_entry_size(expression, entries);
        cost
    }

    fn run(&mut self, expression: &'e Expression, of: &'e Loop) -> u64 {
        let outer = self.scope.len();
        let cost = self.cost(&of.range).saturating_add(self.cost(&of.init));
        self.push_value(&of.accumulator, &of.init);
        match &of.value_variable {
            Some(value) => {
                self.push_element(&of.variable, &of.range, true, false);
                self.push_element(value, &of.range, false, false);
            }
            None => self.push_element(&of.variable, &of.range, true, true),
        }
        let each = self.cost(&of.condition).saturating_add(self.cost(&of.step));
        self.scope.truncate(outer + 1);
        let cost = cost.saturating_add(self.cost(&of.result));
        self.scope.truncate(outer);
        let count = self.size(&of.range).unwrap_or(Size::UNKNOWN);
        match &of.init.node {
            Node::Literal(_) => {
                let size = self.size(&of.init);
                self.set_size(expression, size);
            }
            Node::List { .. } | Node::Map(_) => {
                self.set_size(expression, Some(count));
                let entries = self.entry_size(&of.step);
                self.set_entry_size(expression, entries);
            }
            _ => {}
        }
        cost.saturating_add(count.max.saturating_mul(each))
    }

    fn call(
        &mut self,
        expression: &'e Expression,
        target: Option<&'e Expression>,
        function: &str,
        args: &'e [Expression],
    ) -> u64 {
        if let ("dyn", [arg]) = (function, args) {
            let cost = self.cost(arg).saturating_add(1);
            let (size, entries) = (self.size(arg), self.entry_size(arg));
            self.set_size(expression, size);
            self.set_entry_size(expression, entries);
            return cost;
        }
        let mut costs = Vec::with_capacity(args.len());
        let mut arguments = Vec::with_capacity(args.len());
        for arg in args {
            costs.push(self.cost(arg));
            arguments.push(self.argument(arg));
        }
        let mut cost = 0;
        let target = target.map(|target| {
            cost = self.cost(target);
            self.argument(target)
        });
        let (mut most, mut result) = (0, None::<Size>);
        let overloads: Vec<Option<&'static Overload>> = match self.checked.overloads[expression.id].as_slice() {
            // Selecting an optional field is no function, but costs like one.
            [] => vec![None],
            overloads => overloads.iter().map(|overload| Some(*overload)).collect(),
        };
        for overload in overloads {
            let call = calls::Call { function, overload, target, args: &arguments, costs: &costs };
            let (cost, size) = self.call_cost(expression, &call);
            most = most.max(cost);
            result = match (result, size) {
                (Some(a), Some(b)) => Some(a.union(b)),
                (a, b) => a.or(b),
            };
            let indexed = overload.filter(|_| function == "_[_]").and_then(|overload| match overload.parameters[0] {
                Type::List(_) => Some("@items"),
                Type::Map(..) => Some("@values"),
                _ => None,
            });
            if let Some(part) = indexed {
                result = self.entry_size(&args[0]).map(|entries| entries.value);
                let place = self.part(&args[0], part);
                self.places.insert(expression.id, place);
            }
            if result.is_none() {
                result = self.size(expression);
            }
        }
        self.set_size(expression, result);
        cost.saturating_add(most)
    }
}

/// The size that the text of an expression shows.
fn written_size(expression: &Expression) -> Option<Size> {
    let size = match &expression.node {
        Node::Literal(Value::String(text)) => text.chars().count(),
        Node::Literal(Value::Bytes(bytes)) => bytes.len(),
        Node::Literal(_) => 1,
        Node::List { items, .. } => items.len(),
        Node::Map(entries) => entries.len(),
        _ => return None,
    };
    Some(Size::exactly(size as u64))
}
