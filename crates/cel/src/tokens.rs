//! Splits the text of an expression into tokens.

use crate::source::Fault;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    /// A number without its sign.
    Int,
    Uint,
    Double,
    String(String),
    Bytes(Vec<u8>),
    Ident,
    /// An operator or a bracket.
    Symbol(&'static str),
    End,
}

/// A token: where it begins, in characters, and its text.
#[derive(Clone, Debug)]
pub(crate) struct Token<'t> {
    pub(crate) kind: Kind,
    pub(crate) at: usize,
    pub(crate) text: &'t str,
}

/// Longer symbols before their prefixes.
const SYMBOLS: [&str; 24] = [
    "&&", "||", "==", "!=", "<=", ">=", "(", ")", "[", "]", "{", "}", ".", ",", ":", "?", "+", "-", "*", "/", "%", "!",
    "<", ">",
];

/// All tokens, `End` last, and what is no token.
pub(crate) fn tokens(text: &str) -> (Vec<Token<'_>>, Vec<Fault>) {
    let mut reader = Reader { text, byte: 0, at: 0 };
    let (mut tokens, mut faults) = (Vec::new(), Vec::new());
    loop {
        reader.skip_space();
        let (start, at) = (reader.byte, reader.at);
        match reader.next() {
            Ok(kind) => {
                let is_end = kind == Kind::End;
                tokens.push(Token { kind, at, text: if is_end { "<EOF>" } else { &text[start..reader.byte] } });
                if is_end {
                    return (tokens, faults);
                }
            }
            Err(Stop::NoToken) => {
                reader.bump();
                let seen = &text[start..reader.byte];
                faults.push(Fault::new(at, format!("Syntax error: token recognition error at: '{seen}'")));
            }
            Err(Stop::Literal(message)) => {
                faults.push(Fault::new(at, message.to_owned()));
                tokens.push(Token { kind: Kind::String(String::new()), at, text: &text[start..reader.byte] });
            }
        }
    }
}

/// Why there is no token.
enum Stop {
    /// The next character continues no token.
    NoToken,
    /// A literal has no value.
    Literal(&'static str),
}

struct Reader<'t> {
    text: &'t str,
    byte: usize,
    /// In characters.
    at: usize,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        &self.text[self.byte..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.byte += c.len_utf8();
        self.at += 1;
        Some(c)
    }

    fn skip_while(&mut self, accept: impl Fn(char) -> bool) {
        while self.peek().is_some_and(&accept) {
            self.bump();
        }
    }

    /// Takes ASCII text that is known to come next.
    fn take(&mut self, text: &str) {
        self.byte += text.len();
        self.at += text.len();
    }

    fn skip_space(&mut self) {
        loop {
            self.skip_while(|c| matches!(c, ' ' | '\t' | '\r' | '\n' | '\x0c'));
            if !self.rest().starts_with("//") {
                return;
            }
            self.skip_while(|c| c != '\n');
        }
    }

    fn next(&mut self) -> Result<Kind, Stop> {
        let Some(c) = self.peek() else { return Ok(Kind::End) };
        let fraction = self.rest().strip_prefix('.').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        if c.is_ascii_digit() || fraction {
            return Ok(self.number());
        }
        if let Some(prefix) = self.string_prefix() {
            return self.string(&prefix);
        }
        if c.is_ascii_alphabetic() || c == '_' {
            self.skip_while(|c| c.is_ascii_alphanumeric() || c == '_');
            return Ok(Kind::Ident);
        }
        if matches!(c, '=' | '&' | '|') && !self.rest()[1..].starts_with(c) && !self.rest().starts_with("==") {
            self.bump();
            return Err(Stop::NoToken);
        }
        let symbol = SYMBOLS.into_iter().find(|symbol| self.rest().starts_with(symbol)).ok_or(Stop::NoToken)?;
        self.take(symbol);
        Ok(Kind::Symbol(symbol))
    }

