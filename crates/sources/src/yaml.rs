//! Reads YAML as it comes: a document at a time, and a list as kubectl writes it an object at a time.
//!
//! ```text
//!   apiVersion: v1
//!   items:
//!   - kind: Pod          ◀─ a dash in the first column begins an object
//!     metadata: …
//!   kind: List           ◀─ any other line in the first column belongs to the document again
//!   ---
//! ```

use std::io::{BufRead, BufReader, Read};

use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::document::{Document, Sink, holds_objects};
use crate::limits::OBJECT_BYTES_MAX;

/// Reads all documents of a stream. What cannot be read is left out; the error tells of the first such part.
pub(crate) fn read(input: impl Read, sink: &mut dyn Sink) -> Result<(), String> {
    let mut input = BufReader::with_capacity(1 << 16, input);
    let mut reader = Reader { sink, open: Open::default(), line: 0, problem: None };
    let mut line = Vec::new();
    loop {
        line.clear();
        let room = OBJECT_BYTES_MAX.saturating_sub(reader.open.len()) as u64;
        let count = input.by_ref().take(room + 1).read_until(b'\n', &mut line);
        let count = match count {
            Ok(count) => count,
            Err(error) => {
                // The object in which it ends is not whole; what the document held before is.
                reader.open.document.finish(false, reader.sink);
                return Err(error.to_string());
            }
        };
        if count == 0 {
            break;
        }
        if count as u64 > room {
            return Err(format!("one object takes more than {} MiB, in line {}", OBJECT_BYTES_MAX >> 20, reader.line));
        }
        reader.line += 1;
        let text = std::str::from_utf8(&line).map_err(|_| format!("line {} is not UTF-8", reader.line))?;
        reader.take(text);
    }
    reader.end_document();
    reader.problem.map_or(Ok(()), Err)
}

/// The lines of what is being read.
#[derive(Default)]
struct Open {
    document: Document,
    /// The lines outside of lists.
    text: String,
    /// The key whose list is open, and the lines of its current object.
    list: Option<(String, String)>,
}

impl Open {
    fn len(&self) -> usize {
        self.text.len() + self.list.as_ref().map_or(0, |(_, item)| item.len())
    }
}

struct Reader<'s> {
    sink: &'s mut dyn Sink,
    open: Open,
    line: usize,
    problem: Option<String>,
}

impl Reader<'_> {
    fn take(&mut self, line: &str) {
        let line = if self.line == 1 { line.trim_start_matches('\u{feff}') } else { line };
        let marker = line.get(..3).filter(|start| matches!(*start, "---" | "..."));
        if marker.is_some() && line[3..].chars().next().is_none_or(char::is_whitespace) {
            self.end_document();
            let rest = line[3..].trim_start();
            if !rest.is_empty() {
                self.take(rest);
            }
            return;
        }
        if line.starts_with('%') && self.open.text.is_empty() {
            return; // A directive such as %YAML 1.2.
        }
        if self.open.list.is_some() {
            let begins = line.starts_with("- ") || line.trim_end() == "-";
            if begins || line.starts_with([' ', '\t', '#', '\n', '\r']) {
                if begins {
                    self.end_item();
                }
                if let Some((_, item)) = &mut self.open.list {
                    item.push_str(line);
                }
                return;
            }
            self.end_item();
            self.open.list = None;
        }
        self.open.text.push_str(line);
        if let Some(key) = line.trim_end().strip_suffix(':').filter(|key| holds_objects(key)) {
            self.open.list = Some((key.to_owned(), String::new()));
            self.open.document.list(key);
        }
    }

    /// Hands on the object whose lines are complete. Lines that are no list belong to the document: the value of the
    /// key was written in another form.
    fn end_item(&mut self) {
        let Some((key, item)) = &mut self.open.list else { return };
        let item = std::mem::take(item);
        if item.trim_start_matches(|c: char| c.is_whitespace()).is_empty() {
            return;
        }
        if !item.starts_with('-') {
            self.open.text.push_str(&item);
            return;
        }
        let key = key.clone();
        match parse(&item) {
            Ok(Value::Array(items)) => {
                for json in items.iter().filter_map(raw) {
                    self.open.document.element(&key, json, self.sink);
                }
            }
            Ok(_) => {}
            Err(error) => self.note(&error),
        }
    }

    fn end_document(&mut self) {
        self.end_item();
        let Open { mut document, text, .. } = std::mem::take(&mut self.open);
        if !text.lines().any(|line| !line.trim().is_empty() && !line.starts_with('#')) {
            return;
        }
        match parse(&text) {
            Ok(Value::Object(fields)) => {
                for (key, value) in fields {
                    match value {
                        Value::Null if holds_objects(&key) => {}
                        Value::Array(items) if holds_objects(&key) => {
                            document.list(&key);
                            for json in items.iter().filter_map(raw) {
                                document.element(&key, json, self.sink);
                            }
                        }
                        value => document.field(key, raw(&value).unwrap_or_default()),
                    }
                }
                document.finish(true, self.sink);
            }
            Ok(Value::Array(items)) => {
                for json in items.iter().filter_map(raw) {
                    document.element("items", json, self.sink);
                }
                document.finish(true, self.sink);
            }
            Ok(Value::Null) => {}
            Ok(_) => self.note("a document is no object"),
            Err(error) => {
                self.note(&error);
                document.finish(false, self.sink);
            }
        }
    }

    /// Keeps the first problem.
    fn note(&mut self, error: &str) {
        let line = self.line;
        self.problem.get_or_insert_with(|| format!("{error} (in what ends in line {line})"));
    }
}

fn raw(value: &Value) -> Option<Box<RawValue>> {
    to_raw_value(value).ok()
}

/// A YAML text as a JSON value.
pub(crate) fn parse(text: &str) -> Result<Value, String> {
    serde_saphyr::from_str(text).map_err(|error| {
        let message = error.without_snippet().to_string();
        message.lines().next().unwrap_or("not YAML").to_owned()
    })
}
