//! Functions, files and lines that can be seen whole.
//!
//! Generated code is exempt: nobody reads it, and it lives in folders named `generated`.

use super::lexer::{Kind, Token, tokens};
use super::tree::Tree;
use super::{Violation, violation};

/// Lines of a function, from its `fn` to its closing brace: one screen.
pub(crate) const FUNCTION_LINES_MAX: usize = 70;

/// Lines of a file: what can be scrolled through without losing the thread.
pub(crate) const FILE_LINES_MAX: usize = 600;

/// Characters of a line; rustfmt's `max_width`, which does not reach into strings, attributes and comments.
pub(crate) const LINE_LENGTH_MAX: usize = 120;

pub(crate) fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, text) in tree.with_extension("rs").filter(|(path, _)| !is_generated(path)) {
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            found.push(violation("file", path, path, format!("has {lines} lines; at most {FILE_LINES_MAX}")));
        }
        for (index, length) in long_lines(text) {
            let at = format!("{path}:{}", index + 1);
            let why = format!("the line has {length} characters; at most {LINE_LENGTH_MAX}");
            found.push(violation("line", &at, path, why));
        }
        for function in functions(&tokens(text)).iter().filter(|function| function.lines() > FUNCTION_LINES_MAX) {
            let (name, lines) = (function.name, function.lines());
            let at = format!("{path}:{}", function.first_line);
            let why = format!("{name} has {lines} lines; at most {FUNCTION_LINES_MAX}");
            found.push(violation("function", &at, &format!("{path} {name}"), why));
        }
    }
    found
}

fn is_generated(path: &str) -> bool {
    path.split('/').any(|part| part == "generated")
}

fn long_lines(text: &str) -> impl Iterator<Item = (usize, usize)> {
    text.lines().map(|line| line.chars().count()).enumerate().filter(|(_, length)| *length > LINE_LENGTH_MAX)
}

struct Function<'a> {
    name: &'a str,
    first_line: usize,
    last_line: usize,
}

impl Function<'_> {
    fn lines(&self) -> usize {
        self.last_line - self.first_line + 1
    }
}

/// Every function with a body, also those inside of others.
fn functions<'a>(tokens: &[Token<'a>]) -> Vec<Function<'a>> {
    let code: Vec<&Token<'a>> = tokens.iter().filter(|token| !token.is_comment()).collect();
    let mut found = Vec::new();
    for (at, pair) in code.windows(2).enumerate() {
        // `fn` without a name is the type of a pointer.
        if pair[0].is(Kind::Ident, "fn")
            && pair[1].kind == Kind::Ident
            && let Some(body) = body(&code, at + 2)
            && let Some(last_line) = closing_line(&code[body..])
        {
            found.push(Function { name: pair[1].text, first_line: pair[0].line, last_line });
        }
    }
    found
}

/// Where the body of a function begins whose signature goes on at `at`; a declaration has none.
fn body(code: &[&Token<'_>], at: usize) -> Option<usize> {
    let mut depth = 0;
    for (index, token) in code.iter().enumerate().skip(at).filter(|(_, token)| token.kind == Kind::Punct) {
        match token.text {
            "(" | "[" => depth += 1,
            ")" | "]" => depth -= 1,
            "{" if depth == 0 => return Some(index),
            ";" if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// The line of the brace that closes the first one.
fn closing_line(code: &[&Token<'_>]) -> Option<usize> {
    let mut depth = 0;
    for token in code.iter().filter(|token| token.kind == Kind::Punct) {
        match token.text {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(token.line);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tests::check_rule;

    fn function_of(lines: usize) -> String {
        format!("/// Doc.\nasync fn long(f: fn(u8) -> [u8; 2]) {{\n{}}}\n", "    x('}');\n".repeat(lines - 2))
    }

    #[test]
    fn a_function_is_at_most_70_lines_long() {
        check_rule(check, &[("a.rs", &function_of(71))], &["a.rs:2: long has 71 lines; at most 70"]);
        check_rule(check, &[("a.rs", &function_of(70))], &[]);
        check_rule(check, &[("generated/a.rs", &function_of(71))], &[]);
        let (declared, inner) = ("trait A { fn a(); }\n", function_of(71));
        let nested = format!("{declared}fn outer() {{\n{inner}}}\n");
        let expected = ["a.rs:2: outer has 74 lines; at most 70", "a.rs:4: long has 71 lines; at most 70"];
        check_rule(check, &[("a.rs", &nested)], &expected);
    }

    #[test]
    fn a_file_is_at_most_600_lines_long() {
        check_rule(check, &[("a.rs", &"\n".repeat(601))], &["a.rs: has 601 lines; at most 600"]);
        check_rule(check, &[("a.rs", &"\n".repeat(600)), ("generated/a.rs", &"\n".repeat(601))], &[]);
    }

    #[test]
    fn a_line_is_at_most_120_characters_long() {
        let line = |length: usize| format!("\n// {}\n", "ü".repeat(length - 3));
        check_rule(check, &[("a.rs", &line(121))], &["a.rs:2: the line has 121 characters; at most 120"]);
        check_rule(check, &[("a.rs", &line(120)), ("generated/a.rs", &line(121))], &[]);
    }
}
