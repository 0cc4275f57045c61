//! Splits Rust source into tokens, exactly enough to tell code from comments and strings.
//!
//! A parser would know more, and would be the largest dependency of the workspace. The rules only ask which identifiers
//! are code, where braces open and close, and what doc comments say.

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A name or keyword; a raw identifier without its `r#`.
    Ident,
    /// `'a`, without the quotation mark.
    Lifetime,
    /// A number, a character or a string of any form.
    Literal,
    /// One character of punctuation.
    Punct,
    /// A comment that rustdoc does not read.
    Comment,
    /// `///`, `//!`, `/** */` or `/*! */`.
    DocComment,
}

/// A token, and the line it begins on, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub(crate) kind: Kind,
    pub(crate) text: &'a str,
    pub(crate) line: usize,
}

impl Token<'_> {
    pub(crate) fn is(&self, kind: Kind, text: &str) -> bool {
        self.kind == kind && self.text == text
    }

    pub(crate) fn is_comment(&self) -> bool {
        matches!(self.kind, Kind::Comment | Kind::DocComment)
    }
}

/// The tokens of `source`. Text that is not valid Rust yields some tokens, never a panic.
pub(crate) fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut lexer = Lexer { source, at: 0, line: 1 };
    let mut tokens = Vec::new();
    while let Some(token) = lexer.next() {
        tokens.push(token);
    }
    tokens
}

struct Lexer<'a> {
    source: &'a str,
    at: usize,
    line: usize,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    fn next(&mut self) -> Option<Token<'a>> {
        let blank = self.rest().len() - self.rest().trim_start().len();
        self.advance(blank);
        let rest = self.rest();
        let first = rest.chars().next()?;
        let (kind, length) = if rest.starts_with("//") {
            line_comment(rest)
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if let Some(length) = string(rest) {
            (Kind::Literal, length)
        } else if first == '\'' {
            character_or_lifetime(rest)
        } else if first.is_ascii_digit() {
            (Kind::Literal, number(rest))
        } else if let Some(raw) = rest.strip_prefix("r#").filter(|raw| raw.starts_with(is_name_start)) {
            (Kind::Ident, 2 + name(raw))
        } else if is_name_start(first) {
            (Kind::Ident, name(rest))
        } else {
            (Kind::Punct, first.len_utf8())
        };
        let token = Token { kind, text: text_of(kind, &rest[..length]), line: self.line };
        self.advance(length);
        Some(token)
    }

    fn advance(&mut self, length: usize) {
        self.line += self.rest()[..length].matches('\n').count();
        self.at += length;
    }
}

fn text_of(kind: Kind, text: &str) -> &str {
    match kind {
        Kind::Ident => text.strip_prefix("r#").unwrap_or(text),
        Kind::Lifetime => text.strip_prefix('\'').unwrap_or(text),
        _ => text,
    }
}

fn is_name_start(c: char) -> bool {
    c == '_' || c.is_alphabetic()
}

fn name(rest: &str) -> usize {
    rest.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(rest.len())
}

fn line_comment(rest: &str) -> (Kind, usize) {
    let length = rest.find('\n').unwrap_or(rest.len());
    let doc = rest.starts_with("//!") || (rest.starts_with("///") && !rest.starts_with("////"));
    (if doc { Kind::DocComment } else { Kind::Comment }, length)
}

/// Block comments nest.
fn block_comment(rest: &str) -> (Kind, usize) {
    let doc =
        rest.starts_with("/*!") || (rest.starts_with("/**") && !rest.starts_with("/***") && !rest.starts_with("/**/"));
    let kind = if doc { Kind::DocComment } else { Kind::Comment };
    let (mut depth, mut at) = (1, 2);
    while depth > 0 {
        let open = rest[at..].find("/*").map(|found| at + found);
        let Some(close) = rest[at..].find("*/").map(|found| at + found) else { return (kind, rest.len()) };
        (depth, at) = match open {
            Some(open) if open < close => (depth + 1, open + 2),
            _ => (depth - 1, close + 2),
        };
    }
    (kind, at)
}

