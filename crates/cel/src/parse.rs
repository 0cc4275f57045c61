//! Parses tokens into an expression.

use std::borrow::Cow;

use crate::ast::{Entry, Expression, Id, Node};
use crate::macros;
use crate::source::Fault;
use crate::tokens::{Kind, Token, tokens};
use crate::value::Value;

/// The deepest nesting of an expression, and of operators and members in it: upstream's limits. `tests/bounds.rs` shows
/// that such an expression fits the 2 MiB of a thread's stack.
pub(crate) const DEPTH_MAX: usize = 250;

/// What may begin an expression, as upstream's messages list it.
const EXPRESSION_STARTS: &str = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, \
                                 STRING, BYTES, IDENTIFIER}";

/// Words that are no variables.
const RESERVED: [&str; 18] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
    "in",
];

/// A parsed expression and where its nodes are, by their ids.
pub(crate) struct Parsed {
    pub(crate) expression: Expression,
    pub(crate) positions: Vec<usize>,
}

/// Parses an expression.
pub(crate) fn parse(text: &str) -> Result<Parsed, Vec<Fault>> {
    let (tokens, faults) = tokens(text);
    let mut parser = Parser { tokens, at: 0, nesting: 0, depth: 0, positions: Vec::new(), faults };
    let parsed = parser.expression().and_then(|expression| parser.end().map(|()| expression));
    let expression = match parsed {
        Ok(expression) if parser.faults.is_empty() => expression,
        Ok(_) => return Err(parser.faults),
        Err(fault) => {
            parser.faults.push(fault);
            return Err(parser.faults);
        }
    };
    Ok(Parsed { expression, positions: parser.positions })
}

pub(crate) struct Parser<'t> {
    tokens: Vec<Token<'t>>,
    at: usize,
    /// Expressions within expressions.
    nesting: usize,
    /// Operators and members within each other.
    depth: usize,
    positions: Vec<usize>,
    faults: Vec<Fault>,
}

/// Binary operators and the functions they call, loosest first; those of one row bind equally.
const LEVELS: [&[(&str, &str)]; 5] = [
    &[("||", "_||_")],
    &[("&&", "_&&_")],
    &[("==", "_==_"), ("!=", "_!=_"), ("<", "_<_"), ("<=", "_<=_"), (">", "_>_"), (">=", "_>=_"), ("in", "@in")],
    &[("+", "_+_"), ("-", "_-_")],
    &[("*", "_*_"), ("/", "_/_"), ("%", "_%_")],
];

