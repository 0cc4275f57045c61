//! Expands macros: `has`, the loops over lists and maps, `cel.bind`, `optMap` and `sortBy`.
//!
//! What a macro stands for is fixed by its cost, which upstream counts for the parts: the loops here have its parts.

use std::borrow::Cow;

use crate::ast::{ACCUMULATOR, Expression, Loop, Node};
use crate::parse::Parser;
use crate::value::Value;

/// The most nodes of an expression. A text of the largest size, 10 KiB, has some ten thousand without copies.
const NODES_MAX: usize = 50_000;

/// A call without a target.
pub(crate) fn global(parser: &mut Parser<'_>, position: usize, name: String, mut args: Vec<Expression>) -> Expression {
    if name == "has" && args.len() == 1 {
        let at = parser.position(&args[0]);
        return match args.swap_remove(0).node {
            Node::Select { operand, field, .. } => parser.node(position, Node::Select { operand, field, test: true }),
            _ => refuse(parser, at, "invalid argument to has() macro"),
        };
    }
    parser.node(position, Node::Call { target: None, function: Cow::Owned(name), args })
}

/// A call with a target.
pub(crate) fn of_target(
    parser: &mut Parser<'_>,
    position: usize,
    target: Expression,
    name: &str,
    args: Vec<Expression>,
) -> Expression {
    let mut macros = Macro { parser, at: position };
    match (name, args.len()) {
        ("all" | "exists" | "exists_one" | "map" | "filter", 2) | ("map", 3) => macros.over_items(target, name, args),
        ("all" | "exists" | "existsOne" | "exists_one", 3)
        | ("transformList" | "transformMap" | "transformMapEntry", 3 | 4) => macros.over_pairs(target, name, args),
        ("optMap" | "optFlatMap", 2) => macros.optional_map(target, name, args),
        ("sortBy", 2) => macros.sort_by(target, args),
        ("bind", 3) if matches!(&target.node, Node::Ident(name) if name == "cel") => macros.bind(args),
        _ => {
            let function = Cow::Owned(name.to_owned());
            parser.node(position, Node::Call { target: Some(target.into()), function, args })
        }
    }
}

fn refuse(parser: &mut Parser<'_>, at: usize, message: impl Into<String>) -> Expression {
    parser.fault(at, message);
    parser.node(at, Node::Literal(Value::Null))
}

/// Makes the nodes of one expansion.
struct Macro<'p, 't> {
    parser: &'p mut Parser<'t>,
    at: usize,
}

/// The variables and the parts of a loop.
struct LoopParts {
    range: Expression,
    variables: (String, Option<String>),
    init: Expression,
    condition: Expression,
    step: Expression,
    result: Expression,
}

impl Macro<'_, '_> {
    fn literal(&mut self, value: Value) -> Expression {
        self.parser.node(self.at, Node::Literal(value))
    }

    fn call(&mut self, function: &'static str, args: Vec<Expression>) -> Expression {
        self.parser.call(self.at, function, args)
    }

    fn method(&mut self, target: Expression, function: &'static str, args: Vec<Expression>) -> Expression {
        let node = Node::Call { target: Some(target.into()), function: Cow::Borrowed(function), args };
        self.parser.node(self.at, node)
    }

    fn list(&mut self, items: Vec<Expression>) -> Expression {
        self.parser.node(self.at, Node::List { items, optional: Vec::new() })
    }

    fn ident(&mut self, name: impl Into<Cow<'static, str>>) -> Expression {
        self.parser.node(self.at, Node::Ident(name.into()))
    }

    fn accumulator(&mut self) -> Expression {
        self.ident(ACCUMULATOR)
    }

    fn run(&mut self, parts: LoopParts) -> Expression {
        let LoopParts { range, variables: (variable, value_variable), init, condition, step, result } = parts;
        let accumulator = ACCUMULATOR.to_owned();
        let of = Loop { range, variable, value_variable, accumulator, init, condition, step, result };
        self.parser.node(self.at, Node::Loop(Box::new(of)))
    }

    /// Gives a value a name: a loop that never runs.
    fn named(&mut self, accumulator: String, init: Expression, result: Expression) -> Expression {
        let range = self.list(Vec::new());
        let condition = self.literal(Value::Bool(false));
        let step = self.ident(accumulator.clone());
        let (variable, value_variable) = ("#unused".to_owned(), None);
        let of = Loop { range, variable, value_variable, accumulator, init, condition, step, result };
        self.parser.node(self.at, Node::Loop(Box::new(of)))
    }

