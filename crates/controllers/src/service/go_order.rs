//! The order in which upstream lists ports and subsets: by a hash over a text that shows them as they lie in Go's
//! memory. Two implementations that list them otherwise would each rewrite what the other wrote.

use std::fmt::{Display, Write};

/// FNV-1a of 128 bits.
pub(crate) fn fnv_128a(text: &str) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    text.bytes().fold(OFFSET, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME))
}

/// A structure as Go's memory holds it, field by field.
pub(crate) struct Dump {
    text: String,
    separator: &'static str,
}

impl Dump {
    /// The text of a structure inside another one.
    pub(crate) fn inner() -> Self {
        Dump { text: "{".into(), separator: "" }
    }

    /// The text of a structure of its own.
    pub(crate) fn of(go_type: &str) -> Self {
        Dump { text: format!("({go_type}){{"), separator: "" }
    }

    /// A field with its value.
    pub(crate) fn field(mut self, name: &str, go_type: &str, value: impl Display) -> Self {
        // A text takes whatever is written to it.
        let _ = write!(self.text, "{}{name}:({go_type}){value}", self.separator);
        self.separator = " ";
        self
    }

    /// A field that may be missing.
    pub(crate) fn pointer(self, name: &str, go_type: &str, value: Option<impl Display>) -> Self {
        match value {
            Some(value) => self.field(name, go_type, value),
            None => self.field(name, go_type, "<nil>"),
        }
    }

    /// A field that is a list; one without elements is none.
    pub(crate) fn list(self, name: &str, go_type: &str, items: impl Iterator<Item = String>) -> Self {
        let items: Vec<String> = items.collect();
        match items.is_empty() {
            true => self.field(name, go_type, "<nil>"),
            false => self.field(name, go_type, format_args!("[{}]", items.join(" "))),
        }
    }

    /// The whole text.
    pub(crate) fn end(mut self) -> String {
        self.text.push('}');
        self.text
    }
}
