//! Text in quotes as Go's `%q` prints it, because upstream's messages are full of it.

use std::fmt::{self, Write};

/// Prints its text in double quotes, with Go's escapes.
#[derive(Clone, Copy, Debug)]
pub struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        QuotedBytes(self.0.as_bytes()).fmt(formatter)
    }
}

/// Prints its bytes as [`Quoted`] prints text; those that are no text are escaped one by one.
#[derive(Clone, Copy, Debug)]
pub struct QuotedBytes<'a>(pub &'a [u8]);

impl fmt::Display for QuotedBytes<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_char('"')?;
        for chunk in self.0.utf8_chunks() {
            chunk.valid().chars().try_for_each(|character| write_escaped(character, formatter))?;
            chunk.invalid().iter().try_for_each(|byte| write!(formatter, "\\x{byte:02x}"))?;
        }
        formatter.write_char('"')
    }
}

fn write_escaped(character: char, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
    match character {
        '"' => formatter.write_str("\\\""),
        '\\' => formatter.write_str("\\\\"),
        '\x07' => formatter.write_str("\\a"),
        '\x08' => formatter.write_str("\\b"),
        '\x0c' => formatter.write_str("\\f"),
        '\n' => formatter.write_str("\\n"),
        '\r' => formatter.write_str("\\r"),
        '\t' => formatter.write_str("\\t"),
        '\x0b' => formatter.write_str("\\v"),
        ' '..='~' => formatter.write_char(character),
        '\0'..' ' | '\x7f' => write!(formatter, "\\x{:02x}", character as u32),
        _ if is_printable(character) => formatter.write_char(character),
        _ if (character as u32) < 0x10000 => write!(formatter, "\\u{:04x}", character as u32),
        _ => write!(formatter, "\\U{:08x}", character as u32),
    }
}

/// Whether Go prints a character beyond ASCII as it is: as Rust does, except that it knows no space but the ordinary
/// one.
fn is_printable(character: char) -> bool {
    // Rust escapes combining marks only where they have nothing to combine with; hence the letter before.
    !character.is_whitespace() && ['a', character].iter().collect::<String>().escape_debug().count() == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_gos() {
        for (text, quoted) in [
            ("a\"b\\", r#""a\"b\\""#),
            ("\n\t\0\x7f", r#""\n\t\x00\x7f""#),
            ("é✓e\u{301}", "\"é✓e\u{301}\""),
            ("\u{a0}\u{200b}", r#""\u00a0\u200b""#),
        ] {
            assert_eq!(Quoted(text).to_string(), quoted);
        }
        assert_eq!(QuotedBytes(b"%\xc3\xa9\xc3\xff").to_string(), "\"%é\\xc3\\xff\"");
    }
}
