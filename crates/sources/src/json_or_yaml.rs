//! Reads what begins like JSON and may be YAML all the same: `{kind: Pod}`, or JSON documents with `---` between them.
//!
//! ```text
//!   bytes ─▶ json::read ─┬─▶ objects, once it is known that all of it is JSON or that it is too long to be read twice
//!            (kept)      └─▶ broken: the kept bytes and the rest ─▶ yaml::read
//! ```

use std::cell::RefCell;
use std::io::{self, Read};

use serde_json::value::RawValue;

use crate::document::Sink;
use crate::json::{self, JsonError};
use crate::limits::READ_TWICE_BYTES_MAX;
use crate::yaml;

/// What every object says.
const OBJECT: &[u8] = b"apiVersion";

/// Reads all documents of a stream. The error says where it ended and why; what came before is with the sink.
pub(crate) fn read(mut input: impl Read, sink: &mut dyn Sink) -> Result<(), String> {
    let kept = RefCell::new(Some(Vec::new()));
    let mut held = Held { sink, kept: &kept, items: Vec::new() };
    let broken = match json::read(Keeping { input: &mut input, kept: &kept }, &mut held) {
        Ok(()) => {
            held.hand_on();
            return Ok(());
        }
        Err(broken) => broken,
    };
    let JsonError::Broken(message) = &broken else {
        held.hand_on();
        return Err(broken.to_string());
    };
    // A log of JSON lines may be broken too, and is no YAML.
    let Some(bytes) = kept.take().filter(|bytes| bytes.windows(OBJECT.len()).any(|part| part == OBJECT)) else {
        held.hand_on();
        return Err(message.clone());
    };
    let looks_like_json = begins_like_json(&bytes);
    let Held { sink, items, .. } = held;
    let mut counting = Counting { sink, objects: 0 };
    let as_yaml = yaml::read((&bytes[..]).chain(input), &mut counting);
    if as_yaml.is_ok() || counting.objects > 0 {
        return as_yaml;
    }
    // Neither: what could be read as JSON counts, and the error is that of the form it looks like.
    let is_json = looks_like_json || !items.is_empty();
    items.into_iter().for_each(|item| item.hand_to(sink));
    if is_json { Err(message.clone()) } else { as_yaml }
}

/// Whether the first value begins as JSON has it: a key in quotes, or a value that only JSON writes like this.
fn begins_like_json(bytes: &[u8]) -> bool {
    let text = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    let mut significant = text.iter().filter(|byte| !byte.is_ascii_whitespace()).skip_while(|byte| **byte == b'[');
    match significant.next() {
        Some(b'{') => matches!(significant.next(), Some(b'"' | b'}') | None),
        _ => true,
    }
}

/// What has been read so far; none once it is too much to be read again.
type Kept = RefCell<Option<Vec<u8>>>;

/// A reader that keeps what it reads.
struct Keeping<'k, R> {
    input: R,
    kept: &'k Kept,
}

impl<R: Read> Read for Keeping<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        let mut kept = self.kept.borrow_mut();
        if let Some(bytes) = &mut *kept {
            match bytes.len() + count <= READ_TWICE_BYTES_MAX {
                true => bytes.extend_from_slice(&buffer[..count]),
                false => *kept = None,
            }
        }
        Ok(count)
    }
}

enum Item {
    Object(Box<RawValue>),
    Listed(String, String),
    Note(String),
}

impl Item {
    fn hand_to(self, sink: &mut dyn Sink) {
        match self {
            Item::Object(json) => sink.object(json),
            Item::Listed(api_version, kind) => sink.listed(&api_version, &kind),
            Item::Note(line) => sink.note(line),
        }
    }
}

/// Holds what was read for as long as it may have to be read again.
struct Held<'s> {
    sink: &'s mut dyn Sink,
    kept: &'s Kept,
    items: Vec<Item>,
}

impl Held<'_> {
    fn take(&mut self, item: Item) {
        if self.kept.borrow().is_some() {
            self.items.push(item);
        } else {
            self.hand_on();
            item.hand_to(self.sink);
        }
    }

    fn hand_on(&mut self) {
        std::mem::take(&mut self.items).into_iter().for_each(|item| item.hand_to(self.sink));
    }
}

impl Sink for Held<'_> {
    fn object(&mut self, json: Box<RawValue>) {
        self.take(Item::Object(json));
    }

    fn listed(&mut self, api_version: &str, kind: &str) {
        self.take(Item::Listed(api_version.to_owned(), kind.to_owned()));
    }

    fn ignores(&self, api_version: &str, kind: &str) -> bool {
        self.sink.ignores(api_version, kind)
    }

    fn note(&mut self, line: String) {
        self.take(Item::Note(line));
    }
}

/// Counts objects on their way.
struct Counting<'s> {
    sink: &'s mut dyn Sink,
    objects: usize,
}

impl Sink for Counting<'_> {
    fn object(&mut self, json: Box<RawValue>) {
        self.objects += 1;
        self.sink.object(json);
    }

    fn listed(&mut self, api_version: &str, kind: &str) {
        self.sink.listed(api_version, kind);
    }

    fn ignores(&self, api_version: &str, kind: &str) -> bool {
        self.sink.ignores(api_version, kind)
    }

    fn note(&mut self, line: String) {
        self.sink.note(line);
    }
}