/// The length of a string literal of any form, or of a byte character; none when there is none here.
fn string(rest: &str) -> Option<usize> {
    let prefix = rest.find(|c: char| !matches!(c, 'b' | 'c' | 'r')).filter(|length| *length <= 2)?;
    let after = &rest[prefix..];
    let hashes = after.len() - after.trim_start_matches('#').len();
    let raw = rest[..prefix].contains('r');
    if raw && after[hashes..].starts_with('"') {
        let begin = prefix + hashes + 1;
        let end = format!("\"{}", "#".repeat(hashes));
        return Some(rest[begin..].find(&end).map_or(rest.len(), |found| begin + found + end.len()));
    }
    match after.chars().next()? {
        '"' => Some(prefix + quoted(after, '"')),
        '\'' if &rest[..prefix] == "b" => Some(prefix + quoted(after, '\'')),
        _ => None,
    }
}

/// The length of text between two quotation marks, with `\` before a mark that does not end it.
fn quoted(rest: &str, mark: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == mark => return at + c.len_utf8(),
            _ => {}
        }
    }
    rest.len()
}

fn character_or_lifetime(rest: &str) -> (Kind, usize) {
    let mut following = rest[1..].chars();
    match (following.next(), following.next()) {
        (Some('\\'), _) | (Some(_), Some('\'')) => (Kind::Literal, quoted(rest, '\'')),
        (Some(c), _) if is_name_start(c) => (Kind::Lifetime, 1 + name(&rest[1..])),
        _ => (Kind::Punct, 1),
    }
}

fn number(rest: &str) -> usize {
    let length = name(rest);
    match rest[length..].strip_prefix('.') {
        Some(fraction) if fraction.starts_with(|c: char| c.is_ascii_digit()) => length + 1 + name(fraction),
        _ => length,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expected: &[(Kind, &str)]) {
        let found: Vec<_> = tokens(source).into_iter().map(|token| (token.kind, token.text)).collect();
        assert_eq!(found, expected, "{source}");
    }

    #[test]
    fn code_is_told_from_strings_and_comments() {
        use Kind::*;
        check("a // fn b\nc", &[(Ident, "a"), (Comment, "// fn b"), (Ident, "c")]);
        check("/* a /* b */ c */ d", &[(Comment, "/* a /* b */ c */"), (Ident, "d")]);
        check("/// a\n//! b\n//// c", &[(DocComment, "/// a"), (DocComment, "//! b"), (Comment, "//// c")]);
        check("/** a */ /**/", &[(DocComment, "/** a */"), (Comment, "/**/")]);
        check(r#""a \" { b" c"#, &[(Literal, r#""a \" { b""#), (Ident, "c")]);
        check(r##"r#"a " b"# c"##, &[(Literal, r##"r#"a " b"#"##), (Ident, "c")]);
        check(r#"b"a" br"\" c"b""#, &[(Literal, r#"b"a""#), (Literal, r#"br"\""#), (Literal, r#"c"b""#)]);
        check("r#fn bar", &[(Ident, "fn"), (Ident, "bar")]);
    }

    #[test]
    fn characters_are_told_from_lifetimes() {
        use Kind::*;
        check("'a' 'a", &[(Literal, "'a'"), (Lifetime, "a")]);
        check(
            r"'\'' '{' b'\'' '\u{1F}'",
            &[(Literal, r"'\''"), (Literal, "'{'"), (Literal, r"b'\''"), (Literal, r"'\u{1F}'")],
        );
        check("&'static str", &[(Punct, "&"), (Lifetime, "static"), (Ident, "str")]);
        check("'…'", &[(Literal, "'…'")]);
    }

    #[test]
    fn numbers_leave_ranges_and_methods_alone() {
        use Kind::*;
        check("1..2", &[(Literal, "1"), (Punct, "."), (Punct, "."), (Literal, "2")]);
        check("1.5e3 0xff_u8", &[(Literal, "1.5e3"), (Literal, "0xff_u8")]);
        check("1.max", &[(Literal, "1"), (Punct, "."), (Ident, "max")]);
    }

    #[test]
    fn lines_are_counted_through_strings_and_comments() {
        let lines: Vec<_> = tokens("a\n/*\n*/ b \"\n\n\" c").into_iter().map(|token| token.line).collect();
        assert_eq!(lines, [1, 2, 3, 3, 5]);
    }

    #[test]
    fn what_is_not_rust_does_not_panic() {
        for source in ["\"a", "'", "/* a", "r#\"a", "b'", "r#", "1.", "'\\"] {
            tokens(source);
        }
    }
}
