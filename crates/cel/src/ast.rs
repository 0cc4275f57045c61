//! An expression as a tree of eight kinds of nodes; macros are expanded into loops.

use std::borrow::Cow;

use crate::value::Value;

/// Names a node; what is found out about it is kept by this number.
pub(crate) type Id = usize;

/// A node of an expression.
#[derive(Clone, Debug)]
pub(crate) struct Expression {
    pub(crate) id: Id,
    pub(crate) node: Node,
}

/// What an expression is made of.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    Literal(Value),
    Ident(Cow<'static, str>),
    /// `operand.field`; a test asks whether it is there.
    Select {
        operand: Box<Expression>,
        field: String,
        test: bool,
    },
    Call {
        target: Option<Box<Expression>>,
        function: Cow<'static, str>,
        args: Vec<Expression>,
    },
    List {
        items: Vec<Expression>,
        /// The places of items that are left out when they are absent.
        optional: Vec<usize>,
    },
    Map(Vec<Entry>),
    /// `Name{…}`: there is no such type.
    Message(String),
    Loop(Box<Loop>),
}

/// An entry of a map.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: Expression,
    pub(crate) value: Expression,
    pub(crate) optional: bool,
}

/// Goes through a range and accumulates a result.
#[derive(Clone, Debug)]
pub(crate) struct Loop {
    pub(crate) range: Expression,
    pub(crate) variable: String,
    /// The second variable: of a list, the first is the index; of a map, the first is the key.
    pub(crate) value_variable: Option<String>,
    pub(crate) accumulator: String,
    pub(crate) init: Expression,
    /// The loop goes on while it holds.
    pub(crate) condition: Expression,
    pub(crate) step: Expression,
    pub(crate) result: Expression,
}

/// The accumulator of a macro's loop; no identifier can have this name.
pub(crate) const ACCUMULATOR: &str = "@result";

impl Loop {
    /// True for a loop that never runs: it only gives its accumulator a name. Upstream binds in this way.
    pub(crate) fn is_binding(&self) -> bool {
        let is_empty = match &self.range.node {
            Node::List { items, .. } => items.is_empty(),
            Node::Literal(Value::List(items)) => items.is_empty(),
            _ => false,
        };
        is_empty && matches!(self.condition.node, Node::Literal(Value::Bool(false))) && self.accumulator != ACCUMULATOR
    }

    /// The five parts in the order in which upstream looks at them.
    pub(crate) fn parts(&self) -> [&Expression; 5] {
        [&self.range, &self.init, &self.condition, &self.step, &self.result]
    }
}

impl Expression {
    /// Visits this node and all below it, parents first.
    pub(crate) fn visit<'e>(&'e self, see: &mut impl FnMut(&'e Expression)) {
        see(self);
        match &self.node {
            Node::Literal(_) | Node::Ident(_) | Node::Message(_) => {}
            Node::Select { operand, .. } => operand.visit(see),
            Node::Call { target, args, .. } => {
                target.iter().for_each(|target| target.visit(see));
                args.iter().for_each(|arg| arg.visit(see));
            }
            Node::List { items, .. } => items.iter().for_each(|item| item.visit(see)),
            Node::Map(entries) => entries.iter().for_each(|entry| {
                entry.key.visit(see);
                entry.value.visit(see);
            }),
            Node::Loop(of) => of.parts().into_iter().for_each(|part| part.visit(see)),
        }
    }

    pub(crate) fn literal(&self) -> Option<&Value> {
        match &self.node {
            Node::Literal(value) => Some(value),
            _ => None,
        }
    }

    /// The dotted name that this expression spells, if it spells one.
    pub(crate) fn dotted_name(&self) -> Option<String> {
        match &self.node {
            Node::Ident(name) => Some(name.to_string()),
            Node::Select { operand, field, test: false } => Some(format!("{}.{field}", operand.dotted_name()?)),
            _ => None,
        }
    }
}
