//! Reads YAML as upstream does: a duplicate key is reported with its line, and its last value counts.

use std::cell::RefCell;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::{DuplicateKeyPolicy, Options, Spanned};

/// A document, and what strict decoding refuses about it.
pub(super) struct Document {
    pub(super) value: Value,
    /// `line 7: key "a" already set in map`
    pub(super) repeated: Vec<String>,
}

pub(super) fn read(text: &str) -> Result<Document, String> {
    let repeated = RefCell::new(Vec::new());
    let mut options = Options::default();
    options.duplicate_keys = DuplicateKeyPolicy::LastWins;
    let value = serde_saphyr::with_deserializer_from_str_with_options(text, options, |deserializer| {
        NodeReader { repeated: &repeated }.deserialize(deserializer)
    });
    let value = value.map_err(|error| message(&error))?;
    Ok(Document { value, repeated: repeated.into_inner() })
}

/// The parser's error in upstream's words.
fn message(error: &serde_saphyr::Error) -> String {
    if matches!(error.without_snippet(), serde_saphyr::Error::MultipleDocuments { .. }) {
        return "the file holds more than one YAML document: a configuration is the only document of its file".into();
    }
    let text = error.to_string();
    let what = if text.contains("mapping values are not allowed in this context") {
        "mapping values are not allowed in this context"
    } else {
        text.lines().next().unwrap_or_default()
    };
    match error.location() {
        Some(location) => format!("yaml: line {}: {what}", location.line()),
        None => format!("yaml: {what}"),
    }
}

/// Reads one value of the document, and notes the duplicate keys below it.
#[derive(Clone, Copy)]
struct NodeReader<'a> {
    repeated: &'a RefCell<Vec<String>>,
}

impl<'de> DeserializeSeed<'de> for NodeReader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for NodeReader<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a YAML node")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = sequence.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(Spanned { value: Key(key), referenced, .. }) = entries.next_key::<Spanned<Key>>()? {
            let value = entries.next_value_seed(self)?;
            if map.insert(key.clone(), value).is_some() {
                let line = referenced.line();
                self.repeated.borrow_mut().push(format!("line {line}: key {key:?} already set in map"));
            }
        }
        Ok(Value::Object(map))
    }
}

/// A key as a JSON string.
struct Key(String);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Key)
    }
}