    /// The name of a variable, or a fault with this message.
    fn variable(&mut self, argument: &Expression, message: &str) -> Result<String, Expression> {
        let at = self.parser.position(argument);
        match &argument.node {
            Node::Ident(name) if name == "__result__" => {
                Err(refuse(self.parser, at, "iteration variable overwrites accumulator variable"))
            }
            Node::Ident(name) => Ok(name.to_string()),
            _ => Err(refuse(self.parser, at, message)),
        }
    }

    fn over_items(&mut self, range: Expression, name: &str, mut args: Vec<Expression>) -> Expression {
        let message = if matches!(name, "map" | "filter") {
            "argument is not an identifier"
        } else {
            "argument must be a simple name"
        };
        let variable = match self.variable(&args[0], message) {
            Ok(variable) => variable,
            Err(refused) => return refused,
        };
        let first = args.remove(0);
        self.combine(range, (variable, None), name, args, first)
    }

    fn over_pairs(&mut self, range: Expression, name: &str, mut args: Vec<Expression>) -> Expression {
        let message = "argument must be a simple name";
        let (key, value) = match (self.variable(&args[0], message), self.variable(&args[1], message)) {
            (Ok(key), Ok(value)) => (key, value),
            (Err(refused), _) | (_, Err(refused)) => return refused,
        };
        if key == value {
            let at = self.parser.position(&args[1]);
            return refuse(self.parser, at, format!("duplicate variable name: {key}"));
        }
        let first = args.remove(0);
        args.remove(0);
        self.combine(range, (key, Some(value)), name, args, first)
    }

    /// The loop of a macro: `args` are the optional filter and the body, `first` is the first variable.
    fn combine(
        &mut self,
        range: Expression,
        variables: (String, Option<String>),
        name: &str,
        mut args: Vec<Expression>,
        first: Expression,
    ) -> Expression {
        let body = args.pop().unwrap_or_else(|| first.clone());
        let filter = args.pop();
        let (init, condition, step, result) = match name {
            "all" => self.all(body),
            "exists" => self.exists(body),
            "exists_one" | "existsOne" => self.exists_one(body),
            "filter" => self.collect(Some(body), first),
            "map" | "transformList" => self.collect(filter, body),
            _ => self.collect_map(filter, body, (name == "transformMap").then(|| variables.0.clone())),
        };
        self.run(LoopParts { range, variables, init, condition, step, result })
    }

    fn all(&mut self, body: Expression) -> (Expression, Expression, Expression, Expression) {
        let init = self.literal(Value::Bool(true));
        let accumulator = self.accumulator();
        let condition = self.call("@not_strictly_false", vec![accumulator]);
        let accumulator = self.accumulator();
        let step = self.call("_&&_", vec![accumulator, body]);
        (init, condition, step, self.accumulator())
    }

    fn exists(&mut self, body: Expression) -> (Expression, Expression, Expression, Expression) {
        let init = self.literal(Value::Bool(false));
        let accumulator = self.accumulator();
        let not = self.call("!_", vec![accumulator]);
        let condition = self.call("@not_strictly_false", vec![not]);
        let accumulator = self.accumulator();
        let step = self.call("_||_", vec![accumulator, body]);
        (init, condition, step, self.accumulator())
    }

    fn exists_one(&mut self, body: Expression) -> (Expression, Expression, Expression, Expression) {
        let init = self.literal(Value::Int(0));
        let condition = self.literal(Value::Bool(true));
        let (accumulator, one) = (self.accumulator(), self.literal(Value::Int(1)));
        let more = self.call("_+_", vec![accumulator, one]);
        let accumulator = self.accumulator();
        let step = self.call("_?_:_", vec![body, more, accumulator]);
        let (accumulator, one) = (self.accumulator(), self.literal(Value::Int(1)));
        (init, condition, step, self.call("_==_", vec![accumulator, one]))
    }

    fn collect(
        &mut self,
        filter: Option<Expression>,
        item: Expression,
    ) -> (Expression, Expression, Expression, Expression) {
        let init = self.list(Vec::new());
        let condition = self.literal(Value::Bool(true));
        let accumulator = self.accumulator();
        let item = self.list(vec![item]);
        let step = self.call("_+_", vec![accumulator, item]);
        let step = self.filtered(filter, step);
        (init, condition, step, self.accumulator())
    }

