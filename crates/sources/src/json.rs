//! Reads JSON as it comes: objects, lists, several documents one after the other, without holding more than an object.

use std::cell::Cell;
use std::fmt;
use std::io::{self, BufReader, Read};

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::error::Category;
use serde_json::value::{RawValue, to_raw_value};

use crate::document::{Document, Sink, holds_objects};
use crate::limits::OBJECT_BYTES_MAX;

/// What the error of a document that is too large says; serde_json only passes texts on.
const TOO_LARGE: &str = "one object takes more than";

/// The key of KAI's snapshot under which its objects are.
const NESTED: &str = "rawObjects";

/// Why a stream was not read to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JsonError {
    /// It was cut.
    #[error("it ends in the middle of an object, in line {0}")]
    Cut(usize),
    /// It could not be read, or is too large.
    #[error("{0}")]
    Unreadable(String),
    /// It is no JSON.
    #[error("{0}")]
    Broken(String),
}

/// Reads all documents of a stream. The error says where it ended and why; what came before is with the sink.
pub(crate) fn read(input: impl Read, sink: &mut dyn Sink) -> Result<(), JsonError> {
    let since = Cell::new(0);
    let bounded = BufReader::with_capacity(1 << 16, Bounded { input, since: &since });
    let mut deserializer = serde_json::Deserializer::from_reader(bounded);
    loop {
        since.set(0);
        // Only the deserializer can tell white space from another document.
        if deserializer.end().is_ok() {
            return Ok(());
        }
        let mut document = Document::default();
        let seed = DocumentSeed { document: &mut document, sink, since: &since };
        let read = seed.deserialize(&mut deserializer);
        document.finish(read.is_ok(), sink);
        read.map_err(|error| match error.classify() {
            Category::Eof => JsonError::Cut(error.line()),
            Category::Io => JsonError::Unreadable(error.to_string()),
            Category::Syntax | Category::Data => JsonError::Broken(error.to_string()),
        })?;
    }
}

/// A reader that fails when one object takes too much; whoever reads objects sets the counter back.
struct Bounded<'c, R> {
    input: R,
    since: &'c Cell<usize>,
}

impl<R: Read> Read for Bounded<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.since.get() > OBJECT_BYTES_MAX {
            return Err(io::Error::other(format!("{TOO_LARGE} {} MiB", OBJECT_BYTES_MAX >> 20)));
        }
        let count = self.input.read(buffer)?;
        self.since.set(self.since.get() + count);
        Ok(count)
    }
}

struct DocumentSeed<'a, 's> {
    document: &'a mut Document,
    sink: &'a mut (dyn Sink + 's),
    since: &'a Cell<usize>,
}

impl<'de> DeserializeSeed<'de> for DocumentSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for DocumentSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a Kubernetes object or a list of them")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let DocumentSeed { document, sink, since } = self;
        while let Some(key) = map.next_key::<String>()? {
            since.set(0);
            if holds_objects(&key) {
                map.next_value_seed(ListSeed { key: &key, document, sink, since })?;
            } else if key == NESTED {
                map.next_value_seed(DocumentSeed { document, sink, since })?;
            } else {
                document.field(key, map.next_value::<Box<RawValue>>()?);
            }
        }
        Ok(())
    }

    /// A bare array: what it holds must say its kind itself.
    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<(), A::Error> {
        let DocumentSeed { document, sink, since } = self;
        ListSeed { key: "items", document, sink, since }.visit_seq(list)
    }
}

/// The value of a key that may hold objects.
struct ListSeed<'a, 's> {
    key: &'a str,
    document: &'a mut Document,
    sink: &'a mut (dyn Sink + 's),
    since: &'a Cell<usize>,
}

impl ListSeed<'_, '_> {
    fn plain<E: serde::de::Error>(self, value: &Value) -> Result<(), E> {
        self.document.field(self.key.to_owned(), to_raw_value(value).map_err(E::custom)?);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for ListSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ListSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of objects")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        self.document.list(self.key);
        while let Some(json) = list.next_element::<Box<RawValue>>()? {
            self.since.set(0);
            self.document.element(self.key, json, self.sink);
        }
        Ok(())
    }

    /// An empty list that Go wrote as null.
    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        self.document.list(self.key);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        let value = serde::Deserialize::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
        self.plain(&value)
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        self.plain(&value.into())
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        self.plain(&value.into())
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        self.plain(&value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        self.plain(&value.into())
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<(), E> {
        self.plain(&value.into())
    }
}
