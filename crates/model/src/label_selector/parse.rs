//! The query form of a label selector: text to tokens to requirements.

use super::{Error, Operator, Requirement, RequirementError};

const BINARY_OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    End,
    Symbol(&'a str),
    Word(&'a str),
}

impl<'a> Token<'a> {
    fn text(self) -> &'a str {
        match self {
            Token::End => "",
            Token::Symbol(text) | Token::Word(text) => text,
        }
    }

    fn starts_a_requirement(self) -> bool {
        matches!(self, Token::Word(_) | Token::Symbol("!"))
    }
}

/// The tokens of a text, with one token of lookahead.
struct Tokens<'a> {
    rest: &'a str,
    next: Token<'a>,
}

impl<'a> Tokens<'a> {
    fn new(text: &'a str) -> Self {
        let mut tokens = Tokens { rest: text, next: Token::End };
        tokens.advance();
        tokens
    }

    fn peek(&self) -> Token<'a> {
        self.next
    }

    fn take(&mut self) -> Token<'a> {
        let token = self.next;
        self.advance();
        token
    }

    fn advance(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let ends_a_word = |character| " \t\r\n=!(),><\0".contains(character);
        let length = match self.rest.chars().next() {
            // A NUL ends the text, as it does in upstream's lexer.
            None | Some('\0') => return self.next = Token::End,
            Some('=' | '!') if self.rest[1..].starts_with('=') => 2,
            Some('=' | '!' | '(' | ')' | ',' | '>' | '<') => 1,
            Some(_) => {
                let (word, rest) = self.rest.split_at(self.rest.find(ends_a_word).unwrap_or(self.rest.len()));
                self.rest = rest.strip_prefix('\0').unwrap_or(rest);
                return self.next = Token::Word(word);
            }
        };
        let (symbol, rest) = self.rest.split_at(length);
        self.rest = rest;
        self.next = Token::Symbol(symbol);
    }
}

fn unexpected(found: Token<'_>, expected: &'static str) -> Error {
    Error::Unexpected { found: found.text().into(), expected }
}

pub(super) fn requirements(text: &str) -> Result<Vec<Requirement>, Error> {
    let mut tokens = Tokens::new(text);
    let mut requirements = Vec::new();
    loop {
        match tokens.peek() {
            Token::End => return Ok(requirements),
            token if token.starts_a_requirement() => {}
            token => return Err(unexpected(token, "!, identifier, or 'end of string'")),
        }
        requirements.push(requirement(&mut tokens).map_err(|error| Error::InRequirement(Box::new(error)))?);
        match tokens.take() {
            Token::End => return Ok(requirements),
            Token::Symbol(",") if tokens.peek().starts_a_requirement() => {}
            Token::Symbol(",") => return Err(unexpected(tokens.peek(), "identifier after ','")),
            token => return Err(unexpected(token, "',' or 'end of string'")),
        }
    }
}

fn requirement(tokens: &mut Tokens<'_>) -> Result<Requirement, Error> {
    let absent = tokens.peek() == Token::Symbol("!");
    if absent {
        tokens.take();
    }
    let key = match tokens.take() {
        Token::Word(key) => key,
        token => return Err(unexpected(token, "identifier")),
    };
    if let Some(error) = RequirementError::key("<nil>", key) {
        return Err(error.into());
    }
    if absent {
        return Ok(Requirement::new(key, Operator::DoesNotExist, Vec::new())?);
    }
    if matches!(tokens.peek(), Token::End | Token::Symbol(",")) {
        return Ok(Requirement::new(key, Operator::Exists, Vec::new())?);
    }
    let operator = match tokens.take() {
        Token::Word("in") => Operator::In,
        Token::Word("notin") => Operator::NotIn,
        Token::Symbol("=") => Operator::Equals,
        Token::Symbol("==") => Operator::DoubleEquals,
        Token::Symbol("!=") => Operator::NotEquals,
        Token::Symbol(">") => Operator::GreaterThan,
        Token::Symbol("<") => Operator::LessThan,
        token => return Err(unexpected(token, BINARY_OPERATORS)),
    };
    let values = match operator {
        Operator::In | Operator::NotIn => set(tokens)?,
        _ => vec![exact_value(tokens)?],
    };
    Ok(Requirement::new(key, operator, values)?)
}

fn exact_value(tokens: &mut Tokens<'_>) -> Result<String, Error> {
    if matches!(tokens.peek(), Token::End | Token::Symbol(",")) {
        return Ok(String::new());
    }
    match tokens.take() {
        Token::Word(value) => Ok(value.into()),
        token => Err(unexpected(token, "identifier")),
    }
}

/// `(a,b,,c)`: sorted, each once, and an empty value wherever a comma has nothing beside it.
fn set(tokens: &mut Tokens<'_>) -> Result<Vec<String>, Error> {
    let open = tokens.take();
    if open != Token::Symbol("(") {
        return Err(Error::Parenthesis(open.text().into()));
    }
    let mut values = match tokens.peek() {
        Token::Word(_) | Token::Symbol(",") => values(tokens)?,
        Token::Symbol(")") => vec![String::new()],
        token => return Err(unexpected(token, "',', ')' or identifier")),
    };
    tokens.take();
    values.sort_unstable();
    values.dedup();
    Ok(values)
}

/// The values up to the closing parenthesis, which is left to the caller.
fn values(tokens: &mut Tokens<'_>) -> Result<Vec<String>, Error> {
    let mut values: Vec<String> = Vec::new();
    loop {
        match tokens.take() {
            Token::Word(value) => {
                values.push(value.into());
                match tokens.peek() {
                    Token::Symbol(",") => {}
                    Token::Symbol(")") => return Ok(values),
                    token => return Err(unexpected(token, "',' or ')'")),
                }
            }
            Token::Symbol(",") => {
                if values.is_empty() {
                    values.push(String::new());
                }
                match tokens.peek() {
                    Token::Symbol(")") => {
                        values.push(String::new());
                        return Ok(values);
                    }
                    Token::Symbol(",") => {
                        tokens.take();
                        values.push(String::new());
                    }
                    _ => {}
                }
            }
            token => return Err(unexpected(token, "',', or identifier")),
        }
    }
}