    fn number(&mut self) -> Kind {
        let digits = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
        let hex = self.rest().strip_prefix("0x").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_hexdigit()));
        if hex {
            self.take("0x");
            self.skip_while(|c| c.is_ascii_hexdigit());
            return self.integer();
        }
        self.skip_while(|c| c.is_ascii_digit());
        let mut kind = Kind::Int;
        if self.rest().strip_prefix('.').is_some_and(digits) {
            kind = Kind::Double;
            self.bump();
            self.skip_while(|c| c.is_ascii_digit());
        }
        let exponent = self.rest().strip_prefix(['e', 'E']);
        let exponent = exponent.is_some_and(|rest| digits(rest.strip_prefix(['+', '-']).unwrap_or(rest)));
        if exponent {
            kind = Kind::Double;
            let signed = self.rest()[1..].starts_with(['+', '-']);
            self.take(if signed { "e+" } else { "e" });
            self.skip_while(|c| c.is_ascii_digit());
        }
        if kind == Kind::Int { self.integer() } else { kind }
    }

    fn integer(&mut self) -> Kind {
        if self.peek().is_some_and(|c| c == 'u' || c == 'U') {
            self.bump();
            return Kind::Uint;
        }
        Kind::Int
    }

    /// `r`, `b` or both before a quote, or nothing before one.
    fn string_prefix(&self) -> Option<String> {
        let prefix: String = self.rest().chars().take(2).take_while(|c| "rRbB".contains(*c)).collect();
        let quoted = self.rest()[prefix.len()..].starts_with(['"', '\'']);
        quoted.then_some(prefix)
    }

    fn string(&mut self, prefix: &str) -> Result<Kind, Stop> {
        let (raw, bytes) = (prefix.contains(['r', 'R']), prefix.contains(['b', 'B']));
        self.take(prefix);
        let quote = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|quote| self.rest().starts_with(quote));
        let quote = quote.ok_or(Stop::NoToken)?;
        self.take(quote);
        let (mut content, mut readable) = (Vec::new(), true);
        while !self.rest().starts_with(quote) {
            match self.peek() {
                None => return Err(Stop::NoToken),
                Some('\n' | '\r') if quote.len() == 1 => return Err(Stop::NoToken),
                Some('\\') if !raw => {
                    self.bump();
                    readable &= self.escape(bytes, &mut content)?;
                }
                Some(c) => {
                    self.bump();
                    content.extend(c.encode_utf8(&mut [0; 4]).as_bytes());
                }
            }
        }
        self.take(quote);
        match (readable, bytes) {
            (false, _) => Err(Stop::Literal("unable to unescape string")),
            (true, true) => Ok(Kind::Bytes(content)),
            (true, false) => {
                String::from_utf8(content).map(Kind::String).map_err(|_| Stop::Literal("unable to unescape string"))
            }
        }
    }

    /// Reads what follows a backslash; false when it stands for nothing.
    fn escape(&mut self, bytes: bool, content: &mut Vec<u8>) -> Result<bool, Stop> {
        let c = self.peek().ok_or(Stop::NoToken)?;
        let plain = match c {
            'a' => 7,
            'b' => 8,
            'f' => 12,
            'n' => b'\n',
            'r' => b'\r',
            't' => b'\t',
            'v' => 11,
            '\\' | '\'' | '"' | '`' | '?' => c as u8,
            'x' | 'X' => return self.code(1, 2, 16, bytes, content),
            'u' => return Ok(self.code(1, 4, 16, false, content)? && !bytes),
            'U' => return Ok(self.code(1, 8, 16, false, content)? && !bytes),
            '0'..='3' => return self.code(0, 3, 8, bytes, content),
            _ => return Err(Stop::NoToken),
        };
        self.bump();
        content.push(plain);
        Ok(true)
    }

    fn code(
        &mut self,
        skip: usize,
        digits: usize,
        radix: u32,
        byte: bool,
        content: &mut Vec<u8>,
    ) -> Result<bool, Stop> {
        for _ in 0..skip {
            self.bump();
        }
        let mut code = 0u32;
        for _ in 0..digits {
            let digit = self.peek().and_then(|c| c.to_digit(radix)).ok_or(Stop::NoToken)?;
            code = code.wrapping_mul(radix).wrapping_add(digit);
            self.bump();
        }
        if byte {
            content.push(code as u8);
            return Ok(true);
        }
        let c = char::from_u32(code);
        content.extend(c.unwrap_or_default().encode_utf8(&mut [0; 4]).as_bytes());
        Ok(c.is_some())
    }
}
