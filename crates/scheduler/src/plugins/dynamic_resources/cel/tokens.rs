//! Splits the text of an expression into tokens.

use super::Error;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Int(i64),
    Uint(u64),
    Double(f64),
    String(String),
    Bytes(Vec<u8>),
    Ident(String),
    /// An operator or a bracket.
    Symbol(&'static str),
    End,
}

/// Longer symbols before their prefixes.
const SYMBOLS: [&str; 29] = [
    "&&", "||", "==", "!=", "<=", ">=", "[?", ".?", "(", ")", "[", "]", "{", "}", ".", ",", ":", "?", "+", "-", "*",
    "/", "%", "!", "<", ">", "=", "&", "|",
];

/// All tokens with the columns they begin at, `End` last.
pub(super) fn tokens(text: &str) -> Result<Vec<(Token, usize)>, Error> {
    let mut reader = Reader { text, at: 0 };
    let mut tokens = Vec::new();
    loop {
        reader.skip_space();
        let column = text[..reader.at].chars().count() + 1;
        let token = reader.next().map_err(|message| Error::Compile { column, message })?;
        let end = token == Token::End;
        tokens.push((token, column));
        if end {
            return Ok(tokens);
        }
    }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn take_while(&mut self, accept: impl Fn(char) -> bool) -> String {
        let taken: String = self.rest().chars().take_while(|c| accept(*c)).collect();
        self.at += taken.len();
        taken
    }

    fn skip_space(&mut self) {
        loop {
            self.take_while(char::is_whitespace);
            if !self.rest().starts_with("//") {
                return;
            }
            self.take_while(|c| c != '\n');
        }
    }

    fn next(&mut self) -> Result<Token, String> {
        let Some(c) = self.peek() else { return Ok(Token::End) };
        let fraction = self.rest().strip_prefix('.').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        if c.is_ascii_digit() || fraction {
            return self.number();
        }
        if let Some(prefix) = self.string_prefix() {
            return self.string(&prefix);
        }
        if c.is_ascii_alphabetic() || c == '_' {
            return Ok(Token::Ident(self.take_while(|c| c.is_ascii_alphanumeric() || c == '_')));
        }
        let symbol = SYMBOLS.into_iter().find(|symbol| self.rest().starts_with(symbol));
        let symbol = symbol.ok_or_else(|| format!("Syntax error: token recognition error at: '{c}'"))?;
        self.at += symbol.len();
        Ok(Token::Symbol(symbol))
    }

    fn number(&mut self) -> Result<Token, String> {
        let start = self.at;
        if self.rest().starts_with("0x") || self.rest().starts_with("0X") {
            self.at += 2;
            let digits = self.take_while(|c| c.is_ascii_hexdigit());
            let value = u64::from_str_radix(&digits, 16).map_err(|_| "invalid int literal".to_owned())?;
            return self.integer(Some(value));
        }
        self.take_while(|c| c.is_ascii_digit());
        let mut is_double = false;
        let fraction = self.rest().strip_prefix('.').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        if fraction {
            is_double = true;
            self.at += 1;
            self.take_while(|c| c.is_ascii_digit());
        }
        if self.peek().is_some_and(|c| c == 'e' || c == 'E') {
            is_double = true;
            self.bump();
            if self.peek().is_some_and(|c| c == '+' || c == '-') {
                self.bump();
            }
            self.take_while(|c| c.is_ascii_digit());
        }
        let text = &self.text[start..self.at];
        if is_double {
            return text.parse().map(Token::Double).map_err(|_| "invalid double literal".to_owned());
        }
        let value = text.parse().ok();
        self.integer(value)
    }

    fn integer(&mut self, value: Option<u64>) -> Result<Token, String> {
        let value = value.ok_or("invalid int literal")?;
        if self.peek().is_some_and(|c| c == 'u' || c == 'U') {
            self.bump();
            return Ok(Token::Uint(value));
        }
        // The smallest int is written as a minus and a literal one too large; the parser looks for that.
        i64::try_from(value).map(Token::Int).or_else(|_| match value {
            0x8000_0000_0000_0000 => Ok(Token::Int(i64::MIN)),
            _ => Err("invalid int literal".into()),
        })
    }

    /// `r`, `b` or both before a quote, or nothing before one.
    fn string_prefix(&self) -> Option<String> {
        let prefix: String = self.rest().chars().take_while(|c| "rRbB".contains(*c)).collect();
        let quoted = self.rest()[prefix.len()..].starts_with(['"', '\'']);
        (prefix.len() <= 2 && quoted).then_some(prefix)
    }

    fn string(&mut self, prefix: &str) -> Result<Token, String> {
        let (raw, bytes) = (prefix.contains(['r', 'R']), prefix.contains(['b', 'B']));
        self.at += prefix.len();
        let quote = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|quote| self.rest().starts_with(quote));
        let quote = quote.ok_or("unterminated string")?;
        self.at += quote.len();
        let mut content = Vec::new();
        loop {
            if self.rest().starts_with(quote) {
                self.at += quote.len();
                break;
            }
            match self.bump() {
                None => return Err("unterminated string".into()),
                Some('\n' | '\r') if quote.len() == 1 => return Err("unterminated string".into()),
                Some('\\') if !raw => self.escape(bytes, &mut content)?,
                Some(c) => content.extend(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        if bytes {
            return Ok(Token::Bytes(content));
        }
        String::from_utf8(content).map(Token::String).map_err(|_| "invalid string literal".into())
    }

    fn escape(&mut self, bytes: bool, content: &mut Vec<u8>) -> Result<(), String> {
        let c = self.bump().ok_or("unterminated string")?;
        let plain = match c {
            'a' => 7,
            'b' => 8,
            'f' => 12,
            'n' => b'\n',
            'r' => b'\r',
            't' => b'\t',
            'v' => 11,
            '\\' | '\'' | '"' | '`' | '?' => c as u8,
            'x' | 'X' => return self.code(2, 16, bytes, content),
            'u' => return self.code(4, 16, false, content),
            'U' => return self.code(8, 16, false, content),
            '0'..='3' => {
                self.at -= 1;
                return self.code(3, 8, bytes, content);
            }
            _ => return Err(format!("invalid escape sequence \\{c}")),
        };
        content.push(plain);
        Ok(())
    }

    fn code(&mut self, digits: usize, radix: u32, byte: bool, content: &mut Vec<u8>) -> Result<(), String> {
        let text: String = self.rest().chars().take(digits).collect();
        self.at += text.len();
        let code = u32::from_str_radix(&text, radix).ok().filter(|_| text.len() == digits);
        let code = code.ok_or("invalid escape sequence")?;
        if byte {
            content.push(u8::try_from(code).map_err(|_| "invalid escape sequence")?);
        } else {
            let c = char::from_u32(code).ok_or("invalid escape sequence")?;
            content.extend(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
        Ok(())
    }
}
