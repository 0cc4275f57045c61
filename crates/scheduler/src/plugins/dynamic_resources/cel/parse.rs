//! Parses tokens into an expression, and expands macros.

use super::tokens::{Token, tokens};
use super::value::Value;
use super::{DEPTH_MAX, Error};

/// An expression and where it begins.
#[derive(Clone, Debug)]
pub(super) struct Expression {
    pub(super) column: usize,
    pub(super) node: ExpressionKind,
}

/// What an expression is made of.
#[derive(Clone, Debug)]
pub(super) enum ExpressionKind {
    Literal(Value),
    Ident(String),
    /// `operand.field`, or `operand.?field`.
    Select {
        operand: Box<Expression>,
        field: String,
        optional: bool,
    },
    /// `has(operand.field)`.
    Has {
        operand: Box<Expression>,
        field: String,
    },
    /// `operand[index]`, or `operand[?index]`.
    Index {
        operand: Box<Expression>,
        index: Box<Expression>,
        optional: bool,
    },
    Call {
        target: Option<Box<Expression>>,
        function: String,
        args: Vec<Expression>,
    },
    Unary(&'static str, Box<Expression>),
    Binary(&'static str, Box<Expression>, Box<Expression>),
    Conditional(Box<Expression>, Box<Expression>, Box<Expression>),
    List(Vec<Expression>),
    Map(Vec<(Expression, Expression)>),
    /// `range.all(variable, …)` and its like.
    Loop {
        kind: Loop,
        range: Box<Expression>,
        variable: String,
        condition: Option<Box<Expression>>,
        body: Box<Expression>,
    },
    /// `cel.bind(variable, value, body)`.
    Bind {
        variable: String,
        value: Box<Expression>,
        body: Box<Expression>,
    },
    /// `optional.optMap(variable, body)`; the body of `optFlatMap` is optional itself.
    OptionalMap {
        operand: Box<Expression>,
        variable: String,
        body: Box<Expression>,
        flat: bool,
    },
}

/// How a loop combines the values of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loop {
    All,
    Exists,
    ExistsOne,
    Map,
    Filter,
}

/// Parses an expression.
pub(super) fn parse(text: &str) -> Result<Expression, Error> {
    let mut parser = Parser { tokens: tokens(text)?, at: 0, depth: 0 };
    let expression = parser.expression()?;
    match parser.peek() {
        Token::End => Ok(expression),
        token => Err(parser.error(format!("Syntax error: extraneous input {token:?}"))),
    }
}

struct Parser {
    tokens: Vec<(Token, usize)>,
    at: usize,
    depth: usize,
}

/// Binary operators, loosest first; those of one row bind equally.
const LEVELS: [&[&str]; 5] =
    [&["||"], &["&&"], &["==", "!=", "<", "<=", ">", ">=", "in"], &["+", "-"], &["*", "/", "%"]];

/// A balanced tree of terms joined by an associative operator.
fn balanced(operator: &'static str, mut terms: Vec<Expression>) -> Expression {
    while terms.len() > 1 {
        let mut pairs = Vec::with_capacity(terms.len().div_ceil(2));
        let mut rest = terms.into_iter();
        while let Some(left) = rest.next() {
            pairs.push(match rest.next() {
                Some(right) => Expression {
                    column: left.column,
                    node: ExpressionKind::Binary(operator, left.into(), right.into()),
                },
                None => left,
            });
        }
        terms = pairs;
    }
    terms.swap_remove(0)
}

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.at].0
    }

    fn column(&self) -> usize {
        self.tokens[self.at].1
    }

    fn error(&self, message: impl Into<String>) -> Error {
        Error::Compile { column: self.column(), message: message.into() }
    }

    fn bump(&mut self) -> Token {
        let token = self.tokens[self.at].0.clone();
        // The last token is `End` and stays.
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    fn accept(&mut self, symbol: &'static str) -> bool {
        let is = *self.peek() == Token::Symbol(symbol);
        if is {
            self.bump();
        }
        is
    }

    fn expect(&mut self, symbol: &'static str) -> Result<(), Error> {
        if self.accept(symbol) { Ok(()) } else { Err(self.error(format!("Syntax error: missing '{symbol}'"))) }
    }

    fn expression(&mut self) -> Result<Expression, Error> {
        self.deeper()?;
        let column = self.column();
        let condition = self.binary(0)?;
        let expression = if self.accept("?") {
            let yes = self.binary(0)?;
            self.expect(":")?;
            let no = self.expression()?;
            Expression { column, node: ExpressionKind::Conditional(condition.into(), yes.into(), no.into()) }
        } else {
            condition
        };
        self.depth -= 1;
        Ok(expression)
    }

    /// Operators of this level and tighter ones. Climbs by precedence, so that nesting costs few stack frames.
    fn binary(&mut self, loosest: usize) -> Result<Expression, Error> {
        let mut left = self.unary()?;
        let depth = self.depth;
        while let Some((operator, level)) = self.operator(loosest) {
            if operator == "&&" || operator == "||" {
                // Associative operators are regrouped, so that a long chain is not a deep tree.
                let mut terms = vec![left, self.binary(level + 1)?];
                while self.operator(level).is_some() {
                    terms.push(self.binary(level + 1)?);
                }
                left = balanced(operator, terms);
                continue;
            }
            self.deeper()?;
            let right = self.binary(level + 1)?;
            left =
                Expression { column: left.column, node: ExpressionKind::Binary(operator, left.into(), right.into()) };
        }
        self.depth = depth;
        Ok(left)
    }

    fn deeper(&mut self) -> Result<(), Error> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.error(format!("expression recursion limit exceeded: {DEPTH_MAX}")));
        }
        Ok(())
    }

    /// Takes an operator that binds at least as tightly as the level says.
    fn operator(&mut self, loosest: usize) -> Option<(&'static str, usize)> {
        let levels = LEVELS.iter().enumerate().skip(loosest);
        let found = levels.flat_map(|(level, names)| names.iter().map(move |name| (*name, level))).find(
            |(name, _)| match self.peek() {
                Token::Symbol(symbol) => symbol == name,
                Token::Ident(ident) => ident == name,
                _ => false,
            },
        )?;
        self.bump();
        Some(found)
    }

    fn unary(&mut self) -> Result<Expression, Error> {
        let column = self.column();
        for operator in ["!", "-"] {
            if !self.accept(operator) {
                continue;
            }
            if operator == "-" {
                if let Token::Int(value) = *self.peek() {
                    self.bump();
                    return self.member(Expression {
                        column,
                        node: ExpressionKind::Literal(Value::Int(value.wrapping_neg())),
                    });
                }
                if let Token::Double(value) = *self.peek() {
                    self.bump();
                    return self.member(Expression { column, node: ExpressionKind::Literal(Value::Double(-value)) });
                }
            }
            self.deeper()?;
            let operand = self.unary()?;
            self.depth -= 1;
            return Ok(Expression { column, node: ExpressionKind::Unary(operator, operand.into()) });
        }
        let primary = self.primary()?;
        self.member(primary)
    }

    fn member(&mut self, mut operand: Expression) -> Result<Expression, Error> {
        let depth = self.depth;
        loop {
            self.deeper()?;
            let column = operand.column;
            let node = if self.accept(".") {
                let field = self.name()?;
                if self.accept("(") {
                    let args = self.list(")")?;
                    self.method(operand, field, args)?
                } else {
                    ExpressionKind::Select { operand: operand.into(), field, optional: false }
                }
            } else if self.accept(".?") {
                ExpressionKind::Select { operand: operand.into(), field: self.name()?, optional: true }
            } else if *self.peek() == Token::Symbol("[") || *self.peek() == Token::Symbol("[?") {
                let optional = self.bump() == Token::Symbol("[?");
                let index = self.expression()?;
                self.expect("]")?;
                ExpressionKind::Index { operand: operand.into(), index: index.into(), optional }
            } else {
                self.depth = depth;
                return Ok(operand);
            };
            operand = Expression { column, node };
        }
    }

    fn name(&mut self) -> Result<String, Error> {
        match self.peek().clone() {
            Token::Ident(name) => {
                self.bump();
                Ok(name)
            }
            token => Err(self.error(format!("Syntax error: no viable alternative at input {token:?}"))),
        }
    }

    fn list(&mut self, end: &'static str) -> Result<Vec<Expression>, Error> {
        let mut items = Vec::new();
        while !self.accept(end) {
            if !items.is_empty() {
                self.expect(",")?;
                if self.accept(end) {
                    break;
                }
            }
            items.push(self.expression()?);
        }
        Ok(items)
    }

    fn primary(&mut self) -> Result<Expression, Error> {
        let column = self.column();
        let node = match self.bump() {
            Token::Int(i64::MIN) => return Err(Error::Compile { column, message: "invalid int literal".into() }),
            Token::Int(value) => ExpressionKind::Literal(Value::Int(value)),
            Token::Uint(value) => ExpressionKind::Literal(Value::Uint(value)),
            Token::Double(value) => ExpressionKind::Literal(Value::Double(value)),
            Token::String(value) => ExpressionKind::Literal(Value::string(value)),
            Token::Bytes(value) => ExpressionKind::Literal(Value::Bytes(value.into())),
            Token::Symbol("(") => {
                let inner = self.expression()?;
                self.expect(")")?;
                inner.node
            }
            Token::Symbol("[") => ExpressionKind::List(self.list("]")?),
            Token::Symbol("{") => ExpressionKind::Map(self.entries()?),
            Token::Ident(name) => self.ident(name)?,
            token => {
                let message = format!("Syntax error: mismatched input {token:?}");
                return Err(Error::Compile { column, message });
            }
        };
        Ok(Expression { column, node })
    }

    fn ident(&mut self, name: String) -> Result<ExpressionKind, Error> {
        match name.as_str() {
            "true" => return Ok(ExpressionKind::Literal(Value::Bool(true))),
            "false" => return Ok(ExpressionKind::Literal(Value::Bool(false))),
            "null" => return Ok(ExpressionKind::Literal(Value::Null)),
            "in" => return Err(self.error("Syntax error: mismatched input 'in'")),
            _ => {}
        }
        if !self.accept("(") {
            return Ok(ExpressionKind::Ident(name));
        }
        let mut args = self.list(")")?;
        if name == "has" {
            return match (args.pop().map(|arg| arg.node), args.is_empty()) {
                (Some(ExpressionKind::Select { operand, field, optional: false }), true) => {
                    Ok(ExpressionKind::Has { operand, field })
                }
                _ => Err(self.error("invalid argument to has() macro")),
            };
        }
        Ok(ExpressionKind::Call { target: None, function: name, args })
    }

    fn entries(&mut self) -> Result<Vec<(Expression, Expression)>, Error> {
        let mut entries = Vec::new();
        while !self.accept("}") {
            if !entries.is_empty() {
                self.expect(",")?;
                if self.accept("}") {
                    break;
                }
            }
            let key = self.expression()?;
            self.expect(":")?;
            entries.push((key, self.expression()?));
        }
        Ok(entries)
    }

    /// A call with a target; macros become loops and bindings.
    fn method(&self, target: Expression, function: String, args: Vec<Expression>) -> Result<ExpressionKind, Error> {
        let is_cel = matches!(&target.node, ExpressionKind::Ident(name) if name == "cel");
        let kind = match function.as_str() {
            "all" => Some(Loop::All),
            "exists" => Some(Loop::Exists),
            "exists_one" | "existsOne" => Some(Loop::ExistsOne),
            "map" => Some(Loop::Map),
            "filter" => Some(Loop::Filter),
            _ => None,
        };
        let variable = |argument: &Expression| match &argument.node {
            ExpressionKind::Ident(name) => Ok(name.clone()),
            _ => Err(Error::Compile { column: argument.column, message: "argument must be a simple name".into() }),
        };
        let range = || Box::new(target.clone());
        match (kind, function.as_str(), args.as_slice()) {
            (Some(kind), _, [name, body]) => Ok(ExpressionKind::Loop {
                kind,
                range: range(),
                variable: variable(name)?,
                condition: None,
                body: body.clone().into(),
            }),
            (Some(Loop::Map), _, [name, condition, body]) => Ok(ExpressionKind::Loop {
                kind: Loop::Map,
                range: range(),
                variable: variable(name)?,
                condition: Some(condition.clone().into()),
                body: body.clone().into(),
            }),
            (None, "bind", [name, value, body]) if is_cel => Ok(ExpressionKind::Bind {
                variable: variable(name)?,
                value: value.clone().into(),
                body: body.clone().into(),
            }),
            (None, "optMap" | "optFlatMap", [name, body]) => Ok(ExpressionKind::OptionalMap {
                operand: range(),
                variable: variable(name)?,
                body: body.clone().into(),
                flat: function == "optFlatMap",
            }),
            _ => Ok(ExpressionKind::Call { target: Some(target.into()), function, args }),
        }
    }
}