    fn collect_map(
        &mut self,
        filter: Option<Expression>,
        body: Expression,
        key: Option<String>,
    ) -> (Expression, Expression, Expression, Expression) {
        let init = self.parser.node(self.at, Node::Map(Vec::new()));
        let condition = self.literal(Value::Bool(true));
        let mut args = vec![self.accumulator()];
        args.extend(key.map(|key| self.ident(key)));
        args.push(body);
        let step = self.call("cel.@mapInsert", args);
        let step = self.filtered(filter, step);
        (init, condition, step, self.accumulator())
    }

    fn filtered(&mut self, filter: Option<Expression>, step: Expression) -> Expression {
        let Some(filter) = filter else { return step };
        let accumulator = self.accumulator();
        self.call("_?_:_", vec![filter, step, accumulator])
    }

    fn bind(&mut self, args: Vec<Expression>) -> Expression {
        let Ok([name, value, body]) = <[Expression; 3]>::try_from(args) else {
            return self.literal(Value::Null);
        };
        match &name.node {
            Node::Ident(variable) => self.named(variable.to_string(), value, body),
            _ => {
                let at = self.parser.position(&name);
                refuse(self.parser, at, "cel.bind() variable names must be simple identifiers")
            }
        }
    }

    fn optional_map(&mut self, target: Expression, name: &str, args: Vec<Expression>) -> Expression {
        let Ok([variable, body]) = <[Expression; 2]>::try_from(args) else { return self.literal(Value::Null) };
        let Node::Ident(variable_name) = &variable.node else {
            let at = self.parser.position(&variable);
            return refuse(self.parser, at, format!("{name}() variable name must be a simple identifier"));
        };
        if self.is_too_large(&target) {
            return refuse(self.parser, self.at, "expression is too large");
        }
        let again = self.copy(&target);
        let value = self.method(again, "value", Vec::new());
        let mut mapped = self.named(variable_name.to_string(), value, body);
        if name == "optMap" {
            mapped = self.call("optional.of", vec![mapped]);
        }
        let has_value = self.method(target, "hasValue", Vec::new());
        let none = self.call("optional.none", Vec::new());
        self.call("_?_:_", vec![has_value, mapped, none])
    }

    fn sort_by(&mut self, target: Expression, args: Vec<Expression>) -> Expression {
        if matches!(target.node, Node::Literal(_) | Node::Map(_) | Node::Message(_)) {
            let at = self.parser.position(&target);
            let message = "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
            return refuse(self.parser, at, message);
        }
        const INPUT: &str = "@__sortBy_input__";
        let input = self.ident(INPUT);
        let keys = self.over_items(input, "map", args);
        let input = self.ident(INPUT);
        let sorted = self.method(input, "@sortByAssociatedKeys", vec![keys]);
        self.named(INPUT.to_owned(), target, sorted)
    }

    /// Whether a copy would make the expression too large: in a chain of `optMap`, each link doubles what is before it.
    fn is_too_large(&self, target: &Expression) -> bool {
        let mut nodes = self.parser.node_count();
        target.visit(&mut |_| nodes += 1);
        nodes > NODES_MAX
    }

    /// The same expression again, with ids of its own.
    fn copy(&mut self, of: &Expression) -> Expression {
        let mut copy = of.clone();
        self.renumber(&mut copy);
        copy
    }

    fn renumber(&mut self, of: &mut Expression) {
        let position = self.parser.position(of);
        of.id = self.parser.node(position, Node::Literal(Value::Null)).id;
        match &mut of.node {
            Node::Literal(_) | Node::Ident(_) | Node::Message(_) => {}
            Node::Select { operand, .. } => self.renumber(operand),
            Node::Call { target, args, .. } => {
                target.iter_mut().for_each(|target| self.renumber(target));
                args.iter_mut().for_each(|arg| self.renumber(arg));
            }
            Node::List { items, .. } => items.iter_mut().for_each(|item| self.renumber(item)),
            Node::Map(entries) => entries.iter_mut().for_each(|entry| {
                self.renumber(&mut entry.key);
                self.renumber(&mut entry.value);
            }),
            Node::Loop(of) => {
                let Loop { range, init, condition, step, result, .. } = &mut **of;
                [range, init, condition, step, result].into_iter().for_each(|part| self.renumber(part));
            }
        }
    }
}