impl<'t> Parser<'t> {
    fn peek(&self) -> &Token<'t> {
        &self.tokens[self.at]
    }

    fn look_ahead(&self, by: usize) -> &Token<'t> {
        &self.tokens[(self.at + by).min(self.tokens.len() - 1)]
    }

    fn is(&self, symbol: &'static str) -> bool {
        self.peek().kind == Kind::Symbol(symbol)
    }

    fn bump(&mut self) -> Token<'t> {
        let token = self.tokens[self.at].clone();
        // The last token is `End` and stays.
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    fn accept(&mut self, symbol: &'static str) -> bool {
        let is = self.is(symbol);
        if is {
            self.bump();
        }
        is
    }

    fn syntax_error(&self, message: impl std::fmt::Display) -> Fault {
        Fault::new(self.peek().at, format!("Syntax error: {message}"))
    }

    fn expect(&mut self, symbol: &'static str) -> Result<(), Fault> {
        if self.accept(symbol) {
            return Ok(());
        }
        let text = self.peek().text;
        if symbol != ":" && self.peek().kind != Kind::End {
            return Err(self.syntax_error(format_args!("mismatched input '{text}' expecting '{symbol}'")));
        }
        Err(self.syntax_error(format_args!("missing '{symbol}' at '{text}'")))
    }

    fn end(&mut self) -> Result<(), Fault> {
        let text = self.peek().text;
        match (&self.peek().kind, &self.look_ahead(1).kind) {
            (Kind::End, _) => Ok(()),
            (_, Kind::End) => Err(self.syntax_error(format_args!("extraneous input '{text}' expecting <EOF>"))),
            _ => Err(self.syntax_error(format_args!("mismatched input '{text}' expecting <EOF>"))),
        }
    }

    fn id(&mut self, position: usize) -> Id {
        self.positions.push(position);
        self.positions.len() - 1
    }

    /// A new node at a place in the text.
    pub(crate) fn node(&mut self, position: usize, node: Node) -> Expression {
        Expression { id: self.id(position), node }
    }

    /// A call of a function without a target.
    pub(crate) fn call(&mut self, position: usize, function: &'static str, args: Vec<Expression>) -> Expression {
        self.node(position, Node::Call { target: None, function: Cow::Borrowed(function), args })
    }

    pub(crate) fn node_count(&self) -> usize {
        self.positions.len()
    }

    pub(crate) fn position(&self, of: &Expression) -> usize {
        self.positions[of.id]
    }

    pub(crate) fn fault(&mut self, position: usize, message: impl Into<String>) {
        self.faults.push(Fault::new(position, message));
    }

    fn deeper(&mut self) -> Result<(), Fault> {
        self.depth += 1;
        if self.depth > DEPTH_MAX { Err(Fault::of_all("max recursion depth exceeded")) } else { Ok(()) }
    }

    fn expression(&mut self) -> Result<Expression, Fault> {
        self.nesting += 1;
        if self.nesting > DEPTH_MAX {
            return Err(Fault::of_all(format!("expression recursion limit exceeded: {DEPTH_MAX}")));
        }
        let condition = self.binary(0)?;
        let expression = if self.is("?") {
            let position = self.bump().at;
            let yes = self.binary(0)?;
            if !self.accept(":") {
                let text = self.peek().text;
                return Err(self.syntax_error(format_args!("mismatched input '{text}' expecting ':'")));
            }
            let no = self.expression()?;
            self.call(position, "_?_:_", vec![condition, yes, no])
        } else {
            condition
        };
        self.nesting -= 1;
        Ok(expression)
    }

    /// Operators of this level and tighter ones. Climbs by precedence, so that nesting costs few stack frames.
    fn binary(&mut self, loosest: usize) -> Result<Expression, Fault> {
        let mut left = self.unary()?;
        let depth = self.depth;
        while let Some((function, level, position)) = self.operator(loosest) {
            if level < 2 {
                // Associative operators are regrouped, so that a long chain is not a deep tree.
                let mut terms = vec![left, self.binary(level + 1)?];
                let mut positions = vec![position];
                while let Some((_, _, position)) = self.operator(level) {
                    positions.push(position);
                    terms.push(self.binary(level + 1)?);
                }
                left = self.balanced(function, terms, &positions);
                continue;
            }
            self.deeper()?;
            let right = self.binary(level + 1)?;
            left = self.call(position, function, vec![left, right]);
        }
        self.depth = depth;
        Ok(left)
    }

    /// A balanced tree of terms joined by an associative operator.
    fn balanced(&mut self, function: &'static str, terms: Vec<Expression>, positions: &[usize]) -> Expression {
        let mut level: Vec<Expression> = terms;
        let position = positions[positions.len() / 2];
        while level.len() > 1 {
            let mut pairs = Vec::with_capacity(level.len().div_ceil(2));
            let mut rest = level.into_iter();
            while let Some(left) = rest.next() {
                pairs.push(match rest.next() {
                    Some(right) => self.call(position, function, vec![left, right]),
                    None => left,
                });
            }
            level = pairs;
        }
        level.swap_remove(0)
    }

    /// Takes an operator that binds at least as tightly as the level says.
    fn operator(&mut self, loosest: usize) -> Option<(&'static str, usize, usize)> {
        let token = self.peek();
        let text = match token.kind {
            Kind::Symbol(symbol) => symbol,
            Kind::Ident if token.text == "in" => "in",
            _ => return None,
        };
        let mut levels = LEVELS.iter().enumerate().skip(loosest);
        let found = levels.find_map(|(level, row)| {
            row.iter().find(|(symbol, _)| *symbol == text).map(|(_, function)| (*function, level))
        });
        let (function, level) = found?;
        let position = self.bump().at;
        Some((function, level, position))
    }

    fn unary(&mut self) -> Result<Expression, Fault> {
        for (symbol, function) in [("!", "!_"), ("-", "-_")] {
            let position = self.peek().at;
            let mut count = 0;
            let is_number = |token: &Token<'_>| matches!(token.kind, Kind::Int | Kind::Double);
            while self.is(symbol) && !(symbol == "-" && count % 2 == 0 && is_number(self.look_ahead(1))) {
                self.bump();
                count += 1;
            }
            if count > 0 {
                let operand = self.member()?;
                let twice = count % 2 == 0;
                return Ok(if twice { operand } else { self.call(position, function, vec![operand]) });
            }
        }
        self.member()
    }

    fn member(&mut self) -> Result<Expression, Fault> {
        let mut operand = self.primary()?;
        let depth = self.depth;
        loop {
            let position = self.peek().at;
            if self.accept(".") {
                self.deeper()?;
                operand = self.dotted(operand, position)?;
            } else if self.accept("[") {
                self.deeper()?;
                let function = if self.accept("?") { "_[?_]" } else { "_[_]" };
                let index = self.expression()?;
                self.expect("]")?;
                operand = self.call(position, function, vec![operand, index]);
            } else {
                self.depth = depth;
                return Ok(operand);
            }
        }
    }

    /// What follows a dot: a field, an optional field or a call.
    fn dotted(&mut self, operand: Expression, position: usize) -> Result<Expression, Fault> {
        let optional = self.accept("?");
        let token = self.peek().clone();
        if token.kind != Kind::Ident || token.text == "in" {
            let seen = if token.kind == Kind::End { "" } else { token.text };
            return Err(self.syntax_error(format_args!("no viable alternative at input '.{seen}'")));
        }
        if matches!(token.text, "true" | "false" | "null") {
            return Err(self.syntax_error(format_args!("mismatched input '{}' expecting IDENTIFIER", token.text)));
        }
        self.bump();
        if optional {
            let field = self.node(token.at, Node::Literal(Value::string(token.text)));
            return Ok(self.call(position, "_?._", vec![operand, field]));
        }
        if !self.is("(") {
            let select = Node::Select { operand: operand.into(), field: token.text.to_owned(), test: false };
            return Ok(self.node(position, select));
        }
        let position = self.bump().at;
        let args = self.arguments()?;
        Ok(macros::of_target(self, position, operand, token.text, args))
    }

    fn arguments(&mut self) -> Result<Vec<Expression>, Fault> {
        let mut args = Vec::new();
        if self.accept(")") {
            return Ok(args);
        }
        loop {
            args.push(self.expression()?);
            if !self.accept(",") {
                self.expect(")")?;
                return Ok(args);
            }
        }
    }

    fn primary(&mut self) -> Result<Expression, Fault> {
        let token = self.peek().clone();
        let is_negative =
            token.kind == Kind::Symbol("-") && matches!(self.look_ahead(1).kind, Kind::Int | Kind::Double);
        match token.kind {
            Kind::Symbol("-") if is_negative => {
                self.bump();
                Ok(self.number(token.at, true))
            }
            Kind::Int | Kind::Uint | Kind::Double => Ok(self.number(token.at, false)),
            Kind::String(text) => {
                self.bump();
                Ok(self.node(token.at, Node::Literal(Value::string(text))))
            }
            Kind::Bytes(bytes) => {
                self.bump();
                Ok(self.node(token.at, Node::Literal(Value::Bytes(bytes.into()))))
            }
            Kind::Symbol("(") => {
                self.bump();
                let inner = self.expression()?;
                self.expect(")")?;
                Ok(inner)
            }
            Kind::Symbol("[") => self.list(),
            Kind::Symbol("{") => self.map(),
            Kind::Symbol(".") if self.look_ahead(1).kind == Kind::Ident => {
                self.bump();
                self.ident(".")
            }
            Kind::Ident if token.text != "in" => self.ident(""),
            _ => Err(self.not_an_expression()),
        }
    }

    fn not_an_expression(&self) -> Fault {
        let next = self.look_ahead(1);
        let starts = matches!(next.kind, Kind::Int | Kind::Uint | Kind::Double | Kind::String(_) | Kind::Bytes(_))
            || (next.kind == Kind::Ident && next.text != "in")
            || ["[", "{", "(", ".", "-", "!"].iter().any(|symbol| next.kind == Kind::Symbol(symbol));
        let what = if starts { "extraneous" } else { "mismatched" };
        let text = self.peek().text;
        self.syntax_error(format_args!("{what} input '{text}' expecting {EXPRESSION_STARTS}"))
    }

    fn number(&mut self, position: usize, negative: bool) -> Expression {
        let token = self.bump();
        let sign = if negative { "-" } else { "" };
        let digits = token.text.trim_end_matches(['u', 'U']);
        let integer = |digits: &str| match digits.strip_prefix("0x") {
            Some(hex) => i128::from_str_radix(&format!("{sign}{hex}"), 16).ok(),
            None => format!("{sign}{digits}").parse::<i128>().ok(),
        };
        let value = match token.kind {
            Kind::Int => integer(digits).and_then(|value| i64::try_from(value).ok()).map(Value::Int).ok_or("int"),
            Kind::Uint => integer(digits).and_then(|value| u64::try_from(value).ok()).map(Value::Uint).ok_or("uint"),
            _ => {
                let value = format!("{sign}{}", token.text).parse::<f64>().ok().filter(|value| value.is_finite());
                value.map(Value::Double).ok_or("double")
            }
        };
        let value = value.unwrap_or_else(|kind| {
            self.fault(position, format!("invalid {kind} literal"));
            Value::Null
        });
        self.node(position, Node::Literal(value))
    }

    fn ident(&mut self, dot: &'static str) -> Result<Expression, Fault> {
        let token = self.bump();
        let literal = match token.text {
            "true" => Some(Value::Bool(true)),
            "false" => Some(Value::Bool(false)),
            "null" => Some(Value::Null),
            _ => None,
        };
        if let Some(value) = literal {
            return Ok(self.node(token.at, Node::Literal(value)));
        }
        if RESERVED.contains(&token.text) {
            self.fault(token.at, format!("reserved identifier: {}", token.text));
        }
        if let Some(message) = self.message(token.text)? {
            return Ok(message);
        }
        let name = format!("{dot}{}", token.text);
        if !self.is("(") {
            return Ok(self.node(token.at, Node::Ident(name.into())));
        }
        let position = self.bump().at;
        let args = self.arguments()?;
        Ok(macros::global(self, position, name, args))
    }

    /// `Name.Of.A.Type{field: value}` after its first name, if it is one.
    fn message(&mut self, first: &str) -> Result<Option<Expression>, Fault> {
        let mut by = 0;
        while self.look_ahead(by).kind == Kind::Symbol(".") && self.look_ahead(by + 1).kind == Kind::Ident {
            by += 2;
        }
        if self.look_ahead(by).kind != Kind::Symbol("{") {
            return Ok(None);
        }
        let mut name = first.to_owned();
        (0..by).for_each(|_| name.push_str(self.bump().text));
        let position = self.bump().at;
        while !self.accept("}") {
            self.accept("?");
            self.bump();
            self.expect(":")?;
            self.expression()?;
            if !self.accept(",") && !self.is("}") {
                return Err(self.syntax_error(format_args!("missing '}}' at '{}'", self.peek().text)));
            }
        }
        Ok(Some(self.node(position, Node::Message(name))))
    }

    fn list(&mut self) -> Result<Expression, Fault> {
        let position = self.bump().at;
        let (mut items, mut optional) = (Vec::new(), Vec::new());
        if self.is(",") && self.look_ahead(1).kind == Kind::Symbol("]") {
            self.bump();
        }
        while !self.accept("]") {
            if self.accept("?") {
                optional.push(items.len());
            }
            items.push(self.expression()?);
            if !self.accept(",") && !self.is("]") {
                let text = self.peek().text;
                return Err(self.syntax_error(format_args!("mismatched input '{text}' expecting {{']', ','}}")));
            }
        }
        Ok(self.node(position, Node::List { items, optional }))
    }

    fn map(&mut self) -> Result<Expression, Fault> {
        let position = self.bump().at;
        let mut entries = Vec::new();
        if self.is(",") && self.look_ahead(1).kind == Kind::Symbol("}") {
            self.bump();
        }
        while !self.accept("}") {
            let optional = self.accept("?");
            let key = self.expression()?;
            self.expect(":")?;
            let value = self.expression()?;
            entries.push(Entry { key, value, optional });
            if !self.accept(",") && !self.is("}") {
                let text = self.peek().text;
                return Err(self.syntax_error(format_args!("mismatched input '{text}' expecting {{'}}', ','}}")));
            }
        }
        Ok(self.node(position, Node::Map(entries)))
    }
}
